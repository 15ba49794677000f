"""Apply the rules for all formats to a converted record, before it is validated."""

import itertools
import re
from collections import deque
from collections.abc import Iterable, Sequence
from typing import cast

from pydantic import JsonValue

from agent_eval.formats.json_text import loads
from agent_eval.transcripts.importers.rules.failures import exit_failed
from agent_eval.transcripts.importers.rules.order import clock_of, refuse_results_before_calls, time_text
from agent_eval.transcripts.importers.rules.speakers import speakers_of
from agent_eval.transcripts.importers.rules.unread import UNREAD, unread_of
from agent_eval.transcripts.importers.rules.values import Fields, NotThisFormatError, listed, mapping

FAILED = "failed"
"""Key of a call: true if the source says that the call failed; its result becomes an error."""
_REASONING = "reasoning"
_THOUGHT = re.compile(r"\s*<(think|thinking)>(.*?)</\1>\s*", re.DOTALL)
_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_RESULT = re.compile(r"<tool_response>\s*(.*?)\s*</tool_response>", re.DOTALL)
_OWN_KEYS = frozenset(
    {"role", UNREAD, "timestamp", "usage", "cost_usd", "latency_ms", "finish_reason", "name"}
)


def settled(fields: Fields) -> tuple[Fields, list[str]]:
    """Return the fields of a conversation, and descriptions of the parts that were not read.

    Repeated call ids get numbers, so that results belong to calls in order. Results with a non-zero exit status are
    errors. Thoughts in tags before an answer are moved to `metadata.reasoning`. Times become ISO 8601 texts. Messages
    of which nothing was read are dropped.

    Raises:
        NotThisFormatError: If a result precedes its call.
    """
    values = fields.get("messages")
    if not isinstance(values, list):
        return fields, []
    messages: list[Fields] = []
    places: dict[int, int] = {}
    unread: list[str] = []
    for index, value in enumerate(values):
        if not isinstance(value, dict):
            return fields, unread
        message = cast("Fields", value)
        if message.get("tool_calls"):
            message = _with_named_calls(message)
        places[index] = len(messages)
        if UNREAD in message:
            unread_parts = unread_of(message)
            unread += unread_parts
            if unread_parts and not any(field for key, field in message.items() if key not in _OWN_KEYS):
                continue
            message = {k: v for k, v in message.items() if k != UNREAD}
        if message.get("timestamp") is not None:
            message = _timed(message, unread)
        text = message.get("content")
        if not isinstance(text, str) or "<" not in text:
            messages.append(message)
            continue
        later = (cast("Fields", m) for m in itertools.islice(values, index + 1, None) if isinstance(m, dict))
        for part in speakers_of(message, later, is_of_coding_agent=False):
            messages += _in_tags(part, unread)
    expected = (mapping(entry).get("tools") for entry in listed(cast("JsonValue", fields.get("expected"))))
    expected_calls = (call for tools in expected for call in listed(tools))
    unread += ["expected call without a name" for call in expected_calls if not _call_name(call)]
    refuse_results_before_calls(messages)
    messages = list(_numbered(messages))
    metadata = dict(mapping(cast("JsonValue", fields.get("metadata"))))
    thoughts = [_moved(thought, places) for thought in listed(metadata.get(_REASONING))]
    thoughts += _thoughts(messages)
    if thoughts:
        metadata[_REASONING] = thoughts
    return {**fields, "messages": messages, **({"metadata": metadata} if metadata else {})}, unread


def _with_named_calls(message: Fields) -> Fields:
    """Return a message without the calls that have no name, which are named as not read."""
    calls = message["tool_calls"]
    complete = [call for call in calls if _call_name(call)] if isinstance(calls, list) else calls
    if not isinstance(calls, list) or not isinstance(complete, list) or len(complete) == len(calls):
        return message
    unread_parts = [*unread_of(message), *["call without a name"] * (len(calls) - len(complete))]
    return {**message, "tool_calls": complete, UNREAD: unread_parts}


def _call_name(call: object) -> bool:
    fields = mapping(cast("JsonValue", call))
    name = mapping(fields.get("function")).get("name", fields.get("name"))
    return isinstance(name, str) and bool(name.strip())


def _moved(thought: JsonValue, places: dict[int, int]) -> JsonValue:
    at = mapping(thought).get("message_index")
    return {**mapping(thought), "message_index": places.get(at, at)} if isinstance(at, int) else thought


def _timed(message: Fields, unread: list[str]) -> Fields:
    """Return a message with its time as ISO 8601 text; a time that cannot be read is named and dropped."""
    try:
        text = time_text(cast("JsonValue", message["timestamp"]))
        return message if text == message["timestamp"] else {**message, "timestamp": text}
    except NotThisFormatError as error:
        is_clock = clock_of(cast("JsonValue", message["timestamp"])) is not None
        unread.append("time of a message without a day" if is_clock else f"time of a message ({error})")
        return {key: value for key, value in message.items() if key != "timestamp"}


def _in_tags(message: Fields, unread: list[str]) -> list[Fields]:
    """Return a message; calls that an agent's text contains in tags become calls, and results in tags become results.

    Models write calls as <tool_call>{"name", "arguments"}</tool_call>, and get <tool_response>…</tool_response>.
    """
    text = message.get("content")
    if not isinstance(text, str):
        return [message]
    if message.get("role") == "assistant" and "<tool_call>" in text and not message.get("tool_calls"):
        calls: list[object] = []
        for block in _CALL.findall(text):
            try:
                call = mapping(loads(block))
            except (ValueError, RecursionError):
                call = {}
            calls += [{"name": call["name"], "arguments": call.get("arguments")}] if call.get("name") else []
            unread += [] if call.get("name") else ["call in <tool_call> tags that is not JSON with a name"]
        rest = _CALL.sub("", text).strip() or None
        return [{**message, "content": rest, **({"tool_calls": calls} if calls else {})}]
    if (
        message.get("role") == "tool"
        and (results := _RESULT.findall(text))
        and not _RESULT.sub("", text).strip()
    ):
        return [{**message, "content": result} for result in results]
    return [message]


def _thoughts(messages: list[Fields]) -> list[JsonValue]:
    """Return the thoughts before the answers of the agent, and remove them from the messages."""
    thoughts: list[JsonValue] = []
    for index, message in enumerate(messages):
        text = message.get("content")
        if message.get("role") != "assistant" or not isinstance(text, str) or "<think" not in text[:200]:
            continue
        if match := _THOUGHT.match(text):
            messages[index] = {**message, "content": text[match.end() :] or None}
            if match[2].strip():
                thoughts.append({"message_index": index, "text": match[2].strip()})
    return thoughts


def _numbered(messages: Sequence[Fields]) -> Iterable[Fields]:
    """Yield the messages; if calls share an id, each later one gets a number, and results belong to them in order."""
    n_uses: dict[str, int] = {}
    waiting: dict[str, deque[str]] = {}
    last: dict[str, str] = {}
    failing: set[str] = set()
    is_new_step = False  # a result or a user message followed the last calls
    for message in messages:
        calls = message.get("tool_calls")
        if isinstance(calls, list) and calls:
            own = [call for call in calls if isinstance(call, dict)]
            renamed: list[object] = []
            for call in own if is_new_step else ():
                waiting.pop(str(call.get("id")), None)
            for call in own:
                name = call.get("id")
                new = {key: value for key, value in call.items() if key != FAILED}
                if isinstance(name, str):
                    n_uses[name] = n_uses.get(name, 0) + 1
                    new["id"] = last[name] = name if n_uses[name] == 1 else f"{name}#{n_uses[name]}"
                    waiting.setdefault(name, deque()).append(new["id"])
                    failing |= {new["id"]} if call.get(FAILED) else set()
                renamed.append(new)
            is_new_step = False
            message = {**message, "tool_calls": renamed} if len(own) == len(calls) else message
        elif message.get("role") in ("tool", "user"):
            is_new_step = True
        if message.get("role") == "tool":
            own_id = answered = message.get("tool_call_id")
            if isinstance(answered, str) and answered in last:
                left = waiting.get(answered)
                own_id = left.popleft() if left else last[answered]
                message = {**message, "tool_call_id": own_id}
            if message.get("is_error") is None:
                says = True if own_id in failing else exit_failed(cast("JsonValue", message.get("content")))
                message = message if says is None else {**message, "is_error": says}
        yield message
