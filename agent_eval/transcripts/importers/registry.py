"""Describe a format that can be imported; each importer registers itself with one description."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from agent_eval.formats.zip_members import ZipMember
from agent_eval.transcripts.importers.base import Importer, Source

RecordFields = Mapping[str, JsonValue]


@dataclass(frozen=True)
class Format:
    """Describe a format by its reader, a test whether a record is in the format, and its documentation."""

    name: str
    read: Importer
    looks_like: Callable[[RecordFields], bool]
    order: int  # position in detection: the first format that matches a file is used
    content: str  # content of a file, in Markdown
    conversation: str  # what becomes one conversation
    details: str = ""  # what is mapped in a special way or omitted, in Markdown
    outcome: tuple[str, str, str] | None = (
        None  # what decides: passed or failed, class of an error, otherwise
    )
    also: str = ""  # other names of the format, for the README
    is_general: bool = False  # also matches files of formats before it
    is_document: bool = False  # a file is one object that contains the records in an array
    is_archive: Callable[[Path | ZipMember], bool] | None = None  # whether a file is an archive of the format
    parts: Callable[[Path | ZipMember], Sequence[Path | ZipMember]] | None = None  # files read with a file
    task_set: Callable[[Source], str | None] | None = None  # reads the task set from a file that contains it
