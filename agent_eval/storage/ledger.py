"""Count judge calls and their cost in a ledger across runs and processes.

The ledger is a SQLite file beside the store, in which a write before and after each call takes about 0.1 ms; a write
to the store would take a hundred times as long. `Project.record_spending` copies its rows to the `spending` table.

A call is reserved before it is sent, so caps in calls are never exceeded. A cap in dollars is exceeded at most by the
calls that are in progress when it is reached.
"""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import polars as pl

from agent_eval.errors import StorageError
from agent_eval.tables import table

SPENDING = table("spending")
_PATIENCE_S = 30.0
_TABLE = """
    CREATE TABLE IF NOT EXISTS spending (
        day TEXT, run TEXT, model TEXT, started_by TEXT, pid INTEGER,
        n_calls INTEGER DEFAULT 0, n_reserved INTEGER DEFAULT 0, n_unknown_cost INTEGER DEFAULT 0,
        n_tokens_in INTEGER DEFAULT 0, n_tokens_out INTEGER DEFAULT 0, cost_usd REAL DEFAULT 0,
        PRIMARY KEY (day, run, model)
    )"""
_SUMS = """
    SELECT total(n_calls), total(cost_usd),
        total(CASE WHEN day = :day THEN n_calls END), total(CASE WHEN day = :day THEN cost_usd END),
        total(CASE WHEN day = :day AND started_by = 'automation' THEN n_calls END),
        total(CASE WHEN day = :day AND started_by = 'automation' THEN cost_usd END)
    FROM spending"""
_RESERVE = """
    INSERT INTO spending (day, run, model, started_by, pid, n_calls, n_reserved) VALUES (:day, :run, :model, :by, :pid, 1, 1)
    ON CONFLICT DO UPDATE SET n_calls = n_calls + 1, n_reserved = n_reserved + 1, pid = :pid"""
_SETTLE = """
    UPDATE spending SET n_reserved = n_reserved - 1, n_unknown_cost = n_unknown_cost + :unknown,
        n_tokens_in = n_tokens_in + :n_in, n_tokens_out = n_tokens_out + :n_out, cost_usd = cost_usd + :cost
    WHERE day = :day AND run = :run AND model = :model"""


class LedgerError(StorageError):
    """Raised when the ledger cannot be read or written; no judge is called, because calls must be counted.

    Fix: Make the file readable and writable, or restore it from a backup.
    """

    def __init__(self, file: Path, why: str) -> None:
        super().__init__(
            f"The ledger of judge calls {file} cannot be used ({why}), so no judge is called. Make it readable and "
            "writable, or restore it from a backup. If the file is deleted, all caps start from zero."
        )


@dataclass(frozen=True)
class SpendingCap:
    """Limit the number of calls and the cost; None means unlimited."""

    calls: int | None
    cost_usd: float | None
    named: str  # name of the setting, e.g. 'max_calls_per_day'
    again: str  # when the cap allows calls again

    def why_reached(self, n_calls: float, cost_usd: float) -> str | None:
        """Return a description of the cap if it is reached, else None."""
        if self.calls is not None and n_calls >= self.calls:
            return f"the cap of {self.calls:,} calls ({self.named.format('calls')}) is reached; {self.again}"
        if self.cost_usd is not None and cost_usd >= self.cost_usd:
            name = self.named.format("cost_usd")
            return f"the cap of ${self.cost_usd:g} ({name}) is reached (${cost_usd:.4f} spent); {self.again}"
        return None


@dataclass
class Ledger:
    """Record the calls of one run in the ledger."""

    file: Path
    run: str
    is_automatic: bool
    in_all: SpendingCap
    per_day: SpendingCap
    of_automation: SpendingCap  # per day
    _days: dict[str, list[str]] = field(default_factory=dict[str, list[str]])  # model → its open calls
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def _con(self) -> sqlite3.Connection:
        return _connected(self.file)

    def reserve(self, model: str) -> str | None:
        """Count a call before it is sent; if a cap is reached, return a description of the cap.

        Raises:
            LedgerError: If the call cannot be counted; it must not be sent in this case.
        """
        day = datetime.now(UTC).date().isoformat()
        by = "automation" if self.is_automatic else "person"
        row = {"day": day, "run": self.run, "model": model, "by": by, "pid": os.getpid()}
        with self._lock, _named(self.file):
            if self._is_capped:
                with _transaction(self._con):
                    if (why := self._why_reached(day)) is not None:
                        return why
                    self._con.execute(_RESERVE, row)
            else:  # a single statement is atomic without an explicit transaction
                self._con.execute(_RESERVE, row)
            self._days.setdefault(model, []).append(day)
        return None

    def settle(self, model: str, *, n_in: int | None, n_out: int | None, cost_usd: float | None) -> None:
        """Record the tokens and the cost of a reserved call; None means unknown.

        Raises:
            LedgerError: If they cannot be recorded; the call remains in progress.
        """
        with self._lock, _named(self.file):
            usage = {
                "n_in": n_in or 0,
                "n_out": n_out or 0,
                "cost": cost_usd or 0.0,
                "unknown": cost_usd is None,
            }
            key = {"day": self._days[model][0], "run": self.run, "model": model}
            self._con.execute(_SETTLE, usage | key)
            del self._days[model][0]

    @property
    def _is_capped(self) -> bool:
        caps = (self.in_all, self.per_day, *[self.of_automation] * self.is_automatic)
        return any(cap.calls is not None or cap.cost_usd is not None for cap in caps)

    def _why_reached(self, day: str) -> str | None:
        n_all, all_usd, n_day, day_usd, n_auto, auto_usd = self._con.execute(_SUMS, {"day": day}).fetchone()
        why = self.in_all.why_reached(n_all, all_usd) or self.per_day.why_reached(n_day, day_usd)
        if why is None and self.is_automatic:
            why = self.of_automation.why_reached(n_auto, auto_usd)
        return why


def ledger_of(store_file: Path) -> Path:
    """Return the file of the ledger that belongs to a store file."""
    return store_file.with_name(f"{store_file.name}.spending")


def spent(file: Path) -> pl.DataFrame:
    """Return the `spending` table.

    Open calls of a killed process have an unknown cost, because some may have been answered.

    Raises:
        LedgerError: If the file cannot be read or written.
    """
    if not file.exists():
        return SPENDING.empty()
    with _named(file), contextlib.closing(_connected(file)) as connection, _transaction(connection) as con:
        for (pid,) in con.execute("SELECT DISTINCT pid FROM spending WHERE n_reserved > 0").fetchall():
            if not _is_alive(pid):
                con.execute(
                    "UPDATE spending SET n_unknown_cost = n_unknown_cost + n_reserved, n_reserved = 0 WHERE pid = ?",
                    (pid,),
                )
        cursor = con.execute(f"SELECT {', '.join(SPENDING.schema)} FROM spending ORDER BY day, run, model")
        return SPENDING.frame(dict(zip(SPENDING.schema, row, strict=True)) for row in cursor)


def add_spent(file: Path, spending: pl.DataFrame) -> None:
    """Add the spending of another store (the `spending` table) to a new ledger, so that caps include it.

    Calls in progress are recorded with an unknown cost, because their cost will be recorded in the other store.

    Raises:
        LedgerError: If the file cannot be written.
    """
    spending = spending.with_columns(
        n_unknown_cost=pl.col("n_unknown_cost") + pl.col("n_reserved"), n_reserved=pl.lit(0)
    )
    names = ", ".join(SPENDING.schema)
    places = ", ".join("?" * len(SPENDING.schema))
    with _named(file), contextlib.closing(_connected(file)) as connection, _transaction(connection) as con:
        con.executemany(
            f"INSERT INTO spending ({names}) VALUES ({places})",
            with_days_as_text(spending).rows(),
        )


def with_days_as_text(spending: pl.DataFrame) -> pl.DataFrame:
    """Return rows of the `spending` table in the ledger's form, with days as ISO 8601 strings."""
    return spending.select(list(SPENDING.schema)).with_columns(pl.col("day").cast(pl.String))


@contextlib.contextmanager
def _named(file: Path) -> Iterator[None]:
    """Convert errors of the ledger file to LedgerError, with the file's name and the fix.

    Raises:
        LedgerError: If SQLite or the file system raises an error.
    """
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise LedgerError(file, str(error)) from error


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # owned by another user
        return True
    return True


def _connected(file: Path) -> sqlite3.Connection:
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600))
    con = sqlite3.connect(file, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False)
    con.execute("PRAGMA journal_mode = WAL")
    con.execute("PRAGMA synchronous = OFF")  # risks data only if the machine crashes
    con.execute(_TABLE)
    return con


@contextlib.contextmanager
def _transaction(con: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Run the block in a transaction that holds the file's write lock from the start."""
    con.execute("BEGIN IMMEDIATE")
    try:
        yield con
    except BaseException:
        con.execute("ROLLBACK")
        raise
    con.execute("COMMIT")
