"""Count judge calls and their cost in the catalog, in a ledger that all workers of a project share.

As with the ledger beside a store file, a call is reserved before it is sent. Caps in calls are therefore never
exceeded, and a cap in dollars is exceeded at most by the calls in progress. Days follow the catalog's clock, in UTC.
"""

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import polars as pl

from agent_eval.errors import StorageError
from agent_eval.storage.lake import catalog
from agent_eval.storage.lake.catalog import CatalogSession, lock_key
from agent_eval.storage.lake.store import LakeStore
from agent_eval.storage.ledger import SPENDING, SpendingCap, with_days_as_text
from agent_eval.storage.store_errors import StoreError

_SPENDING = f"{catalog.SCHEMA}.spending"
_DAY = "to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD')"
# The lock allows only one worker at a time to compare the sums with the caps.
_BEGIN = f"""
    BEGIN; SELECT pg_advisory_xact_lock({lock_key("ledger")});
    SELECT {_DAY}, sum(n_calls), sum(cost_usd),
        sum(n_calls) FILTER (WHERE day = {_DAY}), sum(cost_usd) FILTER (WHERE day = {_DAY}),
        sum(n_calls) FILTER (WHERE day = {_DAY} AND started_by = 'automation'),
        sum(cost_usd) FILTER (WHERE day = {_DAY} AND started_by = 'automation'),
        sum(n_calls) FILTER (WHERE run = %(run)s), sum(cost_usd) FILTER (WHERE run = %(run)s)
    FROM {_SPENDING}"""
_RESERVE = f"""
    INSERT INTO {_SPENDING} AS held (day, run, model, started_by, session, n_calls, n_reserved)
    VALUES (COALESCE(%(day)s, {_DAY}), %(run)s, %(model)s, %(by)s, %(session)s, 1, 1)
    ON CONFLICT (day, run, model, session) DO UPDATE SET n_calls = held.n_calls + 1, n_reserved = held.n_reserved + 1
    RETURNING day"""
_SETTLE = f"""
    UPDATE {_SPENDING} SET n_reserved = n_reserved - 1, n_unknown_cost = n_unknown_cost + %(unknown)s,
        n_tokens_in = n_tokens_in + %(n_in)s, n_tokens_out = n_tokens_out + %(n_out)s, cost_usd = cost_usd + %(cost)s
    WHERE day = %(day)s AND run = %(run)s AND model = %(model)s AND session = %(session)s"""
_CLOSE_LOST = f"""
    UPDATE {_SPENDING} SET n_unknown_cost = n_unknown_cost + n_reserved, n_reserved = 0
    WHERE n_reserved > 0 AND session NOT IN ({catalog.SESSIONS})"""


def _unusable_ledger(error: StoreError) -> StorageError:
    return StorageError(f"The ledger of judge calls cannot be used, so no judge is called. {error}")


@dataclass
class CatalogLedger:
    """Record the calls of one process in the ledger of the catalog.

    `of_run` is the cap for all processes of the same run together.
    """

    store: LakeStore
    run: str
    is_automatic: bool
    in_all: SpendingCap
    per_day: SpendingCap
    of_automation: SpendingCap  # per day
    of_run: SpendingCap
    _days: dict[str, list[str]] = field(default_factory=dict[str, list[str]])  # model → its open calls
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def _session(self) -> CatalogSession:
        return self.store.catalog_session("write")

    @cached_property
    def _name(self) -> str:
        return self._session.name()

    def reserve(self, model: str) -> str | None:
        """Count a call before it is sent; if a cap is reached, return a description of the cap.

        Raises:
            StorageError: If the call cannot be counted; it must not be sent in this case.
        """
        by = "automation" if self.is_automatic else "person"
        try:
            with self._lock:
                row = {"day": None, "run": self.run, "model": model, "by": by, "session": self._name}
                if self._is_capped:
                    row["day"], *sums = self._session.rows(_BEGIN, row)[0]
                    if (why := self._why_reached(sums)) is not None:
                        self._session.rows("ROLLBACK")
                        return why
                    self._session.rows(f"{_RESERVE}; COMMIT", row)
                else:  # a single statement is atomic without a transaction
                    row["day"] = self._session.rows(_RESERVE, row)[0][0]
                self._days.setdefault(model, []).append(str(row["day"]))
        except StoreError as error:
            with contextlib.suppress(StoreError):
                self._session.rows("ROLLBACK")
            raise _unusable_ledger(error) from error
        return None

    def settle(self, model: str, *, n_in: int | None, n_out: int | None, cost_usd: float | None) -> None:
        """Record the tokens and the cost of a reserved call; None means unknown.

        Raises:
            StorageError: If they cannot be recorded; the call remains in progress.
        """
        with self._lock:
            row = {
                "n_in": n_in or 0,
                "n_out": n_out or 0,
                "cost": cost_usd or 0.0,
                "unknown": int(cost_usd is None),
                "day": self._days[model][0],
                "run": self.run,
                "model": model,
                "session": self._name,
            }
            try:
                self._session.rows(_SETTLE, row)
            except StoreError as error:
                raise _unusable_ledger(error) from error
            del self._days[model][0]

    @property
    def _is_capped(self) -> bool:
        caps = (self.in_all, self.per_day, self.of_run, *[self.of_automation] * self.is_automatic)
        return any(cap.calls is not None or cap.cost_usd is not None for cap in caps)

    def _why_reached(self, sums: Sequence[float | None]) -> str | None:
        n_all, all_usd, n_day, day_usd, n_auto, auto_usd, n_run, run_usd = (value or 0 for value in sums)
        why = self.in_all.why_reached(n_all, all_usd) or self.per_day.why_reached(n_day, day_usd)
        why = why or self.of_run.why_reached(n_run, run_usd)
        if why is None and self.is_automatic:
            why = self.of_automation.why_reached(n_auto, auto_usd)
        return why


def spent(store: LakeStore) -> pl.DataFrame:
    """Return the `spending` table. Open calls of a worker that has stopped have an unknown cost.

    Raises:
        StoreError: If the catalog cannot be used.
    """
    keys = ", ".join(SPENDING.key)
    summed = [name for name in SPENDING.schema if name not in (*SPENDING.key, "started_by")]
    names = [*SPENDING.key, "started_by", *summed]
    sums = ", ".join(
        f"sum({name})::float8" if name == "cost_usd" else f"sum({name})::bigint" for name in summed
    )
    with contextlib.closing(store.catalog_session("read")) as session:
        session.rows(_CLOSE_LOST)
        spending_rows = session.rows(
            f"SELECT {keys}, min(started_by), {sums} FROM {_SPENDING} GROUP BY {keys} ORDER BY {keys}"
        )
    return SPENDING.frame(dict(zip(names, row, strict=True)) for row in spending_rows)


def add_spent(store: LakeStore, spending: pl.DataFrame) -> None:
    """Add the spending of another store (the `spending` table), so that daily and total caps include it.

    Rows that an interrupted copy added before are removed.

    Raises:
        StoreError: If the catalog cannot be used.
    """
    names = ", ".join(SPENDING.schema)
    places = ", ".join(["%s"] * len(SPENDING.schema))
    with contextlib.closing(store.catalog_session("write")) as session:
        session.rows(f"BEGIN; DELETE FROM {_SPENDING} WHERE session = 'copied'")
        for row in with_days_as_text(spending).iter_rows():
            session.rows(f"INSERT INTO {_SPENDING} ({names}, session) VALUES ({places}, 'copied')", row)
        session.rows("COMMIT")
