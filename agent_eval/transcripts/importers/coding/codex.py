"""Read OpenAI Codex session logs (`rollout-….jsonl`): lines {"timestamp", "type", "payload"}, older ones without payload."""

import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping

from pydantic import JsonValue

from agent_eval.formats.streams import Lines, Record
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
    text_of,
    without_nulls,
)
from agent_eval.transcripts.importers.registry import Format
from agent_eval.transcripts.importers.rules.branches import LEFT_OUT
from agent_eval.transcripts.importers.rules.failures import exit_failed, failed
from agent_eval.transcripts.importers.rules.order import log_in_time_order
from agent_eval.transcripts.importers.rules.settling import FAILED
from agent_eval.transcripts.importers.rules.speakers import told_apart
from agent_eval.transcripts.importers.rules.unread import UNREAD, not_read
from agent_eval.transcripts.importers.shared.dialects import is_message, native_messages
from agent_eval.transcripts.importers.shared.layouts import Item, grouped
from agent_eval.transcripts.importers.shared.threads import Thread

NAME = "codex"
EXPECTED = (
    'lines of a Codex session: {"timestamp": …, "type": "session_meta" | "response_item" | …, "payload": {…}}'
)
_KINDS = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
WITHDRAWN = "messages of a Codex session belong to turns that the person rolled back, and are omitted"
_META = ("cwd", "cli_version", "originator", "model_provider")
_STATE = frozenset(
    {"ghost_snapshot", "compaction", "compaction_summary", "context_compaction", "world_state"}
)
"""Types of items that contain nothing that was said or done."""
_HELD_ELSEWHERE = frozenset({"compacted", "turn_context", "session_meta", "event_msg", "world_state"})


_EVENTS = re.compile(
    r"(?:user|agent|system)_message|agent_reasoning(?:_raw_content|_section_break)?|error|warning|stream_error|token_count|"
    r"(?:background|raw)_\w+|turn_(?:aborted|diff|context)|thread_\w+|context_compacted|session_configured|plan_\w+|"
    r"deprecation_notice|view_image_tool_call|terminal_interaction|model_reroute|undo_\w+|mcp_\w+|collab_\w+|hook_\w+|sub_agent_\w+|"
    r"request_\w+|realtime_\w+|(?:entered|exited)_review_mode|skills_\w+|"
    r"\w+_(?:begin|end|delta|request|response|started|completed?|updated?|available|assessment)"
)
"""Types of events, which repeat items or describe the program's state."""


def read(source: Source) -> Iterator[Found]:
    """Yield the sessions of a log as one conversation each.

    User messages that Codex itself wrote get the role developer. Turns that the person rolled back are omitted.
    """
    lines = Lines(source.path, source.file)
    sessions = _sessions(lines)
    records = grouped(
        source,
        lambda: _marked(lines, sessions),
        lambda value: text_of(mapping(value).get("session")),
        counts=Counter(name for name in sessions.values() if name is not None),
    )
    return conversations(source, NAME, or_nothing_found(source, records, EXPECTED), _conversation)


def looks_like(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a line belongs to a Codex session."""
    is_new = value.get("type") in _KINDS and isinstance(value.get("payload"), dict)
    return is_new or ({"id", "timestamp", "instructions"} <= set(value) and "messages" not in value)


def _sessions(lines: Lines) -> dict[int, str | None]:
    """Return the session of each line by its number: the last session that began, which includes its forks.

    Lines before the first session of the file belong to it, because a file may be listed newest first.
    """
    metas = (_meta(mapping(record.value)) for record in lines if isinstance(record, Record))
    session, related = next((_name(meta) for meta in metas if meta), None) or "", set[str | None]()
    of_line: dict[int, str | None] = {}
    for record in lines:
        if not isinstance(record, Record):
            continue
        if meta := _meta(mapping(record.value)):
            name = _name(meta) or str(record.number)
            if name != session and name not in related:
                session = name
            related |= {text_of(meta.get("forked_from_id")), text_of(meta.get("parent_thread_id"))}
        of_line[record.number] = session or None
    return of_line


def _marked(lines: Lines, sessions: Mapping[int, str | None]) -> Iterator[Item]:
    """Yield the lines, each with its session."""
    for record in lines:
        if isinstance(record, Record):
            marked: JsonValue = {"session": sessions.get(record.number), "line": dict(mapping(record.value))}
            yield Record(record.number, marked, record.size)
        else:
            yield record


def _name(meta: Mapping[str, JsonValue]) -> str | None:
    return text_of(meta.get("id")) or text_of(meta.get("session_id"))


def _meta(line: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return the session metadata of a line; empty for any other line."""
    if line.get("type") == "session_meta":
        return mapping(line.get("payload"))
    return line if "type" not in line and {"id", "timestamp"} <= set(line) else {}


def _conversation(group: Mapping[str, JsonValue], ids: Ids, number: int) -> Fields:
    thread = Thread()
    messages: list[Fields] = []
    left_out: list[str] = []
    error: str | None = None
    model: JsonValue = None
    names: list[JsonValue] = []
    failing: set[JsonValue] = set()
    lines = [mapping(mapping(value).get("line")) for value in listed(group.get("records"))]
    for line in log_in_time_order(lines, lambda line: line.get("timestamp")):
        meta = _meta(line)
        if meta:
            names = names or _names(meta)
            thread.instruct(
                text_of(mapping(meta.get("base_instructions")).get("text") or meta.get("instructions"))
            )
            session_metadata = without_nulls({key: text_of(meta.get(key)) for key in _META})
            thread.metadata = {**session_metadata, **thread.metadata}
        payload = mapping(line.get("payload"))
        if line.get("type") == "turn_context":
            model = payload.get("model")
        elif line.get("type") == "event_msg" and payload.get("type") == "token_count":
            usage = mapping(payload.get("info")).get("total_token_usage")
            thread.metadata |= without_nulls({"usage": usage})
        elif line.get("type") == "event_msg":
            error = _event(payload, messages, left_out) or error
            failing |= {payload.get("call_id")} if _is_failed_call(payload) else set()
            if not _EVENTS.fullmatch(str(payload.get("type"))):
                messages.append(_unknown("event", payload.get("type")))
        item = payload if line.get("type") == "response_item" else line if "payload" not in line else {}
        if meta or str(item.get("type")) in _STATE or item.get("record_type") == "state":
            continue
        if item:
            new = list(_item(item, model, line.get("timestamp")))
            if error is not None and any(m["role"] == "assistant" for m in new):
                thread.recovered.append(error)
                error = None
            messages += new
        elif str(line.get("type")) not in _HELD_ELSEWHERE:
            messages.append(_unknown("line", line.get("type")))
    if failing:
        n_uses = Counter(mapping(c).get("id") for m in messages for c in listed(m.get("tool_calls")))  # type: ignore[arg-type]
        failing = {name for name in failing if n_uses[name] == 1}
        messages = [_with_failures(message, failing) for message in messages]
    thread.extend(told_apart(messages))
    if not thread.messages:
        raise NotThisFormatError("the session contains no messages or calls")
    if names:
        thread.metadata[SOURCE_SESSIONS] = names
    thread.failure = None if error is None else (f"{NAME} error", error)
    id_fields: Fields = {
        LEFT_OUT: left_out,
        "conversation_id": ids.named(text_of(group.get("key")) or str(number)),
    }
    return thread.fields() | id_fields


def _names(meta: Mapping[str, JsonValue]) -> list[JsonValue]:
    """Return the ids of the session and, of a fork, of its parent; a subagent's conversation is its own."""
    own = _name(meta)
    is_subagent = bool(mapping(meta.get("source")).get("subagent"))
    parent = None if is_subagent else text_of(meta.get("forked_from_id"))
    return [name for name in (own, parent) if name is not None]


def _event(event: Mapping[str, JsonValue], messages: list[Fields], left_out: list[str]) -> str | None:
    """Apply an event to the messages if it is a rollback; return the text of an error."""
    kind = event.get("type")
    if kind == "thread_rolled_back":
        n_turns = event.get("num_turns")
        _roll_back(messages, n_turns if isinstance(n_turns, int) else 1, left_out)
    elif kind == "error":
        return text_of(event.get("message")) or "error"
    return None


def _is_failed_call(event: Mapping[str, JsonValue]) -> bool:
    """Return whether an event says that a call failed."""
    is_end = str(event.get("type")).endswith("_end") and isinstance(event.get("call_id"), str)
    return is_end and (exit_failed(dict(event)) is True or failed(event) is True)


def _with_failures(message: Fields, failing: Container[object]) -> Fields:
    calls = message.get("tool_calls")
    if not failing or not isinstance(calls, list):
        return message
    marked = [{**call, FAILED: True} if call.get("id") in failing else call for call in calls]
    return {**message, "tool_calls": marked}


def _roll_back(messages: list[Fields], n_turns: int, left_out: list[str]) -> None:
    """Remove the last turns, which the person withdrew."""
    prompts = [
        i for i, m in enumerate(messages) if m["role"] == "user" and told_apart([m])[0]["role"] == "user"
    ]
    begins = prompts[-n_turns:][0] if n_turns > 0 and prompts else len(messages)
    left_out += [WITHDRAWN for m in messages[begins:] if m["role"] in ("user", "assistant")]
    del messages[begins:]


def _unknown(what: str, kind: JsonValue) -> Fields:
    return {"role": "developer", "content": None, UNREAD: [not_read(f"{what} of type", kind)]}


def _item(item: Mapping[str, JsonValue], model: JsonValue, timestamp: JsonValue) -> Iterator[Fields]:
    if not is_message(dict(item)):
        yield _unknown("item", item.get("type"))
        return
    for message in native_messages([dict(item)]):
        if message["role"] == "assistant" and isinstance(model, str):
            message.setdefault("model", model)
        if isinstance(timestamp, str):
            message.setdefault("timestamp", timestamp)
        yield message


FORMAT = Format(
    NAME,
    read,
    looks_like,
    order=120,
    content="session logs of Codex (`rollout-….jsonl`)",
    conversation="a session",
    details=(
        "Messages that Codex wrote on behalf of the user (e.g. `<environment_context>`) have the role "
        "`developer`; events that repeat messages are omitted, and so are turns that were rolled back "
        "(`thread_rolled_back`)"
    ),
)
"""This format, as `catalog` registers it."""
