"""Files and folders under data/: which there are, which names are allowed, and links that leave the data folder."""

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
    """Return whether the text may name an agent or a session."""
    return len(text) <= 128 and _SLUG.match(text) is not None


@dataclass(frozen=True)
class Bounds:
    """The folders that a link may lead to: the sessions folder, and the data folder around it."""

    roots: tuple[Path, ...]

    @classmethod
    def of(cls, sessions_folder: Path) -> "Bounds":
        """The bounds around data/sessions, links to these two folders themselves followed."""
        return cls((_real(sessions_folder), _real(sessions_folder.parent)))

    def refused_folder(self, path: Path, holder: str) -> str | None:
        """Why a path cannot be the folder of `holder` (an agent, a session); None when it can."""
        try:
            if astray := self._astray(path):
                return astray
            if not path.is_dir():
                return f"not a folder; here stands one folder for each {holder}"
            if not is_slug(path.name):
                return f"the folder's name cannot be an id ({holder}); allowed: {SLUG_FORM}"
            next(path.iterdir(), None)
        except OSError as error:
            return unreadable(error)
        return None

    def refused_file(self, path: Path) -> str | None:
        """Why a path cannot be read as a file; None when it can."""
        try:
            if astray := self._astray(path):
                return astray
            if path.is_dir():
                return "a folder stands where a file is expected"
            if not path.is_file():
                return "not a regular file" if path.exists() else "the file is missing"
        except OSError as error:
            return unreadable(error)
        return None

    def _astray(self, path: Path) -> str | None:
        """Where a link leads that may not be followed."""
        if not path.is_symlink():
            return None
        try:
            real = path.resolve()
        except RuntimeError:  # how pathlib reports links that lead in a circle
            return _CIRCLE
        return None if any(real.is_relative_to(root) for root in self.roots) else _OUTSIDE


def unreadable(error: OSError) -> str:
    """Why a file or folder cannot be read, as the system says it."""
    return (
        f"it cannot be read ({error.strerror or error}); allow reading it, or take it out of the data folder"
    )


def _real(path: Path) -> Path:
    """Where links lead; a link that leads in a circle stays as it is."""
    return Path(os.path.realpath(path))


def astray(folder: Path) -> str | None:
    """Why the link in the place of a folder leads nowhere; None for a folder, and where nothing stands."""
    is_link_to_nothing = folder.is_symlink() and not folder.exists()
    return "a link that leads nowhere; mend it, or take it out" if is_link_to_nothing else None


def entries(folder: Path) -> list[Path]:
    """What a folder holds, by name; hidden names are not ours. A missing folder holds nothing."""
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if not p.name.startswith(".")), key=lambda p: p.name)


def files_in(folder: Path, ending: str) -> Iterator[tuple[Path, str | None]]:
    """Path, and why it cannot be read or None, of each file with that ending, by name; hidden ones are not ours.

    A missing folder has none. Anything that is not a regular file, a link that leads out of the data folder and
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
