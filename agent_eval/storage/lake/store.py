"""Read and write the tables of a DuckLake that several workers share.

DuckLake has no keys, and detects a conflict only if another commit changed existing data of the same table: two
writers that replace the same empty partition would both commit. A write therefore acquires the lock of each of its
tables, which serialises the writers of a table. It also updates each table's row in the lake's table `fence`, so that
the second of two concurrent writers fails, and is retried, even if a lock was lost. A writer whose lock session has
ended does not commit.
"""

import contextlib
import itertools
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb

from agent_eval.formats.plain_text import count_of
from agent_eval.storage import locks
from agent_eval.storage.lake import catalog
from agent_eval.storage.lake.checksums import record_checksums
from agent_eval.storage.lake.connections import Lake, pooled
from agent_eval.storage.lake.errors import (
    CatalogError,
    ConflictError,
    DataFolderError,
    NotInitialisedError,
    wrong_clock,
)
from agent_eval.storage.lake.extensions import load_statements
from agent_eval.storage.store import RunScope, Store, columns_of, ensure_columns
from agent_eval.storage.store_errors import BusyStoreError, StoreError
from agent_eval.storage.versions import SCHEMA_VERSION, migrate, refuse_other_releases
from agent_eval.tables import Table

FENCE = "fence"
"""The lake's table with one row per table, which each write to that table updates."""
MARKER = "agent_eval.lake"
"""File in the data folder that identifies its lake; it is missing if the disk is not mounted."""
# A write that conflicts this often, or after an attempt that took longer than `_LONG_S`, is repeated alone.
_SHARED_ATTEMPTS, _LONG_S = 5, 1.0
_OTHER_FOLDER = re.compile(r'does not match existing data path in the catalog "(.*?)/?"')
_CONFLICT = re.compile(
    r"transaction conflict|maximum retry count|could not serialize|violates unique constraint \"ducklake",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class LakeStore(Store):
    """Read and write the tables of one lake.

    Args:
        given: The address of the catalog as a libpq connection string, without a password.
        data: The folder of the Parquet files, which must have the same path on every worker.
        patience_s: Maximum time in seconds that a write waits for other workers, which may write a large agent.
    """

    patience_s: float = 3600
    given: str = ""
    data: Path = Path()

    @classmethod
    def of(cls, catalog_address: str, data: Path) -> "LakeStore":
        """Return the lake with its catalog at `catalog_address` and its files in `data`."""
        return cls(attach=f"ducklake:postgres:{catalog_address}", given=catalog_address, data=data)

    def is_created(self, session: catalog.CatalogSession) -> bool:
        """Return whether the catalog contains the tables of DuckLake."""
        return bool(session.rows(f"SELECT 1 FROM pg_namespace WHERE nspname = '{catalog.LAKE_SCHEMA}'"))

    def attach_statement(self, name: str, *, create: bool = False) -> str:
        """Return the statement that attaches the lake under a name, and creates it if `create` is true."""
        place, folder = (
            text.replace("'", "''") for text in (f"ducklake:postgres:{self.conninfo}", f"{self.data}/")
        )
        options = f"DATA_PATH '{folder}', METADATA_SCHEMA '{catalog.LAKE_SCHEMA}', CREATE_IF_NOT_EXISTS {str(create).lower()}"
        return f"ATTACH '{place}' AS {name} ({options})"

    @cached_property
    def conninfo(self) -> str:
        """Return the address of the catalog with a connection timeout."""
        return catalog.connection_string(self.given)

    def catalog_session(self, doing: str) -> catalog.CatalogSession:
        """Return a new connection to the catalog."""
        return catalog.CatalogSession.open(self.attach, self.conninfo, doing)

    def prompt_secret(self) -> bytes:
        """Return the random key for the codes that delimit transcripts in prompts; the first call creates it."""
        with contextlib.closing(self.catalog_session("read")) as session:
            secret_rows = session.rows(
                f"UPDATE {catalog.SCHEMA}.lake SET secret = COALESCE(secret, %s) RETURNING secret",
                [os.urandom(32)],
            )
        if not secret_rows:
            raise NotInitialisedError(self.attach, "read")
        return bytes(secret_rows[0][0])

    @contextlib.contextmanager
    def exclusive_section(self, purpose: str, *, wait: bool = True) -> Iterator[bool]:
        """Hold the exclusive section for a purpose among all workers, as `Store.exclusive_section` does."""
        with catalog.section(self.attach, self.conninfo, purpose, wait=wait) as is_held:
            yield is_held

    @contextlib.contextmanager
    def run_section(self, scope: RunScope | None, run_id: str) -> Iterator[None]:
        """Hold the section for a run; runs on other agents or versions may hold it at the same time.

        If `scope` is None, the run includes all agents and holds the section exclusively. The run is recorded before it
        waits.
        """
        section = (
            self.exclusive_section("run")
            if scope is None
            else catalog.scope_section(self.attach, self.conninfo, scope.agents, scope.versions)
        )
        with self.process_of_run(run_id), section:
            yield

    @property
    def is_shared(self) -> bool:
        """Return True, because other workers may use the lake."""
        return True

    @contextlib.contextmanager
    def process_of_run(self, run_id: str) -> Iterator[None]:
        """Record in the catalog that this process works on a run, with a session that ends with the process."""
        with contextlib.closing(self.catalog_session("write")) as session:
            session.rows(
                f"INSERT INTO {catalog.SCHEMA}.run_process VALUES (%s, %s) "
                "ON CONFLICT (run_id) DO UPDATE SET session = excluded.session",
                [run_id, session.name()],
            )
            try:
                yield
            finally:
                with contextlib.suppress(CatalogError):
                    session.rows(f"DELETE FROM {catalog.SCHEMA}.run_process WHERE run_id = %s", [run_id])

    def abandoned_runs(self) -> list[str]:
        """Return the recorded runs whose session has ended because the process or its machine stopped."""
        with contextlib.closing(self.catalog_session("read")) as session:
            run_rows = session.rows(
                f"SELECT run_id FROM {catalog.SCHEMA}.run_process WHERE session NOT IN ({catalog.SESSIONS}) ORDER BY run_id"
            )
        return [run_id for (run_id,) in run_rows]

    def recorded_runs(self) -> list[str]:
        """Return all recorded runs, whether their session has ended or not."""
        with contextlib.closing(self.catalog_session("read")) as session:
            run_rows = session.rows(f"SELECT run_id FROM {catalog.SCHEMA}.run_process ORDER BY run_id")
        return [run_id for (run_id,) in run_rows]

    def server_start(self) -> str:
        """Return when the Postgres server of the catalog was started."""
        with contextlib.closing(self.catalog_session("read")) as session:
            return str(session.rows("SELECT pg_postmaster_start_time()")[0][0])

    def forget_runs(self, run_ids: Collection[str]) -> None:
        """Remove the records of abandoned runs."""
        with contextlib.closing(self.catalog_session("write")) as session:
            session.rows(f"DELETE FROM {catalog.SCHEMA}.run_process WHERE run_id = ANY(%s)", [list(run_ids)])

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Do nothing: each thread keeps its connection to the lake open in any case."""
        yield

    @contextlib.contextmanager
    def session(self, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield the lake attached as `store`; a reader sees one snapshot of it. Use it only within this package.

        Raises:
            StoreError: If the lake cannot be opened or has a later version, or if an operation on it fails.
        """
        with self._lake("read" if read_only else "write") as lake:
            if not read_only:
                self._version(lake)
                yield lake.con
                return
            lake.con.execute("BEGIN")
            self._version(lake)
            yield lake.con
            lake.con.execute("COMMIT")

    @contextlib.contextmanager
    def _lake(self, doing: str) -> Iterator[Lake]:
        self.check_folder(doing)
        with self.translated(doing), pooled(self._opened_lake, (self.attach, self.data, self.setup)) as lake:
            try:
                yield lake
            except duckdb.Error as error:
                self._refuse_lost_catalog(error, lake.locks, doing)
                raise

    def _version(self, lake: Lake) -> int:
        """Return the version of the lake; a query of its own transaction, unless one is in progress."""
        version = refuse_other_releases(lake.con, self.attach)
        if version == 0:  # `store init` was interrupted
            raise NotInitialisedError(self.attach, "use")
        return version

    def _opened_lake(self) -> Lake:
        session = self.catalog_session("open")
        try:
            return Lake.attached((*load_statements(), *self.setup), self.attach_statement("store"), session)
        except BaseException as error:
            with contextlib.closing(session):
                self._refuse_lost_catalog(error, session, "open")
            raise

    def _refuse_lost_catalog(self, error: BaseException, session: catalog.CatalogSession, doing: str) -> None:
        """Raise CatalogError if DuckDB failed because the catalog stopped; DuckDB's own message has no fix."""
        if isinstance(error, duckdb.Error) and not session.is_alive():
            raise CatalogError(self.attach, doing, "it was stopped or restarted") from error

    @contextlib.contextmanager
    def translated(self, doing: str) -> Iterator[None]:
        """Convert errors of the database to StoreError, with DuckLake's reason."""
        try:
            with super().translated(doing):
                yield
        except StoreError as error:
            why = str(error.__cause__ or "")
            if isinstance(error.__cause__, duckdb.Error) and "creating a new DuckLake is explicitly" in why:
                raise NotInitialisedError(self.attach, doing) from error
            if isinstance(error.__cause__, duckdb.Error) and (folder_match := _OTHER_FOLDER.search(why)):
                raise DataFolderError(
                    self.attach, doing, f"its files are in {folder_match[1]}, not in {self.data}"
                ) from error
            if isinstance(error.__cause__, duckdb.Error) and _CONFLICT.search(why):
                raise ConflictError(self.attach, doing, why, "Try again") from error
            raise

    def check_folder(self, doing: str) -> None:
        """Check that the data folder has the marker of a lake.

        Raises:
            NotInitialisedError: If the catalog does not contain a lake yet.
            DataFolderError: If the folder is missing or has no marker.
        """
        if not (self.data / MARKER).is_file():
            with contextlib.closing(self.catalog_session(doing)) as session:
                if not self.is_created(session):
                    raise NotInitialisedError(self.attach, doing)
            what = "does not contain a lake" if self.data.is_dir() else "does not exist"
            raise DataFolderError(self.attach, doing, f"its data folder {self.data} {what}")

    def transact(
        self, tables: Sequence[Table[Any]], write: Callable[[duckdb.DuckDBPyConnection], None]
    ) -> None:
        """Call `write` in a transaction that holds the locks of its tables, and retry after each conflict.

        After a long attempt that conflicts, or after several conflicts, no other write runs at the same time. Otherwise
        a long write would conflict each time if other workers commit often.

        Raises:
            BusyStoreError: If another worker held a lock for longer than `patience_s`.
            StoreError: If the clocks of this machine and of the catalog differ by more than a minute.
            ConflictError: If conflicts lasted for longer than `patience_s`.
            StoreError: If the session of a lock or of a section of this process has ended.
        """
        patience, is_alone = locks.Backoff(self.patience_s, f"the store {self.attach}"), False
        for n_attempts in itertools.count(1):
            began = time.monotonic()
            try:
                with self._lake("write") as lake, self._write_locks(lake, tables, is_alone=is_alone):
                    began = time.monotonic()
                    if skew := lake.locks.wrong_clock():
                        raise wrong_clock(self.attach, skew)
                    self._commit(lake, tables, write)
                return
            except ConflictError:
                is_last = is_alone
                is_alone = n_attempts >= _SHARED_ATTEMPTS or time.monotonic() - began > _LONG_S
                if not patience.sleep("another worker that commits to it") and is_last:
                    raise

    def _commit(
        self, lake: Lake, tables: Sequence[Table[Any]], write: Callable[[duckdb.DuckDBPyConnection], None]
    ) -> None:
        lake.con.execute("BEGIN")
        version = self._version(lake)
        if version < SCHEMA_VERSION:
            migrate(lake.con, version)
        for table in tables:
            self._fence(lake, table)
        write(lake.con)
        lake.refuse_lost_locks()
        catalog.refuse_lost_sections(self.attach)
        lake.con.execute("COMMIT")
        # It is committed; if the catalog stops now, a later write records the checksums.
        with contextlib.suppress(CatalogError):
            record_checksums(lake.locks, self.data)

    @contextlib.contextmanager
    def _write_locks(self, lake: Lake, tables: Sequence[Table[Any]], *, is_alone: bool) -> Iterator[None]:
        """Hold the lock of all writes, shared unless `is_alone`, and then the locks of the tables.

        They are acquired in a fixed order, so that two writers never wait for each other. After an error, they are
        released when the connection is closed.
        """
        needed = [("writes", not is_alone)]
        needed += [(f"table {table.name}", False) for table in sorted(tables, key=lambda table: table.name)]
        for name, is_shared in needed:
            what = f"the store {self.attach}"
            if not lake.locks.lock(name, limit_s=self.patience_s, what=what, shared=is_shared):
                holder = lake.locks.holder(name)
                raise BusyStoreError(self.attach, "write", holder, self.patience_s)
        yield
        for name, is_shared in needed:
            lake.locks.unlock(name, shared=is_shared)

    def _fence(self, lake: Lake, table: Table[Any]) -> None:
        """Create the table if needed, and update its row in `fence`, so that a second writer's commit conflicts."""
        is_new = not columns_of(lake.con, table)
        ensure_columns(lake.con, table)
        if is_new:
            lake.con.execute("INSERT INTO fence VALUES (?, 1)", [table.name])
            return
        changed = lake.con.execute(
            "UPDATE fence SET n_writes = n_writes + 1 WHERE table_name = ?", [table.name]
        )
        (n_rows,) = changed.fetchone() or (0,)
        if n_rows != 1:
            raise StoreError(
                self.attach,
                "write",
                f"its table fence has {count_of(n_rows, 'row')} for {table.name} instead of one",
                "Restore the catalog from a backup, or copy the lake into a new one with `agent-eval store copy`",
            )
