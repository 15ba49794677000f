"""The files of a data folder that judges read: which there are, and which cannot be read."""

from collections.abc import Iterator
from pathlib import Path

from agent_eval.transcripts.folders import Bounds, astray, entries, unreadable


def files_in(folder: Path, ending: str) -> Iterator[tuple[Path, str | None]]:
    """Path, and why it cannot be read or None, of each file with that ending, by name; hidden ones are not ours.

    A missing folder has none. What stands in the place of a file, a link that leads out of the data folder and
    a folder that cannot be listed are given with their reason.
    """
    try:
        if reason := astray(folder):
            yield folder, reason
        if folder.exists() and not folder.is_dir():
            yield folder, f"not a folder; put *{ending} files into a folder of this name"
        found = [path for path in entries(folder) if path.name.endswith(ending)]
    except OSError as error:
        yield folder, unreadable(error)
        return
    bounds = Bounds.of(folder)
    for path in found:
        yield path, bounds.refused_file(path)
