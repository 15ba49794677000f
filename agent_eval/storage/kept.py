"""Keep a store file attached between sessions that follow each other closely, as the steps of a run do.

Attaching and detaching a file takes five milliseconds or more, and a small run needs hundreds of sessions.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

import duckdb

HELD_S = 0.25
"""Time in seconds after which an attachment is released if it was not used or another process waits for the store."""

Opening = Callable[[contextlib.ExitStack], duckdb.DuckDBPyConnection]
"""A function that locks and attaches a database for writing, and registers on the stack how to undo both."""


class KeptAttachment:
    """Share one attachment among the sessions of this process; a session waits for that of another thread.

    Args:
        opening: The function that locks and attaches the database.
        is_awaited: Returns whether another process waits for the database.
    """

    def __init__(self, opening: Opening, is_awaited: Callable[[], bool]) -> None:
        self._opening = opening
        self._is_awaited = is_awaited
        self._is_used = False  # since the timer was started
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
                    self._start_timer()
                self._is_used = True
                yield self._connection
            except BaseException:
                self._close(failed=True)
                raise

    def release(self) -> None:
        """Detach the database and unlock it, after the session that is in progress."""
        with self._lock:
            self._close(failed=False)

    def _start_timer(self) -> None:
        self._is_used = False
        self._timer = threading.Timer(HELD_S, self._release_unless_needed)
        self._timer.daemon = True
        self._timer.start()

    def _release_unless_needed(self) -> None:
        with self._lock:
            if self._timer is not threading.current_thread():  # it was released meanwhile
                return
            if self._is_used and not self._is_awaited():
                self._start_timer()
            else:
                self._close(failed=False)

    def _close(self, *, failed: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._connection, self._timer = None, None
        stack, self._stack = self._stack, contextlib.ExitStack()
        stack.__exit__(*(sys.exc_info() if failed else (None, None, None)))
