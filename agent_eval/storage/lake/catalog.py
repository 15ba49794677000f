"""Use the Postgres server of a lake's catalog: sessions that hold locks, and the holders of sections.

A lock is an advisory lock of a Postgres session. It is released when the session ends, for any reason, so a
killed process leaves none. Postgres serves waiting sessions in the order in which they came.
"""

import contextlib
import hashlib
import os
import socket
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from agent_eval.storage import locks
from agent_eval.storage.lake.errors import CatalogError, ClusterExtraError, LostLockError, NotInitialisedError

SCHEMA = "agent_eval"
"""The Postgres schema of this program's own tables, beside DuckLake's."""
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
)
SESSIONS = "SELECT pid || ' ' || extract(epoch FROM backend_start) FROM pg_stat_activity WHERE backend_start IS NOT NULL"
"""The names of all sessions of the server; no two sessions ever have the same."""
LARGEST_SKEW_S = 60.0
"""A worker writes only if its clock and the catalog's differ by less."""
_CONNECT_S = 10
_ALIVE = {"keepalives": 1, "keepalives_idle": 15, "keepalives_interval": 5, "keepalives_count": 3}
_HOLDER = """
    SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND granted AND (classid::bigint << 32) | objid::bigint = %s LIMIT 1"""


def connection_string(given: str) -> str:
    """Return a catalog's address as key=value pairs with a limit on the time to connect.

    Raises:
        ClusterExtraError: If psycopg2 is not installed.
        CatalogError: If the address cannot be read.
    """
    extensions = _psycopg2().extensions
    try:
        parts = extensions.parse_dsn(given)
    except _psycopg2().Error as error:
        raise CatalogError("in [store]", "open", "it is not a Postgres connection string") from error
    return str(extensions.make_dsn(**({"connect_timeout": _CONNECT_S} | parts)))


def _psycopg2() -> Any:
    try:
        import psycopg2
        import psycopg2.extensions
    except ImportError as error:
        raise ClusterExtraError("the package psycopg2-binary is not installed") from error
    return psycopg2


@dataclass
class CatalogSession:
    """Hold one connection to the catalog; its locks last as long as it does."""

    attach: str
    _con: Any
    process: int = field(default_factory=os.getpid)

    @classmethod
    def open(cls, attach: str, conninfo: str, doing: str) -> "CatalogSession":
        """Connect.

        Raises:
            CatalogError: If the server does not answer.
        """
        name = f"agent_eval on {socket.gethostname()[:30]}, process {os.getpid()}"
        try:
            con = _psycopg2().connect(conninfo, application_name=name, **_ALIVE)
        except _psycopg2().Error as error:
            raise CatalogError(attach, doing, str(error)) from error
        con.autocommit = True
        return cls(attach, con)

    def rows(self, statement: str, values: Sequence[object] | Mapping[str, object] = ()) -> list[Any]:
        """Execute a statement and return its rows; a statement without rows returns none.

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

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the statements of the block together, or none of them."""
        self.rows("BEGIN")
        try:
            yield
        except BaseException:
            with contextlib.suppress(CatalogError):
                self.rows("ROLLBACK")
            raise
        self.rows("COMMIT")

    def name(self) -> str:
        """Return the name of this session among `SESSIONS`."""
        return str(self.rows(f"{SESSIONS} AND pid = pg_backend_pid()")[0][0])

    def wrong_clock(self) -> str | None:
        """Return how far the clock of this machine is from the catalog's; None if it is at most LARGEST_SKEW_S."""
        (now,) = self.rows("SELECT clock_timestamp()")[0]
        skew = (datetime.now(UTC) - now).total_seconds()
        if abs(skew) <= LARGEST_SKEW_S:
            return None
        return f"the clock of this machine is {abs(skew):,.0f} s {'ahead of' if skew > 0 else 'behind'} the catalog's"

    def is_alive(self) -> bool:
        """Return whether the server still has this session, and with it every lock that it took."""
        try:
            self.rows("SELECT 1")
        except CatalogError:
            return False
        return True

    def lock(self, name: str, *, limit_s: float | None, what: str, shared: bool = False) -> bool:
        """Take a lock, in the order of arrival; return False if others hold it for longer than the limit.

        None: wait without limit. A long wait is logged once. `shared`: with others that take it so.
        """
        key = lock_key(name)
        waits = [0.0] if limit_s == 0 else _waits(limit_s)
        for number, wait_s in enumerate(waits):
            if number == 1:
                locks.log_wait(what, self.holder(name))
            if self._locked_within(key, wait_s, "_shared" * shared):
                return True
        return False

    def _locked_within(self, key: int, wait_s: float, kind: str) -> bool:
        if wait_s == 0:
            return bool(self.rows(f"SELECT pg_try_advisory_lock{kind}(%s)", [key])[0][0])
        try:
            with self._con.cursor() as cursor:
                cursor.execute("SELECT set_config('lock_timeout', %s, false)", [f"{1000 * wait_s:.0f}ms"])
                cursor.execute(f"SELECT pg_advisory_lock{kind}(%s)", [key])
        except _psycopg2().errors.LockNotAvailable:
            return False
        except _psycopg2().Error as error:
            raise CatalogError(self.attach, "lock", str(error)) from error
        return True

    def holder(self, name: str) -> str:
        """Return the program that holds a lock, for messages."""
        found = self.rows(_HOLDER, [lock_key(name)])
        return str(found[0][0]) if found else "another process"

    def unlock(self, name: str) -> None:
        """Release a lock of this session."""
        self.rows("SELECT pg_advisory_unlock(%s)", [lock_key(name)])

    def close(self) -> None:
        """End the session, and release its locks; a forked child leaves the session of its parent alone."""
        if self.process == os.getpid():
            with contextlib.suppress(_psycopg2().Error):
                self._con.close()


def _waits(limit_s: float | None) -> Iterator[float]:
    """Yield the lengths of the waits: a short one, after which the holder is logged, then the rest."""
    yield locks.SAY_AFTER_S if limit_s is None else min(limit_s, locks.SAY_AFTER_S)
    while limit_s is None:
        yield 600.0
    if limit_s > locks.SAY_AFTER_S:
        yield limit_s - locks.SAY_AFTER_S


def lock_key(name: str) -> int:
    """Return the number of a lock, 63 bits."""
    return int.from_bytes(hashlib.sha256(f"agent_eval {name}".encode()).digest()[:8], "big") >> 1


_Held = dict[tuple[str, str, int], CatalogSession]


@dataclass
class _Sections:
    """Hold the sections of this process: (attach, purpose, thread) → the session that holds it."""

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

    Yields whether it is held: always True, unless `wait` is false and another holder exists.
    """
    held, place = _own(), (attach, purpose, threading.get_ident())
    if place in held:
        yield True
        return
    session = CatalogSession.open(attach, conninfo, "lock")
    try:
        name = f"section {purpose}"
        what = f"the store {attach} (one {purpose} at a time)"
        if not session.lock(name, limit_s=None if wait else 0, what=what):
            yield False
            return
        held[place] = session
        try:
            yield True
        finally:
            del held[place]
    finally:
        session.close()


@contextlib.contextmanager
def scope_section(
    attach: str, conninfo: str, agents: Collection[str], versions: Collection[str] | None
) -> Iterator[None]:
    """Hold the section for runs together with runs on other agents, or on other versions of these agents.

    `versions` None: what is common to all versions of the agents. Within the exclusive section of this thread it does
    nothing.
    """
    held, place = _own(), (attach, "run", threading.get_ident())
    if place in held:
        yield
        return
    with contextlib.closing(CatalogSession.open(attach, conninfo, "lock")) as session:
        session.lock(
            "section run", limit_s=None, what=f"the store {attach} (a run on all agents)", shared=True
        )
        names = [(f"agent {agent}", versions is not None) for agent in sorted(agents)]
        for version in sorted(versions or ()):
            names += [(f"agent {agent} version {version}", False) for agent in sorted(agents)]
        for name, is_shared in names:  # in one order: no two runs wait for each other
            session.lock(name, limit_s=None, what=f"{name} in the store {attach}", shared=is_shared)
        held[place] = session
        try:
            yield
        finally:
            del held[place]


def refuse_lost_sections(attach: str) -> None:
    """Check that the catalog still has the session of every section that this process holds.

    Raises:
        LostLockError: If one has ended.
    """
    for (place, purpose, _), session in list(_own().items()):
        if place == attach and not session.is_alive():
            raise LostLockError(attach, f"the section {purpose!r}")
