"""Index an agent's sessions: conversation ids, source sessions, and the files they were imported from."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from agent_eval.formats.refusals import NOT_READ, Refusal
from agent_eval.formats.streams import Record, json_lines
from agent_eval.transcripts.importers.base import SOURCE_SESSIONS, Found, listed, mapping
from agent_eval.transcripts.models import Conversation, id_key
from agent_eval.transcripts.sessions import CONVERSATIONS, ERRORS

_SOURCE = re.compile(
    r"(?P<origin>(?P<format>[^:]+):(?P<file>.*))#(?P<number>\d+) sha256:(?P<sha>[0-9a-f]{64})", re.DOTALL
)


class RecordOrigin(NamedTuple):
    """Identify the record that a conversation was imported from.

    `record` is equal for equal records of a format.
    """

    file_of_format: str  # openai:chats.jsonl
    format_name: str
    file: str
    number: int
    record: str

    @classmethod
    def of(cls, source: object) -> "RecordOrigin | None":
        """Parse a conversation's `source`; return None if it was not written by an import."""
        return _parsed(source) if isinstance(source, str) else None


@lru_cache(maxsize=4)  # each step of an import asks for the origin of the same conversation
def _parsed(source: str) -> RecordOrigin | None:
    match = _SOURCE.fullmatch(source)
    if match is None:
        return None
    return RecordOrigin(match["origin"], match["format"], match["file"], int(match["number"]), match["sha"])


@dataclass(frozen=True)
class KnownConversation:
    """Hold the attributes by which a conversation of a session is recognised."""

    conversation_id: str
    record: str | None  # None: not written by an import
    source_sessions: tuple[str, ...] = ()  # format and id

    @classmethod
    def of(cls, conversation: Conversation) -> "KnownConversation":
        """Return the attributes of a conversation."""
        return cls.of_fields(conversation.conversation_id, conversation.source, conversation.metadata)

    @classmethod
    def of_fields(cls, name: str, source: object, metadata: object) -> "KnownConversation":
        """Return the attributes of a conversation with these fields."""
        origin = RecordOrigin.of(source)
        names = listed(metadata.get(SOURCE_SESSIONS)) if isinstance(metadata, dict) else []
        keys = tuple(f"{origin.format_name}:{key}" for key in names) if origin else ()
        return cls(name, origin.record if origin else None, keys)


@dataclass
class FileContent:
    """Identify the content of a file by its records and rejected records, independent of its path."""

    file: str | None = None
    _conversations: "hashlib._Hash" = field(default_factory=hashlib.sha256)
    _refusals: "hashlib._Hash" = field(default_factory=hashlib.sha256)
    _is_empty: bool = True

    def watching(self, items: Iterable[Found]) -> Iterator[Found]:
        """Yield the items, and add the conversations and rejected records to the content."""
        for item in items:
            if isinstance(item, Conversation):
                self.add(item.source)
            elif isinstance(item, Refusal):
                self.refuse(item.file, item.line, item.reason)
            yield item

    def add(self, source: object) -> None:
        """Add a conversation by its source."""
        if origin := RecordOrigin.of(source):
            self.file, self._is_empty = self.file or origin.file, False
            self._conversations.update(f"{origin.format_name} {origin.number} {origin.record}\n".encode())

    def refuse(self, file: str, line: int, reason: str) -> None:
        """Add a rejected record; parts that were not read do not belong to the content."""
        if reason.startswith(NOT_READ):
            return
        self.file, self._is_empty = self.file or file, False
        self._refusals.update(f"{line} {reason}\n".encode())

    @property
    def name(self) -> str | None:
        """Return a hash that identifies the content, or None if the content is empty."""
        return None if self._is_empty else f"{self._conversations.hexdigest()} {self._refusals.hexdigest()}"


class HeldConversation(NamedTuple):
    """Identify a conversation of a session."""

    session: str
    conversation_id: str
    record: str | None


class AgentIds:
    """Index the conversations of an agent's sessions; conversation ids are unique within an agent.

    The session folders are read once; a command that imports many files passes the same object to each
    import.
    """

    def __init__(self, agent_folder: Path) -> None:
        self._of: dict[str, list[KnownConversation]] = {}
        self._by_id: dict[str, dict[str, KnownConversation]] = {}
        self._by_source_session: dict[str, dict[str, KnownConversation]] = {}
        self._contents: dict[str, str] = {}  # session → content
        self._holders: dict[str, dict[str, str]] = {}  # content → session → file
        for path in sorted(agent_folder.glob(f"[!.]*/{CONVERSATIONS}")):
            conversations, content = _read(path)
            self.put(path.parent.name, conversations, content)

    def elsewhere(self, conversation_id: str, own: str) -> HeldConversation | None:
        """Return the conversation with this id in a session other than `own`, or None."""
        return _first_other(self._by_id.get(id_key(conversation_id), {}), own)

    def continued(self, conversation: KnownConversation, own: str) -> HeldConversation | None:
        """Return the conversation in a session other than `own` that has the same source session, or None."""
        for key in conversation.source_sessions:
            if place := _first_other(self._by_source_session.get(key, {}), own):
                return place
        return None

    def holder(self, content: FileContent) -> tuple[str, str] | None:
        """Return the session that contains the content of a file, and the file's name in it, or None."""
        return next(iter(self._holders.get(content.name or "", {}).items()), None)

    def of(self, session: str) -> set[str]:
        """Return the ids of the conversations of a session."""
        return {conversation.conversation_id for conversation in self._of.get(session, ())}

    def put(self, session: str, conversations: Iterable[KnownConversation], content: FileContent) -> None:
        """Record that a session contains exactly these conversations; earlier entries are removed."""
        for conversation in self._of.get(session, ()):
            self._by_id.get(id_key(conversation.conversation_id), {}).pop(session, None)
            for key in conversation.source_sessions:
                self._by_source_session.get(key, {}).pop(session, None)
        self._of[session] = list(conversations)
        for conversation in self._of[session]:
            self._by_id.setdefault(id_key(conversation.conversation_id), {}).setdefault(session, conversation)
            for key in conversation.source_sessions:
                self._by_source_session.setdefault(key, {}).setdefault(session, conversation)
        if (earlier := self._contents.pop(session, None)) is not None:
            del self._holders[earlier][session]
        if (name := content.name) is not None:
            self._contents[session] = name
            self._holders.setdefault(name, {})[session] = content.file or ""

    def extend(self, place: HeldConversation, conversation: KnownConversation) -> None:
        """Record that a part from another file continues a conversation."""
        for key in conversation.source_sessions:
            self._by_source_session.setdefault(key, {}).setdefault(place.session, conversation)


def _first_other(of: Mapping[str, KnownConversation], own: str) -> HeldConversation | None:
    pairs = ((session, entry) for session, entry in of.items() if session != own)
    return next((HeldConversation(s, entry.conversation_id, entry.record) for s, entry in pairs), None)


def _read(path: Path) -> tuple[list[KnownConversation], FileContent]:
    """Return the distinct conversations in a session's file, and the content from which it was imported."""
    content = FileContent()
    conversation_of_id: dict[str, KnownConversation] = {}
    for record in json_lines(path, path.name) if path.is_file() else ():
        value = mapping(record.value) if isinstance(record, Record) else {}
        if isinstance(name := value.get("conversation_id"), str):
            content.add(value.get("source"))
            conversation_of_id.setdefault(
                name, KnownConversation.of_fields(name, value.get("source"), value.get("metadata"))
            )
    errors = path.with_name(ERRORS)
    for record in json_lines(errors, errors.name) if errors.is_file() else ():
        match record.value if isinstance(record, Record) else None:
            case {"file": str(file), "line": int(line), "reason": str(reason)}:
                content.refuse(file, line, reason)
    return list(conversation_of_id.values()), content
