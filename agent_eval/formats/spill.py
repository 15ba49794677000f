"""Keep computed rows in memory, or in temporary files if there are too many.

A large agent has millions of judgments. They are computed part by part, and each later step (checks, pages, storing)
reads them part by part, so that the memory in use does not grow with the agent.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from agent_eval.errors import StorageError

IN_MEMORY = 200_000
"""Maximum number of rows that `spilled` keeps in memory, over all tables."""


def _unusable_folder(folder: Path, why: str) -> StorageError:
    return StorageError(
        f"Temporary rows cannot be written to {folder}: {why}. Free space there, or set the environment variable "
        "TMPDIR to another folder."
    )


@dataclass(frozen=True)
class Spilled:
    """Hold the rows of one table in temporary files, which exist until the block of `spilled` ends.

    No key of the table is in two files.
    """

    files: tuple[Path, ...]

    def frames(self, columns: Sequence[str] | None = None) -> Iterator[pl.DataFrame]:
        """Yield the rows of each file, with all columns or with those given."""
        for file in self.files:
            yield pl.read_ipc(file, columns=None if columns is None else [*columns])

    def rewrite(self, number: int, frame: pl.DataFrame) -> None:
        """Replace the rows of a file; the files are numbered from 0.

        Raises:
            StorageError: If the file cannot be written.
        """
        _write(self.files[number], frame)


Rows = pl.DataFrame | Spilled
"""Rows of one table: in memory, or in temporary files."""


def frames_of(rows: Rows, columns: Sequence[str] | None = None) -> Iterator[pl.DataFrame]:
    """Yield rows in parts that fit in memory: a frame as it is, or file by file. There is always at least one part.

    If `columns` is given, a file is read only for these; a frame in memory has all.
    """
    if isinstance(rows, Spilled):
        yield from rows.frames(columns)
    else:
        yield rows


def in_memory(
    query: Callable[[pl.DataFrame], pl.DataFrame], of: Rows, columns: Sequence[str] | None = None
) -> pl.DataFrame:
    """Apply a query to each part of the rows, and return the concatenated results.

    If `columns` is given, rows in files are read only for these.
    """
    return pl.concat(query(frame) for frame in frames_of(of, columns))


@contextlib.contextmanager
def spilled(parts: Iterable[Mapping[str, pl.DataFrame]]) -> Iterator[dict[str, Rows]]:
    """Collect the parts of several tables, and yield the rows by table name.

    Args:
        parts: The next rows of each table; each part has the same tables. There is at least one part.

    Raises:
        StorageError: If the rows exceed `IN_MEMORY` and cannot be written to temporary files.
    """
    with contextlib.ExitStack() as stack:
        buffered_parts: list[Mapping[str, pl.DataFrame]] = []
        files: dict[str, list[Path]] = {}
        folder: Path | None = None
        for part in parts:
            buffered_parts.append(part)
            del part  # so that it is not in memory while the next one is computed
            if folder is None and _n_rows(buffered_parts) > IN_MEMORY:
                folder = Path(stack.enter_context(_temporary_folder()))
            while folder is not None and buffered_parts:
                _spill(buffered_parts.pop(0), folder, files)
        if folder is not None:
            yield {name: Spilled(tuple(of_table)) for name, of_table in files.items()}
        else:
            yield {name: pl.concat(part[name] for part in buffered_parts) for name in buffered_parts[0]}


def _spill(part: Mapping[str, pl.DataFrame], folder: Path, files: dict[str, list[Path]]) -> None:
    """Write the next file of each table, and add it to `files`."""
    for name, frame in part.items():
        of_table = files.setdefault(name, [])
        of_table.append(folder / f"{name}-{len(of_table)}.arrow")
        _write(of_table[-1], frame)


def _n_rows(parts: Iterable[Mapping[str, pl.DataFrame]]) -> int:
    return sum(frame.height for part in parts for frame in part.values())


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="agent-eval-")
    except OSError as error:
        raise _unusable_folder(Path(tempfile.gettempdir()), error.strerror or str(error)) from error


def _write(file: Path, frame: pl.DataFrame) -> None:
    try:
        frame.write_ipc(file, compression="lz4")
    except OSError as error:
        raise _unusable_folder(file.parent, error.strerror or str(error)) from error
