"""Messages of OpenAI chat form, and of forms close to it, as native messages. All are kept, in order."""

from collections.abc import Mapping

from pydantic import JsonValue

from agent_eval.transcripts.importers.base import (
    Fields,
    NotThisFormatError,
    listed,
    mapping,
    number_of,
    paid,
    text_of,
)

_PLAIN = ("content", "name", "tool_call_id")


def chat_messages(values: JsonValue) -> list[Fields]:
    """Native messages from a list of chat messages; keys that a judge has no use for are dropped.

    None without a list: a run that crashed may have no messages.

    Raises:
        NotThisFormatError: If it is neither null nor a list of objects.
    """
    if values is None:
        return []
    if not isinstance(values, list):
        raise NotThisFormatError("messages is missing or no list")
    return [_message(value, i) for i, value in enumerate(values)]


def _message(value: JsonValue, index: int) -> Fields:
    if not isinstance(value, dict):
        raise NotThisFormatError(f"messages[{index}] is no object")
    role = value.get("role")
    message: Fields = {"role": "tool" if role == "function" else role}
    message |= {key: value.get(key) for key in _PLAIN if value.get(key) is not None}
    content = value.get("content")
    if isinstance(content, dict | int | float):
        message["content"] = text_of(content)
    elif content is None:
        message["content"] = text_of(value.get("refusal"))
    if calls := _calls(value):
        message["tool_calls"] = calls
    return message | _tool_answer(value) | _measured(value)


def _calls(value: Mapping[str, JsonValue]) -> list[Fields]:
    legacy = value.get("function_call")  # the form before tool_calls
    return [_call(call) for call in (listed(value.get("tool_calls")) or ([legacy] if legacy else []))]


def _call(value: JsonValue) -> Fields:
    call = mapping(value)
    function = mapping(call.get("function")) or call
    arguments = function.get("arguments", call.get("arguments"))
    return {"id": text_of(call.get("id")), "name": function.get("name"), "arguments": arguments}


def _tool_answer(value: Mapping[str, JsonValue]) -> Fields:
    if value.get("role") != "tool":
        return {}
    call_id = value.get("tool_call_id", value.get("id"))  # tau2 keeps the call's id under id
    is_error = next((value[key] for key in ("is_error", "error") if isinstance(value.get(key), bool)), None)
    return {"tool_call_id": text_of(call_id), "is_error": is_error}


def _finish_reason(value: Mapping[str, JsonValue]) -> str | None:
    """Why the model stopped, in the message or in the raw reply that tau2 keeps with it."""
    places = (value, mapping(value.get("raw_data")))
    names = ("finish_reason", "stop_reason", "stopReason")
    found = (place.get(name) for place in places for name in names)
    return next((reason for reason in found if isinstance(reason, str)), None)


def _measured(value: Mapping[str, JsonValue]) -> Fields:
    seconds = number_of(value.get("generation_time_seconds"))
    latency = number_of(value.get("latency_ms"))
    fields: Fields = {
        "timestamp": text_of(value.get("timestamp")),
        "latency_ms": seconds * 1000 if latency is None and seconds is not None else latency,
        "usage": value["usage"] if isinstance(value.get("usage"), dict) else None,
        "cost_usd": paid(value.get("cost_usd", value.get("cost"))),
        "finish_reason": _finish_reason(value),
    }
    return {name: known for name, known in fields.items() if known is not None}
