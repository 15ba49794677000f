"""The journal: rows on their way into a table, safe on disk before anybody relies on them.

A write into the database costs tens of milliseconds, a line at the end of a file well under one. So what must not be
lost is appended here as it arrives and merged into its table later: at the end of the work, or, when that was cut
short, by whoever opens the folder next.
"""

import contextlib
import fcntl
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

Row = Mapping[str, object]


@dataclass
class Journal:
    """A file of JSON rows that one writer holds."""

    path: Path
    _file: IO[bytes]

    @classmethod
    def begin(cls, folder: Path) -> "Journal":
        """A new journal, held by this process until it is closed."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{uuid.uuid4().hex}.jsonl"
        file = path.open("ab", buffering=0)
        fcntl.flock(file, fcntl.LOCK_EX)
        return cls(path, file)

    def append(self, rows: Sequence[Row]) -> None:
        """Write rows; when this returns they survive the end of the process and of the machine."""
        self._file.write("".join(f"{json.dumps(row)}\n" for row in rows).encode())
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Let go of the file; an empty one is removed."""
        if not self._file.closed:
            if not self._file.tell():
                self.path.unlink(missing_ok=True)
            self._file.close()


@contextlib.contextmanager
def finished_journals(folder: Path) -> Iterator[list[dict[str, object]]]:
    """The rows of all journals that nobody holds; the journals are removed when the block ends without an error.

    A last line that was cut off in the middle is no row: its writer was not told that it was safe.
    """
    with contextlib.ExitStack() as held:
        files = [file for path in sorted(folder.glob("*.jsonl")) if (file := _taken(path, held))]
        yield [row for file in files for row in _rows(file)]
        for file in files:
            Path(file.name).unlink(missing_ok=True)


def _taken(path: Path, held: contextlib.ExitStack) -> IO[bytes] | None:
    try:
        file = held.enter_context(path.open("rb"))
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process holds it, or has merged and removed it
        return None
    return file if path.exists() else None


def _rows(file: IO[bytes]) -> Iterator[dict[str, object]]:
    for line in file:
        if line.endswith(b"\n"):
            yield json.loads(line)
