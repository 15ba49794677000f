"""Convert messages in any provider's form to native messages.

The supported forms are OpenAI chat messages and Responses items, Anthropic blocks, the parts of the GenAI conventions,
Gemini, Bedrock and the Vercel AI SDK, and LangChain messages. One message may become several: a user message with
tool results becomes a tool message for each result, followed by the user's text.

The keys `reasoning` and `model` are added to native messages; `threads` removes them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from pydantic import JsonValue

from agent_eval.formats.json_text import loads
from agent_eval.transcripts.attachments import (
    attachment_of,
    attachments_of,
    beside_content,
    flattened,
    native_attachments,
)
from agent_eval.transcripts.importers.base import (
    Fields,
    NotThisFormatError,
    listed,
    mapping,
    number_of,
    paid,
    text_of,
)
from agent_eval.transcripts.importers.rules.failures import error_said, failed, with_error
from agent_eval.transcripts.importers.rules.order import TIME_KEYS, time_of
from agent_eval.transcripts.importers.rules.settling import FAILED
from agent_eval.transcripts.importers.rules.speakers import SAID_ROLES, known_role
from agent_eval.transcripts.importers.rules.unread import UNREAD, not_read, unknown_keys, unread_of
from agent_eval.transcripts.importers.shared.steps import is_stepped, steps

SYNONYMS: Mapping[str, str] = {
    **dict.fromkeys(("sender", "speaker", "author"), "role"),
    **dict.fromkeys(("message", "text", "body", "utterance"), "content"),
}
"""Key of a message or column of a table → the key that is meant."""
_TEXT_PARTS = frozenset({"text", "input_text", "output_text", "summary_text", "output-text"})
_REASONING_PARTS = frozenset(
    {"thinking", "reasoning", "redacted_thinking", "reasoning_content", "reasoning_text", "thought"}
)
_BESIDE_TEXT = frozenset(
    {
        "type",
        "thought",
        "signature",
        "thoughtSignature",
        "thought_signature",
        "cache_control",
        "annotations",
        "id",
        "index",
    }
)
"""Keys of a part that say nothing without its text."""
_CALL_PARTS = frozenset(
    {
        "tool_use",
        "tool_call",
        "tool-call",
        "toolCall",
        "toolUse",
        "server_tool_use",
        "mcp_tool_use",
        "function",
    }
)
_RESULT_PARTS = frozenset(
    {
        "tool_result",
        "tool_call_response",
        "tool-result",
        "toolResult",
        "web_search_tool_result",
        "mcp_tool_result",
    }
)
_CALL_ITEMS = frozenset(
    {"function_call", "custom_tool_call", "local_shell_call", "mcp_call", "computer_call"}
)
_OTHER_CALL_ITEMS = frozenset(
    {
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "tool_search_call",
    }
)
_RESULT_ITEMS = frozenset(
    {
        "function_call_output",
        "custom_tool_call_output",
        "local_shell_call_output",
        "computer_call_output",
        "tool_search_output",
    }
)


ENCRYPTED = "[encrypted]"
"""The text of a thought that the provider encrypted, so that it cannot be read."""
_PLAIN_TEXT = frozenset({"role", "content"})
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
_THOUGHT_BLOCKS = ("thinking_blocks", "reasoning_details")
_OF_THOUGHTS = frozenset({*_THOUGHTS, *_THOUGHT_BLOCKS})
_OF_COSTS = frozenset({"generation_time_seconds", "latency_ms", "cost_usd", "cost"})
_OF_REASONS = frozenset({"finish_reason", "stop_reason", "stopReason", "raw_data"})
_OF_MEASURES = frozenset({*TIME_KEYS, "usage"}) | _OF_COSTS | _OF_REASONS
_OF_CALLS = frozenset({"tool_calls", "invalid_tool_calls", "function_call", "additional_kwargs"})
_ITEMS = _CALL_ITEMS | _RESULT_ITEMS | _OTHER_CALL_ITEMS | {"reasoning"}
_KEYS_OF_PARTS = {
    **dict.fromkeys(("text", "input_text", "output_text"), frozenset({"type", "text"})),
    "tool_use": frozenset({"type", "id", "name", "input"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error"}),
}
"""Type of a part → its keys, if it has no others; nothing else is looked for in such a part."""
_CONTENTS = frozenset(
    {
        *("content", "parts", "value", "blocks", "toolInvocations", "refusal", "audio", "attachments"),
        *_OF_CALLS,
    }
)
"""Keys of a message that contain what was said or done."""
_BESIDE_CONTENT = frozenset(
    {
        *("role", "from", "type", "name", "id", "uuid", "model", "object", "status", "tool_call_id"),
        *("tool_call_ids", "metadata", "message_type", "agent", "source"),
        *_CONTENTS,
        *_OF_THOUGHTS,
        *_OF_MEASURES,
    }
)
"""Keys of a message that say nothing without its content, or are read."""
_BESIDE_RESULT = frozenset(
    {
        *_BESIDE_CONTENT,
        *("call_id", "tool_use_id", "toolCallId", "toolUseId", "toolName", "tool_name", "source_call_id"),
        *("is_error", "isError", "error", "success", "state", "cache_control", "text", "arguments", "args"),
        *("parameters", "input", "step"),
    }
)
"""Keys of a result, or of a call with its result, that say nothing of the result."""
_MARKS = frozenset({"step-start", "cachePoint"})
"""Types or keys of parts that only mark a place."""


@dataclass(slots=True)
class _Parts:
    """Collect the parts of one message's content."""

    # A bare `list` is called three times as fast as `list[str]`.
    texts: list[str] = field(default_factory=list)
    attachments: list[Fields] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[Fields] = field(default_factory=list)
    results: list[Fields] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    @property
    def text(self) -> str | None:
        return "\n".join(self.texts) if self.texts else None

    @property
    def attached(self) -> Fields:
        """Return the message's field `attachments`; empty if there are no attachments."""
        return {"attachments": self.attachments} if self.attachments else {}


def native_messages(values: Iterable[JsonValue], role: str = "user", first: int = 0) -> list[Fields]:
    """Return the native messages of message-like values, in order.

    Args:
        values: The messages, items or strings.
        role: The role of values that are strings.
        first: Index of the first value in its list, for the message about an unknown role.

    Raises:
        NotThisFormatError: If a value is neither a string nor an object with a known role or kind.
    """
    return [message for i, value in enumerate(values, first) for message in _messages(value, role, i)]


def is_foreign(message: Mapping[str, JsonValue]) -> bool:
    """Return whether the role, the parts or the blocks of a message differ from OpenAI's chat form."""
    content = message.get("content")
    is_other = isinstance(content, list) and not all(map(_is_plain, content))
    role = message.get("role")
    is_other = is_other or (isinstance(content, dict) and role not in ("tool", "function"))
    is_other = is_other or (message.get("content") is None and not SYNONYMS.keys().isdisjoint(message))
    is_other = is_other or (known_role(message.get("role")) is not None and _CONTENTS.isdisjoint(message))
    is_other = is_other or bool(message.get("invalid_tool_calls"))
    is_other = is_other or (not content and isinstance(message.get("refusal"), str))
    is_other = is_other or not isinstance(message.get("tool_calls") or [], list)
    is_renamed = isinstance(role, str) and _role(message) not in (role, None) and role != "function"
    is_typed = role is None and _role(_opened(dict(message))) is not None
    is_listed = isinstance(message.get("parts"), list) or is_stepped(message)
    return is_other or is_renamed or is_typed or is_listed


def _is_plain(part: JsonValue) -> bool:
    """Return whether a part of a message's content is a text or an attachment, as in OpenAI's chat form."""
    is_text = _kind(part) == "text" and isinstance(mapping(part).get("text"), str)
    is_text = is_text and not mapping(part).get("thought")
    return isinstance(part, str) or is_text or attachment_of(part) is not None


def is_message(value: JsonValue) -> bool:
    """Return whether a value is a message or conversation item in a supported form."""
    fields = _opened(value) if isinstance(value, dict) else {}
    return _role(fields) is not None or _kind(fields) in _ITEMS


def _messages(value: JsonValue, role: str, index: int) -> Iterator[Fields]:
    if isinstance(value, str):
        yield {"role": role, "content": value}
        return
    if not isinstance(value, dict):
        raise NotThisFormatError(f"message {index} is neither an object nor a text")
    is_text = value.keys() == _PLAIN_TEXT and isinstance(value["content"], str)
    if is_text and (own_role := known_role(value["role"])) not in (
        None,
        "tool",
    ):  # nothing else is looked for
        yield {"role": own_role, "content": value["content"]}
        return
    value = _opened(value)
    kind = _kind(value)
    if kind in _RESULT_ITEMS:
        yield _when(value) | _result(value)
    elif kind in _CALL_ITEMS or kind in _OTHER_CALL_ITEMS:
        yield from (_when(value) | message for message in _called(value))
    elif kind == "reasoning" and "role" not in value:
        parts = [*listed(value.get("summary")), *listed(value.get("content"))]
        if unread := [_unread(part) for part in parts if _plain(part) is None]:
            yield {"role": "developer", "content": None, UNREAD: unread}
        thought = "\n".join(filter(None, map(_plain, parts)))
        if thought := thought or (ENCRYPTED if value.get("encrypted_content") else ""):
            yield _when(value) | {"role": "assistant", "content": None, "reasoning": thought}
    elif (message_role := _role(value)) is None:
        if kind and value.keys().isdisjoint({"role", "content", "parts", "from"}):
            yield {"role": "developer", "content": None, UNREAD: [not_read("item of type", kind)]}
            return
        speaker = value.get("role", value.get("from", kind or None))
        raise NotThisFormatError(
            f"message {index + 1} has the unknown role {str(speaker)[:40]!r}; allowed: {', '.join(SAID_ROLES)}"
        )
    else:
        for step in steps({**value, "role": message_role}):
            yield from _spoken(step, message_role)


def _when(value: Mapping[str, JsonValue]) -> Fields:
    """Return the field `timestamp` of a message; empty if it has no time."""
    return {"timestamp": timestamp} if (timestamp := time_of(value)) is not None else {}


def _opened(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Unwrap LangChain's envelopes {"type", "data"} and {"lc", "id", "kwargs"}; return other values unchanged."""
    if isinstance(inner := value.get("data"), dict) and "content" in inner and "content" not in value:
        return {"type": value.get("type"), **inner}
    if isinstance(inner := value.get("kwargs"), dict) and "lc" in value:
        return {**inner, "type": next(reversed(listed(value.get("id"))), None)}
    return with_known_keys(value)


def with_known_keys(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a message with the keys `role` and `content` for their synonyms; a message that has them is unchanged."""
    if ("role" in value and value.get("content") is not None) or SYNONYMS.keys().isdisjoint(value):
        return value
    renamed = dict(value)
    for key, meant in SYNONYMS.items():
        is_speaker = meant == "role" and known_role(_speaker(renamed.get(key))) is not None
        is_text = meant == "content" and isinstance(renamed.get(key), str) and "parts" not in renamed
        is_text = is_text and ("role" in renamed or "from" in renamed)
        if meant not in renamed and "from" not in renamed and is_speaker:
            renamed[meant] = _speaker(renamed.pop(key))
        elif renamed.get(meant) is None and is_text:
            renamed[meant] = renamed.pop(key)
    return renamed


def _speaker(value: JsonValue) -> JsonValue:
    """Return the role in the author of a message, which is a text or an object with a role or a type."""
    return mapping(value).get("role", mapping(value).get("type")) if isinstance(value, dict) else value


def _kind(value: JsonValue) -> str:
    """Return the `type` of an item or a part, or an empty string if it has no type."""
    kind = mapping(value).get("type")
    return kind if isinstance(kind, str) else ""


def _role(value: Mapping[str, JsonValue]) -> str | None:
    """Return the native role of a message, or None if it is unknown.

    The message with the result of a call has the role tool, even if the source writes the tool's name as its role.
    """
    role = known_role(value.get("role") or value.get("from") or value.get("type"))
    is_result = role is None and isinstance(value.get("role"), str) and value.get("tool_call_id")
    return "tool" if is_result else role


def is_chat_message(value: JsonValue) -> bool:
    """Return whether a value is a chat message, which has a role and either text or parts."""
    fields = _opened(value) if isinstance(value, dict) else {}
    return "role" in fields or (_role(fields) is not None and "content" in fields)


def _spoken(value: Mapping[str, JsonValue], role: str) -> Iterator[Fields]:
    """Yield the tool results in a message with a role, then the message itself."""
    parts = _parts(value)
    name = value.get("name") if isinstance(value.get("name"), str) else None
    beside: Fields = {UNREAD: parts.unread} if parts.unread else {}
    if role == "tool":
        speaker = value.get("role")
        if name is None and isinstance(speaker, str) and known_role(speaker) is None:
            name = speaker
        more = mapping(value.get("additional_kwargs")).get("tool_call_id")
        call_id = text_of(value.get("tool_call_id") or value.get("id") or more) or _first_id(value)
        text = with_error(parts.text, error_said(value))
        own: Fields = {"role": "tool", "content": text, "tool_call_id": call_id, **parts.attached}
        results = parts.results or [own]
        beside_results = [*parts.texts, *parts.calls] if parts.results else parts.calls
        if unread := [*parts.unread, *["part beside a tool's result"] * len(beside_results)]:
            beside = {UNREAD: unread}
        for result in results:
            name_field = {"name": name} if name and "name" not in result else {}
            yield {**name_field, **measured(value), **result, **_failed(value), **beside}
            beside = {}
        return
    message: Fields = {"role": role, "content": parts.text, **parts.attached, **beside}
    message |= {"name": name} if name else {}
    message |= {"tool_calls": parts.calls} if parts.calls else {}
    message |= {"reasoning": "\n".join(parts.reasoning)} if parts.reasoning else {}
    if isinstance(model := value.get("model"), str):
        message["model"] = model
    is_shown = parts.texts or parts.calls or parts.reasoning or parts.unread or not parts.results
    answers = [{**_when(value), **result} for result in parts.results]
    if role != "assistant":
        yield from answers
    if is_shown:
        yield message | measured(value)
    if role == "assistant":
        yield from answers


def _first_id(value: Mapping[str, JsonValue]) -> str | None:
    """Return the id of a call that SWE-agent lists under `tool_call_ids`."""
    return next((i for i in listed(value.get("tool_call_ids")) if isinstance(i, str)), None)


def _failed(value: Mapping[str, JsonValue]) -> Fields:
    has_failed = failed(value)
    return {} if has_failed is None else {"is_error": has_failed}


def thought_of(value: Mapping[str, JsonValue]) -> str | None:
    """Return the model's reasoning beside the content of its message, or None; only one of its keys is read."""
    if _OF_THOUGHTS.isdisjoint(value):
        return None
    for key in _THOUGHTS:
        if (text := _thought(value.get(key))) is not None:
            return text
    blocks = [block for key in _THOUGHT_BLOCKS for block in listed(value.get(key))]
    keys = ("thinking", "text", "summary")
    thoughts = (_thought(mapping(block).get(key)) for block in blocks for key in keys)
    is_encrypted = any(mapping(block).get("data") for block in blocks)
    return "\n".join(filter(None, thoughts)) or (ENCRYPTED if is_encrypted else None)


def unread_beside(value: Mapping[str, JsonValue], thought: str | None) -> list[str]:
    """Return a description of the reasoning beside the content of a message if it has a form that is not read."""
    is_unread = thought is None and any(isinstance(value.get(k), list | dict) and value[k] for k in _THOUGHTS)
    return ["reasoning of an unknown form"] if is_unread else []


def _thought(value: JsonValue) -> str | None:
    """Return the text of a thought, which is a text, an object or a list of these."""
    if isinstance(value, list):
        return "\n".join(filter(None, map(_thought, value))) or None
    if isinstance(value, dict):
        value = next((value[key] for key in ("content", "text", "thinking") if value.get(key)), None)
        return value if isinstance(value, str) else None
    return value if isinstance(value, str) and value.strip() else None


def _parts(value: Mapping[str, JsonValue]) -> _Parts:
    own_parts = _Parts()
    content = (
        value["parts"] if isinstance(value.get("parts"), list) else value.get("content", value.get("value"))
    )
    parts = flattened(content) if isinstance(content, list) else [content]
    if beside := beside_content(value):
        parts = [*parts, *flattened(beside)]
    for part in parts:
        if isinstance(part, str):
            own_parts.texts.append(part)
        elif isinstance(part, dict):
            _take(part, own_parts)
        elif isinstance(part, list):
            own_parts.unread.append("list of parts within the parts")
        elif part is not None:
            own_parts.texts.append(text_of(part) or "")
    if "attachments" in value:
        own_parts.attachments += native_attachments(value)
    if not any(own_parts.texts) and isinstance(refusal := value.get("refusal"), str):
        own_parts.texts = [refusal]
    _add_calls(value, own_parts)
    if not _OF_THOUGHTS.isdisjoint(value):
        thought = thought_of(value)
        own_parts.reasoning += [] if thought is None else [thought]
        own_parts.unread += unread_beside(value, thought)
    if _CONTENTS.isdisjoint(value) and not own_parts.reasoning:
        own_parts.unread += unknown_keys("message", value, _BESIDE_CONTENT)
    return own_parts


def _take(part: dict[str, JsonValue], own_parts: _Parts) -> None:
    kind = _kind(part)
    is_plain = part.keys() <= _KEYS_OF_PARTS.get(kind, frozenset())
    if is_plain and isinstance(text := part.get("text"), str):
        own_parts.texts.append(text)
    elif is_plain and isinstance(name := part.get("name"), str) and name:
        own_parts.calls.append(
            {"id": text_of(part.get("id")) or None, "name": name, "arguments": part.get("input")}
        )
    elif is_plain and kind == "tool_result":
        _add_result(part, own_parts)
    elif isinstance(thought := part.get("reasoningContent"), dict):  # Bedrock
        text = mapping(thought.get("reasoningText")).get("text")
        own_parts.reasoning += [text] if isinstance(text, str) else []
    elif part.get("thought") is True or kind in _REASONING_PARTS:
        keys = ("thinking", "text", "reasoning", "content", "thought", "summary")
        first_text = [text for key in keys if (text := _thought(part.get(key))) is not None][:1]
        first_text = first_text or ([ENCRYPTED] if part.get("data") else [])
        own_parts.reasoning += first_text
        is_empty = not any(value for key, value in part.items() if key not in _BESIDE_TEXT)
        own_parts.unread += [] if first_text or is_empty else [not_read("part of type", kind or "thought")]
    elif (attachment := attachment_of(part)) is not None:
        own_parts.texts.append(attachment.placeholder)
        own_parts.attachments.append(attachment.model_dump())
    elif isinstance(call := _inner(part, "functionCall", "function_call", "toolUse", "tool_call"), dict):
        own_parts.calls.append(_call(call))
    elif isinstance(answer := _inner(part, "functionResponse", "function_response", "toolResult"), dict):
        _add_result(answer, own_parts)
    elif isinstance(answer := part.get("tool_call_result"), dict):  # Haystack
        _add_result({**mapping(answer.get("origin")), "is_error": answer.get("error"), **answer}, own_parts)
    elif isinstance(code := _inner(part, "executableCode", "executable_code"), dict):
        own_parts.calls.append({"id": None, "name": "code_execution", "arguments": dict(code)})
    elif isinstance(answer := _inner(part, "codeExecutionResult", "code_execution_result"), dict):
        outcome = str(answer.get("outcome", "OUTCOME_OK"))
        _add_result({"output": answer.get("output"), "is_error": outcome != "OUTCOME_OK"}, own_parts)
    elif (kind in _CALL_PARTS or kind.endswith("tool_use")) and _call_name(part):
        own_parts.calls.append(_call(part))
    elif kind in _RESULT_PARTS or kind.endswith("tool_result"):
        _add_result(part, own_parts)
    elif kind == "refusal" and isinstance(refusal := part.get("refusal", part.get("text")), str):
        own_parts.texts.append(refusal)
    elif kind in _TEXT_PARTS or (not kind and not _MARKS & part.keys()):
        texts = (part.get(key) for key in ("text", "content"))
        first_text = [text for value in texts if (text := _value(value)) is not None][:1]
        own_parts.texts += first_text
        is_empty = not any(value for key, value in part.items() if key not in _BESIDE_TEXT)
        if not first_text and not is_empty:
            own_parts.unread.append(_unread(part))
    elif kind not in _MARKS and not _MARKS & part.keys():
        own_parts.unread.append(not_read("part of type", kind))


def _unread(part: JsonValue) -> str:
    """Return the description of a part that is not read: its type, or else its keys."""
    kind = _kind(part)
    return (
        not_read("part of type", kind)
        if kind
        else not_read("part with the keys", ", ".join(sorted(mapping(part))[:4]))
    )


def _inner(part: Mapping[str, JsonValue], *keys: str) -> JsonValue:
    return next((part[key] for key in keys if isinstance(part.get(key), dict)), None)


def _value(text: JsonValue) -> str | None:
    """Return the text of a part; threads of the Assistants API store it as {"value": …}."""
    text = mapping(text).get("value") if isinstance(text, dict) else text
    return text if isinstance(text, str) else None


def _add_result(value: Mapping[str, JsonValue], own_parts: _Parts) -> None:
    result = _result(value)
    own_parts.unread += unread_of(result)
    own_parts.results.append({key: item for key, item in result.items() if key != UNREAD})


def _add_calls(value: Mapping[str, JsonValue], own_parts: _Parts) -> None:
    """Add the calls beside the content of a message, also those whose arguments are not JSON."""
    if _OF_CALLS.isdisjoint(value):
        return
    more = mapping(value.get("additional_kwargs"))
    calls = parsed(value.get("tool_calls"))
    call_list = listed([calls] if isinstance(calls, dict) else calls)
    if isinstance(calls, str) and calls.strip():
        own_parts.unread.append("tool_calls that are a text")
    call_list = [*call_list, *listed(value.get("invalid_tool_calls"))] or listed(more.get("tool_calls"))
    legacy = value.get("function_call") or more.get("function_call")
    beside = [_call(mapping(parsed(call))) for call in call_list or ([legacy] if legacy else [])]
    own_parts.calls = _without_repeated(own_parts.calls, beside)


def _without_repeated(calls: Iterable[Fields], beside: list[Fields]) -> list[Fields]:
    """Return the calls among a message's parts and those beside them; LangChain lists the calls of Anthropic in both."""
    left = list(beside)
    distinct_calls: list[Fields] = []
    for call in calls:
        same = next((other for other in left if _is_same_call(call, other)), call)
        left = [other for other in left if other is not same]
        distinct_calls.append(same)
    return [*distinct_calls, *left]


def _is_same_call(call: Fields, other: Fields) -> bool:
    if call["name"] != other["name"]:
        return False
    if call["id"] and other["id"]:
        return call["id"] == other["id"]
    return parsed(cast("JsonValue", call["arguments"])) == parsed(cast("JsonValue", other["arguments"]))


def _call_name(value: Mapping[str, JsonValue]) -> JsonValue:
    function = value.get("function")
    name = mapping(function).get("name") if isinstance(function, dict) else function
    names = (name, *(value.get(key) for key in ("name", "toolName", "tool_name", "function_name")))
    return next((name for name in names if name), None)


def _call(value: Mapping[str, JsonValue]) -> Fields:
    places = (mapping(value.get("function")), value)
    keys = ("arguments", "args", "input", "parameters")
    arguments = next((place[key] for place in places for key in keys if place.get(key) is not None), None)
    return {"id": _id(value), "name": _call_name(value), "arguments": arguments}


def _id(value: Mapping[str, JsonValue]) -> str | None:
    keys = ("call_id", "tool_call_id", "toolCallId", "tool_use_id", "toolUseId", "source_call_id", "id")
    return next((text for key in keys if (text := text_of(value.get(key)))), None)


def _called(value: Mapping[str, JsonValue]) -> Iterator[Fields]:
    """Yield a call item of the Responses API, followed by its result, which some kinds of calls include."""
    kind = str(value.get("type"))
    call = _call(value)
    call["name"] = call["name"] or kind.removesuffix("_call")
    if failed({key: value[key] for key in ("status", "state") if key in value}):
        call[FAILED] = True
    if call["arguments"] is None:
        call["arguments"] = (
            value.get("action") or value.get("query") or value.get("queries") or value.get("code")
        )
    yield {"role": "assistant", "content": None, "tool_calls": [call]}
    if kind == "image_generation_call" and isinstance(image := value.get("result"), str):
        result_parts: JsonValue = [{"type": "image", "data": image}]
        yield {
            "role": "tool",
            "tool_call_id": call["id"],
            "content": result_text(result_parts),
            **attached(result_parts),
        }
    if result_parts := _made(value):
        yield {"role": "tool", "tool_call_id": call["id"], **result_fields(result_parts)}
    elif kind == "mcp_call" and (value.get("output") is not None or value.get("error") is not None):
        is_error = value.get("error") is not None
        content = with_error(result_text(value.get("output")), error_said(value))
        yield {"role": "tool", "tool_call_id": call["id"], "content": content, "is_error": is_error}
    elif FAILED in call and (kind == "mcp_call" or kind in _OTHER_CALL_ITEMS):  # no result follows these
        yield {
            "role": "tool",
            "tool_call_id": call["id"],
            "content": text_of(value["status"]),
            "is_error": True,
        }


def _made(value: Mapping[str, JsonValue]) -> list[JsonValue]:
    """Return the results within a call item: the outputs of the code interpreter, or the hits of a search."""
    parts = listed(value.get("outputs")) or listed(value.get("results"))
    logs = (mapping(part).get("logs") for part in parts)
    return [
        {"type": "text", "text": log} if isinstance(log, str) else part
        for log, part in zip(logs, parts, strict=True)
    ]


def _result(value: Mapping[str, JsonValue]) -> Fields:
    keys = ("content", "response", "output", "result", "tools")
    content = next((value[key] for key in keys if value.get(key) is not None), value.get("text"))
    unread = [] if any(key in value for key in keys) else unknown_keys("result", value, _BESIDE_RESULT)
    if isinstance(content, dict) and {"content", "success"} == content.keys():  # Codex
        return _result({**value, **content, "output": None})
    name = value.get("name") or value.get("toolName")
    message: Fields = {"role": "tool", "tool_call_id": _id(value), **result_fields(content)}
    is_error = _failed(value) or _failed(mapping(content))
    if "error_code" in mapping(content):  # a server-side tool of Anthropic
        is_error = {"is_error": True}
    return {
        **(_with_its_error(message, value, is_error) | ({"name": name} if isinstance(name, str) else {})),
        **({UNREAD: unread} if unread else {}),
    }


def _with_its_error(message: Fields, value: Mapping[str, JsonValue], is_error: Fields) -> Fields:
    """Return a result with the text of its error, or else with its state if it has no text."""
    content = with_error(message["content"], error_said(value))
    if content is None and is_error.get("is_error"):
        content = text_of(value.get("status"))
    return {**message, "content": content, **is_error}


def result_of_call(call_id: str, call: Mapping[str, JsonValue]) -> Fields:
    """Return the result of a call that its source stores beside the call; its error is the result if it failed."""
    is_error = _failed(call) or _failed(mapping(call.get("result")))
    message: Fields = {"role": "tool", "tool_call_id": call_id, **result_fields(call.get("result"))}
    unread = [] if "result" in call or is_error else unknown_keys("call", call, _BESIDE_RESULT)
    return _with_its_error(message, call, is_error) | ({UNREAD: unread} if unread else {})


def result_fields(value: JsonValue) -> Fields:
    """Return the fields of a message with a tool result: content, attachments, and parts that were not read."""
    if mapping(value).get("type") in ("content", "execution-denied"):  # of the AI SDK
        value = mapping(value).get("value", mapping(value).get("reason"))
    unread = [_unread(part) for part in _blocks(value) if _plain(part) is None]
    return {"content": result_text(value), **attached(value), **({UNREAD: unread} if unread else {})}


def _blocks(value: JsonValue) -> list[JsonValue]:
    """Return the content blocks of a tool result; empty if the result is a text or other data."""
    parts = flattened(value) if isinstance(value, list) or attachment_of(value) else []
    is_content = any(_kind(part) == "text" and _plain(part) is not None for part in parts)
    return parts if is_content or all(isinstance(part, str) or _is_block(part) for part in parts) else []


def result_text(value: JsonValue) -> str | None:
    """Return a tool result as a string: the text of its blocks, or else its JSON."""
    if parts := _blocks(value):
        return "\n".join(text for part in parts if (text := _plain(part)) is not None) or None
    if isinstance(value, dict) and value.get("type") in (
        "text",
        "json",
        "input_text",
        "error-text",
        "error-json",
    ):
        return text_of(value.get("value", value.get("text")))
    if isinstance(value, dict) and str(value.get("type")).endswith(("_result", "_error")):
        value = {key: inner for key, inner in value.items() if key != "type"}
    return text_of(value)


def _is_block(part: JsonValue) -> bool:
    """Return whether a value is a content part, which has a type, text or an attachment."""
    fields = mapping(part).keys()
    return bool({"type", "text"} & fields) or fields == {"json"} or attachment_of(part) is not None


def attached(content: JsonValue) -> Fields:
    """Return the field `attachments` of a message with this content; empty if it has none."""
    attachments = attachments_of(content)
    return {"attachments": [attachment.model_dump() for attachment in attachments]} if attachments else {}


def _plain(part: JsonValue) -> str | None:
    """Return the text of a block, or None if it has no text."""
    if isinstance(part, str):
        return part
    if (attachment := attachment_of(part)) is not None:
        return attachment.placeholder
    fields = mapping(part)
    if "json" in fields and "type" not in fields:  # Bedrock
        return text_of(fields["json"])
    texts = (_value(fields.get(key)) for key in ("text", "content"))
    cited = [text for key in ("title", "url") if isinstance(text := fields.get(key), str)]
    return next((text for text in texts if text is not None), "\n".join(cited) or None)


def parsed(value: JsonValue) -> JsonValue:
    """Parse a string that contains JSON (an object, an array or a string); return any other value unchanged."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[", '"')):
        return value
    try:
        return loads(value)
    except ValueError:
        return value


def _finish_reason(value: Mapping[str, JsonValue]) -> str | None:
    """Return the stop reason, from the message or from the raw reply that tau2 stores with it."""
    if _OF_REASONS.isdisjoint(value):
        return None
    places = (value, mapping(value.get("raw_data")))
    names = ("finish_reason", "stop_reason", "stopReason")
    candidates = (place.get(name) for place in places for name in names)
    return next((reason for reason in candidates if isinstance(reason, str)), None)


def measured(value: Mapping[str, JsonValue]) -> Fields:
    """Return the time, latency, usage, cost and stop reason of a message, if present."""
    if _OF_MEASURES.isdisjoint(value):
        return {}
    fields: Fields = {
        "timestamp": time_of(value),
        "usage": value["usage"] if isinstance(value.get("usage"), dict) else None,
        "finish_reason": _finish_reason(value),
    }
    if not _OF_COSTS.isdisjoint(value):
        seconds = number_of(value.get("generation_time_seconds"))
        latency = number_of(value.get("latency_ms"))
        fields["latency_ms"] = seconds * 1000 if latency is None and seconds is not None else latency
        fields["cost_usd"] = paid(value.get("cost_usd", value.get("cost")))
    return {name: stated_value for name, stated_value in fields.items() if stated_value is not None}
