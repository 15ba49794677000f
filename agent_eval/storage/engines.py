"""DuckDB engines that wait for their next session: making one costs several times what attaching a file does.

An engine holds no database between sessions: the file is detached, and free for other processes. Engines are kept
apart by process, since a forked child cannot use its parent's, and by what was set up in them.
"""

import atexit
import contextlib
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence

import duckdb

# Nothing is fetched on its own: a file of another kind is refused, not answered by a download.
_SETTINGS = (
    "SET python_enable_replacements=false",
    "SET autoinstall_known_extensions=false",
    "SET TimeZone='UTC'",  # texts and times of an older store become points in time in UTC
)
_idle: dict[tuple[int, Sequence[str]], list[duckdb.DuckDBPyConnection]] = defaultdict(list)


@contextlib.contextmanager
def attached(attach: str, options: str, setup: tuple[str, ...]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the database as `store`, which is detached at the end.

    Whoever registers a frame unregisters it: the engine outlives the session.

    Raises:
        duckdb.Error: If the database cannot be attached.
    """
    idle = _idle[os.getpid(), setup]
    try:
        con = idle.pop()
    except IndexError:
        con = _made(setup)
    try:
        place = attach.replace("'", "''")
        con.execute(f"ATTACH '{place}' AS store" + (f" ({options})" if options else ""))
        con.execute("USE store")
        yield con
    except BaseException:
        con.close()  # an engine that saw an error is not used again
        raise
    try:
        con.execute("USE memory")
        con.execute("DETACH store")
    except duckdb.Error:
        con.close()  # what was committed is in the database's log
    else:
        idle.append(con)


def _made(setup: Sequence[str]) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(":memory:")
    try:
        for statement in (*_SETTINGS, *setup):
            con.execute(statement)
    except BaseException:
        con.close()
        raise
    return con


@atexit.register
def _close() -> None:
    for (process, _), idle in _idle.items():
        while process == os.getpid() and idle:
            idle.pop().close()
