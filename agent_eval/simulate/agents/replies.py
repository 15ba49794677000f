"""Define requests to agents and their replies, and read a reply from untrusted JSON."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pydantic import JsonValue, ValidationError

from agent_eval.formats.json_text import clean, loads
from agent_eval.judge.llm.budget import Price, Usage
from agent_eval.transcripts.models import Message, MessageToolCall
from agent_eval.transcripts.outcomes import OutcomeClass

UNKNOWN_USAGE = Usage(None, None, None, None)
MOST_CALLS = 64  # maximum tool calls in one reply
_FIELDS = ("content", "tool_calls", "messages", "function_call", "refusal")


class AgentFailureError(Exception):
    """Raised when an agent gave no usable reply. `outcome_class` says whose failure it is, as far as it is known."""

    def __init__(self, outcome_class: OutcomeClass, detail: str, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.outcome_class: OutcomeClass = outcome_class
        self.detail = detail
        self.retry_after_s = retry_after_s  # not None: the request was rejected only for now (429)


@dataclass(frozen=True)
class AgentRequest:
    """Hold a request to an agent: the conversation so far, which ends with a user message or with tool results.

    It contains neither goal nor profile nor anything else of the scenario.
    """

    conversation_id: str
    messages: tuple[Message, ...]
    n_new: int  # number of messages at the end that the agent has not received before
    tools: tuple[dict[str, JsonValue], ...]
    seed: int

    @property
    def new(self) -> tuple[Message, ...]:
        """Return the messages since the agent's last reply."""
        return self.messages[len(self.messages) - self.n_new :]

    def as_json(self) -> dict[str, JsonValue]:
        """Return the request as Python agents and commands receive it."""
        return {
            "conversation_id": self.conversation_id,
            "messages": [chat_message(m) for m in self.messages],
            "new": [chat_message(m) for m in self.new],
            "tools": list(self.tools),
            "seed": self.seed,
        }


@dataclass(frozen=True)
class AgentReply:
    """Hold a reply: its text, the calls that are to be answered, and messages of tools that the agent ran itself."""

    text: str | None
    calls: tuple[MessageToolCall, ...] = ()
    executed: tuple[Message, ...] = ()
    usage: Usage = UNKNOWN_USAGE
    finish_reason: str | None = None
    model: str | None = None
    latency_ms: float | None = None


class AgentConversation(Protocol):
    """Calls an agent in one conversation."""

    @property
    def is_stateless(self) -> bool:
        """Return whether a reply depends on the request alone, so that another process can continue the conversation."""
        ...

    async def reply(self, request: AgentRequest) -> AgentReply:
        """Return the reply to a request.

        Raises:
            AgentFailureError: If there is no usable reply.
        """
        ...

    async def close(self) -> None:
        """Release what the conversation uses."""
        ...


class AgentUnderTest(Protocol):
    """Starts conversations with one agent."""

    def start(self, conversation_id: str) -> AgentConversation:
        """Return a conversation that shares no state with others."""
        ...


def chat_message(message: Message) -> dict[str, JsonValue]:
    """Return a message in the form of OpenAI's chat API."""
    value: dict[str, JsonValue] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        value["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _json(call.arguments)},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        value["tool_call_id"] = message.tool_call_id
    return value


def parsed(body: bytes) -> JsonValue:
    """Return the JSON of a reply; raises AgentFailureError if it is not JSON."""
    try:
        return loads(body.decode("utf-8"))
    except (UnicodeDecodeError, ValueError) as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error).partition(":")[0]
        raise AgentFailureError(
            "agent_error", f"the reply is not JSON ({len(body):,} bytes): {reason}"
        ) from error


def read_completion(value: JsonValue, price: Price | None) -> AgentReply:
    """Read a chat completion of OpenAI's API."""
    fields = value if isinstance(value, dict) else {}
    choices = fields.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        error = fields.get("error")
        error_text = f": {str(error)[:200]}" if error else ""
        raise AgentFailureError("agent_error", f"the reply contains no choice with a message{error_text}")
    reason = choice.get("finish_reason")
    usage = read_usage(fields.get("usage"), price)
    extra = {"usage": usage, "model": _name(fields.get("model"))}
    return replace(read_reply(message), finish_reason=reason if isinstance(reason, str) else None, **extra)  # type: ignore[arg-type]


def read_reply(value: JsonValue, price: Price | None = None) -> AgentReply:
    """Read a reply: a text, or an object with `content`, `tool_calls`, `messages`, `usage`, `cost_usd` and `model`.

    Raises:
        AgentFailureError: If it is neither, or if a part has the wrong type.
    """
    if isinstance(value, str):
        return AgentReply(clean(value))
    if not isinstance(value, dict) or not any(name in value for name in _FIELDS):
        raise AgentFailureError(
            "agent_error", f"the reply is {_kind(value)}; expected a text or an object with content"
        )
    try:
        content = Message.model_validate({"role": "assistant", "content": value.get("content")}).content
        executed = _executed(value.get("messages"))
    except ValidationError as error:
        raise AgentFailureError(
            "agent_error", f"the reply cannot be read: {error.errors()[0]['msg']}"
        ) from None
    if content is None and isinstance(value.get("refusal"), str):
        content = str(value["refusal"])
    usage = read_usage(value.get("usage"), price)
    cost = value.get("cost_usd")
    if isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < 1e9:
        usage = replace(usage, cost_usd=float(cost))
    reason = value.get("finish_reason")
    return AgentReply(
        content,
        tuple(_calls(value)),
        executed,
        usage,
        reason if isinstance(reason, str) else None,
        _name(value.get("model")),
    )


def read_usage(value: JsonValue, price: Price | None) -> Usage:
    """Return the tokens of a reply and their cost; unknown or impossible counts are None."""
    fields = value if isinstance(value, dict) else {}
    n_in, n_out = (_count(fields.get(name)) for name in ("prompt_tokens", "completion_tokens"))
    has_counts = price is not None and n_in is not None and n_out is not None
    return Usage(n_in, n_out, None, price.of(n_in or 0, n_out or 0) if price and has_counts else None)


def _executed(value: JsonValue) -> tuple[Message, ...]:
    """Return the messages that an agent reports about its own tools: calls and results, no texts of others."""
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > 1_000:
        raise AgentFailureError("agent_error", "messages is not a list of at most 1,000 messages")
    read = tuple(Message.model_validate(item) for item in value)
    if any(m.role not in ("assistant", "tool") for m in read):
        raise AgentFailureError("agent_error", "messages contains a role other than assistant and tool")
    return read


def _calls(fields: Mapping[str, JsonValue]) -> list[MessageToolCall]:
    value = fields.get("tool_calls")
    if value is None and isinstance(fields.get("function_call"), dict):
        value = [fields["function_call"]]
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > MOST_CALLS:
        what = (
            f"{len(value)} calls, at most {MOST_CALLS} are allowed"
            if isinstance(value, list)
            else _kind(value)
        )
        raise AgentFailureError("agent_error", f"tool_calls is {what}")
    try:
        return [MessageToolCall.model_validate(_call(item)) for item in value]
    except ValidationError as error:
        raise AgentFailureError(
            "agent_error", f"a tool call cannot be read: {error.errors()[0]['msg']}"
        ) from None


def _call(item: JsonValue) -> JsonValue:
    """Keep only the known keys of a call; servers add others, such as `index` and `type`."""
    if not isinstance(item, dict) or isinstance(item.get("function"), dict):
        return item
    return {name: item[name] for name in ("id", "name", "arguments") if name in item}


def numbered(calls: Sequence[MessageToolCall], n_before: int) -> tuple[MessageToolCall, ...]:
    """Return calls with ids that are unique in the conversation, so that each result belongs to one call."""
    ids = [call.id for call in calls]
    is_usable = all(ids) and len(set(ids)) == len(ids)
    return tuple(
        call.model_copy(update={"id": f"{call.id}-{n_before + i}" if is_usable else f"call-{n_before + i}"})
        for i, call in enumerate(calls)
    )


def _json(value: JsonValue) -> str:
    from agent_eval.formats.json_text import dumps

    return value if isinstance(value, str) else dumps(value)


def _count(value: JsonValue) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if math.isfinite(value) and 0 <= value < 1e9 else None


def _name(value: JsonValue) -> str | None:
    return clean(value)[:200] if isinstance(value, str) and value else None


def _kind(value: object) -> str:
    names = {
        str: "a text",
        dict: "an object without content",
        list: "a list",
        type(None): "null",
        bool: "true or false",
    }
    return names.get(type(value), "a number")
