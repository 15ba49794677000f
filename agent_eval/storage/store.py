"""Store tables in one database, which is accessed by ATTACH and written partition by partition.

A write is one transaction under a file lock: it checks the schema, deletes exactly its partitions and inserts the
new rows. If any step fails, the old rows are kept. A reader acquires the shared lock, opens the database, reads and
closes it, so that it blocks writers only during its own read. A new file is created under another name and then
renamed, so that an incomplete store never exists.
"""

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, overload

import duckdb
import polars as pl

from agent_eval.formats.spill import Rows, frames_of
from agent_eval.storage import engines, locks
from agent_eval.storage.kept import KeptAttachment
from agent_eval.storage.store_errors import (
    BusyStoreError,
    StoreError,
    missing_folder,
)
from agent_eval.storage.versions import SCHEMA_VERSION, migrate, refuse_other_releases, stamp, stamped
from agent_eval.tables import Table
from agent_eval.tables.contract import DATE, DATES, TIME, DTypes
from agent_eval.tables.frames import F

_SQL_TYPES: dict[DTypes, str] = {
    pl.String: "VARCHAR",
    pl.Int64: "BIGINT",
    pl.Float64: "DOUBLE",
    pl.Boolean: "BOOLEAN",
    TIME: "TIMESTAMPTZ",
    DATE: "DATE",
    DATES: "DATE[]",
    pl.List(pl.String): "VARCHAR[]",
    pl.List(pl.Int64): "BIGINT[]",
    pl.List(pl.Float64): "DOUBLE[]",
    pl.List(pl.Float32): "FLOAT[]",
}
STAMPS = {"dagster_run_id": "VARCHAR", "created_at": "TIMESTAMPTZ"}
_BUSY = re.compile(r"set lock on file|unique file handle conflict", re.IGNORECASE)
_SHARED: ContextVar[Mapping["Store", duckdb.DuckDBPyConnection]] = ContextVar("shared reads", default={})  # noqa: B039
_KEPT: dict["Store", KeptAttachment] = {}
_HOLDER = re.compile(r"held in (?P<program>.+?) \(PID (?P<pid>\d+)\)")


@dataclass(frozen=True)
class RunScope:
    """Define the agents and versions whose rows a run writes.

    If `versions` is None, the run also writes the rows that all versions share.
    """

    agents: Sequence[str]
    versions: Sequence[str] | None = None


@dataclass(frozen=True)
class Replacement:
    """Hold rows to store in the same transaction as other rows; they replace the rows that match `keys`."""

    table: Table
    rows: pl.DataFrame
    keys: pl.DataFrame


@dataclass(frozen=True)
class Store:
    """Read and write the tables of one database.

    Args:
        attach: The argument of ATTACH: a file path, or a connection string such as `ducklake:postgres:…`.
        options: The ATTACH options, as SQL.
        making: Additional options for a new file; an existing file keeps its storage version.
        setup: Statements to execute before ATTACH (INSTALL, LOAD, CREATE SECRET); they never contain data.
        lock_file: The lock that serialises writers; None if the database serialises them itself.
        patience_s: Maximum time in seconds that a read or a write waits for others before a StoreError is raised.
    """

    attach: str
    options: str = ""
    making: str = ""
    setup: tuple[str, ...] = ()
    lock_file: Path | None = None
    patience_s: float = 60

    @classmethod
    def at(cls, file: Path) -> "Store":
        """Return the store in a local file, with its lock file beside it."""
        return cls(
            attach=str(file),
            options="TYPE duckdb",
            making="STORAGE_VERSION 'v1.5.0'",
            lock_file=file.with_name(file.name + ".lock"),
        )

    @property
    def is_shared(self) -> bool:
        """Return whether workers on other machines and concurrent runs may use the store."""
        return False

    @property
    def file(self) -> Path | None:
        """Return the local file, or None if the store is not a file."""
        return Path(self.attach) if self.lock_file else None

    def replace(
        self,
        table: Table,
        rows: Rows,
        partitions: pl.DataFrame,
        *,
        run_id: str,
        record: Replacement | None = None,
    ) -> None:
        """Replace the content of `partitions` with `rows`.

        `partitions` has one row per partition key, with the columns `table.partition`. `record` is stored in the same
        transaction. Rows in temporary files are read part by part.

        Raises:
            TableMismatchError: If the frame violates the table's contract; nothing is deleted.
            StoreError: If a row does not belong to the partitions, or the database cannot be written.
        """
        if set(partitions.columns) != set(table.partition):
            raise StoreError(
                self.attach, f"write {table.name} to", f"its partitions are keyed by {table.partition}"
            )

        def part(frame: pl.DataFrame) -> pl.DataFrame:
            checked = table.conform(frame)
            n_strays = checked.join(partitions, on=list(partitions.columns), how="anti").height
            if n_strays:
                why = f"{n_strays} rows do not belong to the partitions that are written"
                raise StoreError(self.attach, f"write {table.name} to", why)
            return checked

        in_one = part(rows) if isinstance(rows, pl.DataFrame) else None  # refused before the store is opened

        def write(con: duckdb.DuckDBPyConnection) -> None:
            _delete(con, table, partitions)
            _insert(con, table, [in_one] if in_one is not None else map(part, frames_of(rows)), run_id)
            _note(con, record, run_id)

        self.transact(_written(table, record), write)

    def upsert(
        self, table: Table, frame: pl.DataFrame, *, run_id: str, record: Replacement | None = None
    ) -> None:
        """Insert rows, replacing stored rows with the same key. `record` is stored in the same transaction."""
        rows = table.conform(frame)
        if rows.is_empty() and record is None:
            return

        def write(con: duckdb.DuckDBPyConnection) -> None:
            _delete(con, table, rows.select(table.key))
            _insert(con, table, [rows], run_id)
            _note(con, record, run_id)

        self.transact(_written(table, record), write)

    def delete(self, table: Table, keys: pl.DataFrame) -> None:
        """Remove the rows that match a row of `keys` on its columns."""
        if keys.is_empty():
            return
        self.transact([table], lambda con: _delete(con, table, keys))

    @overload
    def read(
        self,
        table: Table[F],
        keys: pl.DataFrame | None = None,
        *,
        columns: None = None,
        in_order: bool = True,
    ) -> F: ...
    @overload
    def read(
        self,
        table: Table[Any],
        keys: pl.DataFrame | None = None,
        *,
        columns: Sequence[str],
        in_order: bool = True,
    ) -> pl.DataFrame: ...
    def read(
        self,
        table: Table[Any],
        keys: pl.DataFrame | None = None,
        *,
        columns: Sequence[str] | None = None,
        in_order: bool = True,
    ) -> Any:
        """Return the rows of a table in key order: all, or those that match a row of `keys` on its columns.

        The result is empty if the table was never written. A column that an older store lacks is null. If `columns` is
        given, only these columns are returned. If `in_order` is False, the rows are in any order, which is faster.
        """
        schema = pl.Schema({name: table.schema[name] for name in columns or table.schema})
        if self._is_absent():
            return pl.DataFrame(schema=schema)
        with self.session(read_only=True) as con:
            present = columns_of(con, table)
            if not present or not present.issuperset(keys.columns if keys is not None else ()):
                return pl.DataFrame(schema=schema)  # no row matches if a column is missing
            match = f" SEMI JOIN wanted USING ({_listed(keys.columns)})" if keys is not None else ""
            stored_columns = [name for name in schema if name in present]
            select = _listed(stored_columns)
            key = _listed(name for name in table.key if name in present)
            order = f" ORDER BY {key}" if in_order else ""
            with contextlib.nullcontext() if keys is None else _registered(con, "wanted", keys):
                frame: pl.DataFrame = con.sql(f"SELECT {select} FROM {quoted(table.name)}{match}{order}").pl()
        if len(stored_columns) < len(schema):
            lacking = (pl.lit(None).alias(name) for name in schema if name not in stored_columns)
            frame = frame.with_columns(lacking).select(list(schema))
        typed = table.typed(frame)
        return typed if typed.schema == schema else typed.cast(schema)

    def counts(
        self,
        table: Table,
        keys: pl.DataFrame | None = None,
        *,
        columns: Sequence[str],
        extent: str | None = None,
    ) -> pl.DataFrame:
        """Return the number of rows, `n`, for each combination of values of `columns`, without loading rows.

        Counts all rows, or those that match a row of `keys` on its columns. The result is empty if the table lacks one
        of the columns. If the column `extent` is given, its minimum and maximum are returned as `first` and `last`.
        """
        schema = pl.Schema({name: table.schema[name] for name in columns} | {"n": pl.Int64()})
        select, needed = (
            f"{_listed(columns)}, count(*) AS n",
            {*columns, *(keys.columns if keys is not None else ())},
        )
        if extent is not None:
            needed.add(extent)
            schema |= {"first": table.schema[extent], "last": table.schema[extent]}
            ends = (f"{end}({quoted(extent)})::{_sql_type(table.schema[extent])}" for end in ("min", "max"))
            select += ", {} AS first, {} AS last".format(*ends)
        empty = pl.DataFrame(schema=schema)
        if self._is_absent():
            return empty
        with self.session(read_only=True) as con:
            if not columns_of(con, table).issuperset(needed):
                return empty
            match = f" SEMI JOIN wanted USING ({_listed(keys.columns)})" if keys is not None else ""
            with contextlib.nullcontext() if keys is None else _registered(con, "wanted", keys):
                counted_rows: pl.DataFrame = con.sql(
                    f"SELECT {select} FROM {quoted(table.name)}{match} GROUP BY ALL ORDER BY ALL"
                ).pl()
        return counted_rows.cast(schema)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Let the reads of this thread share one connection until the end of the block, which must not write.

        Writers of other processes wait for the end of the block. A process must not be forked within it.
        """
        if self in _SHARED.get() or self._is_absent():
            yield
            return
        with self.session(read_only=True) as con:
            token = _SHARED.set({**_SHARED.get(), self: con})
            try:
                yield
            finally:
                _SHARED.reset(token)

    @contextlib.contextmanager
    def kept_attached(self) -> Iterator[None]:
        """Let sessions of this process that follow each other closely share one attachment until the end of the block.

        Other processes of agent_eval wait up to `kept.HELD_S` longer for the store; other programs cannot open it while
        it is used. A process must not be forked within the block. Nothing changes for a database that is not a file.
        """
        if self.file is None or self in _KEPT:
            yield
            return
        _KEPT[self] = attachment = KeptAttachment(
            lambda stack: self._checked(stack, read_only=False, doing="write"),
            lambda: self.lock_file is not None and locks.is_awaited(self.lock_file),
        )
        try:
            yield
        finally:
            del _KEPT[self]
            attachment.release()

    @contextlib.contextmanager
    def exclusive_section(self, purpose: str, *, wait: bool = True) -> Iterator[bool]:
        """Hold the exclusive section for a purpose (e.g. a run); other processes wait for it without limit.

        The section is re-entrant within one thread, and released if the process is killed. Yields whether it is held:
        always True, unless `wait` is False and another process holds it.
        """
        place = self._place(purpose)
        if not place.parent.is_dir():
            raise missing_folder(Path(self.attach), "write")
        what = f"the store {self.attach} (one {purpose} at a time)"
        with contextlib.ExitStack() as stack:
            with self.translated("lock"):
                is_held = stack.enter_context(locks.place(place, what=what, wait=wait))
            yield is_held

    @contextlib.contextmanager
    def run_section(self, scope: RunScope | None, run_id: str) -> Iterator[None]:
        """Hold the section for a run that writes only rows in `scope` (None: all rows)."""
        with self.exclusive_section("run"):
            yield

    @contextlib.contextmanager
    def process_of_run(self, run_id: str) -> Iterator[None]:
        """Record that this process works on a run, outside the section for runs.

        Nothing is recorded for a store file: its runs are on one machine, where `RunOwners` records them.
        """
        yield

    def abandoned_runs(self) -> list[str]:
        """Return the runs recorded in the store whose process has stopped; none for a store file."""
        return []

    def recorded_runs(self) -> list[str]:
        """Return all runs recorded in the store, whether their process has stopped or not."""
        return []

    def server_start(self) -> str:
        """Return when the server of the store was started; '' for a store file, which has no server."""
        return ""

    def forget_runs(self, run_ids: Collection[str]) -> None:
        """Remove the records of abandoned runs from the store."""

    def _place(self, purpose: str) -> Path:
        if self.lock_file is None:
            raise StoreError(
                self.attach,
                "lock",
                "it has no lock file and no lock service, so two runs could write to it at the same time",
                "Configure a store file or a table [store] in agent_eval.toml",
            )
        return self.lock_file.with_name(f"{self.lock_file.name}.{purpose}")

    @contextlib.contextmanager
    def session(self, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield the database attached as `store`, exclusively or shared with other readers.

        Use it only within this package.

        Raises:
            StoreError: If the store cannot be opened or has a later version, or if an operation on it fails.
        """
        doing = "read" if read_only else "write"
        if shared := _SHARED.get().get(self):
            if not read_only:
                raise StoreError(self.attach, doing, "the same thread is reading it")
            with self.translated(doing):
                yield shared
            return
        if attachment := _KEPT.get(self):
            with self.translated(doing), attachment.session() as con:
                yield con
            return
        with contextlib.ExitStack() as stack:
            con = self._checked(stack, read_only=read_only, doing=doing)
            with self.translated(doing):
                yield con

    def _checked(
        self, stack: contextlib.ExitStack, *, read_only: bool, doing: str
    ) -> duckdb.DuckDBPyConnection:
        """Lock and attach the database, and check that this release can use it."""
        con = self._opened(stack, read_only, doing)
        with self.translated(doing):
            refuse_other_releases(con, self.attach)
        return con

    def _is_absent(self) -> bool:
        """Return whether the file does not exist yet.

        Raises:
            StoreError: If its folder does not exist.
        """
        if self.file is None or self.file.exists():
            return False
        if not self.file.parent.is_dir():
            raise missing_folder(self.file, "read")
        return True

    def transact(
        self, tables: Sequence[Table[Any]], write: Callable[[duckdb.DuckDBPyConnection], None]
    ) -> None:
        """Migrate the store if needed, create missing tables and call `write`, all in one transaction."""
        with self.session(read_only=False) as con:
            version, _ = stamped(con)
            con.execute("BEGIN")
            if version < SCHEMA_VERSION:
                migrate(con, version)
            for table in tables:
                ensure_columns(con, table)
            write(con)
            con.execute("COMMIT")

    def _opened(self, stack: contextlib.ExitStack, read_only: bool, doing: str) -> duckdb.DuckDBPyConnection:
        """Acquire the lock and attach the database.

        While another program has the database open, release the lock, wait and retry.
        """
        patience = locks.Backoff(self.patience_s, f"the store {self.attach}")
        while True:
            with self.translated(doing), contextlib.ExitStack() as attempt:
                attempt.enter_context(self.locked(shared=read_only))
                try:
                    if not read_only:
                        self._make_file()
                    con = attempt.enter_context(self._attached(self.attach, "READ_ONLY" if read_only else ""))
                    stack.push(attempt.pop_all())
                    return con
                except duckdb.Error as error:
                    if not _BUSY.search(str(error)):
                        raise
                    holder = _holder(str(error))
            if not patience.sleep(holder):
                raise BusyStoreError(self.attach, doing, holder, self.patience_s)

    @contextlib.contextmanager
    def locked(self, *, shared: bool) -> Iterator[None]:
        if self.lock_file is None:
            yield
            return
        if not self.lock_file.parent.is_dir():
            raise missing_folder(Path(self.attach), "read" if shared else "write")
        lock = locks.shared if shared else locks.exclusive
        with lock(self.lock_file, limit_s=self.patience_s, what=f"the store {self.attach}"):
            yield

    @contextlib.contextmanager
    def translated(self, doing: str) -> Iterator[None]:
        """Convert database errors and lock errors to StoreError."""
        try:
            yield
        except locks.LockTimeoutError as error:
            raise BusyStoreError(self.attach, doing, str(error), self.patience_s) from error
        except (duckdb.Error, locks.LockError) as error:
            raise StoreError(self.attach, doing, str(error)) from error

    def _make_file(self) -> None:
        """Create the file if needed.

        The file is created under a temporary name and then renamed, so that a kill never leaves an incomplete file.
        """
        if self.file is None or self.file.exists():
            return
        fresh = self.file.with_name(f"{self.file.name}.new")
        log, log_of_fresh = (file.with_name(f"{file.name}.wal") for file in (self.file, fresh))
        try:
            fresh.unlink(missing_ok=True)
            log_of_fresh.unlink(missing_ok=True)
            with self._attached(str(fresh), self.making) as con:
                stamp(con)
                con.execute("CHECKPOINT store")  # the stamp must not remain in a log, which is not renamed
            # a log without its database cannot be read, and would prevent the new one from opening
            log.unlink(missing_ok=True)
            fresh.replace(self.file)
        finally:
            fresh.unlink(missing_ok=True)
            log_of_fresh.unlink(missing_ok=True)

    def _attached(
        self, attach: str, more: str
    ) -> contextlib.AbstractContextManager[duckdb.DuckDBPyConnection]:
        return engines.attached(attach, ", ".join(filter(None, [self.options, more])), self.setup)


def _holder(message: str) -> str:
    """Return the program that has the database open, parsed from DuckDB's error message."""
    match = _HOLDER.search(message)
    return f"process {match['pid']} ({match['program']})" if match else "this process itself, elsewhere,"


@dataclass
class _Streamed:
    """Expose a frame to DuckDB through Arrow's C interface, so that pyarrow does not copy it first.

    DuckDB holds a registered object until its transaction ends. A transaction that inserts many frames exchanges
    the frame of one registered object, so that it holds only one of them.
    """

    frame: pl.DataFrame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a stream of the batches; each scan starts from the first batch."""
        return self.frame.__arrow_c_stream__(requested_schema)


@contextlib.contextmanager
def _registered(con: duckdb.DuckDBPyConnection, name: str, frame: pl.DataFrame) -> Iterator[_Streamed]:
    streamed = _Streamed(frame)
    con.register(name, streamed)
    yield streamed
    con.unregister(name)


def quoted(name: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))


def columns_of(con: duckdb.DuckDBPyConnection, table: Table) -> set[str]:
    """Return the names of the stored columns; empty if the table does not exist."""
    try:
        description = con.execute(f"SELECT * FROM store.{quoted(table.name)} LIMIT 0").description
    except duckdb.CatalogException:
        return set()
    return {column[0] for column in description or ()}


def _sql_type(dtype: DTypes) -> str:
    """Return the SQL type of a column; vocabulary columns are stored as text, since DuckLake has no ENUM."""
    return "VARCHAR" if isinstance(dtype, pl.Enum) else _SQL_TYPES[dtype]


def _written(table: Table[Any], record: Replacement | None) -> list[Table[Any]]:
    return [table] if record is None else [table, record.table]


def ensure_columns(con: duckdb.DuckDBPyConnection, table: Table) -> set[str]:
    """Create the table, or add the columns that it lacks; return the names of the added columns."""
    sql_type_of_column = {name: _sql_type(dtype) for name, dtype in table.schema.items()} | STAMPS
    columns = ", ".join(f"{quoted(name)} {sql_type}" for name, sql_type in sql_type_of_column.items())
    con.execute(f"CREATE TABLE IF NOT EXISTS {quoted(table.name)} ({columns})")
    lacking = sql_type_of_column.keys() - columns_of(con, table)
    for name in lacking:
        con.execute(f"ALTER TABLE {quoted(table.name)} ADD COLUMN {quoted(name)} {sql_type_of_column[name]}")
    return lacking


def _delete(con: duckdb.DuckDBPyConnection, table: Table, keys: pl.DataFrame) -> None:
    """Delete the rows that match a row of `keys` on all its columns; null matches null."""
    match = " AND ".join(f"t.{quoted(n)} IS NOT DISTINCT FROM doomed.{quoted(n)}" for n in keys.columns)
    with _registered(con, "doomed", keys.unique()):
        con.execute(f"DELETE FROM {quoted(table.name)} AS t USING doomed WHERE {match}")


def _note(con: duckdb.DuckDBPyConnection, record: Replacement | None, run_id: str) -> None:
    if record is not None:
        _delete(con, record.table, record.keys)
        _insert(con, record.table, [record.table.conform(record.rows)], run_id)


def _insert(con: duckdb.DuckDBPyConnection, table: Table, parts: Iterable[pl.DataFrame], run_id: str) -> None:
    stamps = {"dagster_run_id": pl.lit(run_id), "created_at": pl.lit(datetime.now(UTC), dtype=TIME)}
    nothing = table.empty().with_columns(**stamps)
    with _registered(con, "fresh", nothing) as fresh:
        for rows in parts:
            fresh.frame = rows.with_columns(**stamps)
            con.execute(f"INSERT INTO {quoted(table.name)} BY NAME SELECT * FROM fresh")
        fresh.frame = nothing  # DuckDB holds what is registered until the transaction ends
