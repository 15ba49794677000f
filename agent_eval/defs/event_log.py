"""Write Dagster's SQLite event log in batches: the files and rows are the same, with far fewer commits.

dagster.yaml configures this storage, so every process with that DAGSTER_HOME uses it. See docs/decisions/0007.
"""

import functools
import itertools
import os
import sqlite3
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from dagster import DagsterEventType, DagsterInstance, DagsterRunStatus, EventLogEntry
from sqlalchemy import text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.event import listen
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool, QueuePool

from agent_eval.defs.dagster_internals import (
    ASSET_CHECK_EVENTS,
    ASSET_EVENTS,
    EVENT_TYPE_TO_PIPELINE_RUN_STATUS,
    FINISHED_STATUSES,
    IN_PROGRESS_RUN_STATUSES,
    INDEX_SHARD_NAME,
    SQLITE_BUSY_TIMEOUT_SECONDS,
    ConfigurableClassData,
    SqlEventLogStorageTable,
    SqliteEventLogStorage,
    create_engine,
)
from agent_eval.storage.run_owners import RunOwners

BATCH_SIZE = 200
"""Maximum number of events in one transaction; other processes that write to the index wait for its end."""
DEFERRED_S = 0.5
"""Maximum time in seconds that an event waits for other events of its run, to be stored in one transaction."""
_MODE = 0o644  # of a new file, before the umask, as SQLite creates it
_NO_RUN = ""  # the run id of an event that belongs to no run
_AT_ONCE = {
    DagsterEventType.ASSET_MATERIALIZATION,
    DagsterEventType.STEP_SUCCESS,
    DagsterEventType.STEP_FAILURE,
}
"""Types of events that are stored immediately, beside those about the status of a run."""
_INDEXED = {*ASSET_EVENTS, *ASSET_CHECK_EVENTS, *EVENT_TYPE_TO_PIPELINE_RUN_STATUS}
"""Types of events that Dagster also stores in the index."""
_LATEST = """
    SELECT max(id) FROM event_logs
    WHERE dagster_event_type IN ('ASSET_MATERIALIZATION', 'ASSET_OBSERVATION', 'FRESHNESS_STATE_CHANGE')
    GROUP BY asset_key, partition, dagster_event_type"""
_RUNS_SHOWN = f"""
    SELECT run_id FROM event_logs WHERE id IN ({_LATEST})
    UNION
    SELECT run_id FROM asset_check_executions
    WHERE id IN (SELECT max(id) FROM asset_check_executions GROUP BY asset_key, check_name, partition)"""
_PURGE = (
    f"DELETE FROM event_logs WHERE run_id = '' AND timestamp < :before AND id NOT IN ({_LATEST})",
    "DELETE FROM asset_event_tags WHERE event_timestamp < :before AND event_id NOT IN (SELECT id FROM event_logs)",
)


class BatchedSqliteEventLogStorage(SqliteEventLogStorage):
    """Store events in Dagster's SQLite event log with fewer connections and commits; the rows do not change.

    Dagster creates an engine, a connection and a commit two to seven times per event. This class reuses engines,
    connections to the index and, for writing, connections to the file of a run. It opens a new connection after
    a fork, or when the file was replaced. Events of a run are held back and stored in one transaction after a
    materialisation, at the end of their step, before a read in this process, or after half a second. The
    locations of the files are unchanged.
    """

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        self._inst_data = inst_data  # the folder is set and opened in `register_instance`
        self._batch = threading.local()
        self._known: set[tuple[str, str]] = set()
        self._deferred = _Deferred(self._store_all)
        self._partitions: dict[str, list[str]] | None = None

    @classmethod
    def config_type(cls) -> dict[str, object]:
        """Return the configuration schema, which is empty: the folder is set by the instance."""
        return {}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, object]
    ) -> Self:
        """Create the storage as configured in dagster.yaml."""
        return cls(inst_data)

    def register_instance(self, instance: DagsterInstance) -> None:
        """Open the event log of an instance, and make Dagster pass events in batches in this process."""
        self._owners = RunOwners(Path(instance.root_directory))
        super().__init__(str(Path(instance.root_directory) / "history" / "runs"), self._inst_data)
        super().register_instance(instance)
        os.environ.setdefault("DAGSTER_EVENT_BATCH_SIZE", str(BATCH_SIZE))

    def dispose(self) -> None:
        """Store all deferred events, then close the storage."""
        self._deferred.flush()
        super().dispose()

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        """Store all events or none; if this raises, Dagster stores them one by one."""
        self._deferred.flush()
        self._store_all(events)

    def store_event(self, event: EventLogEntry) -> None:
        """Store an event in the file of its run and, if queries across runs read its kind, in the index."""
        kind = event.dagster_event_type
        status = EVENT_TYPE_TO_PIPELINE_RUN_STATUS.get(kind) if kind else None
        if status in IN_PROGRESS_RUN_STATUSES and status is not DagsterRunStatus.CANCELING:
            self._owners.record(event.run_id)  # before the event, so that no started run lacks an owner
        if hasattr(self._batch, "connections"):
            super().store_event(event)
        elif event.run_id == _NO_RUN:
            self._store_all([event])
        else:
            self._deferred.add(event)
            if status or kind in _AT_ONCE:
                self._deferred.flush()
        if status:
            self._close(event.run_id)
            if status in FINISHED_STATUSES:
                self._owners.forget(event.run_id)

    def _store_all(self, events: Sequence[EventLogEntry]) -> None:
        """Store events in one transaction; consecutive events that the index does not need share a statement."""
        is_indexed = [event.dagster_event_type in _INDEXED for event in events]
        with self._in_one_transaction((event.run_id for event in events), has_index=any(is_indexed)):
            self._batch.latest = {}
            for (indexed, run_id), part in itertools.groupby(
                zip(is_indexed, events, strict=True), key=lambda pair: (pair[0], pair[1].run_id)
            ):
                alike = [event for _, event in part]
                if indexed:
                    for event in alike:
                        super().store_event(event)
                else:
                    with self.run_connection(run_id) as connection:
                        connection.execute(
                            SqlEventLogStorageTable.insert(), [self._event_to_row(e) for e in alike]
                        )
            latest, self._batch.latest = self._batch.latest, {}
            for of_asset in latest.values():
                super()._store_asset_event(*of_asset)

    def _store_asset_event(self, conn: Connection, event: EventLogEntry, event_id: int) -> None:
        """Record the event as the latest of its asset and type; only the latest of a batch updates the asset list."""
        asset_event = event.dagster_event
        if asset_event is not None and hasattr(self._batch, "latest"):
            self._batch.latest[asset_event.asset_key, asset_event.event_type_value] = (conn, event, event_id)
        else:
            super()._store_asset_event(conn, event, event_id)

    @contextmanager
    def partitions_held(self) -> Iterator[None]:
        """Read each set of dynamic partitions only once within the block; later changes have no effect on the run.

        Without this cache Dagster queries the existence of each key of each input and output of each step.
        """
        self._partitions = {}
        try:
            yield
        finally:
            self._partitions = None

    def get_dynamic_partitions(self, partitions_def_name: str) -> Sequence[str]:
        """Return the keys of a set of dynamic partitions, in the order in which they were added."""
        keys_by_name = self._partitions
        if keys_by_name is None:
            return super().get_dynamic_partitions(partitions_def_name)
        if partitions_def_name not in keys_by_name:
            keys_by_name[partitions_def_name] = list(super().get_dynamic_partitions(partitions_def_name))
        return keys_by_name[partitions_def_name]

    def has_dynamic_partition(self, partitions_def_name: str, partition_key: str) -> bool:
        """Return whether a set of dynamic partitions has a key."""
        if self._partitions is None:
            return super().has_dynamic_partition(partitions_def_name, partition_key)
        return partition_key in self.get_dynamic_partitions(partitions_def_name)

    def get_existing_dynamic_partitions(
        self, partitions_def_name: str, partition_keys: Sequence[str]
    ) -> Set[str]:
        """Return the keys in `partition_keys` that exist in a set of dynamic partitions."""
        if self._partitions is None:
            return super().get_existing_dynamic_partitions(partitions_def_name, partition_keys)
        return {*partition_keys} & {*self.get_dynamic_partitions(partitions_def_name)}

    @contextmanager
    def events_outside_runs(self) -> Iterator[None]:
        """Store the events that this thread reports outside of runs, such as observations, in one transaction."""
        with self._in_one_transaction([_NO_RUN]):
            yield

    def runs_shown(self) -> set[str]:
        """Return the ids of runs with the latest event of an asset partition or the latest result of a check."""
        with self._connect(INDEX_SHARD_NAME) as connection:
            return {run_id for (run_id,) in connection.execute(text(_RUNS_SHOWN))}

    def purge_observations(self, before: datetime) -> None:
        """Remove events outside of runs that are older than `before`, except the latest of each asset partition."""
        values = {"before": before.astimezone(UTC).replace(tzinfo=None)}
        with self._connect(INDEX_SHARD_NAME) as connection:
            for statement in _PURGE:
                connection.execute(text(statement), values)
        with self._connect(_NO_RUN) as connection:  # a second copy of these events, which no query reads
            connection.execute(text("DELETE FROM event_logs WHERE timestamp < :before"), values)

    @contextmanager
    def _in_one_transaction(self, run_ids: Iterable[str], *, has_index: bool = True) -> Iterator[None]:
        """Keep one transaction open for each file that is written; the index is committed last."""
        runs = dict.fromkeys(run_ids)
        shards = [INDEX_SHARD_NAME, *runs] if has_index else [*runs]
        with self._db_lock, ExitStack() as stack:
            self._batch.connections = {
                s: stack.enter_context(self._transaction(s, self._inode(s))) for s in shards
            }
            try:
                yield
            finally:
                del self._batch.connections
                vars(self._batch).pop("latest", None)
        for run in runs:
            # watchers wait for a change of the file; a commit to the write-ahead log does not change it
            os.utime(self.path_for_shard(run))

    def has_table(self, table_name: str) -> bool:
        """Return whether a table exists. Dagster calls this for every event with tags."""
        query = super().has_table
        return self._exists("table", table_name, lambda: query(table_name))

    def has_secondary_index(self, name: str) -> bool:
        """Return whether an index is complete. Dagster calls this for the inputs and checks of every step."""
        query = super().has_secondary_index
        return self._exists("index", name, lambda: query(name))

    def _has_asset_key_col_on_connection(self, conn: Connection, column_name: str) -> bool:
        """Return whether the list of assets has a column. Dagster calls this for every event and every step."""
        query = super()._has_asset_key_col_on_connection
        return self._exists("column", column_name, lambda: query(conn, column_name))

    def _exists(self, kind: str, name: str, query: Callable[[], bool]) -> bool:
        """Return whether a part of the index exists; the database is queried until it is found."""
        if (kind, name) not in self._known and query():
            self._known.add((kind, name))
        return (kind, name) in self._known

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        """Yield a connection in a transaction: that of this thread's current batch, else a new one."""
        if batch := getattr(self._batch, "connections", None):
            yield batch[shard]
        else:
            self._deferred.flush()
            inode = self._inode(shard) if shard == INDEX_SHARD_NAME else None
            with self._db_lock, self._transaction(shard, inode) as connection:
                yield connection

    @contextmanager
    def _transaction(self, shard: str, inode: int | None) -> Iterator[Connection]:
        if shard not in self._initialized_dbs and self._is_copied(Path(self.path_for_shard(shard))):
            self._initialized_dbs.add(shard)
        engine = _engine(self.conn_string_for_shard(shard), inode, os.getpid())
        if shard not in self._initialized_dbs:
            self._initdb(engine)
            self._initialized_dbs.add(shard)
        with engine.begin() as connection:
            yield connection

    def _initdb(self, engine: Engine, for_index_shard: bool = False) -> None:
        """Create the tables of a file, which has small pages from the start."""
        listen(engine, "connect", _tune)
        super()._initdb(engine, for_index_shard)

    def _is_copied(self, file: Path) -> bool:
        """Return whether a missing file was created as a copy of an empty one; otherwise Dagster creates it.

        Dagster reads its list of migrations and creates the tables for each run. The copy gets its name when it is
        complete, and never replaces a file that another process created meanwhile.
        """
        if file.exists():
            return False
        fresh = file.with_name(f"{file.name}.{os.getpid()}.new")
        try:
            with open(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _MODE), "wb") as handle:  # noqa: PTH123
                handle.write(_empty_shard(self._initdb))
                handle.flush()
                os.fsync(handle.fileno())
            os.link(fresh, file)
        except (OSError, DBAPIError):  # another process was first, there are no hard links, or a disk is full
            return False
        finally:
            fresh.unlink(missing_ok=True)
        return True

    def _inode(self, shard: str) -> int | None:
        """Return the inode of a file, which identifies its connection; None if the file does not exist yet."""
        try:
            return Path(self.path_for_shard(shard)).stat().st_ino
        except FileNotFoundError:
            return None

    def _close(self, run_id: str) -> None:
        """Close the connection to the file of a run that starts or ends; other processes may write or remove it."""
        with self._db_lock:
            _engine(self.conn_string_for_shard(run_id), self._inode(run_id), os.getpid()).dispose()


class _Deferred:
    """Hold events until they are stored together: on `flush`, at `BATCH_SIZE` events, or after `DEFERRED_S`.

    Args:
        store: A function that stores events in one transaction.
    """

    def __init__(self, store: Callable[[Sequence[EventLogEntry]], None]) -> None:
        self._store = store
        self._events: deque[EventLogEntry] = deque()
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None
        self._process = os.getpid()

    def add(self, event: EventLogEntry) -> None:
        """Hold an event. After a fork, the parent process stores the events that were held before."""
        with self._lock:
            if self._process != os.getpid():
                self._process, self._timer = os.getpid(), None
                self._events.clear()
            self._events.append(event)
            if len(self._events) >= BATCH_SIZE:
                self.flush()
            elif self._timer is None:
                # not a daemon thread, so the events are stored before the process ends
                self._timer = threading.Timer(DEFERRED_S, self.flush, kwargs={"is_late": True})
                self._timer.start()

    def flush(self, *, is_late: bool = False) -> None:
        """Store the held events in order. If that fails, store them one by one and raise for the first that fails.

        Args:
            is_late: Whether the timer calls this method. Its thread must not raise, so the next call raises the error.
        """
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if not self._events or self._process != os.getpid():
                return
            try:
                self._store(list(self._events))
            except Exception:
                if is_late:
                    return
                while self._events:
                    self._store([self._events.popleft()])
            else:
                self._events.clear()


_empty: list[bytes] = []  # the content of a file without events, once it is known


def _empty_shard(initdb: Callable[[Engine], None]) -> bytes:
    """Return the content of the file of a run without events, which Dagster creates once per process."""
    if not _empty:
        with tempfile.TemporaryDirectory() as folder:
            initdb(create_engine(f"sqlite:///{folder}/empty.db", poolclass=NullPool))
            _empty.append(Path(folder, "empty.db").read_bytes())
    return _empty[0]


@functools.lru_cache(maxsize=32)
def _engine(url: str, inode: int | None, _process: int) -> Engine:
    """Return the engine of one file; it is reused within this process until the file is replaced.

    Args:
        url: The SQLAlchemy URL of the file.
        inode: The file's inode if a connection is kept open between transactions, else None.
    """
    options = {"timeout": SQLITE_BUSY_TIMEOUT_SECONDS, "check_same_thread": False}
    if inode is None:
        engine = create_engine(url, poolclass=NullPool, connect_args=options)
    else:
        engine = create_engine(url, poolclass=QueuePool, pool_size=1, max_overflow=-1, connect_args=options)
    listen(engine, "connect", _tune)
    return engine


def _tune(connection: sqlite3.Connection, _record: object) -> None:
    """Commit without waiting for the disk, and divide a new file into small pages.

    A power failure can lose the last events, but does not corrupt a file. Most events have 2.3 to 3.5 KB, so each would
    need a whole page of the default 4 KB.
    """
    connection.execute("PRAGMA page_size=1024")
    connection.execute("PRAGMA synchronous=NORMAL")
