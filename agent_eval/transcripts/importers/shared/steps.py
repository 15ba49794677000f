"""Split a message that contains several steps of an agent: calls, their results, and the text after them.

UI messages of the AI SDK contain a whole reply with its tool runs, as `parts` or `toolInvocations`. Anthropic replies
with server-side tools, and exports of claude.ai, contain tool results between text blocks.
"""

from collections.abc import Mapping

from pydantic import JsonValue

from agent_eval.transcripts.importers.base import listed, mapping

_LISTS = ("parts", "content", "blocks", "toolInvocations")
"""Keys of a message that may contain several steps."""
_KEYS_OF_LISTS = frozenset(_LISTS)
_PLAIN = ("text", "thinking", "tool_use")
"""Types of parts that are in one step with those beside them."""
_DENIED = "output-denied"
"""State of a call of the AI SDK that a person did not allow."""
_RESULTS = ("tool_result", "tool-result", "web_search_tool_result", "mcp_tool_result", "toolResult")
_BARE = ("toolUse", "toolResult", "functionCall", "functionResponse", "tool_call", "tool_call_result")
"""Keys of content parts without a type: Bedrock, Gemini, Haystack."""
_BARE_RESULTS = frozenset({"toolResult", "codeExecutionResult", "code_execution_result"})


def is_stepped(message: Mapping[str, JsonValue]) -> bool:
    """Return whether a message contains calls or results in a form that OpenAI's chat form lacks."""
    parts = listed(message.get("content"))
    is_bare = any("type" not in mapping(part) and set(_BARE) & set(mapping(part)) for part in parts)
    return is_bare or any(isinstance(message.get(key), list) for key in ("toolInvocations", "blocks"))


def steps(message: dict[str, JsonValue]) -> list[dict[str, JsonValue]]:
    """Return one message per step; a message with only one step is unchanged."""
    if not any(isinstance(message[key], list) for key in _KEYS_OF_LISTS.intersection(message)):
        return [message]
    key = next((key for key in ("parts", "content", "blocks") if isinstance(message.get(key), list)), None)
    block_list = listed(message[key]) if key else []
    is_plain = "toolInvocations" not in message and all(
        mapping(part).get("type") in _PLAIN for part in block_list
    )
    if key != "blocks" and (is_plain or message.get("role") != "assistant"):
        return [message]
    invoked = listed(message.get("toolInvocations")) if key != "parts" else []
    content = message.get("content")
    parts = [new for part in (*invoked, *block_list) for new in _expanded(part)]
    if invoked and isinstance(content, str) and content:
        parts.append({"type": "text", "text": content})
    rest = {k: v for k, v in message.items() if k not in _LISTS}
    if message.get("role") != "assistant":
        return [{**rest, "content": parts}]
    cut: list[list[JsonValue]] = [[]]
    for part in parts:
        if cut[-1] and _is_result(cut[-1][-1]) and not _is_result(part):
            cut.append([])
        cut[-1].append(part)
    is_one = len(cut) == 1 and key != "blocks" and parts == block_list
    return [message] if is_one else [{**rest, "content": step} for step in cut]


def _is_result(part: JsonValue) -> bool:
    kind = mapping(part).get("type")
    is_bare = not _BARE_RESULTS.isdisjoint(mapping(part))
    return kind in _RESULTS or is_bare or str(kind).endswith("tool_result")


def _expanded(part: JsonValue) -> list[JsonValue]:
    """Return a tool part of the AI SDK as a call and its result, if there is one; return other parts unchanged."""
    fields = mapping(part)
    kind = fields.get("type")
    kind = kind if isinstance(kind, str) else ""
    if kind == "step-start":
        return []
    inner = mapping(fields.get("toolInvocation")) if kind == "tool-invocation" else fields
    is_tool = kind.startswith("tool-") and kind not in ("tool-call", "tool-result")
    is_tool = is_tool or kind == "dynamic-tool" or (not kind and "toolName" in fields)
    if not is_tool or "toolCallId" not in inner:
        return [part]
    call_id = inner["toolCallId"]
    name = inner.get("toolName") or kind.removeprefix("tool-")
    arguments = inner.get("input", inner.get("args"))
    call: JsonValue = {"type": "tool-call", "toolCallId": call_id, "toolName": name, "args": arguments}
    failed = inner.get("errorText")
    if inner.get("state") == _DENIED:
        failed = mapping(inner.get("approval")).get("reason") or "the call was denied"
    result = failed if failed is not None else inner.get("output", inner.get("result"))
    if inner.get("state") not in ("result", "output-available", "output-error", _DENIED):
        return [call]
    answer: dict[str, JsonValue] = {
        "type": "tool-result",
        "toolCallId": call_id,
        "toolName": name,
        "result": result,
    }
    return [call, answer | ({"is_error": True} if failed is not None else {})]
