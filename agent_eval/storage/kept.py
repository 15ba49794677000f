"""Keep a store file attached between sessions that follow each other closely, as the steps of a run do.

Attaching and detaching a file takes about five milliseconds, and a small run needs hundreds of sessions.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

import duckdb

HELD_S = 0.25
"""Time in seconds after which an attachment is released, so that other processes wait no longer than that."""

Opening = Callable[[contextlib.ExitStack], duckdb.DuckDBPyConnection]
"""A function that locks and attaches a database for writing, and registers on the stack how to undo both."""


class KeptAttachment:
    """Share one attachment among the sessions of this process; a session waits for that of another thread.

    Args:
        opening: The function that locks and attaches the database.
    """

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._lock = threading.RLock()
        self._stack = contextlib.ExitStack()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._timer: threading.Timer | None = None

    @contextlib.contextmanager
    def session(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield the connection; after an error it is closed, and the next session attaches the database again."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._opening(self._stack)
                    self._timer = threading.Timer(HELD_S, self.release)
                    self._timer.daemon = True
                    self._timer.start()
                yield self._connection
            except BaseException:
                self._close(failed=True)
                raise

    def release(self) -> None:
        """Detach the database and unlock it, after the session that is in progress."""
        with self._lock:
            self._close(failed=False)

    def _close(self, *, failed: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._connection, self._timer = None, None
        stack, self._stack = self._stack, contextlib.ExitStack()
        stack.__exit__(*(sys.exc_info() if failed else (None, None, None)))
