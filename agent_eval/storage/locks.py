"""Locks between processes: flock on files that stay, waits that end and say what they wait for.

The kernel drops a lock with the process that held it: a killed process leaves an unlocked file, never a stale lock.
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
SAY_AFTER_S = 3.0  # a shorter wait is not worth a line
_SHORTEST_S, _LONGEST_S = 0.001, 0.1


class LockError(Exception):
    """The lock file cannot be opened, or its file system gives no locks."""


class LockTimeoutError(LockError):
    """Another process kept the lock for longer than was waited; the message names who."""


class Patience:
    """A bounded wait: sleeps that double with jitter, and one line on the log once it gets long.

    Args:
        limit_s: How long to wait in all; None: as long as it takes.
        what: What is waited for, as messages name it.
    """

    def __init__(self, limit_s: float | None, what: str) -> None:
        self._limit_s, self._what = limit_s, what
        self._began, self._pause, self._said = time.monotonic(), _SHORTEST_S, False

    def sleep(self, holder: str) -> bool:
        """Wait a little; False when the time is over."""
        waited = time.monotonic() - self._began
        if self._limit_s is not None and waited >= self._limit_s:
            return False
        if waited >= SAY_AFTER_S and not self._said:
            self._said = True
            _LOG.warning("Waiting for %s: %s holds it.", self._what, holder)
        time.sleep(self._pause * (0.5 + random.random()))
        self._pause = min(2 * self._pause, _LONGEST_S)
        return True


@contextlib.contextmanager
def shared(file: Path, *, limit_s: float | None, what: str) -> Iterator[None]:
    """Hold the lock together with other readers, after the writers that came before.

    A reader that can neither find nor make the lock file goes without: the folder is not written to.

    Raises:
        LockTimeoutError: If writers kept it for longer than `limit_s`.
        LockError: If the file system gives no locks.
    """
    patience = Patience(limit_s, what)
    with contextlib.ExitStack() as held:
        if _is_there(file):
            with _queue(file, fcntl.LOCK_SH, patience):
                held.enter_context(_held(file, fcntl.LOCK_SH, patience))
        yield


@contextlib.contextmanager
def exclusive(file: Path, *, limit_s: float | None, what: str) -> Iterator[None]:
    """Hold the lock alone, before the readers that come later: readers that overlap never keep a writer out.

    Raises:
        LockTimeoutError: If others kept it for longer than `limit_s`.
        LockError: If the file cannot be opened for writing, or the file system gives no locks.
    """
    patience = Patience(limit_s, what)
    with contextlib.ExitStack() as held:
        with _queue(file, fcntl.LOCK_EX, patience):
            held.enter_context(_held(file, fcntl.LOCK_EX, patience))
        yield


@contextlib.contextmanager
def place(file: Path, *, what: str, wait: bool = True) -> Iterator[bool]:
    """Hold a place that only one has, waiting as long as it takes; within itself, in one thread, it is held already.

    Yields whether it is held: always, unless `wait` is false and another process has it.

    Raises:
        LockError: If the file cannot be opened for writing, or the file system gives no locks.
    """
    mine = _places_of_this_thread()
    if file in mine:
        yield True
        return
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(_held(file, fcntl.LOCK_EX, Patience(None if wait else 0, what)))
        except LockTimeoutError:
            yield False
            return
        mine.add(file)
        try:
            yield True
        finally:
            mine.remove(file)


@contextlib.contextmanager
def _queue(file: Path, kind: int, patience: Patience) -> Iterator[None]:
    """The place before the lock, held until the lock is: a writer waits there alone, so that no other writer overtakes it."""
    queue = file.with_name(f"{file.name}.queue")
    if not _is_there(queue):
        yield
        return
    with _held(queue, kind, patience):
        yield


@contextlib.contextmanager
def _held(file: Path, kind: int, patience: Patience) -> Iterator[None]:
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
            fcntl.flock(handle, fcntl.LOCK_UN)  # closing is not enough: a forked child has the same open file


def _is_there(file: Path) -> bool:
    """Whether the file exists, or could be made."""
    if not file.exists():
        with contextlib.suppress(OSError):
            file.touch()
    return file.exists()


def _opened(file: Path, mode: str) -> IO[str]:
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
        raise LockError(f"{error.strerror}: this file system locks no files ({handle.name})") from error
    return True


def _holder(handle: IO[str]) -> str:
    handle.seek(0)
    name = handle.read(20).strip()
    return f"process {name}" if name.isdecimal() else "another process"


def _name_holder(handle: IO[str], name: str) -> None:
    """Only a help for those who wait: a full disk must not stop anybody here."""
    with contextlib.suppress(OSError):
        os.ftruncate(handle.fileno(), 0)
        os.write(handle.fileno(), name.encode())  # unbuffered: nothing is left for close() to fail on


_THREAD = threading.local()


def _places_of_this_thread() -> set[Path]:
    """The places that this thread of this process holds; a forked child starts with none of its own."""
    if getattr(_THREAD, "process", None) != os.getpid():
        _THREAD.process, _THREAD.files = os.getpid(), set()
    files: set[Path] = _THREAD.files
    return files
