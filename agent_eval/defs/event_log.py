"""Write Dagster's SQLite event log in batches: the same files and rows, with far fewer commits.

Configured in dagster.yaml, so that every process on that Dagster home uses it; see docs/decisions/0007.
"""

import functools
import itertools
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from dagster import DagsterInstance, EventLogEntry
from sqlalchemy import text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.event import listen
from sqlalchemy.pool import NullPool, QueuePool

from agent_eval.defs.dagster_internals import (
    INDEX_SHARD_NAME,
    SQLITE_BUSY_TIMEOUT_SECONDS,
    ConfigurableClassData,
    SqlEventLogStorageTable,
    SqliteEventLogStorage,
    create_engine,
)

BATCH_SIZE = 200
"""Events in one transaction: few enough for a short wait of other writers to the index."""
DEFERRED_S = 0.5
"""How long an event of a run waits at most for others to be stored in one transaction with it."""
_NO_RUN = ""  # the run id of an event that belongs to no run
_AT_ONCE = ("ASSET_MATERIALIZATION", "STEP_SUCCESS", "STEP_FAILURE")  # these are stored with all before them
_STATUS = ("PIPELINE_", "RUN_")  # kinds of events about the status of a run begin with these
_LATEST = """
    SELECT max(id) FROM event_logs
    WHERE dagster_event_type IN ('ASSET_MATERIALIZATION', 'ASSET_OBSERVATION')
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
    """Extend Dagster's own storage, which writes and reads every row; only connections and commits differ.

    Dagster makes an engine, a connection and a commit two to seven times per event. Here engines are reused,
    and so are connections to the index and, for writing, to the file of a run (a new one after a fork, or when
    the file was replaced). Events of a run share a transaction: they wait for a materialisation, for the end
    of their step, for a reader in this process, or for half a second. File locations are Dagster's own.
    """

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        self._inst_data = inst_data  # the folder is known, and opened, when the instance registers
        self._batch = threading.local()
        self._tables: set[str] = set()
        self._deferred = _Deferred(self._store_all)
        self._partitions: dict[str, list[str]] | None = None
        self._has_times = False

    @classmethod
    def config_type(cls) -> dict[str, object]:
        """Return no settings: the folder is the instance's."""
        return {}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, object]
    ) -> Self:
        """Create the storage as configured in dagster.yaml."""
        return cls(inst_data)

    def register_instance(self, instance: DagsterInstance) -> None:
        """Open the log of that instance; from then on Dagster passes events in batches, in this process."""
        super().__init__(str(Path(instance.root_directory) / "history" / "runs"), self._inst_data)
        super().register_instance(instance)
        os.environ.setdefault("DAGSTER_EVENT_BATCH_SIZE", str(BATCH_SIZE))

    def dispose(self) -> None:
        """Store what waits."""
        self._deferred.flush()
        super().dispose()

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        """Store all events or none; if this raises, Dagster stores them one by one."""
        self._deferred.flush()
        self._store_all(events)

    def store_event(self, event: EventLogEntry) -> None:
        """Store an event in the file of its run and, if queries across runs read its kind, in the index."""
        kind = event.dagster_event_type.value if event.dagster_event_type else ""
        if hasattr(self._batch, "connections"):
            super().store_event(event)
        elif event.run_id == _NO_RUN:
            self._store_all([event])
        else:
            self._deferred.add(event)
            if kind.startswith(_STATUS) or kind in _AT_ONCE:
                self._deferred.flush()
        if kind.startswith(_STATUS):
            self._close(event.run_id)

    def _store_all(self, events: Sequence[EventLogEntry]) -> None:
        """Store events in one transaction; those that are in the file of a run only, in one statement."""
        kinds = [event.dagster_event_type.value if event.dagster_event_type else "" for event in events]
        is_indexed = [kind.startswith(("ASSET_", *_STATUS)) for kind in kinds]
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
        """Note the event as the latest of its asset and kind: of a batch, only these change the list of assets."""
        found = event.dagster_event
        if found is not None and hasattr(self._batch, "latest"):
            self._batch.latest[found.asset_key, found.event_type_value] = (conn, event, event_id)
        else:
            super()._store_asset_event(conn, event, event_id)

    def _has_asset_key_index_cols_on_connection(self, conn: Connection) -> bool:
        """Return whether the list of assets has times; asked once, and not for every event."""
        self._has_times = self._has_times or super()._has_asset_key_index_cols_on_connection(conn)
        return self._has_times

    @contextmanager
    def partitions_held(self) -> Iterator[None]:
        """Read each set of dynamic partitions once within the block: a run that is under way keeps its own.

        Dagster asks for each key of each input and output of each step whether it exists.
        """
        self._partitions = {}
        try:
            yield
        finally:
            self._partitions = None

    def get_dynamic_partitions(self, partitions_def_name: str) -> Sequence[str]:
        """Return the keys of a set of dynamic partitions, in the order in which they were added."""
        held = self._partitions
        if held is None:
            return super().get_dynamic_partitions(partitions_def_name)
        if partitions_def_name not in held:
            held[partitions_def_name] = list(super().get_dynamic_partitions(partitions_def_name))
        return held[partitions_def_name]

    def has_dynamic_partition(self, partitions_def_name: str, partition_key: str) -> bool:
        """Return whether a set of dynamic partitions has a key."""
        if self._partitions is None:
            return super().has_dynamic_partition(partitions_def_name, partition_key)
        return partition_key in self.get_dynamic_partitions(partitions_def_name)

    def get_existing_dynamic_partitions(
        self, partitions_def_name: str, partition_keys: Sequence[str]
    ) -> Set[str]:
        """Return those of some keys that a set of dynamic partitions has."""
        if self._partitions is None:
            return super().get_existing_dynamic_partitions(partitions_def_name, partition_keys)
        return {*partition_keys} & {*self.get_dynamic_partitions(partitions_def_name)}

    @contextmanager
    def events_outside_runs(self) -> Iterator[None]:
        """Store the events that this thread reports outside of runs, such as observations, in one transaction."""
        with self._in_one_transaction([_NO_RUN]):
            yield

    def runs_shown(self) -> set[str]:
        """Return the runs behind the current state of asset partitions, or that evaluated a check last."""
        with self._connect(INDEX_SHARD_NAME) as connection:
            return {run_id for (run_id,) in connection.execute(text(_RUNS_SHOWN))}

    def purge_observations(self, before: datetime) -> None:
        """Remove older events outside of runs, except the latest of each asset partition."""
        with self._connect(INDEX_SHARD_NAME) as connection:
            for statement in _PURGE:
                connection.execute(text(statement), {"before": before.astimezone(UTC).replace(tzinfo=None)})

    @contextmanager
    def _in_one_transaction(self, run_ids: Iterable[str], *, has_index: bool = True) -> Iterator[None]:
        """Hold one transaction for each file that is written; the index commits last."""
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
            # watchers wait for a change of the file, which a commit to the write-ahead log does not make
            os.utime(self.path_for_shard(run))

    def has_table(self, table_name: str) -> bool:
        """Return whether a table exists; cached, since Dagster asks for every event with tags."""
        if table_name not in self._tables and super().has_table(table_name):
            self._tables.add(table_name)
        return table_name in self._tables

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        """Yield a connection in a transaction: this thread's current batch, else a new one."""
        if batch := getattr(self._batch, "connections", None):
            yield batch[shard]
        else:
            self._deferred.flush()
            inode = self._inode(shard) if shard == INDEX_SHARD_NAME else None
            with self._db_lock, self._transaction(shard, inode) as connection:
                yield connection

    @contextmanager
    def _transaction(self, shard: str, inode: int | None) -> Iterator[Connection]:
        engine = _engine(self.conn_string_for_shard(shard), inode, os.getpid())
        if shard not in self._initialized_dbs:
            self._initdb(engine)
            self._initialized_dbs.add(shard)
        with engine.begin() as connection:
            yield connection

    def _inode(self, shard: str) -> int | None:
        """Return the inode of a file, under which its connection is kept; None if it does not exist yet."""
        try:
            return Path(self.path_for_shard(shard)).stat().st_ino
        except FileNotFoundError:
            return None

    def _close(self, run_id: str) -> None:
        """Close the connection to the file of a run that starts or ends: other processes may write or remove it."""
        with self._db_lock:
            _engine(self.conn_string_for_shard(run_id), self._inode(run_id), os.getpid()).dispose()


class _Deferred:
    """Hold events until they are stored together: when asked to, if they are many, or after a while.

    Args:
        store: Stores events in one transaction.
    """

    def __init__(self, store: Callable[[Sequence[EventLogEntry]], None]) -> None:
        self._store = store
        self._events: deque[EventLogEntry] = deque()
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None
        self._process = os.getpid()

    def add(self, event: EventLogEntry) -> None:
        """Hold an event; in a process that was forked since, what waits is stored by the other one."""
        with self._lock:
            if self._process != os.getpid():
                self._process, self._timer = os.getpid(), None
                self._events.clear()
            self._events.append(event)
            if len(self._events) >= BATCH_SIZE:
                self.flush()
            elif self._timer is None:
                # not a daemon: stored before the process ends
                self._timer = threading.Timer(DEFERRED_S, self.flush, kwargs={"is_late": True})
                self._timer.start()

    def flush(self, *, is_late: bool = False) -> None:
        """Store what waits, in order. If that fails, store events one by one: the one that cannot be stored raises.

        `is_late`: called by the timer, in whose thread nothing can be raised; the next call raises.
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


@functools.lru_cache(maxsize=32)
def _engine(url: str, inode: int | None, _process: int) -> Engine:
    """Return the engine of one file, for this process and until the file is replaced.

    Args:
        url: The file, as SQLAlchemy names it.
        inode: The file's inode if a connection is kept open between transactions, else None.
    """
    options = {"timeout": SQLITE_BUSY_TIMEOUT_SECONDS, "check_same_thread": False}
    if inode is None:
        engine = create_engine(url, poolclass=NullPool, connect_args=options)
    else:
        engine = create_engine(url, poolclass=QueuePool, pool_size=1, max_overflow=-1, connect_args=options)
    listen(engine, "connect", _commit_without_waiting)
    return engine


def _commit_without_waiting(connection: sqlite3.Connection, _record: object) -> None:
    """Let a commit not wait for the disk: a loss of power may cost the last events, but breaks no file."""
    connection.execute("PRAGMA synchronous=NORMAL")
