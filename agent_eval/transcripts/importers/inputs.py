"""Find the files to import: walk folders and archives, and match patterns.

Symbolic links that lead out of a folder are not followed.
"""

import glob
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path, PurePath
from tempfile import NamedTemporaryFile
from typing import BinaryIO

from agent_eval.formats.json_text import clean
from agent_eval.formats.streams import LARGEST_UNZIPPED, MEGABYTE
from agent_eval.formats.validation_messages import shorten
from agent_eval.formats.zip_members import ZipMember, is_zip, members
from agent_eval.transcripts.importers.catalog import RECOGNISED, archive_format
from agent_eval.transcripts.importers.import_errors import no_transcripts
from agent_eval.transcripts.importers.importing import default_session_id

STDIN = "-"
MOST_FILES = 100_000
_PATTERN = frozenset("*?[")


@dataclass(frozen=True)
class InputFile:
    """Represent a file to import. If it cannot be read, `path` is None and `reason` describes the cause."""

    name: str  # for display, with the folders or the archive in which the file was found
    path: Path | ZipMember | None
    reason: str = ""
    is_named: bool = True  # false if found in a folder or an archive

    @property
    def file(self) -> str:
        """Return the file's name without its folders."""
        return PurePath(self.name).name or "file"


def input_files(paths: Sequence[str], stdin: Path | None = None) -> list[InputFile]:
    """Return the files that the paths refer to, in the order of the paths; files of a folder are sorted by name.

    A folder is walked recursively; hidden files and folders are omitted. A path with `*`, `?`, `[…]` or `**` is a
    pattern unless a file of that name exists. A zip archive is walked like a folder, except that an Inspect archive is
    one file. A file that several paths refer to is returned once.

    Args:
        paths: Paths and patterns, or `-`.
        stdin: The file with the content of standard input.

    Raises:
        NotFoundError: If a path does not exist, a pattern matches nothing, or there are more than 100,000 files.
    """
    files: list[InputFile] = []
    for text in paths:
        try:
            files += islice(_named(text, stdin), MOST_FILES + 1)
        except (OSError, ValueError) as error:
            raise no_transcripts(Path(text), f"cannot be read ({error})") from error
        if len(files) > MOST_FILES:
            raise no_transcripts(Path(text), f"contains more than {MOST_FILES:,} files")
    return _without_parts(_each_once(files))


def _without_parts(files: list[InputFile]) -> list[InputFile]:
    """Drop the files that are read with another one, such as the simulations beside the results.json of tau2."""
    parts_of = [entry.parts for entry in RECOGNISED if entry.parts is not None]
    paths = [file.path for file in files if file.path is not None]
    parts = {_identity(part) for path in paths for find_parts in parts_of for part in find_parts(path)}
    return [file for file in files if file.path is None or _identity(file.path) not in parts]


def _identity(path: Path | ZipMember) -> object:
    return os.path.realpath(path) if isinstance(path, Path) else path


def _each_once(files: Sequence[InputFile]) -> list[InputFile]:
    """Drop repeated files, which several paths, patterns or folders refer to."""
    file_of_key: dict[object, InputFile] = {}
    for file in files:
        key = os.path.realpath(file.path) if isinstance(file.path, Path) else id(file)
        first = file_of_key.setdefault(key, file)
        if file.is_named and not first.is_named:
            file_of_key[key] = replace(first, is_named=True)
    return list(file_of_key.values())


def spooled(stream: BinaryIO) -> Path:
    """Write standard input to a temporary file, because files are read more than once. The caller removes the file.

    Raises:
        NotFoundError: If the input is longer than 1 GB; the temporary file is removed.
    """
    size = 0
    with NamedTemporaryFile(prefix="agent-eval-", suffix=".stdin", delete=False) as file:
        path = Path(file.name)
        try:
            while size <= LARGEST_UNZIPPED and (block := stream.read(MEGABYTE)):
                size += len(block)
                file.write(block)
        except OSError as error:
            path.unlink()
            raise no_transcripts(Path(STDIN), f"cannot be read ({error})") from error
    if size > LARGEST_UNZIPPED:
        path.unlink()
        raise no_transcripts(
            Path(STDIN), f"is longer than {LARGEST_UNZIPPED // MEGABYTE} MB; save it as a file"
        )
    return path


def session_ids(files: Sequence[InputFile]) -> list[str]:
    """Return the session id of each file: its name, prefixed by its folders if several files have the same name."""
    short = [default_session_id(file.file) for file in files]
    n_uses = Counter(short)
    counts = Counter[str]()
    ids: list[str] = []
    for file, name in zip(files, short, strict=True):
        stem = (
            name
            if n_uses[name] == 1
            else default_session_id(file.name.replace(os.sep, "-").replace("/", "-"))
        )
        counts[stem] += 1
        ids.append(stem if counts[stem] == 1 else f"{stem[:120]}-{counts[stem]}")
    return ids


def _named(text: str, stdin: Path | None) -> Iterator[InputFile]:
    if text == STDIN:
        yield InputFile("stdin", stdin)
        return
    path = Path(text)
    if path.is_dir():
        files = list(_walked(path))
        if not files:
            raise no_transcripts(path, "is a folder without files")
        yield from files
    elif path.exists():
        yield from _file(path, path.name, is_named=True)
    elif matches := sorted(glob.glob(text, recursive=True)):  # noqa: PTH207 - pathlib takes no absolute patterns
        for match in matches:
            if Path(match).is_file():
                yield from _file(Path(match), match, is_named=False)
    else:
        reason = "matches no file" if _PATTERN & set(text) else "does not exist"
        raise no_transcripts(path, reason)


def _walked(folder: Path) -> Iterator[InputFile]:
    """Yield the files below a folder.

    Symbolic links to folders are not followed; links to files are followed only if the file is below the folder.
    """
    root = Path(os.path.realpath(folder))
    unread: list[OSError] = []
    for base, folders, names in os.walk(folder, onerror=unread.append, followlinks=False):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(base) / name
            if name.startswith("."):
                continue
            label = str(path.relative_to(folder))
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(root):
                yield InputFile(label, None, "a link to a file outside the folder; specify the file itself")
            else:
                yield from _file(path, label, is_named=False)
    for error in unread:
        label = os.path.relpath(str(error.filename or folder), folder)
        yield InputFile(clean(label), None, f"the folder cannot be read ({error.strerror or error})")


def _file(path: Path, label: str, *, is_named: bool) -> Iterator[InputFile]:
    label = clean(label)
    try:
        if not path.is_file():
            yield InputFile(label, None, "not a regular file", is_named)
            return
        if not is_zip(path) or archive_format(path):
            yield InputFile(label, path, is_named=is_named)
            return
        for member in members(path):
            if not any(part.startswith(".") for part in PurePath(member.name).parts if part != ".."):
                yield InputFile(f"{label}/{clean(member.name)}", member, is_named=False)
    except OSError as error:
        yield InputFile(label, None, f"it cannot be read ({error.strerror or error})", is_named)
    except MemoryError:
        raise
    except Exception as error:  # last resort: the files after this one are still imported
        yield InputFile(
            label, None, shorten(f"it cannot be read ({type(error).__name__}: {error})"), is_named
        )
