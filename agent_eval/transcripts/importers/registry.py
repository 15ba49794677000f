"""Describe a format that can be imported; each importer registers itself with one description."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from agent_eval.transcripts.importers.base import Importer, Source

RecordFields = Mapping[str, JsonValue]


@dataclass(frozen=True)
class Format:
    """Describe a format by its reader, a test whether a record is in the format, and its line of documentation."""

    name: str
    read: Importer
    looks_like: Callable[[RecordFields], bool]
    content: str  # content of a file, in Markdown
    conversation: str  # what becomes one conversation
    is_document: bool = False  # a file is one object that contains the records in an array
    task_set: Callable[[Source], str | None] | None = None  # reads the task set from a file that contains it

    @property
    def documentation(self) -> str:
        """Return the format's row of the table in docs/formats.md."""
        return f"| `{self.name}` | {self.content} | {self.conversation} |"
