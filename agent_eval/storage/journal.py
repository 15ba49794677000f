"""Journal rows on disk until they are merged into a table.

A write to the database takes tens of milliseconds, whereas appending a line to a file takes less than one. Rows that
must not be lost are therefore appended to a journal as they arrive and merged into their table later: at the end of
the work or, if it was interrupted, by the next process that opens the folder.

Each line contains a checksum, the length of its row, and the row as JSON. Lines that do not match their checksum or
length are moved to the file `<journal>.damaged` beside the journal; all other lines are used.
"""

import contextlib
import errno
import fcntl
import json
import logging
import os
import re
import shutil
import threading
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import polars as pl
from polars.exceptions import PolarsError

from agent_eval.tables import Table

Row = Mapping[str, object]

LEAST_FREE = 32_000_000  # free bytes below which no paid call is sent, so that pending answers can be stored
SYNC_EVERY_S = 1.0
_PREFIX = re.compile(rb"([0-9a-f]{8}) (\d{1,10}) (?=\{)")
_BATCH = 10_000  # lines read per batch
_LOG = logging.getLogger(__name__)


class DiskFullError(OSError):
    """Raised when the disk does not have enough free space to store the next answers."""

    def __init__(self, folder: Path, free: int) -> None:
        super().__init__(
            errno.ENOSPC,
            f"only {free / 1e6:.0f} MB are free, but {LEAST_FREE / 1e6:.0f} MB are needed to store answers, "
            "so no judge is called. Free some space and re-run",
            str(folder),
        )


@dataclass
class Journal:
    """Append rows to a file that one writer keeps locked."""

    path: Path
    _file: IO[bytes]
    _length: int = 0  # size of the complete lines in bytes
    _is_torn: bool = False  # the file ends with a partial line that could not be removed
    _synced_at: float = field(default_factory=time.monotonic)
    _syncing: threading.Thread | None = None

    @classmethod
    def begin(cls, folder: Path) -> "Journal":
        """Create a journal, which this process keeps locked until it is closed.

        Raises:
            OSError: If the file cannot be created, or the disk has less than LEAST_FREE bytes free.
        """
        folder.mkdir(parents=True, exist_ok=True)
        _check_room(folder)
        path = folder / f"{uuid.uuid4().hex}.jsonl"
        file = os.fdopen(
            os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600), "ab", buffering=0
        )
        fcntl.flock(file, fcntl.LOCK_EX)
        return cls(path, file)

    def append(self, rows: Sequence[Row]) -> None:
        """Write either all rows or none.

        Written rows survive a kill immediately, and a power failure after about a second: a separate thread syncs the
        file at most once per second, so that a slow disk does not delay callers.

        Raises:
            OSError: If the rows cannot be written; the journal then ends with its last complete line.
        """
        data = b"\n" * self._is_torn + b"".join(map(_line, rows))
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
        except OSError:
            self._is_torn = True
            with contextlib.suppress(OSError):
                os.ftruncate(self._file.fileno(), self._length)
                self._is_torn = False
            raise
        self._length += len(data)
        self._is_torn = False
        is_busy = self._syncing is not None and self._syncing.is_alive()
        if not is_busy and time.monotonic() - self._synced_at >= SYNC_EVERY_S:
            self._synced_at = time.monotonic()
            self._syncing = threading.Thread(target=os.fsync, args=(self._file.fileno(),), daemon=True)
            self._syncing.start()
            _check_room(self.path.parent)  # the next answers must also fit

    def close(self) -> None:
        """Close and unlock the file, and remove it if it is empty."""
        if self._file.closed:
            return
        if self._syncing is not None:
            self._syncing.join()
        try:
            if self._length:
                os.fsync(self._file.fileno())
            else:
                self.path.unlink(missing_ok=True)
        finally:
            self._file.close()


def _line(row: Row) -> bytes:
    text = json.dumps(row).encode()
    return b"%08x %d %s\n" % (zlib.crc32(text), len(text), text)


def _check_room(folder: Path) -> None:
    if (free := shutil.disk_usage(folder).free) < LEAST_FREE:
        raise DiskFullError(folder, free)


@contextlib.contextmanager
def finished_journals(folder: Path, target: Table) -> Iterator[pl.DataFrame]:
    """Yield the rows of all unlocked journals as frames with the table's columns; the last row of each key counts.

    The journals are removed when the block ends without an error. Damaged lines are moved to `<journal>.damaged` and
    logged. An incomplete last line is ignored, because `append` did not return successfully for it.
    """
    with contextlib.ExitStack() as locks:
        files = [file for path in sorted(folder.glob("*.jsonl")) if (file := _taken(path, locks))]
        frames, damaged = [target.empty()], dict[Path, list[bytes]]()
        for file in files:
            for batch in _batches(file, damaged.setdefault(Path(file.name), [])):
                frames += _frames(batch, target, damaged[Path(file.name)])
        yield pl.concat(frames).unique(target.key, keep="last", maintain_order=True)
        for path, lines in damaged.items():
            _set_aside(path, lines)
            path.unlink(missing_ok=True)


def _taken(path: Path, locks: contextlib.ExitStack) -> IO[bytes] | None:
    if not path.is_file():  # a named pipe would be waited for without limit
        return None
    try:
        file = locks.enter_context(path.open("rb"))
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process locked it, or merged and removed it
        return None
    return file if path.exists() else None


def _batches(lines: Iterable[bytes], damaged: list[bytes]) -> Iterator[list[bytes]]:
    """Yield the rows of a journal as JSON, in batches; lines with an invalid checksum are added to `damaged`."""
    batch: list[bytes] = []
    for line in lines:
        is_whole = line.endswith(b"\n")
        row = _row_of(line.strip())
        if row is not None and is_whole:
            batch.append(row)
        elif is_whole and line.strip():
            damaged.append(line)
        if len(batch) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _row_of(line: bytes) -> bytes | None:
    prefix = _PREFIX.match(line)
    if prefix is None:  # releases before 0.1.0 wrote only the row
        return line if line.startswith(b"{") and _is_json(line) else None
    text = line[prefix.end() :]
    is_intact = len(text) == int(prefix[2]) and zlib.crc32(text) == int(prefix[1], 16)
    return text if is_intact else None


def _is_json(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _frames(batch: Sequence[bytes], target: Table, damaged: list[bytes]) -> list[pl.DataFrame]:
    """Return the rows as frames; rows that do not match the table's schema are added to `damaged`."""
    try:
        return [pl.read_ndjson(b"\n".join(batch), schema=target.schema)]
    except PolarsError:
        if len(batch) == 1:
            damaged.append(batch[0] + b"\n")
            return []
        half = len(batch) // 2
        return _frames(batch[:half], target, damaged) + _frames(batch[half:], target, damaged)


def _set_aside(journal: Path, lines: Sequence[bytes]) -> None:
    if lines:
        aside = journal.with_suffix(".damaged")
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as file:
            file.writelines(lines)
        _LOG.warning(
            "%d lines of the journal %s are damaged and were moved to %s. All other lines were stored; missing "
            "answers will be requested again.", len(lines), journal.name, aside,
        )  # fmt: skip
