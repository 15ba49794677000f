"""Keep DuckDB engines for reuse, because creating one takes several times as long as attaching a file.

Between sessions an engine has no database attached, so that other processes can use the file. Each process has
separate engines, since a forked child cannot use those of its parent, and so does each set of setup statements.
"""

import atexit
import contextlib
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence

import duckdb

# No automatic downloads; a file of another type is rejected.
_SETTINGS = (
    "SET python_enable_replacements=false",
    "SET autoinstall_known_extensions=false",
    "SET TimeZone='UTC'",  # strings and times in an older store are converted to timestamps in UTC
    "SET allocator_bulk_deallocation_flush_threshold='1MB'",  # otherwise DuckDB keeps up to 512 MB of freed memory
)
_idle: dict[tuple[int, Sequence[str]], list[duckdb.DuckDBPyConnection]] = defaultdict(list)


@contextlib.contextmanager
def attached(attach: str, options: str, setup: tuple[str, ...]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection with the database attached as `store`; detach it at the end.

    The caller must unregister the frames that it registers, because the engine outlives the session.

    Raises:
        duckdb.Error: If the database cannot be attached.
    """
    idle = _idle[os.getpid(), setup]
    try:
        con = idle.pop()
    except IndexError:
        con = new_engine(setup)
    try:
        place = attach.replace("'", "''")
        con.execute(f"ATTACH '{place}' AS store" + (f" ({options})" if options else ""))
        con.execute("USE store")
        yield con
    except BaseException:
        con.close()  # an engine is not reused after an error
        raise
    try:
        con.execute("USE memory")
        con.execute("DETACH store")
    except duckdb.Error:
        con.close()  # committed data is already in the database's log
    else:
        idle.append(con)


def new_engine(setup: Sequence[str]) -> duckdb.DuckDBPyConnection:
    """Return a new engine without a database, on which the setup statements have been executed."""
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
