"""Assemble conversations from the model calls and tool runs in traces."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeVar

from pydantic import JsonValue

from agent_eval.transcripts.importers.base import Fields, NotThisFormatError, listed, mapping
from agent_eval.transcripts.importers.rules.failures import failed, with_error
from agent_eval.transcripts.importers.rules.unread import UNREAD
from agent_eval.transcripts.importers.shared.api_calls import replied, sent, tokens
from agent_eval.transcripts.importers.shared.dialects import is_message, parsed, result_fields
from agent_eval.transcripts.importers.shared.sessions import session_of
from agent_eval.transcripts.importers.shared.threads import Thread

NO_MESSAGE = "error"
"""The error of a run that states no message."""
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


_Step = TypeVar("_Step", ModelCall, ToolRun)


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
    steps: Sequence[ModelCall | ToolRun] = [*trace.calls, *trace.runs]
    if len({step.start is None for step in steps}) > 1:
        raise NotThisFormatError(
            f"its order is unknown: {sum(step.start is None for step in steps)} of {len(steps)} model calls and tool "
            "runs have no start time that can be read; give each of them one"
        )
    steps = [*_oldest_first(trace.calls), *_oldest_first(trace.runs)]
    waiting: list[ToolRun] = []
    for step in [*sorted(steps, key=lambda step: step.start or 0.0), None]:
        if isinstance(step, ToolRun):
            waiting.append(step)
            continue
        for run in _in_call_order(thread, waiting):
            _answer(thread, run)
        waiting.clear()
        if step is not None:
            _take(thread, step)
            thread.fail(TRACE_ERROR, step.error)
    if trace.error:
        thread.fail(TRACE_ERROR, trace.error)
    return thread


def _oldest_first(steps: Sequence[_Step]) -> list[_Step]:
    """Return the steps; steps that are listed newest first are reversed, which orders those of equal times."""
    starts = [step.start or 0.0 for step in steps]
    falls = all(later <= earlier for earlier, later in pairwise(starts))
    return list(reversed(steps)) if falls and len(set(starts)) > 1 else list(steps)


def _in_call_order(thread: Thread, runs: Sequence[ToolRun]) -> list[ToolRun]:
    """Return tool runs so that those of the last calls have the order of their calls, with the same arguments.

    Parallel runs start at almost the same time, in any order, and their calls may share one id.
    """
    if len(runs) < 2:
        return list(runs)
    called = next((listed(calls) for m in reversed(thread.messages) if (calls := m.get("tool_calls"))), [])  # type: ignore[arg-type]
    free = dict(enumerate(map(mapping, called)))
    n_uses = Counter(call.get("id") for call in free.values())
    places: dict[int, int] = {}  # position of a run → position of its call
    for at, run in enumerate(runs):
        is_named = run.call_id is not None and n_uses[run.call_id] == 1
        place = next((i for i, call in free.items() if _is_run_of(run, call, is_named=is_named)), None)
        if place is not None:
            places[at] = place
            del free[place]
    ordered = iter(sorted(places, key=places.__getitem__))
    return [runs[next(ordered)] if at in places else run for at, run in enumerate(runs)]


def _is_run_of(run: ToolRun, call: Mapping[str, JsonValue], *, is_named: bool) -> bool:
    """Return whether a run is that of a call: by its id if only one call has it (`is_named`), else by its arguments."""
    if is_named:
        return run.call_id == call.get("id")
    is_same = run.call_id in (None, call.get("id")) and run.name in (None, call.get("name"))
    return is_same and parsed(run.arguments) == parsed(call.get("arguments"))


def _answer(thread: Thread, step: ToolRun) -> None:
    """Add the result of a tool run to the conversation."""
    answer: Fields = {
        "role": "tool",
        "tool_call_id": step.call_id,
        **result_fields(parsed(step.result)),
    }
    error = None if step.error == NO_MESSAGE and answer["content"] is not None else step.error
    answer["content"] = with_error(answer["content"], error)
    answer |= {"name": step.name} if step.name else {}
    answer |= {"is_error": True} if step.error or failed(mapping(parsed(step.result))) else {}
    answer |= {} if step.is_error is None else {"is_error": step.is_error}
    thread.answer(step.name, step.arguments, answer)


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
        call_fields = {
            "model": call.model,
            "usage": tokens(call.usage),
            "cost_usd": call.cost_usd,
            "latency_ms": call.latency_ms
            if call.latency_ms is not None and 0 <= call.latency_ms <= 1e12
            else None,
            "timestamp": call.timestamp,
            "finish_reason": call.finish_reason,
        }
        for key, value in call_fields.items():
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
    """Return whether a value is a list with a message, a list of such lists, or an object with one.

    A message of an unknown role is one as well.
    """
    lists = map(parsed, value.values()) if isinstance(value, dict) else [value]
    entries = [entry for entry_list in lists for entry in listed(entry_list)]
    return any(_is_spoken(entry) or any(map(_is_spoken, listed(entry))) for entry in entries)


def _is_spoken(value: JsonValue) -> bool:
    fields = mapping(value)
    is_told = isinstance(fields.get("role"), str) and bool({"content", "parts", "tool_calls"} & fields.keys())
    return is_told or is_message(value)


def session_thread(traces: Iterable[Trace]) -> Thread:
    """Return the conversation of a session, built from its traces in the given order without repeated histories."""
    return session_of([thread_of_trace(trace) for trace in traces])
