"""Assemble conversations from the model calls and tool runs in traces."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from agent_eval.transcripts.importers.base import Fields, NotThisFormatError, text_of
from agent_eval.transcripts.importers.shared.api_calls import replied, sent, tokens
from agent_eval.transcripts.importers.shared.dialects import attached, parsed, result_text
from agent_eval.transcripts.importers.shared.threads import Thread


@dataclass(frozen=True)
class ModelCall:
    """Represent one model call. Times are strings as in the source, except `start`, which is sortable."""

    start: float | str
    input: JsonValue
    output: JsonValue
    system: JsonValue = None
    tools: JsonValue = None
    model: str | None = None
    usage: JsonValue = None
    cost_usd: float | None = None
    latency_ms: float | None = None
    timestamp: str | None = None
    finish_reason: str | None = None


@dataclass(frozen=True)
class ToolRun:
    """Represent one run of a tool."""

    start: float | str
    name: str | None
    arguments: JsonValue
    result: JsonValue
    call_id: str | None = None
    is_error: bool | None = None


@dataclass
class Trace:
    """Hold the part of a conversation that one trace contains."""

    calls: list[ModelCall] = field(default_factory=list[ModelCall])
    runs: list[ToolRun] = field(default_factory=list[ToolRun])


def thread_of_trace(trace: Trace) -> Thread:
    """Return the conversation of a trace, built from its model calls in order of start time and its tool results.

    Messages in a call's input that occur in the input or output of earlier calls are not repeated.
    """
    thread = Thread()
    steps: Sequence[ModelCall | ToolRun] = sorted(
        [*trace.calls, *trace.runs], key=lambda step: (str(type(step.start)), step.start)
    )
    for step in steps:
        if isinstance(step, ToolRun):
            answer: Fields = {
                "role": "tool",
                "content": result_text(result := parsed(step.result)),
                "tool_call_id": step.call_id,
                **attached(result),
            }
            answer |= {"name": step.name} if step.name else {}
            answer |= {} if step.is_error is None else {"is_error": step.is_error}
            thread.answer(step.name, step.arguments, answer)
        else:
            _take(thread, step)
    return thread


def _take(thread: Thread, call: ModelCall) -> None:
    if call.system is not None:
        sent(thread, {"system": call.system})
    thread.know_tools(call.tools)
    history = _read(sent, thread, call.input, "user")
    reply = _read(replied, thread, call.output, "assistant")
    last = next((m for m in reversed(reply) if m["role"] == "assistant"), None)
    if last is not None:
        known = {
            "model": call.model,
            "usage": tokens(call.usage),
            "cost_usd": call.cost_usd,
            "latency_ms": call.latency_ms
            if call.latency_ms is not None and 0 <= call.latency_ms <= 1e12
            else None,
            "timestamp": call.timestamp,
            "finish_reason": call.finish_reason,
        }
        for key, value in known.items():
            if value is not None:
                last.setdefault(key, value)
    thread.merge(history, reply)


def _read(
    reader: Callable[[Thread, JsonValue], list[Fields]], thread: Thread, value: JsonValue, role: str
) -> list[Fields]:
    """Return the messages of a call's input or output; a value in an unknown form becomes a message with its JSON."""
    try:
        return reader(thread, value)
    except NotThisFormatError:
        return [{"role": role, "content": text_of(value)}]


def session_thread(traces: Iterable[Trace]) -> Thread:
    """Return the conversation of a session, built from its traces in the given order without repeated histories."""
    whole = Thread()
    for trace in traces:
        whole.follow(thread_of_trace(trace))
    return whole
