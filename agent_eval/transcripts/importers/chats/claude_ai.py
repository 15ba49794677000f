"""Read claude.ai data exports (conversations.json): {"uuid", "chat_messages": [{"sender", "text", "content"}]}."""

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from agent_eval.formats.streams import Record
from agent_eval.transcripts.importers.base import (
    Fields,
    Found,
    Ids,
    LeftOut,
    NotThisFormatError,
    Source,
    conversations,
    listed,
    mapping,
    or_nothing_found,
    text_of,
    without_nulls,
)
from agent_eval.transcripts.importers.registry import Format
from agent_eval.transcripts.importers.rules.branches import spoken_in_order
from agent_eval.transcripts.importers.rules.unread import without
from agent_eval.transcripts.importers.shared.dialects import native_messages
from agent_eval.transcripts.importers.shared.layouts import Item, records_of
from agent_eval.transcripts.importers.shared.threads import Thread

NAME = "claude-ai"
EXPECTED = '{"uuid": …, "chat_messages": […]}, as in conversations.json of an export'
_BESIDE = (
    *("uuid", "sender", "created_at", "updated_at", "attachments", "files", "files_v2"),
    *("parent_message_uuid", "index", "truncated"),
)
"""Keys of a message that say nothing of what was said, or are read."""
_EMPTY = "chats contain no messages and are omitted"


def read(source: Source) -> Iterator[Found]:
    """Yield the chats of an export; chats without messages are omitted."""
    return conversations(source, NAME, or_nothing_found(source, _chats(source), EXPECTED), _conversation)


def looks_like(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a record is a chat in an export."""
    messages = value.get("chat_messages")
    return isinstance(messages, list) and all("sender" in mapping(message) for message in messages[:3])


def _chats(source: Source) -> Iterator[Item]:
    for record in records_of(source, EXPECTED):
        is_empty = isinstance(record, Record) and mapping(record.value).get("chat_messages") == []
        yield LeftOut(_EMPTY) if is_empty else record


def _conversation(record: Mapping[str, JsonValue], ids: Ids, number: int) -> Fields:
    messages = record.get("chat_messages")
    if not isinstance(messages, list):
        raise NotThisFormatError(f"chat_messages is missing or not a list; expected {EXPECTED}")
    thread = Thread()
    ordered, thread.n_withdrawn = spoken_in_order(messages, record.get("current_leaf_message_uuid"))
    for message in map(mapping, ordered):
        text = "content" if "content" in message else "text"
        thread.extend([*without("message", message, (text,), _BESIDE), *native_messages([_message(message)])])
    thread.metadata = without_nulls({"title": record.get("name") or None})
    return thread.fields() | {"conversation_id": ids.named(text_of(record.get("uuid")) or str(number))}


def _message(value: Mapping[str, JsonValue]) -> JsonValue:
    content = listed(value.get("content")) or value.get("text")
    files = [file for key in ("attachments", "files") for file in listed(value.get(key))]
    when = value.get("created_at")
    return {"role": value.get("sender"), "content": content, "attachments": files, "timestamp": when}


FORMAT = Format(
    NAME,
    read,
    looks_like,
    order=140,
    content="`conversations.json` of claude.ai's data export, also in its zip",
    conversation="a chat",
    details="Chats without messages are omitted",
)
"""This format, as `catalog` registers it."""
