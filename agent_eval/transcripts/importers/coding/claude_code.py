"""Read Claude Code session logs (`~/.claude/projects/…/*.jsonl`): lines {"type": "user" | "assistant", "sessionId", "message"}."""

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from agent_eval.formats.streams import Record, json_lines
from agent_eval.transcripts.importers.base import (
    SOURCE_SESSIONS,
    Fields,
    Found,
    Ids,
    NotThisFormatError,
    Source,
    conversations,
    listed,
    mapping,
    or_nothing_found,
    paid,
    text_of,
    without_nulls,
)
from agent_eval.transcripts.importers.shared.dialects import native_messages
from agent_eval.transcripts.importers.shared.layouts import Item, grouped
from agent_eval.transcripts.importers.shared.threads import Thread

NAME = "claude-code"
EXPECTED = 'lines of a Claude Code session: {"type": "user" | "assistant", "sessionId": …, "message": {…}}'
_META = ("cwd", "gitBranch", "version")


def read(source: Source) -> Iterator[Found]:
    """Yield the sessions of a log as one conversation each; a subagent (isSidechain) is a separate conversation."""
    records = grouped(source, lambda: _spoken(source), lambda value: text_of(mapping(value).get("session")))
    return conversations(source, NAME, or_nothing_found(source, records, EXPECTED), _conversation)


def looks_like(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a line belongs to a Claude Code session."""
    has_message = isinstance(value.get("message"), dict) and value.get("type") in ("user", "assistant")
    return "sessionId" in value and (has_message or "uuid" in value)


def _spoken(source: Source) -> Iterator[Item]:
    """Yield the lines that contain a message, each with its session."""
    for record in json_lines(source.path, source.file):
        line = mapping(record.value) if isinstance(record, Record) else {}
        if not isinstance(record, Record):
            yield record
        elif line.get("type") in ("user", "assistant") and isinstance(line.get("message"), dict):
            session = text_of(line.get("sessionId")) or "session"
            if line.get("isSidechain") is True:
                session = f"{session}/{text_of(line.get('agentId')) or 'subagent'}"
            yield Record(record.number, {"session": session, "line": dict(line)}, record.size)


def _conversation(group: Mapping[str, JsonValue], ids: Ids, number: int) -> Fields:
    lines = [mapping(mapping(value).get("line")) for value in listed(group.get("records"))]
    dropped = {
        uuid for line in lines for uuid in listed(line.get("supersedesUuids")) if isinstance(uuid, str)
    }
    seen = set[str]()
    thread = Thread()
    last_id: JsonValue = None
    for line in lines:
        uuid = text_of(line.get("uuid"))
        if uuid is not None and (uuid in seen or uuid in dropped):
            continue
        seen |= {uuid} if uuid else set()
        message = mapping(line.get("message"))
        found = _messages(line, message)
        own_id = message.get("id")
        if found and own_id is not None and own_id == last_id and thread.messages:
            found = _joined(thread.messages, found)
        thread.extend(found)
        last_id = own_id if message.get("role") == "assistant" else None
        thread.metadata = {**without_nulls({key: text_of(line.get(key)) for key in _META}), **thread.metadata}
    if not thread.messages:
        raise NotThisFormatError("the session contains no messages of the user or the agent")
    key = text_of(group.get("key")) or str(number)
    if any(
        line.get("sessionId") is not None for line in lines
    ):  # a copied history keeps the id of its first line
        names = [key, next((text_of(line.get("uuid")) for line in lines), None)]
        thread.metadata[SOURCE_SESSIONS] = [name for name in names if name is not None]
    return thread.fields() | {"conversation_id": ids.named(key)}


def _messages(line: Mapping[str, JsonValue], message: Mapping[str, JsonValue]) -> list[Fields]:
    timed: dict[str, JsonValue] = {
        **message,
        "timestamp": line.get("timestamp"),
        "cost_usd": paid(line.get("costUSD")),
    }
    found = native_messages([timed])
    if line.get("isMeta") is True or line.get("isCompactSummary") is True:
        found = [{**m, "role": "developer"} if m["role"] == "user" else m for m in found]
    if line.get("isApiErrorMessage") is True:
        found = [{**m, "is_error": True} if m["role"] == "assistant" else m for m in found]
    return found


def _joined(before: list[Fields], found: list[Fields]) -> list[Fields]:
    """Merge the blocks of a message that the log splits over several lines into the message of the first line."""
    first, last = found[0], before[-1]
    if first["role"] != "assistant" or last["role"] != "assistant":
        return found
    merged = {**first, **last}
    texts = [text for m in (last, first) if isinstance(text := m.get("content"), str) and text]
    merged["content"] = "\n".join(texts) or None
    calls = [*_listed(last, "tool_calls"), *_listed(first, "tool_calls")]
    thoughts = [str(m["reasoning"]) for m in (last, first) if m.get("reasoning")]
    merged |= ({"tool_calls": calls} if calls else {}) | (
        {"reasoning": "\n".join(thoughts)} if thoughts else {}
    )
    for key in ("usage", "finish_reason"):  # the last line has the final values
        if first.get(key) is not None:
            merged[key] = first[key]
    before[-1] = merged
    return found[1:]


def _listed(message: Fields, key: str) -> list[object]:
    value = message.get(key)
    return value if isinstance(value, list) else []
