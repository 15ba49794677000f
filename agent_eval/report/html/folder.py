"""Write a report to a new folder, then move it to its destination, where it replaces only an earlier report."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from agent_eval.errors import StorageError

MARKER = ".agent-eval-report.json"
"""File in each report that lists the report's files. A folder with other files is not replaced."""


def _unusable_folder(folder: Path, reason: str) -> StorageError:
    return StorageError(f"The report cannot be written to {folder}: {reason}.")


@contextlib.contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Yield a new folder to write into. It replaces `folder` after the block, and is removed on an error.

    Raises:
        StorageError: If the folder cannot be created, or contains files that are not part of an earlier report.
    """
    target = folder.resolve()
    _check(target)
    fresh, old = (target.with_name(f".{target.name}.{word}") for word in ("new", "old"))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for leftover in (fresh, old):
            _remove_report(leftover)
        fresh.mkdir()
    except OSError as error:
        raise _unusable_folder(folder, f"{error.strerror or error}; name another folder") from error
    try:
        (fresh / MARKER).write_text(_manifest([]), encoding="utf-8")
        yield fresh
        (fresh / MARKER).write_text(_manifest(sorted(_files(fresh))), encoding="utf-8")
        _check(target)  # files may have been added while the report was written
        if target.exists():
            target.rename(old)
        fresh.rename(target)
        _remove_report(old)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _check(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise _unusable_folder(folder, "it is a file; name a folder")
    present = _files(folder)
    if not present:
        return
    if MARKER not in present:
        raise _unusable_folder(
            folder, "it contains other files and no earlier report; name a new or an empty folder"
        )
    if unlisted := sorted(present - _listed(folder) - {MARKER}):
        more = f" and {len(unlisted) - 1} more" if len(unlisted) > 1 else ""
        raise _unusable_folder(
            folder, f"it contains {unlisted[0]}{more}, not part of the earlier report; move it elsewhere"
        )


def _files(folder: Path) -> set[str]:
    """Return every file below the folder; links and empty folders count as files, since reports have neither."""
    files = set[str]()
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir() or not any(path.iterdir()):
            files.add(path.relative_to(folder).as_posix())
    return files


def _listed(folder: Path) -> set[str]:
    """Return the files that a report's marker lists; an empty set if the marker cannot be read."""
    try:
        files = json.loads((folder / MARKER).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return set()
    return set(files) if isinstance(files, list) else set()


def _manifest(files: list[str]) -> str:
    return json.dumps({"made_by": "agent_eval", "files": files}, indent=0) + "\n"


def _remove_report(folder: Path) -> None:
    """Remove a report folder that a killed run left behind, or an empty folder.

    Raises:
        StorageError: If the folder is neither.
    """
    if (folder / MARKER).is_file():
        shutil.rmtree(folder)
    elif folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    elif folder.exists():
        raise _unusable_folder(folder, "it is not a report of agent_eval; move it elsewhere")
