"""Read ChatGPT data exports (conversations.json).

A record has the form {"mapping": {id: {"message", "parent", "children"}}, "current_node"}.
"""

import datetime
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from agent_eval.formats.timestamps import as_text
from agent_eval.transcripts.importers.base import (
    Fields,
    Found,
    Ids,
    NotThisFormatError,
    Source,
    conversations,
    listed,
    mapping,
    number_of,
    or_nothing_found,
    text_of,
    without_nulls,
)
from agent_eval.transcripts.importers.registry import Format
from agent_eval.transcripts.importers.shared.dialects import ROLES, parsed
from agent_eval.transcripts.importers.shared.layouts import records_of
from agent_eval.transcripts.importers.shared.threads import Thread

NAME = "chatgpt"
EXPECTED = '{"mapping": {…}, "current_node": …}, as in conversations.json of an export'
_THOUGHTS = ("thoughts", "reasoning_recap")
_BESIDE = ("user_editable_context", "model_editable_context")


def read(source: Source) -> Iterator[Found]:
    """Yield the chats of an export; only the branch that a chat displays is read, without regenerated answers."""
    records = or_nothing_found(source, records_of(source, EXPECTED), EXPECTED)
    return conversations(source, NAME, records, _conversation)


def looks_like(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a record is a chat in an export."""
    nodes = mapping(value.get("mapping"))
    return "current_node" in value and all({"parent", "children"} & set(mapping(n)) for n in nodes.values())


def _conversation(record: Mapping[str, JsonValue], ids: Ids, number: int) -> Fields:
    thread = Thread()
    for message in _branch(record):
        _take(thread, message)
    if not thread.messages:
        raise NotThisFormatError(f"the chat contains no messages; expected {EXPECTED}")
    thread.metadata = without_nulls({"title": record.get("title")})
    name = text_of(record.get("conversation_id") or record.get("id")) or str(number)
    return thread.fields() | {"conversation_id": ids.named(name)}


def _branch(record: Mapping[str, JsonValue]) -> list[Mapping[str, JsonValue]]:
    """Return the messages from the root to the current node; if there is none, to the last node of the file."""
    nodes = mapping(record.get("mapping"))
    at = text_of(record.get("current_node")) or next(iter([*nodes][::-1]), None)
    found: list[Mapping[str, JsonValue]] = []
    seen: set[str] = set()
    while at is not None and at in nodes and at not in seen:
        seen.add(at)
        node = mapping(nodes[at])
        if message := mapping(node.get("message")):
            found.append(message)
        at = text_of(node.get("parent"))
    return found[::-1]


def _take(thread: Thread, message: Mapping[str, JsonValue]) -> None:
    author, content = mapping(message.get("author")), mapping(message.get("content"))
    kind, role = content.get("content_type"), ROLES.get(str(author.get("role")))
    if role is None:
        raise NotThisFormatError(f"a message's author.role is {str(author.get('role'))[:40]!r}")
    if kind in _THOUGHTS:
        texts = (text_of(mapping(thought).get("content")) for thought in listed(content.get("thoughts")))
        if said := "\n".join(filter(None, texts)):
            thread.extend([{"role": "assistant", "content": None, "reasoning": said}])
        return
    if kind in _BESIDE:
        texts = (text_of(content.get(key)) for key in ("user_profile", "user_instructions"))
        thread.instruct("\n\n".join(filter(None, texts)))
        return
    text = _text(content)
    recipient = text_of(message.get("recipient")) or "all"
    own: Fields = {"role": role, "content": text, **_beside(message)}
    if role == "assistant" and recipient != "all":
        arguments = parsed(text)
        named: JsonValue = arguments if isinstance(arguments, dict) else {"text": text}
        call: Fields = {"id": text_of(message.get("id")), "name": recipient, "arguments": named}
        thread.extend([{**own, "content": None, "tool_calls": [call]}])
    elif role == "tool":
        thread.answer(text_of(author.get("name")), None, own)
    elif text is not None or role == "user":
        thread.extend([own])


def _text(content: Mapping[str, JsonValue]) -> str | None:
    parts = listed(content.get("parts")) or [content.get("text", content.get("result"))]
    texts = [part if isinstance(part, str) else _part(part) for part in parts if part is not None]
    return "\n".join(text for text in texts if text) or None


def _part(part: JsonValue) -> str:
    fields = mapping(part)
    kind = text_of(fields.get("content_type")) or "file"
    place = "[image]" if kind.startswith("image") else "[audio]" if kind.startswith("audio") else f"[{kind}]"
    return text_of(fields.get("text")) or place


def _beside(message: Mapping[str, JsonValue]) -> Fields:
    """Return the time and the model of a message, if known."""
    model = mapping(message.get("metadata")).get("model_slug")
    known: Fields = {"model": model} if isinstance(model, str) else {}
    when = number_of(message.get("create_time"))
    if when is None or not 0 < when < 1e11:
        return known
    return known | {"timestamp": as_text(datetime.datetime.fromtimestamp(when, datetime.UTC))}


FORMAT = Format(
    NAME,
    read,
    looks_like,
    content="`conversations.json` of ChatGPT's data export, also in its zip",
    conversation="a chat",
)
"""This format, as `catalog` registers it."""
