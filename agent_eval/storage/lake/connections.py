"""Keep connections to a lake open, because attaching takes many times as long as a small write.

Each process has separate connections, since a forked child cannot use those of its parent.
"""

import atexit
import contextlib
import os
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

import duckdb

from agent_eval.storage.engines import new_engine
from agent_eval.storage.lake.catalog import CatalogSession
from agent_eval.storage.lake.errors import lost_lock


@dataclass
class Lake:
    """Hold a DuckDB connection with the lake attached as `store`, and the catalog session for table locks."""

    con: duckdb.DuckDBPyConnection
    locks: CatalogSession

    @classmethod
    def attached(cls, setup: Sequence[str], attach: str, session: CatalogSession) -> "Lake":
        """Open a connection and execute the setup statements and the statement that attaches the lake.

        Raises:
            duckdb.Error: If the lake cannot be attached.
        """
        con = new_engine(setup)
        try:
            con.execute(attach)
            con.execute("USE store")
        except BaseException:
            con.close()
            raise
        return cls(con, session)

    def refuse_lost_locks(self) -> None:
        """Check that the session of the table locks still exists.

        Raises:
            StoreError: If the session has ended.
        """
        if not self.locks.is_alive():
            raise lost_lock(self.locks.attach, "the tables that are written")

    def close(self) -> None:
        """Close both connections; an open transaction is rolled back and the locks are released."""
        with contextlib.ExitStack() as closing:
            closing.callback(self.locks.close)
            closing.callback(self.con.close)
            # While closing, DuckDB would abort the process on an error. RuntimeError: interrupted by Ctrl-C.
            with contextlib.suppress(duckdb.Error, RuntimeError):
                self.con.execute("ROLLBACK")


_idle: dict[tuple[int, Hashable], list[Lake]] = defaultdict(list)


@contextlib.contextmanager
def pooled(make: Callable[[], Lake], key: Hashable) -> Iterator[Lake]:
    """Yield a connection to the lake; it is kept for reuse at the end, or closed after an error.

    A connection is replaced if the catalog was restarted.
    """
    idle = _idle[os.getpid(), key]
    lake = None
    while idle and lake is None:
        lake = idle.pop()
        if not lake.locks.is_alive():
            lake.close()
            lake = None
    lake = lake or make()
    try:
        yield lake
    except BaseException:
        lake.close()
        raise
    idle.append(lake)


@atexit.register
def close_idle() -> None:
    """Close the connections of this process that are not in use."""
    for (process, _), idle in _idle.items():
        while process == os.getpid() and idle:
            idle.pop().close()
