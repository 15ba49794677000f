"""Assemble conversations from the model calls and tool runs in traces."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from agent_eval.transcripts.importers.base import Fields, NotThisFormatError, listed, mapping
from agent_eval.transcripts.importers.rules.failures import failed
from agent_eval.transcripts.importers.rules.unread import UNREAD
from agent_eval.transcripts.importers.shared.api_calls import replied, sent, tokens
from agent_eval.transcripts.importers.shared.dialects import is_message, parsed, result_fields
from agent_eval.transcripts.importers.shared.threads import Thread, session_of

TRACE_ERROR = "trace error"
"""Source of an outcome that an error of a trace or of its last model call decides."""


@dataclass(frozen=True)
class ModelCall:
    """Represent one model call. `start` is sortable, in any unit; other times are strings as in the source."""

    start: float | None  # None: unknown
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
    error: str | None = None  # the error that ended the call


@dataclass(frozen=True)
class ToolRun:
    """Represent one run of a tool."""

    start: float | None  # None: unknown
    name: str | None
    arguments: JsonValue
    result: JsonValue
    call_id: str | None = None
    is_error: bool | None = None
    error: str | None = None  # its text is the result if there is no other


@dataclass
class Trace:
    """Hold the part of a conversation that one trace contains."""

    calls: list[ModelCall] = field(default_factory=list[ModelCall])
    runs: list[ToolRun] = field(default_factory=list[ToolRun])
    error: str | None = None  # the error that ended the whole trace


def thread_of_trace(trace: Trace) -> Thread:
    """Return the conversation of a trace, built from its model calls in order of start time and its tool results.

    Messages in a call's input that occur in the input or output of earlier calls are not repeated.
    """
    thread = Thread()
    error: str | None = None
    steps: Sequence[ModelCall | ToolRun] = [*trace.calls, *trace.runs]
    if len({step.start is None for step in steps}) > 1:
        raise NotThisFormatError(
            f"its order is unknown: {sum(step.start is None for step in steps)} of {len(steps)} model calls and tool "
            "runs have no start time that can be read; give each of them one"
        )
    for step in sorted(steps, key=lambda step: step.start or 0.0):
        if isinstance(step, ToolRun):
            answer: Fields = {
                "role": "tool",
                "tool_call_id": step.call_id,
                **result_fields(parsed(step.result)),
            }
            answer |= {"content": step.error} if answer["content"] is None and step.error else {}
            answer |= {"name": step.name} if step.name else {}
            answer |= {"is_error": True} if step.error or failed(mapping(parsed(step.result))) else {}
            answer |= {} if step.is_error is None else {"is_error": step.is_error}
            thread.answer(step.name, step.arguments, answer)
        else:
            _take(thread, step)
            error = step.error
    error = trace.error or error
    thread.failure = (TRACE_ERROR, error) if error else None
    return thread


def as_one_exchange(whole: ModelCall) -> list[ModelCall]:
    """Return a trace without model calls as its question and its answer, between which its tool runs are placed."""
    return [
        replace(whole, start=float("-inf"), output=None, error=None),
        replace(whole, start=float("inf"), input=None, system=None, tools=None),
    ]


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
    """Return the messages of a call's input or output; a value in an unknown form is named and not read.

    Raises:
        NotThisFormatError: If the value is a history in which a message has an unknown form.
    """
    try:
        return reader(thread, value)
    except NotThisFormatError:
        if _is_history(parsed(value)):
            raise
        return [{"role": "developer", "content": None, UNREAD: [f"{role} message of an unknown form"]}]


def _is_history(value: JsonValue) -> bool:
    """Return whether a value is a list with a message, a list of such lists, or an object with one."""
    lists = map(parsed, value.values()) if isinstance(value, dict) else [value]
    entries = [entry for found in lists for entry in listed(found)]
    return any(is_message(entry) or any(map(is_message, listed(entry))) for entry in entries)


def session_thread(traces: Iterable[Trace]) -> Thread:
    """Return the conversation of a session, built from its traces in the given order without repeated histories."""
    return session_of([thread_of_trace(trace) for trace in traces])
