"""Use the Postgres server of a lake's catalog for locks and exclusive sections.

A lock is an advisory lock of a Postgres session. It is released when the session ends for any reason, so a killed
process does not leave a lock behind. Postgres serves waiting sessions in the order of arrival.
"""

import contextlib
import hashlib
import os
import socket
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from agent_eval.storage import locks
from agent_eval.storage.lake.errors import CatalogError, NotInitialisedError, lost_lock, missing_extra

SCHEMA = "agent_eval"
"""The Postgres schema of agent_eval's tables, separate from DuckLake's."""
LAKE_SCHEMA = "ducklake"
"""The Postgres schema of DuckLake's internal tables."""
FILE_CHECKSUM = (
    f"CREATE TABLE IF NOT EXISTS {SCHEMA}.file_checksum (path text PRIMARY KEY, sha256 text NOT NULL)"
)
TABLES = (
    f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}",
    f"CREATE TABLE IF NOT EXISTS {SCHEMA}.lake (data_path text, marker text, secret bytea)",
    f"CREATE TABLE IF NOT EXISTS {SCHEMA}.run_process (run_id text PRIMARY KEY, session text NOT NULL)",
    f"CREATE TABLE IF NOT EXISTS {SCHEMA}.answer (cache_key text PRIMARY KEY, worker text NOT NULL, "
    "expires_at timestamptz NOT NULL, answer text, is_merged boolean NOT NULL DEFAULT false)",
    f"CREATE INDEX IF NOT EXISTS answer_unmerged ON {SCHEMA}.answer (is_merged) WHERE NOT is_merged",
    f"CREATE TABLE IF NOT EXISTS {SCHEMA}.spending (day text, run text, model text, session text, started_by text, "
    "n_calls bigint DEFAULT 0, n_reserved bigint DEFAULT 0, n_unknown_cost bigint DEFAULT 0, "
    "n_tokens_in bigint DEFAULT 0, n_tokens_out bigint DEFAULT 0, cost_usd double precision DEFAULT 0, "
    "PRIMARY KEY (day, run, model, session))",
    FILE_CHECKSUM,
)
SESSIONS = "SELECT pid || ' ' || extract(epoch FROM backend_start) FROM pg_stat_get_activity(NULL) WHERE backend_start IS NOT NULL"
"""Query for the names of all sessions on the server; names are never reused."""
LARGEST_SKEW_S = 60.0
"""Maximum difference in seconds between the clocks of a worker that writes and of the catalog."""
_CONNECT_S = 10
_WAKE_S = 0.1  # a waiting process reacts to Ctrl-C within this time, after the first seconds of its wait
_LARGEST_SCOPE = 1000  # locks of one run; by default, a server has room for 6,400 of all sessions
_NETWORK = {
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Timeouts of a connection in seconds, the last one in milliseconds: each end notices within half a minute that the
other one is away. The server would otherwise keep the locks of a lost machine for two hours, the default of Linux."""
_ON_SERVER = {name if name.startswith("tcp_") else f"tcp_{name}": value for name, value in _NETWORK.items()}
_HOLDER = """
    SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND granted AND (classid::bigint << 32) | objid::bigint = %s LIMIT 1"""


def connection_string(address: str) -> str:
    """Return a catalog's address as key=value pairs, with timeouts for both ends unless it has its own.

    Raises:
        StorageError: If psycopg2 is not installed.
        CatalogError: If the address is invalid.
    """
    extensions = _psycopg2().extensions
    try:
        parts = extensions.parse_dsn(address)
    except _psycopg2().Error as error:
        raise CatalogError("in [store]", "open", "it is not a Postgres connection string") from error
    on_server = [f"-c {name}={value}" for name, value in _ON_SERVER.items()]
    parts["options"] = " ".join([*on_server, parts.get("options", "")]).strip()
    return str(extensions.make_dsn(**({"connect_timeout": _CONNECT_S} | _NETWORK | parts)))


def _psycopg2() -> Any:
    try:
        import psycopg2
        import psycopg2.extensions
    except ImportError as error:
        raise missing_extra("the package psycopg2-binary is not installed") from error
    return psycopg2


@dataclass
class CatalogSession:
    """Represent one connection to the catalog; its locks are released when it ends."""

    attach: str
    _con: Any
    process: int = field(default_factory=os.getpid)

    @classmethod
    def open(cls, attach: str, conninfo: str, doing: str) -> "CatalogSession":
        """Open a connection to the catalog.

        Raises:
            CatalogError: If the server does not respond.
        """
        name = f"agent_eval on {socket.gethostname()[:30]}, process {os.getpid()}"
        try:
            con = _psycopg2().connect(conninfo, application_name=name)
        except _psycopg2().Error as error:
            raise CatalogError(attach, doing, str(error)) from error
        con.autocommit = True
        return cls(attach, con)

    def rows(self, statement: str, values: Sequence[object] | Mapping[str, object] = ()) -> list[Any]:
        """Execute a statement and return its rows; the list is empty if the statement returns no rows.

        Raises:
            NotInitialisedError: If a table of this program is missing.
            CatalogError: If the statement fails, or the session has ended.
        """
        try:
            with self._con.cursor() as cursor:
                cursor.execute(statement, values)
                return list(cursor.fetchall()) if cursor.description else []
        except _psycopg2().errors.UndefinedTable as error:
            raise NotInitialisedError(self.attach, "use") from error
        except _psycopg2().Error as error:
            raise CatalogError(self.attach, "use", str(error)) from error

    def name(self) -> str:
        """Return the name of this session, as `SESSIONS` lists it."""
        return str(self.rows(f"{SESSIONS} AND pid = pg_backend_pid()")[0][0])

    def wrong_clock(self) -> str | None:
        """Return how far the clock of this machine is from the catalog's; None if it is at most LARGEST_SKEW_S."""
        (now,) = self.rows("SELECT clock_timestamp()")[0]
        skew = (datetime.now(UTC) - now).total_seconds()
        if abs(skew) <= LARGEST_SKEW_S:
            return None
        return f"the clock of this machine is {abs(skew):,.0f} s {'ahead of' if skew > 0 else 'behind'} the catalog's"

    def is_alive(self) -> bool:
        """Return whether this session still exists on the server, and with it all locks that it acquired."""
        try:
            self.rows("SELECT 1")
        except CatalogError:
            return False
        return True

    def lock(self, name: str, *, limit_s: float | None, what: str, shared: bool = False) -> bool:
        """Acquire a lock in order of arrival; return False if others hold it for longer than the limit.

        Args:
            name: The lock.
            limit_s: Time limit in seconds; None: wait without limit.
            what: Name of the resource in messages; a long wait is logged once.
            shared: Acquire the lock together with other shared holders.
        """
        key, kind = lock_key(name), "_shared" * shared
        waits = [0.0] if limit_s == 0 else _waits(limit_s)
        for number, wait_s in enumerate(waits):
            if number == 1:
                locks.log_wait(what, self.holder(name))
            acquire = self._locked_unless_interrupted if number else self._locked_within
            if acquire(key, wait_s, kind):
                return True
        return False

    def _locked_unless_interrupted(self, key: int, wait_s: float, kind: str) -> bool:
        """Wait in another thread, because psycopg2 does not return to Python after Ctrl-C or SIGTERM.

        This thread wakes up regularly: with the signal handler of polars, Ctrl-C does not end a wait.
        """
        with futures.ThreadPoolExecutor(1) as waiting:
            is_held = waiting.submit(self._locked_within, key, wait_s, kind)
            try:
                while not futures.wait([is_held], _WAKE_S).done:
                    pass
                return is_held.result()
            finally:
                while not is_held.done():  # repeated, because the statement to cancel may not have begun
                    with contextlib.suppress(_psycopg2().Error):
                        self._con.cancel()
                    futures.wait([is_held], _WAKE_S)

    def _locked_within(self, key: int, wait_s: float, kind: str) -> bool:
        if wait_s == 0:
            return bool(self.rows(f"SELECT pg_try_advisory_lock{kind}(%s)", [key])[0][0])
        try:
            with self._con.cursor() as cursor:
                cursor.execute("SELECT set_config('lock_timeout', %s, false)", [f"{1000 * wait_s:.0f}ms"])
                cursor.execute(
                    f"SELECT pg_advisory_lock{kind}(%s), set_config('lock_timeout', '0', false)", [key]
                )
        except _psycopg2().errors.LockNotAvailable:
            return False
        except _psycopg2().Error as error:
            raise CatalogError(self.attach, "lock", str(error)) from error
        return True

    def holder(self, name: str) -> str:
        """Return the name of the program that holds a lock, for messages."""
        holder_rows = self.rows(_HOLDER, [lock_key(name)])
        return str(holder_rows[0][0]) if holder_rows else "another process"

    def unlock(self, name: str, *, shared: bool = False) -> None:
        """Release a lock of this session."""
        self.rows(f"SELECT pg_advisory_unlock{'_shared' * shared}(%s)", [lock_key(name)])

    def close(self) -> None:
        """End the session and release its locks; in a forked child, the session of the parent is not affected."""
        if self.process == os.getpid():
            with contextlib.suppress(_psycopg2().Error):
                self._con.close()


def _waits(limit_s: float | None) -> Iterator[float]:
    """Yield the durations of the waits in seconds: a short wait, after which the holder is logged, then the rest."""
    yield locks.SAY_AFTER_S if limit_s is None else min(limit_s, locks.SAY_AFTER_S)
    while limit_s is None:
        yield 600.0
    if limit_s > locks.SAY_AFTER_S:
        yield limit_s - locks.SAY_AFTER_S


def lock_key(name: str) -> int:
    """Return the 63-bit key of a lock, derived from its name."""
    return int.from_bytes(hashlib.sha256(f"agent_eval {name}".encode()).digest()[:8], "big") >> 1


_Held = dict[tuple[str, str, int], CatalogSession]


@dataclass
class _Sections:
    """Hold the sections of this process: (attach, purpose, thread) → the session that holds the section."""

    process: int = field(default_factory=os.getpid)
    held: _Held = field(default_factory=_Held)


_sections = _Sections()


def _own() -> _Held:
    """Return the sections of this process; a forked child starts with none."""
    global _sections
    if _sections.process != os.getpid():
        _sections = _Sections()
    return _sections.held


@contextlib.contextmanager
def section(attach: str, conninfo: str, purpose: str, *, wait: bool) -> Iterator[bool]:
    """Hold a section exclusively among all workers; re-entrant within one thread.

    Yields whether the section is held: always True, unless `wait` is False and another worker holds it.
    """
    sections, place = _own(), (attach, purpose, threading.get_ident())
    if place in sections:
        yield True
        return
    session = CatalogSession.open(attach, conninfo, "lock")
    try:
        name = f"section {purpose}"
        what = f"the store {attach} (one {purpose} at a time)"
        if not session.lock(name, limit_s=None if wait else 0, what=what):
            yield False
            return
        sections[place] = session
        try:
            yield True
        finally:
            del sections[place]
    finally:
        session.close()


@contextlib.contextmanager
def scope_section(
    attach: str, conninfo: str, agents: Collection[str], versions: Collection[str] | None
) -> Iterator[None]:
    """Hold the section for runs together with runs on other agents, or on other versions of these agents.

    If `versions` is None, the run writes rows that all versions of the agents share. If this thread already holds the
    exclusive section, the call has no effect. A run on very many agents holds the section exclusively, because the
    server has room for a few thousand locks.
    """
    sections, place = _own(), (attach, "run", threading.get_ident())
    if place in sections:
        yield
        return
    if len(agents) * (1 + len(versions or ())) > _LARGEST_SCOPE:
        with section(attach, conninfo, "run", wait=True):
            yield
        return
    with contextlib.closing(CatalogSession.open(attach, conninfo, "lock")) as session:
        session.lock(
            "section run", limit_s=None, what=f"the store {attach} (a run on all agents)", shared=True
        )
        names = [(f"agent {agent}", versions is not None) for agent in sorted(agents)]
        for version in sorted(versions or ()):
            names += [(f"agent {agent} version {version}", False) for agent in sorted(agents)]
        for name, is_shared in names:  # in a fixed order, so that two runs never wait for each other
            session.lock(name, limit_s=None, what=f"{name} in the store {attach}", shared=is_shared)
        sections[place] = session
        try:
            yield
        finally:
            del sections[place]


def refuse_lost_sections(attach: str) -> None:
    """Check that the session of every section that this process holds still exists.

    Raises:
        StoreError: If a session has ended.
    """
    for (place, purpose, _), session in list(_own().items()):
        if place == attach and not session.is_alive():
            raise lost_lock(attach, f"the section {purpose!r}")
