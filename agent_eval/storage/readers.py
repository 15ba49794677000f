"""Keep a connection for reading open for a moment, so that reads in a row share it.

Opening a store, reading its catalog and closing it takes longer than a small read. An open connection holds the
shared lock, and writers wait for it: it is closed at once for a writer of this process, and `HELD_S` after it was
opened for any other.
"""

import atexit
import contextlib
import os
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

HELD_S = 0.2
_Key = tuple[int, Path]
_Signature = tuple[int, int, int]
_lock = threading.Lock()
_timers: "weakref.WeakSet[threading.Timer]" = weakref.WeakSet()
_idle: dict[_Key, list["StoreReader"]] = {}
_writers: Counter[_Key] = Counter()


@dataclass(eq=False)
class StoreReader:
    """Hold an open connection for reading, and the columns of its tables as far as they were asked for."""

    con: duckdb.DuckDBPyConnection
    stack: contextlib.ExitStack
    signature: _Signature
    opened: float
    columns: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    timer: threading.Timer | None = None

    def close(self) -> None:
        """Detach the store and release its lock."""
        self.stop_timer()
        self.stack.close()

    def stop_timer(self) -> None:
        """Cancel the timer and forget it: it refers to this object, which would live until the process ends."""
        timer, self.timer = self.timer, None
        if timer is not None:
            timer.cancel()


@contextlib.contextmanager
def reader(
    file: Path, opened: Callable[[contextlib.ExitStack], duckdb.DuckDBPyConnection]
) -> Iterator[StoreReader]:
    """Yield a connection for reading a file: one that was used a moment ago, else a new one.

    Args:
        file: The store.
        opened: Opens a connection; what closes it is added to the stack.
    """
    key = (os.getpid(), file)
    found = _taken(key)
    if found is None:
        began = time.monotonic()
        with contextlib.ExitStack() as stack:
            con = opened(stack)
            found = StoreReader(con, stack.pop_all(), _signature(file), began)
    try:
        yield found
    except BaseException:
        found.stop_timer()
        found.stack.__exit__(*sys.exc_info())
        raise
    _given_back(key, found)


@contextlib.contextmanager
def closed(file: Path) -> Iterator[None]:
    """Close the idle connections of this process, and keep none until the block ends: a writer waits for the lock."""
    key = (os.getpid(), file)
    with _lock:
        _writers[key] += 1
        idle = _idle.pop(key, [])
    try:
        for each in idle:
            each.close()
        yield
    finally:
        with _lock:
            _writers[key] -= 1


def _taken(key: _Key) -> StoreReader | None:
    """Return an idle connection that may be used a while longer, to the same file; others are closed."""
    with _lock:
        found = _idle[key].pop() if _idle.get(key) else None
    if found is None or (not _is_old(found) and found.signature == _signature(key[1])):
        return found
    found.close()
    return None


def _given_back(key: _Key, used: StoreReader) -> None:
    with _lock:
        is_kept = not _writers[key] and not _is_old(used)
        if is_kept:
            _idle.setdefault(key, []).append(used)
            if used.timer is None:
                left = used.opened + HELD_S - time.monotonic()
                used.timer = threading.Timer(max(left, 0), _expire, (key, used))
                used.timer.daemon = True
                _timers.add(used.timer)
                used.timer.start()
    if not is_kept:
        used.close()


def _expire(key: _Key, old: StoreReader) -> None:
    """Close a connection whose time is over; one that is in use is closed after that."""
    with _lock:
        idle = _idle.get(key, [])
        if old not in idle:
            return
        idle.remove(old)
    old.close()


def _is_old(found: StoreReader) -> bool:
    return time.monotonic() - found.opened >= HELD_S


def _signature(file: Path) -> _Signature:
    """Return what differs when another file was put in this one's place."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return (0, 0, 0)
    return found.st_ino, found.st_mtime_ns, found.st_size


def _after_fork() -> None:
    """Use a new lock in a forked child: another thread of its parent may hold the old one."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _close() -> None:
    """Close what is open; a timer that closes a connection just now has to end before the interpreter does."""
    with _lock:
        idle = [each for (process, _), found in _idle.items() if process == os.getpid() for each in found]
        _idle.clear()
        timers = list(_timers)
    for each in idle:
        each.close()
    for timer in timers:
        timer.cancel()
        timer.join(HELD_S)
