"""Convert messages in OpenAI's chat form and similar forms to native messages, keeping all messages in order."""

from collections.abc import Mapping

from pydantic import JsonValue

from agent_eval.transcripts.attachments import attachments_of, beside_content, native_attachments
from agent_eval.transcripts.importers.base import Fields, NotThisFormatError, listed, mapping, text_of
from agent_eval.transcripts.importers.rules.failures import error_said, failed, with_error
from agent_eval.transcripts.importers.rules.unread import UNREAD, unread_of
from agent_eval.transcripts.importers.shared.dialects import (
    is_foreign,
    measured,
    native_messages,
    result_fields,
    thought_of,
    unread_beside,
)

_PLAIN = ("content", "name", "tool_call_id")
_SIMPLE = frozenset({"role", "tool_calls", *_PLAIN})
_ROLES = ("system", "developer", "user", "assistant", "tool")


def chat_messages_with_reasoning(values: JsonValue) -> list[Fields]:
    """Return native messages from a list of chat messages; keys that a judge does not need are dropped.

    A message in another provider's form (Anthropic blocks, parts of the GenAI conventions) may become several. The
    keys `reasoning` and `model` are for `threads.Thread`. The list is empty if the value is null, because a crashed
    run may have no messages.

    Raises:
        NotThisFormatError: If the value is neither null nor a list of objects.
    """
    if values is None:
        return []
    if not isinstance(values, list):
        raise NotThisFormatError("messages is missing or not a list")
    messages: list[Fields] = []
    for i, value in enumerate(values):
        if not isinstance(value, dict):
            raise NotThisFormatError(f"messages[{i}] is not an object")
        if _is_simple(value):
            messages.append(_plain(value) | _tool_answer(value, value.get("content")))
        else:
            messages += native_messages([value]) if is_foreign(value) else [_message(value)]
    return messages


def _is_simple(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a message has a native role, a text, calls and nothing else, so that nothing else is looked for."""
    is_text = isinstance(value.get("content"), str | None) and isinstance(
        value.get("tool_calls"), list | None
    )
    return value.keys() <= _SIMPLE and is_text and value.get("role") in _ROLES


def _plain(value: Mapping[str, JsonValue]) -> Fields:
    """Return the role, the text and the calls of a message."""
    role = value.get("role")
    message: Fields = {"role": "tool" if role == "function" else role}
    message |= {key: field for key in _PLAIN if (field := value.get(key)) is not None}
    if calls := _calls(value):
        message["tool_calls"] = calls
    return message


def _message(value: dict[str, JsonValue]) -> Fields:
    message = _plain(value) | _beside(value)
    content = value.get("content")
    if isinstance(content, dict):  # the result of a tool
        message |= result_fields(content)
    elif isinstance(content, int | float):
        message["content"] = text_of(content)
    if parts := beside_content(value):
        content_parts = [content] if isinstance(content, str) else listed(content)
        content = [*content_parts, *parts]
        message["content"] = content
    if native := native_attachments(value):
        message["attachments"] = [*(file.model_dump() for file in attachments_of(content)), *native]
    if unread_parts := unread_of(value):  # of a request or a response, which was converted before
        message[UNREAD] = unread_parts
    return message | _tool_answer(value, message.get("content")) | measured(value)


def _beside(value: Mapping[str, JsonValue]) -> Fields:
    """Return the model's reasoning and the model's name, if present."""
    thought = thought_of(value)
    model = value.get("model")
    reasoning_field: Fields = {"reasoning": thought} if thought else {}
    reasoning_field |= {UNREAD: unread} if (unread := unread_beside(value, thought)) else {}
    return reasoning_field | ({"model": model} if isinstance(model, str) else {})


def _calls(value: Mapping[str, JsonValue]) -> list[Fields]:
    legacy = value.get("function_call")  # the older form of tool_calls
    return [_call(call) for call in (listed(value.get("tool_calls")) or ([legacy] if legacy else []))]


def _call(value: JsonValue) -> Fields:
    call = mapping(value)
    function = mapping(call.get("function")) or call
    arguments = function.get("arguments", call.get("arguments"))
    return {"id": text_of(call.get("id")), "name": function.get("name"), "arguments": arguments}


def _tool_answer(value: Mapping[str, JsonValue], text: object) -> Fields:
    if value.get("role") != "tool":
        return {}
    call_id = value.get("tool_call_id", value.get("id"))  # tau2 stores the call's id under `id`
    error = error_said(value)
    return {
        "tool_call_id": text_of(call_id),
        "is_error": failed(value),
        **({"content": with_error(text, error)} if error and isinstance(text, str | None) else {}),
    }
