"""The files of a data folder that judges read: which there are, and which cannot be read."""

from collections.abc import Iterator
from pathlib import Path

from agent_eval.transcripts.folders import Bounds, entries


def files_in(folder: Path, ending: str) -> Iterator[tuple[Path, str | None]]:
    """Path, and why it cannot be read or None, of each file with that ending, by name; hidden ones are not ours.

    A missing folder has none. What stands in the place of a file, a link that leads out of the data folder and
    a folder that cannot be listed are given with their reason.
    """
    try:
        if folder.exists() and not folder.is_dir():
            yield folder, f"not a folder; put *{ending} files into a folder of this name"
        found = [path for path in entries(folder) if path.name.endswith(ending)]
    except OSError as error:
        yield folder, unreadable(error)
        return
    for path in found:
        yield path, _refused(folder, path)


def unreadable(error: OSError) -> str:
    """Why a file or folder cannot be read, as the system says it."""
    return (
        f"it cannot be read ({error.strerror or error}); allow reading it, or take it out of the data folder"
    )


def _refused(folder: Path, path: Path) -> str | None:
    try:
        return Bounds.of(folder).refused_file(path)
    except OSError as error:
        return unreadable(error)
