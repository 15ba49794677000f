"""Read messages from span attributes: GenAI conventions (current, older), OpenInference, OpenLLMetry, AI SDK.

A span's attributes are one flat object with dotted keys, as decoded from OTLP's `attributes`.
"""

import re
from collections.abc import Iterable, Mapping

from pydantic import JsonValue

from agent_eval.transcripts.importers.base import listed, mapping, number_of, text_of
from agent_eval.transcripts.importers.shared.dialects import parsed

_INPUTS = ("gen_ai.input.messages", "gen_ai.prompt", "ai.prompt.messages", "ai.prompt", "llm.prompts")
_OUTPUTS = ("gen_ai.output.messages", "gen_ai.completion", "llm.completions")
_SYSTEMS = ("gen_ai.system_instructions", "gen_ai.system.instructions")
_TOOLS = ("gen_ai.tool.definitions", "ai.prompt.tools", "gen_ai.request.tools")
_MODELS = (
    "gen_ai.response.model",
    "ai.response.model",
    "gen_ai.request.model",
    "llm.model_name",
    "ai.model.id",
)
SESSIONS = (
    "session.id",
    "gen_ai.conversation.id",
    "langfuse.session.id",
    "traceloop.association.properties.session_id",
)
_TOOL_NAMES = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "tool_call.function.name")
_TOOL_IDS = ("gen_ai.tool.call.id", "tool_call.id", "tool.id", "ai.toolCall.id")
_TOOL_INPUTS = ("gen_ai.tool.call.arguments", "tool.parameters", "ai.toolCall.args", "input.value", "input")
_TOOL_OUTPUTS = ("gen_ai.tool.call.result", "ai.toolCall.result", "output.value", "output")
_USAGE = {
    "input_tokens": (
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.prompt_tokens",
        "llm.token_count.prompt",
        "ai.usage.promptTokens",
        "ai.usage.inputTokens",
    ),
    "output_tokens": (
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
        "ai.usage.completionTokens",
        "ai.usage.outputTokens",
    ),
}
_COSTS = ("gen_ai.usage.cost", "gen_ai.usage.total_cost", "llm.cost.total", "gen_ai.cost.total_cost")
_REPLIES = ("ai.response.text", "ai.response.object", "ai.response.toolCalls")
_FLAT = ("llm.input_messages.", "llm.output_messages.", "gen_ai.prompt.", "gen_ai.completion.")
_INDEXED = re.compile(r"(.+?)\.(\d+)\.(.+)\Z")
_MESSAGE_EVENT = re.compile(r"gen_ai\.((?:system|user|assistant|tool)\.message|choice)")
_MOST_MESSAGES = 100_000

Attributes = Mapping[str, JsonValue]


def first(attributes: Attributes, keys: Iterable[str]) -> JsonValue:
    """Return the value of the first attribute in `keys` that is present and not empty."""
    return next((value for key in keys if (value := attributes.get(key)) not in (None, "", [], {})), None)


def is_tool_run(attributes: Attributes) -> bool:
    """Return whether the span is a tool run."""
    operation = attributes.get("gen_ai.operation.name")
    kind = str(attributes.get("openinference.span.kind", attributes.get("traceloop.span.kind", ""))).lower()
    return operation == "execute_tool" or kind == "tool" or "ai.toolCall.name" in attributes


def holds_messages(attributes: Attributes) -> bool:
    """Return whether the span contains a model's input or output."""
    keys = (*_INPUTS, *_OUTPUTS, *_REPLIES)
    return any(key in attributes for key in keys) or any(key.startswith(_FLAT) for key in attributes)


def tool_run(attributes: Attributes) -> tuple[str | None, str | None, JsonValue, JsonValue]:
    """Return the name, call id, arguments and result of a tool run."""
    return (
        text_of(first(attributes, _TOOL_NAMES)),
        text_of(first(attributes, _TOOL_IDS)),
        parsed(first(attributes, _TOOL_INPUTS)),
        parsed(first(attributes, _TOOL_OUTPUTS)),
    )


def inputs(attributes: Attributes) -> JsonValue:
    """Return the model's input in a form that `api_calls.sent` supports, or None."""
    for prefix in ("llm.input_messages", "gen_ai.prompt"):
        if messages := unflattened(attributes, prefix):
            return messages
    return parsed(first(attributes, _INPUTS))


def outputs(attributes: Attributes) -> JsonValue:
    """Return the model's output in a form that `api_calls.replied` supports, or None."""
    for prefix in ("llm.output_messages", "gen_ai.completion"):
        if messages := unflattened(attributes, prefix):
            return [{"role": "assistant", **mapping(message)} for message in messages]
    if (output := parsed(first(attributes, _OUTPUTS))) is not None:
        return output
    text = first(attributes, ("ai.response.text", "ai.response.object"))
    calls = parsed(attributes.get("ai.response.toolCalls"))
    return {"text": text, "toolCalls": calls} if text is not None or calls else None


def messages_of_events(events: Iterable[tuple[JsonValue, Attributes]]) -> dict[str, JsonValue]:
    """Return the attributes for the messages that older conventions store as one event each; empty without them."""
    sent: list[JsonValue] = []
    replies: list[JsonValue] = []
    for name, attributes in events:
        if not isinstance(name, str) or not (match := _MESSAGE_EVENT.fullmatch(name)):
            continue
        body = mapping(parsed(attributes.get("gen_ai.event.content"))) or attributes
        message = {**body, **mapping(parsed(body.get("message")))}
        message = {key.removeprefix("message."): value for key, value in message.items() if key != "message"}
        role = "assistant" if match[1] == "choice" else match[1].removesuffix(".message")
        (replies if match[1] == "choice" else sent).append({**message, "role": message.get("role") or role})
    message_attributes = {"gen_ai.input.messages": sent, "gen_ai.output.messages": replies}
    return {key: values for key, values in message_attributes.items() if values}


def system(attributes: Attributes) -> JsonValue:
    """Return instructions that are stored separately from the messages."""
    return parsed(first(attributes, _SYSTEMS))


def tools(attributes: Attributes) -> JsonValue:
    """Return the schemas of the tools that were available to the model."""
    flat = [mapping(tool).get("json_schema") or tool for tool in unflattened(attributes, "llm.tools")]
    nested = [parsed(mapping(mapping(tool).get("tool")).get("json_schema", tool)) for tool in flat]
    return nested or parsed(first(attributes, _TOOLS))


def model(attributes: Attributes) -> str | None:
    """Return the model that answered, else the requested model."""
    return text_of(first(attributes, _MODELS))


def usage(attributes: Attributes) -> JsonValue:
    """Return the numbers of input and output tokens, if known."""
    counts = {name: parsed_number(first(attributes, keys)) for name, keys in _USAGE.items()}
    return {name: int(count) for name, count in counts.items() if count is not None and count.is_integer()}


def cost(attributes: Attributes) -> float | None:
    """Return the cost of the call in US dollars."""
    return parsed_number(first(attributes, _COSTS))


def finish_reason(attributes: Attributes) -> str | None:
    """Return the model's stop reason."""
    reasons = parsed(first(attributes, ("gen_ai.response.finish_reasons", "ai.response.finishReason")))
    reason = next(iter(listed(reasons)), reasons)
    return reason if isinstance(reason, str) else None


def parsed_number(value: JsonValue) -> float | None:
    """Return the value as a number, or None; strings are parsed."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    return number_of(value)


def unflattened(attributes: Attributes, prefix: str) -> list[JsonValue]:
    """Return the list of objects in `<prefix>.<i>.<key>` attributes; empty if there are none.

    OpenInference stores each message under `message.`, its parts under `message.contents.<i>.message_content.` and its
    calls under `message.tool_calls.<i>.tool_call.`; OpenLLMetry omits these prefixes.
    """
    start = f"{prefix}."
    inner = {key.removeprefix(start): value for key, value in attributes.items() if key.startswith(start)}
    entries: dict[int, dict[str, JsonValue]] = {}
    for key, value in inner.items():
        index, dot, rest = key.partition(".")
        if dot and index.isascii() and index.isdigit() and int(index[:9]) < _MOST_MESSAGES:
            entries.setdefault(int(index[:9]), {})[rest] = value
    return [_message(entries[index]) for index in sorted(entries)]


def _message(flat: Mapping[str, JsonValue]) -> JsonValue:
    flat = {key.removeprefix("message."): value for key, value in flat.items()}
    plain: dict[str, JsonValue] = {key: value for key, value in flat.items() if _INDEXED.match(key) is None}
    groups: dict[str, dict[int, dict[str, JsonValue]]] = {}
    for key, value in flat.items():
        if match := _INDEXED.match(key):
            rest = match[3].removeprefix("message_content.").removeprefix("tool_call.")
            groups.setdefault(match[1], {}).setdefault(int(match[2][:9]), {})[rest] = value
    if parts := groups.get("contents", groups.get("content")):
        plain["content"] = [parts[i] for i in sorted(parts)]
    if calls := groups.get("tool_calls"):
        plain["tool_calls"] = [_call(calls[i]) for i in sorted(calls)]
    return plain


def _call(flat: Mapping[str, JsonValue]) -> JsonValue:
    names = ("function.name", "name")
    return {
        "id": flat.get("id"),
        "name": first(flat, names),
        "arguments": first(flat, ("function.arguments", "arguments")),
    }
