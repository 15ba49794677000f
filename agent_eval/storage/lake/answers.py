"""Keep claims of questions and the answers of judge models in the catalog, until they are merged into the lake.

They have the part that a journal in a folder has beside a store file: an answer is durable here before its
call counts as done, and any worker merges it, also if the worker that asked is gone. All times are the
catalog's: a worker whose clock is wrong neither keeps nor takes claims for too long.
"""

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from agent_eval.storage.lake import catalog
from agent_eval.storage.lake.catalog import CatalogSession
from agent_eval.storage.lake.store import LakeStore
from agent_eval.storage.store_errors import StoreError
from agent_eval.tables import table

_CACHE = table("judge_cache")
_ANSWER = f"{catalog.SCHEMA}.answer"
_CLAIM = f"""
    INSERT INTO {_ANSWER} AS held (cache_key, worker, expires_at)
    SELECT key, %(worker)s, clock_timestamp() + %(lasting)s * INTERVAL '1 s' FROM unnest(%(keys)s) AS key ORDER BY key
    ON CONFLICT (cache_key) DO UPDATE SET worker = excluded.worker, expires_at = excluded.expires_at
    WHERE held.answer IS NULL AND (held.worker = excluded.worker OR held.expires_at < clock_timestamp()
        OR held.worker NOT IN ({catalog.SESSIONS}))
    RETURNING cache_key"""
_ARRIVED = f"""
    SELECT cache_key, answer, answer IS NULL AND worker <> %(worker)s AND expires_at >= clock_timestamp()
        AND worker IN ({catalog.SESSIONS})
    FROM {_ANSWER} WHERE cache_key = ANY(%(keys)s)"""
_RELEASE = f"DELETE FROM {_ANSWER} WHERE worker = %(worker)s AND answer IS NULL"
_RENEW = f"""
    UPDATE {_ANSWER} SET expires_at = clock_timestamp() + %(lasting)s * INTERVAL '1 s'
    WHERE worker = %(worker)s AND answer IS NULL"""
_PUBLISH = f"""
    INSERT INTO {_ANSWER} (cache_key, worker, expires_at, answer)
    SELECT row ->> 'cache_key', %s, clock_timestamp(), row::text FROM json_array_elements(%s::json) AS row
    ORDER BY 1
    ON CONFLICT (cache_key) DO UPDATE SET answer = excluded.answer, worker = excluded.worker, is_merged = false"""
_BATCH = 5_000  # answers merged in one transaction
KEPT = "7 days"
"""How long a merged answer is kept for a worker that looked for it before it was merged."""


class AnswersNotStoredError(OSError):
    """Raised when an answer cannot be written to the catalog: no further call is sent."""

    def __init__(self, error: StoreError) -> None:
        super().__init__(
            5, f"answers of judges cannot be stored, so no judge is called. {error}", "the catalog"
        )


@dataclass(frozen=True)
class ClaimedQuestions:
    """Claim questions for one worker, through a session of its own (a `ClaimTable`).

    A claim ends when it expires or when this session ends, so the questions of a killed worker are free at once.
    """

    session: CatalogSession
    lasting_s: float

    @cached_property
    def worker(self) -> str:
        """Return the name of the session."""
        return self.session.name()

    def claim(self, keys: Collection[str]) -> bool:
        """Claim all keys or none; return False if one is claimed by another worker or answered."""
        try:
            with self.session.transaction():
                claimed = self.session.rows(_CLAIM, self._values(keys))
                if len(claimed) < len(set(keys)):
                    raise _NotAllError
        except _NotAllError:
            return False
        return True

    def arrived(self, keys: Collection[str]) -> tuple[pl.DataFrame, set[str]]:
        """Return the answers to the keys (rows of judge_cache), and the keys that another worker still asks."""
        found = self.session.rows(_ARRIVED, self._values(keys))
        rows = _frame([answer for _, answer, _ in found if answer is not None])
        return rows, {key for key, _, is_open in found if is_open}

    def release(self, keys: Collection[str] | None = None) -> None:
        """Give up own claims without an answer: those of `keys`, or all."""
        only = "" if keys is None else " AND cache_key = ANY(%(keys)s)"
        self.session.rows(_RELEASE + only, self._values(keys or ()))

    def renew(self) -> None:
        """Renew all own claims."""
        self.session.rows(_RENEW, self._values(()))

    def close(self) -> None:
        """Release all own claims and end the session."""
        with contextlib.suppress(StoreError):  # they expire
            self.release()
        self.session.close()

    def _values(self, keys: Collection[str]) -> dict[str, object]:
        return {"worker": self.worker, "lasting": self.lasting_s, "keys": sorted(set(keys))}


class _NotAllError(Exception):
    """Raised within `claim` to roll its transaction back."""


def publish(session: CatalogSession, rows: Sequence[Mapping[str, object]]) -> None:
    """Store answers (rows of judge_cache) durably, where waiting workers find them.

    Raises:
        AnswersNotStoredError: If the catalog cannot be written.
    """
    last = {str(row["cache_key"]): row for row in rows}  # one statement cannot update a row twice
    try:
        session.rows(_PUBLISH, [f"process {session.process}", json.dumps(list(last.values()))])
    except StoreError as error:
        raise AnswersNotStoredError(error) from error


def merge(store: LakeStore) -> None:
    """Move answers that are not merged yet into judge_cache, whoever asked for them; merging twice changes nothing.

    Raises:
        StoreError: If the lake cannot be written.
    """
    with contextlib.closing(store.catalog_session("read")) as session:
        for keys, answers in _unmerged(session):
            store.upsert(_CACHE, _frame(answers), run_id="judge")
            session.rows(
                f"UPDATE {_ANSWER} SET is_merged = true FROM unnest(%s, %s) AS done (key, text) "
                "WHERE cache_key = key AND answer = text",
                [keys, answers],
            )


def _unmerged(session: CatalogSession) -> Iterator[tuple[list[str], list[str]]]:
    while found := session.rows(
        f"SELECT cache_key, answer FROM {_ANSWER} WHERE NOT is_merged AND answer IS NOT NULL LIMIT {_BATCH}"
    ):
        yield [key for key, _ in found], [answer for _, answer in found]


def forget_merged(session: CatalogSession) -> None:
    """Delete merged answers that no running worker can still need."""
    session.rows(
        f"DELETE FROM {_ANSWER} WHERE is_merged AND expires_at < clock_timestamp() - INTERVAL '{KEPT}'"
    )


def _frame(answers: Sequence[str]) -> pl.DataFrame:
    if not answers:
        return _CACHE.empty()
    return pl.read_ndjson("\n".join(answers).encode(), schema=_CACHE.schema)
