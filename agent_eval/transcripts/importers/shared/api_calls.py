"""Read requests and responses of model APIs: OpenAI chat and Responses, Anthropic, Gemini, Ollama, AI SDK.

Spans in traces and the requests and responses in a proxy's log have the same forms.
"""

import re
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from agent_eval.transcripts.importers.base import Fields, listed, mapping, number_of, text_of
from agent_eval.transcripts.importers.rules.unread import UNREAD, further_choices, not_read, unread_of
from agent_eval.transcripts.importers.shared.dialects import is_message, native_messages, parsed
from agent_eval.transcripts.importers.shared.threads import Thread

_HISTORIES = ("chat_history", "history")
_MESSAGES = ("messages", "input", "contents", *_HISTORIES)
_INSTRUCTIONS = ("instructions", "system", "systemInstruction", "system_instruction", "system_prompt")
_TOOLS = ("tools", "functions")
_PROMPTS = ("prompt", "query", "question", "text", "user_input", "user_message")
_SETTINGS = (
    *("model", "temperature", "max_tokens", "stream", "stop", "config", "tool_choice", "response_format"),
    "kwargs",
)
_BEGINS_AS_HISTORY = re.compile(r'\s*[\[{][\[{\s]*"(?:role|content|parts|messages|type|choices|text)"\s*:')
_REPLIES = (
    *("text", "content", "generated_text", "answer", "response", "raw", "output", "result", "completion"),
    *("final_answer", "reply", "message"),
)


def sent(thread: Thread, value: JsonValue) -> list[Fields]:
    """Return the messages of a model's input; its instructions and tool schemas are added to the thread.

    Raises:
        NotThisFormatError: If the form of a message is unknown.
    """
    value = parsed(value)
    if isinstance(value, list):
        return thread.converted(_without_schemas(thread, value))
    if not isinstance(value, dict):
        return _said("user", value)
    if is_message(value):
        return native_messages([value])
    for key in _INSTRUCTIONS:
        thread.instruct(_instruction(parsed(value.get(key))))
    for key in _TOOLS:
        thread.know_tools(value.get(key))
    inner = next(
        (messages for key in _MESSAGES if (messages := parsed(value.get(key))) not in (None, "", [])), None
    )
    if isinstance(inner, list | str):
        before = _history(value) if isinstance(inner, str) else []
        question = sent(thread, _unnested(inner))
        return [*(sent(thread, before) if before else []), *question, *_asked_after(value, question)]
    if isinstance(inner, dict):
        return sent(thread, inner)
    prompt = next((value[key] for key in _PROMPTS if value.get(key) is not None), None)
    keys = {*_INSTRUCTIONS, *_TOOLS, *_MESSAGES, *_PROMPTS, *_SETTINGS}
    if prompt is None and (rest := sorted(value.keys() - keys)):
        return [_unknown("input", rest)]
    return [] if prompt is None else sent(thread, prompt)


def _said(role: str, value: JsonValue) -> list[Fields]:
    """Return a text as a message; a history that is cut off, as tracers do at a limit of length, is not a text."""
    text = text_of(value)
    if not text or not text.strip():
        return []
    if _BEGINS_AS_HISTORY.match(text):
        return [
            {"role": "developer", "content": None, UNREAD: [f"{role} messages that are cut off or not JSON"]}
        ]
    return [{"role": role, "content": text}]


def _history(value: Mapping[str, JsonValue]) -> list[JsonValue]:
    """Return the earlier messages that a chain receives beside its question."""
    return next((messages for key in _HISTORIES if (messages := listed(parsed(value.get(key))))), [])


def _asked_after(value: Mapping[str, JsonValue], messages: list[Fields]) -> list[Fields]:
    """Return the question beside earlier messages, unless they end with it."""
    prompt = next(
        (text for key in _PROMPTS if isinstance(text := value.get(key), str) and text.strip()), None
    )
    if prompt is None or not _history(value) or (messages and messages[-1].get("content") == prompt):
        return []
    return [{"role": "user", "content": prompt}]


def _unknown(side: str, keys: list[str]) -> Fields:
    unread = [not_read(f"{side} with the keys", ", ".join(keys[:4]))]
    return {"role": "developer", "content": None, UNREAD: unread}


def replied(thread: Thread, value: JsonValue) -> list[Fields]:
    """Return the messages of a model's output; instructions and schemas in it are added to the thread.

    Raises:
        NotThisFormatError: If the form of a message is unknown.
    """
    value = parsed(value)
    if isinstance(value, list):
        return [m for item in listed(_unnested(value)) for m in _reply_item(item)]
    if not isinstance(value, dict):
        return _said("assistant", value)
    if isinstance(value.get("output"), list) and not isinstance(value.get("choices"), list):
        thread.instruct(_instruction(value.get("instructions")))
        thread.know_tools(value.get("tools"))
        return _measured(native_messages(listed(value["output"]), "assistant"), value)
    if choices := listed(value.get("choices")) or listed(value.get("candidates")):
        return _measured(_choice(_first(choices), further_choices(choices)), value)
    if isinstance(value.get("content"), dict) and not is_message(value):  # a candidate of Gemini
        return _measured(_choice(value), value)
    if isinstance(value.get("message"), dict):  # Ollama
        return _measured(native_messages([value["message"]], "assistant"), value)
    if is_message(value):
        return _measured(native_messages([_as_assistant(value)]), value)
    return _reply_item(value)


def _reply_item(item: JsonValue) -> list[Fields]:
    item = parsed(item)
    if isinstance(item, str):
        return [{"role": "assistant", "content": item}]
    fields = mapping(item)
    if isinstance(item, list) and item:
        return [{"role": "developer", "content": None, UNREAD: ["list within the output"]}]
    if is_message(item):
        return native_messages([item])
    if fields.get("toolName") or fields.get("toolCallId"):  # AI SDK: calls outside a message
        call = {**fields, "type": "tool-call"}
        return native_messages([{"role": "assistant", "content": [call]}])
    calls = fields.get("toolCalls", fields.get("tool_calls"))
    text = next((t for key in _REPLIES if isinstance(t := fields.get(key), str) and t), None)
    if text is None and not calls:
        if isinstance(parts := fields.get("content", fields.get("parts")), list | dict):
            return native_messages([{"role": "assistant", "content": parts}])
        is_empty = not any(value not in (None, "", [], {}) for value in fields.values())
        return [] if is_empty else [_unknown("output", sorted(fields))]
    message: dict[str, JsonValue] = {
        "role": "assistant",
        "content": text,
        "finish_reason": fields.get("finish_reason"),
    }
    return native_messages([message | {"tool_calls": parsed(calls)}])


def _first(choices: Sequence[JsonValue]) -> Mapping[str, JsonValue]:
    """Return the choice with the lowest `index`, wherever a proxy lists it; without indexes, the first one."""
    indexes = [mapping(choice).get("index") for choice in choices]
    numbers = [index for index in indexes if isinstance(index, int)]
    return mapping(choices[numbers.index(min(numbers)) if len(numbers) == len(choices) else 0])


def _choice(choice: Mapping[str, JsonValue], unread: Sequence[str] = ()) -> list[Fields]:
    message = choice.get("message") or choice.get("content") or choice.get("delta")
    if isinstance(message, dict):
        messages = native_messages([_as_assistant(message)])
    else:
        messages = [{"role": "assistant", "content": text_of(choice.get("text"))}]
    reason = choice.get("finish_reason") or choice.get("finishReason")
    if isinstance(reason, str) and messages:
        messages[-1]["finish_reason"] = reason
    if unread and messages:
        messages[-1][UNREAD] = [*unread_of(messages[-1]), *unread]
    return messages


def _as_assistant(value: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return (
        dict(value)
        if value.get("role") or value.get("type") not in (None, "message")
        else {**value, "role": "assistant"}
    )


def _measured(messages: list[Fields], response: Mapping[str, JsonValue]) -> list[Fields]:
    """Return the reply; its last message gets the response's usage, model and stop reason."""
    last = next((m for m in reversed(messages) if m["role"] == "assistant"), None)
    if last is None:
        return messages
    usage = response.get("usage", response.get("usageMetadata"))
    if isinstance(usage, dict):
        last.setdefault("usage", usage)
    if isinstance(model := response.get("model", response.get("modelVersion")), str):
        last.setdefault("model", model)
    reason = response.get("stop_reason", response.get("done_reason"))
    if not isinstance(reason, str):
        reason = mapping(response.get("incomplete_details")).get("reason")
    if isinstance(reason, str):
        last.setdefault("finish_reason", reason)
    return messages


def _instruction(value: JsonValue) -> str | None:
    """Return instructions as a string; the value is a string, a list of text blocks or Gemini's {parts: […]}."""
    if isinstance(value, dict):
        value = value.get("parts", value.get("content", value.get("text")))
    if isinstance(value, list):
        texts = [
            mapping(part).get("text", mapping(part).get("content"))
            for part in value
            if isinstance(part, dict)
        ]
        texts_only = [text for text in (*texts, *value) if isinstance(text, str)]
        return "\n".join(texts_only) or None
    return value if isinstance(value, str) else None


def instruct(thread: Thread, value: JsonValue) -> None:
    """Add instructions in any of the supported forms, including JSON text."""
    thread.instruct(_instruction(parsed(value)))


def _unnested(values: list[JsonValue] | str) -> JsonValue:
    """Return the first prompt if the value is LangChain's list of prompts; return other values unchanged."""
    is_nested = isinstance(values, list) and bool(values) and isinstance(values[0], list)
    return values[0] if is_nested else values


def _without_schemas(thread: Thread, values: list[JsonValue]) -> list[JsonValue]:
    """Return the messages among the values; tool schemas, which some frameworks mix in, are added to the thread."""
    messages: list[JsonValue] = []
    for value in values:
        content = parsed(mapping(value).get("content"))
        if mapping(value).get("role") == "tool" and mapping(content).get("type") == "function":
            thread.know_tools([content])
        else:
            messages.append(value)
    return messages


def tokens(value: JsonValue) -> dict[str, JsonValue] | None:
    """Return token counts as a message's `usage`, or None if there are no numbers."""
    counts = {key: count for key, count in mapping(value).items() if number_of(count) is not None}
    return counts or None
