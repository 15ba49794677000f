"""The journal: rows on their way into a table, safe on disk before anybody relies on them.

A write into the database costs tens of milliseconds, a line at the end of a file well under one. So what must not be
lost is appended here as it arrives and merged into its table later: at the end of the work, or, when that was cut
short, by whoever opens the folder next.
"""

import contextlib
import fcntl
import json
import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import polars as pl

from agent_eval.tables import Table

Row = Mapping[str, object]


SYNC_EVERY_S = 1.0


@dataclass
class Journal:
    """A file of JSON rows that one writer holds."""

    path: Path
    _file: IO[bytes]
    _synced_at: float = field(default_factory=time.monotonic)
    _syncing: threading.Thread | None = None

    @classmethod
    def begin(cls, folder: Path) -> "Journal":
        """A new journal, held by this process until it is closed."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{uuid.uuid4().hex}.jsonl"
        file = path.open("ab", buffering=0)
        fcntl.flock(file, fcntl.LOCK_EX)
        return cls(path, file)

    def append(self, rows: Sequence[Row]) -> None:
        """Write rows; when this returns they survive the end of the process, and after a second that of the machine.

        A disk that is slow to confirm holds nobody up: it is asked to by a thread of its own, once a second at most.
        """
        self._file.write("".join(f"{json.dumps(row)}\n" for row in rows).encode())
        is_busy = self._syncing is not None and self._syncing.is_alive()
        if not is_busy and time.monotonic() - self._synced_at >= SYNC_EVERY_S:
            self._synced_at = time.monotonic()
            self._syncing = threading.Thread(target=os.fsync, args=(self._file.fileno(),), daemon=True)
            self._syncing.start()

    def close(self) -> None:
        """Let go of the file; an empty one is removed."""
        if self._file.closed:
            return
        if self._syncing is not None:
            self._syncing.join()
        if self._file.tell():
            os.fsync(self._file.fileno())
        else:
            self.path.unlink(missing_ok=True)
        self._file.close()


@contextlib.contextmanager
def finished_journals(folder: Path, target: Table) -> Iterator[pl.DataFrame]:
    """The rows of all journals that nobody holds, as the table has them, the last one of each key.

    The journals are removed when the block ends without an error.

    A last line that was cut off in the middle is no row: its writer was not told that it was safe.
    """
    with contextlib.ExitStack() as held:
        files = [file for path in sorted(folder.glob("*.jsonl")) if (file := _taken(path, held))]
        rows = pl.concat([target.empty(), *(_rows(file, target) for file in files)])
        yield rows.unique(target.key, keep="last", maintain_order=True)
        for file in files:
            Path(file.name).unlink(missing_ok=True)


def _taken(path: Path, held: contextlib.ExitStack) -> IO[bytes] | None:
    try:
        file = held.enter_context(path.open("rb"))
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process holds it, or has merged and removed it
        return None
    return file if path.exists() else None


def _rows(file: IO[bytes], target: Table) -> pl.DataFrame:
    written = file.read()
    whole = written[: written.rfind(b"\n") + 1]
    return pl.read_ndjson(whole, schema=target.schema) if whole else target.empty()
