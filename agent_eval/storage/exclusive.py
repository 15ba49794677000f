"""One place for one process: a lock on a file that is freed when its holder ends, however it ends."""

import contextlib
import fcntl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO


@dataclass
class _Place:
    handle: TextIO
    n_holders: int = 0


_HELD: dict[Path, _Place] = {}
_GUARD = threading.Lock()


@contextlib.contextmanager
def exclusive(file: Path, *, wait: bool = True, on_wait: Callable[[], None] = lambda: None) -> Iterator[bool]:
    """Hold `file` against every other process; a process that holds it already passes through.

    Yields whether it is held: always, unless `wait` is false and another process has it. `on_wait` is called once
    before waiting.

    Raises:
        OSError: If the file cannot be opened.
    """
    key = file.absolute()
    place = _HELD.get(key) or _taken(key, wait, on_wait)
    if place is None:
        yield False
        return
    with _GUARD:
        _HELD[key] = place
        place.n_holders += 1
    try:
        yield True
    finally:
        with _GUARD:
            place.n_holders -= 1
            if not place.n_holders:
                del _HELD[key]
                place.handle.close()


def _taken(file: Path, wait: bool, on_wait: Callable[[], None]) -> _Place | None:
    """The place, locked; None where another process has it and we do not wait."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = file.open("a")
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                handle.close()
                return None
            on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
    except BaseException:
        handle.close()
        raise
    return _Place(handle)
