"""Write Dagster's SQLite event log in batches: the same files and rows, with far fewer commits.

Configured in dagster.yaml, so that every process on that Dagster home uses it; see docs/decisions/0007.
"""

import functools
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    SqliteEventLogStorage,
    create_engine,
)

BATCH_SIZE = 200
"""Events in one transaction: few enough for a short wait of other writers to the index."""
_NO_RUN = ""  # the run id of an event that belongs to no run
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
    the file was replaced); each event is one transaction, and a batch of events, one per partition of an
    asset, shares one. File locations are Dagster's own.
    """

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        self._inst_data = inst_data  # the folder is known, and opened, when the instance registers
        self._batch = threading.local()
        self._tables: set[str] = set()

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

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        """Store all events or none; if this raises, Dagster stores them one by one."""
        with self._in_one_transaction(e.run_id for e in events):
            for event in events:
                self.store_event(event)

    def store_event(self, event: EventLogEntry) -> None:
        """Store an event in the file of its run and, if queries across runs read its kind, in the index."""
        if hasattr(self._batch, "connections"):
            super().store_event(event)
            return
        kind = event.dagster_event_type.value if event.dagster_event_type else ""
        with self._in_one_transaction([event.run_id], has_index=kind.startswith(("ASSET_", *_STATUS))):
            super().store_event(event)
        if kind.startswith(_STATUS):
            self._close(event.run_id)

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
