"""List and check files and folders in the data folder: allowed names, and links that leave the folder."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SLUG_FORM = (
    "lower-case letters, digits, '.', '_' and '-', beginning with a letter or digit, at most 128 characters"
)
_SLUG = re.compile(r"[a-z0-9][a-z0-9._-]*\Z")
_CIRCLE = "a link that leads back to itself; put the file itself here"
_OUTSIDE = "a link that leads out of the data folder; put the files themselves here"


def is_slug(text: str) -> bool:
    """Return whether the text is a valid id of an agent or a session."""
    return len(text) <= 128 and _SLUG.match(text) is not None


@dataclass(frozen=True)
class Bounds:
    """Define the folders that links may point to: the sessions folder and its parent, the data folder."""

    roots: tuple[Path, ...]

    @classmethod
    def of(cls, sessions_folder: Path) -> "Bounds":
        """Return the bounds for the folder data/sessions, after resolving links of the two folders themselves."""
        return cls((_real(sessions_folder), _real(sessions_folder.parent)))

    def refused_folder(self, path: Path, holder: str) -> str | None:
        """Return why a path cannot be the folder of an agent or a session (`holder`), or None if it can be."""
        try:
            if astray := self._astray(path):
                return astray
            if not path.is_dir():
                return f"not a folder; expected one folder for each {holder}"
            if not is_slug(path.name):
                return f"the folder's name cannot be an id ({holder}); allowed: {SLUG_FORM}"
            next(path.iterdir(), None)
        except OSError as error:
            return unreadable(error)
        return None

    def refused_file(self, path: Path) -> str | None:
        """Return why a path cannot be read as a file, or None if it can be read."""
        try:
            if astray := self._astray(path):
                return astray
            if path.is_dir():
                return "a folder; expected a file"
            if not path.is_file():
                return "not a regular file" if path.exists() else "the file is missing"
        except OSError as error:
            return unreadable(error)
        return None

    def _astray(self, path: Path) -> str | None:
        """Return why a link must not be followed, or None if the path is not a link or the link is allowed."""
        if not path.is_symlink():
            return None
        try:
            real = path.resolve()
        except RuntimeError:  # raised by pathlib for circular links
            return _CIRCLE
        return None if any(real.is_relative_to(root) for root in self.roots) else _OUTSIDE


def unreadable(error: OSError) -> str:
    """Return why a file or folder cannot be read, with the operating system's message."""
    return f"it cannot be read ({error.strerror or error}); change its permissions, or move it out of the data folder"


def _real(path: Path) -> Path:
    """Return the path with links resolved; a circular link is returned unchanged."""
    return Path(os.path.realpath(path))


def astray(folder: Path) -> str | None:
    """Return the reason if a folder is a broken link; None if it is a folder or does not exist."""
    is_link_to_nothing = folder.is_symlink() and not folder.exists()
    return "a broken link; fix or remove it" if is_link_to_nothing else None


def entries(folder: Path) -> list[Path]:
    """Return the visible entries of a folder, sorted by name; an empty list if the folder does not exist."""
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if not p.name.startswith(".")), key=lambda p: p.name)


def files_in(folder: Path, ending: str) -> Iterator[tuple[Path, str | None]]:
    """Yield each visible file with the ending, sorted by name, and the reason if it cannot be read.

    The reason is None for a readable file. Entries that are not regular files, links that leave the data folder,
    and a folder that cannot be listed are yielded with a reason. If the folder does not exist, nothing is
    yielded.
    """
    try:
        if reason := astray(folder):
            yield folder, reason
        if folder.exists() and not folder.is_dir():
            yield folder, f"not a folder; put *{ending} files into a folder of this name"
        matching_files = [path for path in entries(folder) if path.name.endswith(ending)]
    except OSError as error:
        yield folder, unreadable(error)
        return
    bounds = Bounds.of(folder)
    for path in matching_files:
        yield path, bounds.refused_file(path)
