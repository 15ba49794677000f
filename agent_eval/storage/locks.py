"""Lock resources between processes with flock on permanent files; long waits are logged.

The kernel releases a lock when its process ends, so a killed process leaves an unlocked file rather than a stale
lock.
"""

import contextlib
import fcntl
import logging
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_LOG = logging.getLogger(__name__)
SAY_AFTER_S = 3.0  # a shorter wait is not logged
_SHORTEST_S, _LONGEST_S = 0.001, 0.1


class LockError(Exception):
    """Raised when the lock file cannot be opened, or its file system does not support locks."""


class LockTimeoutError(LockError):
    """Raised when another process held the lock longer than the time limit; the message names the holder."""


def log_wait(what: str, holder: str) -> None:
    """Log that this process is waiting for a resource, with the name of the holder."""
    _LOG.warning("Waiting for %s: %s holds it.", what, holder)


class Backoff:
    """Wait for a bounded time, with sleeps that double and are jittered; a long wait is logged once.

    Args:
        limit_s: Maximum total waiting time in seconds; None: unlimited.
        what: Name of the resource in messages.
    """

    def __init__(self, limit_s: float | None, what: str) -> None:
        self._limit_s, self._what = limit_s, what
        self._began, self._pause, self._said = time.monotonic(), _SHORTEST_S, False

    def sleep(self, holder: str) -> bool:
        """Sleep once; return False when the time limit is reached."""
        waited = time.monotonic() - self._began
        if self._limit_s is not None and waited >= self._limit_s:
            return False
        if waited >= SAY_AFTER_S and not self._said:
            self._said = True
            log_wait(self._what, holder)
        time.sleep(self._pause * (0.5 + random.random()))
        self._pause = min(2 * self._pause, _LONGEST_S)
        return True


@contextlib.contextmanager
def shared(file: Path, *, limit_s: float | None, what: str) -> Iterator[None]:
    """Hold the lock together with other readers; writers that arrived earlier have precedence.

    If the lock file does not exist and cannot be created, the folder is read-only and no lock is needed.

    Raises:
        LockTimeoutError: If writers held it for longer than `limit_s`.
        LockError: If the file system does not support locks.
    """
    patience = Backoff(limit_s, what)
    with contextlib.ExitStack() as lock_stack:
        if _is_there(file):
            with _queue(file, fcntl.LOCK_SH, patience):
                lock_stack.enter_context(_held(file, fcntl.LOCK_SH, patience))
        yield


@contextlib.contextmanager
def exclusive(file: Path, *, limit_s: float | None, what: str) -> Iterator[None]:
    """Hold the lock exclusively; readers that arrive later wait, so that overlapping readers never starve a writer.

    Raises:
        LockTimeoutError: If others held it for longer than `limit_s`.
        LockError: If the file cannot be opened for writing, or the file system does not support locks.
    """
    patience = Backoff(limit_s, what)
    with contextlib.ExitStack() as lock_stack:
        with _queue(file, fcntl.LOCK_EX, patience):
            lock_stack.enter_context(_held(file, fcntl.LOCK_EX, patience))
        yield


def is_awaited(file: Path) -> bool:
    """Return whether another process waits for the lock: it holds the queue."""
    queue = _queue_of(file)
    with contextlib.suppress(OSError), queue.open("r") as handle:
        if not _try(handle, fcntl.LOCK_EX):
            return True
        fcntl.flock(handle, fcntl.LOCK_UN)
    return False


@contextlib.contextmanager
def place(file: Path, *, what: str, wait: bool = True) -> Iterator[bool]:
    """Hold a section exclusively among processes, waiting without limit; re-entrant within one thread.

    Yields whether the section is held: always True, unless `wait` is False and another process holds it.

    Raises:
        LockError: If the file cannot be opened for writing, or the file system does not support locks.
    """
    mine = _places_of_this_thread()
    if file in mine:
        yield True
        return
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(_held(file, fcntl.LOCK_EX, Backoff(None if wait else 0, what)))
        except LockTimeoutError:
            yield False
            return
        mine.add(file)
        try:
            yield True
        finally:
            mine.remove(file)


@contextlib.contextmanager
def _queue(file: Path, kind: int, patience: Backoff) -> Iterator[None]:
    """Hold the head of the queue while waiting for the lock, so that no later process can overtake this one."""
    queue = _queue_of(file)
    if not _is_there(queue):
        yield
        return
    with _held(queue, kind, patience):
        yield


def _queue_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.queue")


@contextlib.contextmanager
def _held(file: Path, kind: int, patience: Backoff) -> Iterator[None]:
    with _opened(file, "r" if kind == fcntl.LOCK_SH else "a+") as handle:
        while not _try(handle, kind):
            holder = _holder(handle)
            if not patience.sleep(holder):
                raise LockTimeoutError(holder)
        try:
            if kind == fcntl.LOCK_EX:
                _name_holder(handle, str(os.getpid()))
            yield
        finally:
            if kind == fcntl.LOCK_EX:
                _name_holder(handle, "")
            fcntl.flock(handle, fcntl.LOCK_UN)  # not released by close() if a forked child shares it


def _is_there(file: Path) -> bool:
    """Return whether the file exists, after creating it if possible."""
    if not file.exists():
        with contextlib.suppress(OSError):
            file.touch()
    return file.exists()


def _opened(file: Path, mode: str) -> IO[str]:
    if file.exists() and not file.is_file():  # a named pipe would be waited for without limit
        raise LockError(f"it is not a regular file; move it away: {file}")
    try:
        return file.open(mode)
    except OSError as error:
        raise LockError(f"{error.strerror}: {file}") from error


def _try(handle: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise LockError(
            f"{error.strerror}: the file system does not support locks ({handle.name})"
        ) from error
    return True


def _holder(handle: IO[str]) -> str:
    handle.seek(0)
    name = handle.read(20).strip()
    return f"process {name}" if name.isdecimal() else "another process"


def _name_holder(handle: IO[str], name: str) -> None:
    """Write the holder's name to the file for messages of waiting processes; errors such as a full disk are ignored."""
    with contextlib.suppress(OSError):
        os.ftruncate(handle.fileno(), 0)
        os.write(handle.fileno(), name.encode())  # unbuffered, so that close() has no data left to write


_THREAD = threading.local()


def _places_of_this_thread() -> set[Path]:
    """Return the sections held by this thread of this process; a forked child starts with none."""
    if getattr(_THREAD, "process", None) != os.getpid():
        _THREAD.process, _THREAD.files = os.getpid(), set()
    files: set[Path] = _THREAD.files
    return files
