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
from agent_eval.transcripts.importers.rules.speakers import known_role
from agent_eval.transcripts.importers.rules.unread import UNREAD
from agent_eval.transcripts.importers.shared.dialects import native_messages, parsed
from agent_eval.transcripts.importers.shared.layouts import records_of
from agent_eval.transcripts.importers.shared.threads import Thread

NAME = "chatgpt"
EXPECTED = '{"mapping": {…}, "current_node": …}, as in conversations.json of an export'
_THOUGHTS = ("thoughts", "reasoning_recap")
_KINDS = frozenset(
    {
        *("text", "multimodal_text", "code", "execution_output", "tether_quote", "tether_browsing_display"),
        *("system_error", "computer_output", "stderr", "audio_transcription", "sonic_webpage"),
    }
)
"""Kinds of content, and of a part, whose text is read."""
_OF_TOOLS = _KINDS - {"text", "multimodal_text", "code", "audio_transcription"}
"""Kinds of content that a tool or a file contains; neither the person nor the agent wrote it, whatever its author is."""
_SAID = ("content", "tool_calls", "reasoning", "attachments", UNREAD)
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
    branch = _branch(record)
    for message in branch:
        _take(thread, message)
    nodes = (mapping(mapping(node).get("message")) for node in mapping(record.get("mapping")).values())
    thread.n_withdrawn = sum(map(_is_spoken, nodes)) - sum(map(_is_spoken, branch))
    if not thread.messages:
        raise NotThisFormatError(f"the chat contains no messages; expected {EXPECTED}")
    thread.metadata = without_nulls({"title": record.get("title")})
    name = text_of(record.get("conversation_id") or record.get("id")) or str(number)
    return thread.fields() | {"conversation_id": ids.named(name)}


def _branch(record: Mapping[str, JsonValue]) -> list[Mapping[str, JsonValue]]:
    """Return the messages from the root to the current node; if there is none, to the last node of the file."""
    nodes = mapping(record.get("mapping"))
    at = text_of(record.get("current_node")) or next(iter([*nodes][::-1]), None)
    if at is not None and at not in nodes:
        raise NotThisFormatError(f"current_node is {at[:60]!r}, which is not a key of mapping")
    branch_messages: list[Mapping[str, JsonValue]] = []
    visited: set[str] = set()
    while at is not None and at in nodes and at not in visited:
        visited.add(at)
        node = mapping(nodes[at])
        if message := mapping(node.get("message")):
            branch_messages.append(message)
        at = text_of(node.get("parent"))
    return branch_messages[::-1]


def _is_spoken(message: Mapping[str, JsonValue]) -> bool:
    """Return whether a message is text of the person or of the agent."""
    is_sent = message.get("recipient", "all") == "all"
    has_text = any(part for part in listed(mapping(message.get("content")).get("parts")))
    return is_sent and has_text and mapping(message.get("author")).get("role") in ("user", "assistant")


def _take(thread: Thread, message: Mapping[str, JsonValue]) -> None:
    author, content = mapping(message.get("author")), mapping(message.get("content"))
    kind, role = str(content.get("content_type")), known_role(author.get("role"))
    if role is None:
        raise NotThisFormatError(f"a message's author.role is {str(author.get('role'))[:40]!r}")
    is_hidden = mapping(message.get("metadata")).get("is_visually_hidden_from_conversation") is True
    if (kind in _OF_TOOLS and role in ("user", "assistant")) or (is_hidden and role == "user"):
        role = "developer"  # the person neither wrote nor saw it
    if kind in _THOUGHTS:
        thoughts: JsonValue = {"type": "reasoning", "content": content.get("thoughts")}
        thread.extend(native_messages([thoughts]))
        return
    if kind in _BESIDE:
        texts = (text_of(content.get(key)) for key in ("user_profile", "user_instructions"))
        thread.instruct("\n\n".join(filter(None, texts)))
        return
    parts = _parts(content)
    pointers = " ".join(str(mapping(part).get("asset_pointer")) for part in listed(parts))
    attached = map(mapping, listed(mapping(message.get("metadata")).get("attachments")))
    files: JsonValue = [
        {**file, "file_id": file.get("id")} for file in attached if str(file.get("id")) not in pointers
    ]
    *before, own = native_messages([{"role": role, "content": parts, "attachments": files}])
    thread.extend(before)
    own |= _beside(message)
    text = text_of(own["content"])  # type: ignore[arg-type]
    recipient = text_of(message.get("recipient")) or "all"
    if role == "assistant" and recipient != "all":
        arguments = parsed(text)
        call_arguments: JsonValue = arguments if isinstance(arguments, dict) else {"text": text}
        call: Fields = {"id": text_of(message.get("id")), "name": recipient, "arguments": call_arguments}
        thread.extend([{**own, "content": None, "tool_calls": [call]}])
    elif role == "tool":
        status = mapping(mapping(message.get("metadata")).get("aggregate_result")).get("status")
        if kind == "system_error" or str(status).startswith("failed"):
            own["is_error"] = True
        thread.answer(text_of(author.get("name")), None, own)
    elif role == "user" or any(own.get(key) for key in _SAID):
        thread.extend([own])


def _parts(content: Mapping[str, JsonValue]) -> JsonValue:
    """Return the parts of a message; the kind of a part is its type, and content without a text is one part."""
    parts = content.get("parts")
    kind = content.get("content_type")
    if isinstance(kind, str) and kind not in _KINDS:
        return [{"type": kind}]
    if not isinstance(parts, list):
        text = content.get("text", content.get("result"))
        is_empty = not any(v for key, v in content.items() if key not in ("content_type", "language"))
        return (
            text if isinstance(text, str) or is_empty else [{**content, "type": content.get("content_type")}]
        )
    return [_part(part) for part in parts if part is not None and part != ""]


def _part(part: JsonValue) -> JsonValue:
    kind = mapping(part).get("content_type")
    if not isinstance(part, dict) or kind is None:
        return part
    text = part.get("text")
    return (
        {"type": "text", "text": text}
        if isinstance(text, str) and str(kind) in _KINDS
        else {**part, "type": kind}
    )


def _beside(message: Mapping[str, JsonValue]) -> Fields:
    """Return the time and the model of a message, if known."""
    model = mapping(message.get("metadata")).get("model_slug")
    model_field: Fields = {"model": model} if isinstance(model, str) else {}
    when = number_of(message.get("create_time"))
    if when is None or not 0 < when < 1e11:
        return model_field
    return model_field | {"timestamp": as_text(datetime.datetime.fromtimestamp(when, datetime.UTC))}


FORMAT = Format(
    NAME,
    read,
    looks_like,
    order=130,
    content="`conversations.json` of ChatGPT's data export, also in its zip",
    conversation="a chat",
    details=(
        "The branch that the chat displays is read; regenerated answers are omitted. A message to a tool "
        "(`recipient`) is a call"
    ),
)
"""This format, as `catalog` registers it."""
