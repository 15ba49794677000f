"""The store: one database reached by ATTACH, written partition by partition.

A write is one transaction under a file lock: schema check, delete of exactly its partitions, insert. Whatever
fails, the old rows stand. Readers take the lock shared, open, read and close, so that no reader blocks a writer
for longer than its own read.
"""

import contextlib
import fcntl
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import duckdb
import polars as pl

from agent_eval.errors import AgentEvalError
from agent_eval.tables import Table

T = TypeVar("T")

_SQL_TYPES: dict[pl.DataType | type[pl.DataType], str] = {
    pl.String: "VARCHAR",
    pl.Int64: "BIGINT",
    pl.Float64: "DOUBLE",
    pl.Boolean: "BOOLEAN",
    pl.Datetime("us"): "TIMESTAMP",
    pl.List(pl.String): "VARCHAR[]",
    pl.List(pl.Float32): "FLOAT[]",
}
STAMPS = {"run_id": "VARCHAR", "created_at": "TIMESTAMP"}


class StoreError(AgentEvalError):
    """The store cannot be opened, read or written."""

    def __init__(self, attach: str, doing: str, why: str) -> None:
        super().__init__(
            f"Cannot {doing} the store {attach}: {why.strip().splitlines()[0]}. No rows were changed."
        )


@dataclass(frozen=True)
class Store:
    """A database and how to reach it.

    Args:
        attach: What ATTACH gets: a file path, or a connection string such as `ducklake:postgres:…`.
        options: The ATTACH options, as SQL.
        setup: Statements to run before ATTACH (INSTALL, LOAD, CREATE SECRET). Settings, never data.
        lock_file: The lock that serialises writers; None where the database does that itself.
        attempts: How often a busy database is tried, with jittered back-off, before a StoreError.
    """

    attach: str
    options: str = "STORAGE_VERSION 'v1.5.0'"
    setup: tuple[str, ...] = ()
    lock_file: Path | None = None
    attempts: int = 6

    @classmethod
    def at(cls, file: Path) -> "Store":
        """The store in one local file, its lock beside it."""
        return cls(attach=str(file), lock_file=file.with_name(file.name + ".lock"))

    def replace(self, table: Table, frame: pl.DataFrame, partitions: pl.DataFrame, *, run_id: str) -> None:
        """Make `frame` the whole content of `partitions` (one row per partition key; columns = table.partition).

        Raises:
            TableMismatchError: If the frame breaks the table's contract; nothing is deleted.
            StoreError: If a row lies outside the partitions, or the database cannot be written.
        """
        if set(partitions.columns) != set(table.partition):
            raise StoreError(
                self.attach, f"write {table.name} to", f"its partitions are keyed by {table.partition}"
            )
        rows = table.conform(frame)
        strays = rows.join(partitions, on=list(partitions.columns), how="anti")
        if not strays.is_empty():
            raise StoreError(
                self.attach,
                f"write {table.name} to",
                f"{strays.height} rows lie outside the partitions written",
            )

        def write(con: duckdb.DuckDBPyConnection) -> None:
            _delete(con, table, partitions)
            _insert(con, table, rows, run_id)

        self._transact(table, write)

    def upsert(self, table: Table, frame: pl.DataFrame, *, run_id: str) -> None:
        """Add rows; a row whose key is already stored takes its place."""
        rows = table.conform(frame)
        if rows.is_empty():
            return

        def write(con: duckdb.DuckDBPyConnection) -> None:
            _delete(con, table, rows.select(table.key))
            _insert(con, table, rows, run_id)

        self._transact(table, write)

    def delete(self, table: Table, keys: pl.DataFrame) -> None:
        """Remove the rows that match a row of `keys` on its columns."""
        self._transact(table, lambda con: _delete(con, table, keys))

    def read(
        self, table: Table, keys: pl.DataFrame | None = None, *, columns: Sequence[str] | None = None
    ) -> pl.DataFrame:
        """The rows of a table in key order: all, or those that match a row of `keys` on its columns.

        A table that was never written is empty; a column that an older store lacks is null. `columns`: only these.
        """
        wanted = pl.Schema({name: table.schema[name] for name in columns or table.schema})
        if self._is_absent():
            return pl.DataFrame(schema=wanted)
        with self._session(read_only=True) as con:
            present = _columns(con, table)
            if not present:
                return pl.DataFrame(schema=wanted)
            match = ""
            if keys is not None:
                con.register("wanted", keys.to_arrow())
                match = f" SEMI JOIN wanted USING ({_listed(keys.columns)})"
            select = _listed(name for name in wanted if name in present)
            order = _listed(name for name in table.key if name in present)
            frame: pl.DataFrame = con.sql(
                f"SELECT {select} FROM {_quoted(table.name)}{match} ORDER BY {order}"
            ).pl()
        lacking = (pl.lit(None).alias(name) for name in wanted if name not in present)
        return frame.with_columns(lacking).select(list(wanted)).cast(wanted)

    @contextlib.contextmanager
    def only_one(self, purpose: str) -> Iterator[None]:
        """Hold the one place for some purpose (a run); another process that wants it waits."""
        if self.lock_file is None:
            yield
            return
        with self._flocked(self.lock_file.with_name(f"{self.lock_file.name}.{purpose}"), fcntl.LOCK_EX):
            yield

    def _is_absent(self) -> bool:
        return self.lock_file is not None and not Path(self.attach).exists()

    def _transact(self, table: Table, write: Callable[[duckdb.DuckDBPyConnection], None]) -> None:
        with self._session(read_only=False) as con:
            con.execute("BEGIN")
            _ensure(con, table)
            write(con)
            con.execute("COMMIT")

    @contextlib.contextmanager
    def _session(self, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
        doing = "read" if read_only else "write"
        with self._locked(shared=read_only):
            con = self._attached(read_only)
            try:
                yield con
            except duckdb.Error as error:
                raise StoreError(self.attach, doing, str(error)) from error
            finally:
                con.close()

    @contextlib.contextmanager
    def _locked(self, *, shared: bool) -> Iterator[None]:
        if self.lock_file is None:
            yield
            return
        with self._flocked(self.lock_file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
            yield

    @contextlib.contextmanager
    def _flocked(self, file: Path, kind: int) -> Iterator[None]:
        try:
            if kind == fcntl.LOCK_SH and file.exists():
                handle = file.open("r")  # a reader may have no right to write
            else:
                file.parent.mkdir(parents=True, exist_ok=True)
                handle = file.open("a")
        except OSError as error:
            raise StoreError(self.attach, "lock", f"{error.strerror}: {file}") from error
        with handle:
            fcntl.flock(handle, kind)
            yield

    def _attached(self, read_only: bool) -> duckdb.DuckDBPyConnection:
        options = ", ".join(filter(None, [self.options, "READ_ONLY" if read_only else ""]))
        attach = f"ATTACH '{self.attach.replace(chr(39), chr(39) * 2)}' AS store" + (
            f" ({options})" if options else ""
        )

        def connect() -> duckdb.DuckDBPyConnection:
            con = duckdb.connect(":memory:")
            try:
                for statement in ("SET python_enable_replacements=false", *self.setup, attach, "USE store"):
                    con.execute(statement)
            except BaseException:
                con.close()
                raise
            return con

        return self._retrying(connect, "open")

    def _retrying(self, action: Callable[[], T], doing: str) -> T:
        """Try again while another program holds the database; jittered, doubling, bounded."""
        for attempt in range(self.attempts):
            try:
                return action()
            except duckdb.IOException as error:
                if attempt + 1 == self.attempts or "lock" not in str(error).lower():
                    raise StoreError(self.attach, doing, str(error)) from error
                time.sleep(0.05 * 2**attempt * (0.5 + random.random()))
            except duckdb.Error as error:
                raise StoreError(self.attach, doing, str(error)) from error
        raise StoreError(self.attach, doing, "attempts must be at least 1")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(_quoted, names))


def _columns(con: duckdb.DuckDBPyConnection, table: Table) -> set[str]:
    """The stored columns; none when the table does not exist."""
    found = con.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_catalog = 'store' AND table_name = ?",
        [table.name],
    )
    return {row[0] for row in found.fetchall()}


def _ensure(con: duckdb.DuckDBPyConnection, table: Table) -> None:
    """Create the table, or add the columns that an older version of it lacks."""
    wanted = {name: _SQL_TYPES[dtype] for name, dtype in table.schema.items()} | STAMPS
    columns = ", ".join(f"{_quoted(name)} {sql_type}" for name, sql_type in wanted.items())
    con.execute(f"CREATE TABLE IF NOT EXISTS {_quoted(table.name)} ({columns})")
    for name in wanted.keys() - _columns(con, table):
        con.execute(f"ALTER TABLE {_quoted(table.name)} ADD COLUMN {_quoted(name)} {wanted[name]}")


def _delete(con: duckdb.DuckDBPyConnection, table: Table, keys: pl.DataFrame) -> None:
    """Delete rows that match on every column of `keys`; a null matches a null."""
    con.register("doomed", keys.unique().to_arrow())
    match = " AND ".join(f"t.{_quoted(n)} IS NOT DISTINCT FROM doomed.{_quoted(n)}" for n in keys.columns)
    con.execute(f"DELETE FROM {_quoted(table.name)} AS t USING doomed WHERE {match}")
    con.unregister("doomed")


def _insert(con: duckdb.DuckDBPyConnection, table: Table, rows: pl.DataFrame, run_id: str) -> None:
    now = datetime.now(UTC).replace(tzinfo=None)
    stamped = rows.with_columns(run_id=pl.lit(run_id), created_at=pl.lit(now, dtype=pl.Datetime("us")))
    con.register("fresh", stamped.to_arrow())
    con.execute(f"INSERT INTO {_quoted(table.name)} BY NAME SELECT * FROM fresh")
    con.unregister("fresh")
