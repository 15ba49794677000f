"""Keep claims on questions and the answers of judge models in the catalog until they are merged into the lake.

The catalog has the same role as the journals beside a store file: an answer is stored durably before its call counts
as completed, and any worker can merge it, even if the worker that sent the call has stopped. All times are taken
from the catalog's clock, so that a wrong clock on a worker does not affect how long claims last.
"""

import contextlib
import json
from collections.abc import Collection, Mapping, Sequence
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


def _locked(condition: str) -> str:
    """Return a query for the keys of rows, which locks them in the order of claims, so that there is no deadlock."""
    return f"SELECT cache_key FROM {_ANSWER} WHERE {condition} ORDER BY cache_key FOR UPDATE"


# A claim ends with its session, so it does not have to survive a crash of the catalog.
_CLAIM = f"""
    BEGIN; SET LOCAL synchronous_commit = off;
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
_OWN = (
    "worker = %(worker)s AND answer IS NULL AND NOT is_merged"  # there is an index of the answers not merged
)
_RELEASE = f"DELETE FROM {_ANSWER} WHERE cache_key IN ({_locked(_OWN)})"
_RELEASE_KEYS = (
    f"DELETE FROM {_ANSWER} WHERE cache_key IN ({_locked(f'{_OWN} AND cache_key = ANY(%(keys)s)')})"
)
_RENEW = f"""
    UPDATE {_ANSWER} SET expires_at = clock_timestamp() + %(lasting)s * INTERVAL '1 s'
    WHERE cache_key IN ({_locked(_OWN)})"""
_PUBLISH = f"""
    INSERT INTO {_ANSWER} (cache_key, worker, expires_at, answer)
    SELECT row ->> 'cache_key', %s, clock_timestamp(), row::text FROM json_array_elements(%s::json) AS row
    ORDER BY 1
    ON CONFLICT (cache_key) DO UPDATE SET answer = excluded.answer, worker = excluded.worker, is_merged = false"""
_UNMERGED = f"FROM {_ANSWER} WHERE NOT is_merged AND answer IS NOT NULL"
_BATCH = 5_000  # answers merged in one transaction
KEPT = "7 days"
"""How long merged answers are kept for workers that searched the cache before the merge."""


class AnswersNotStoredError(OSError):
    """Raised when an answer cannot be written to the catalog; no further calls are sent."""

    def __init__(self, error: StoreError) -> None:
        super().__init__(
            5, f"answers of judges cannot be stored, so no judge is called. {error}", "the catalog"
        )


@dataclass(frozen=True)
class ClaimedQuestions:
    """Claim questions for one worker through a separate catalog session (implements `ClaimTable`).

    A claim ends when it expires or when the session ends, so the questions of a killed worker are released
    immediately.
    """

    session: CatalogSession
    lasting_s: float

    @cached_property
    def worker(self) -> str:
        """Return the name of the session, which identifies the worker."""
        return self.session.name()

    def claim(self, keys: Collection[str]) -> bool:
        """Claim either all keys or none; return False if a key is already answered or claimed by another worker."""
        try:
            is_complete = len(self.session.rows(_CLAIM, self._values(keys))) == len(set(keys))
            self.session.rows("COMMIT" if is_complete else "ROLLBACK")
        except StoreError:
            with contextlib.suppress(StoreError):
                self.session.rows("ROLLBACK")
            raise
        return is_complete

    def arrived(self, keys: Collection[str]) -> tuple[pl.DataFrame, set[str]]:
        """Return the answers for the keys, and the keys that another worker still claims.

        The answers are rows of the `judge_cache` table.
        """
        question_rows = self.session.rows(_ARRIVED, self._values(keys))
        rows = _frame([answer for _, answer, _ in question_rows if answer is not None])
        return rows, {key for key, _, is_open in question_rows if is_open}

    def release(self, keys: Collection[str] | None = None) -> None:
        """Release this worker's unanswered claims: those of `keys`, or all of them if `keys` is None."""
        self.session.rows(_RELEASE if keys is None else _RELEASE_KEYS, self._values(keys or ()))

    def renew(self) -> None:
        """Renew all claims of this worker."""
        self.session.rows(_RENEW, self._values(()))

    def close(self) -> None:
        """Release all claims of this worker and end the session."""
        with contextlib.suppress(StoreError):  # they expire
            self.release()
        self.session.close()

    def _values(self, keys: Collection[str]) -> dict[str, object]:
        return {"worker": self.worker, "lasting": self.lasting_s, "keys": sorted(set(keys))}


def publish(session: CatalogSession, rows: Sequence[Mapping[str, object]]) -> None:
    """Store answers (rows of the `judge_cache` table) durably in the catalog, where waiting workers find them.

    Raises:
        AnswersNotStoredError: If the catalog cannot be written.
    """
    last = {str(row["cache_key"]): row for row in rows}  # one statement cannot update a row twice
    try:
        session.rows(_PUBLISH, [f"process {session.process}", json.dumps(list(last.values()))])
    except StoreError as error:
        raise AnswersNotStoredError(error) from error


def merge(store: LakeStore) -> None:
    """Merge the answers that all workers have published so far into the `judge_cache` table.

    Only one worker at a time merges. Answers that are published during a merge are left to the next one; otherwise it
    would not end while other workers publish.

    Raises:
        StoreError: If the lake cannot be written.
    """
    with contextlib.closing(store.catalog_session("read")) as session:
        if not session.rows(f"SELECT 1 {_UNMERGED} LIMIT 1"):
            return
        session.lock("merge of answers", limit_s=None, what=f"the store {store.attach} (a merge of answers)")
        session.rows(f"DECLARE unmerged CURSOR WITH HOLD FOR SELECT cache_key, answer {_UNMERGED}")
        while batch := session.rows(f"FETCH {_BATCH} FROM unmerged"):
            keys, answers = ([row[i] for row in batch] for i in range(2))
            store.upsert(_CACHE, _frame(answers), run_id="judge")
            session.rows(
                f"UPDATE {_ANSWER} SET is_merged = true FROM unnest(%s, %s) AS done (key, text) "
                f"WHERE cache_key = key AND answer = text AND cache_key IN ({_locked('cache_key = ANY(%s)')})",
                [keys, answers, keys],
            )


def forget_merged(session: CatalogSession) -> None:
    """Delete merged answers that running workers can no longer need."""
    is_old = f"is_merged AND expires_at < clock_timestamp() - INTERVAL '{KEPT}'"
    session.rows(f"DELETE FROM {_ANSWER} WHERE cache_key IN ({_locked(is_old)})")


def _frame(answers: Sequence[str]) -> pl.DataFrame:
    if not answers:
        return _CACHE.empty()
    return pl.read_ndjson("\n".join(answers).encode(), schema=_CACHE.schema)
