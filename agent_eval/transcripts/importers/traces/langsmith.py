"""Read LangSmith runs as exported by its API and SDK: {"run_type", "trace_id", "inputs", "outputs", …}."""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from agent_eval.formats.json_text import dumps, loads
from agent_eval.formats.streams import Record
from agent_eval.transcripts.importers.base import (
    Fields,
    Found,
    Ids,
    NotThisFormatError,
    Source,
    conversations,
    listed,
    mapping,
    or_nothing_found,
    paid,
    text_of,
)
from agent_eval.transcripts.importers.registry import Format
from agent_eval.transcripts.importers.rules.grouping import RunTree, Threads, TracePart, subagent_key
from agent_eval.transcripts.importers.rules.order import seconds_of, sortable
from agent_eval.transcripts.importers.shared.assembly import (
    NO_MESSAGE,
    ModelCall,
    ToolRun,
    Trace,
    as_one_exchange,
    thread_of_trace,
)
from agent_eval.transcripts.importers.shared.dialects import parsed
from agent_eval.transcripts.importers.shared.layouts import Item, grouped, records_of
from agent_eval.transcripts.importers.shared.sessions import session_of
from agent_eval.transcripts.importers.shared.threads import Thread

NAME = "langsmith"
EXPECTED = 'runs {"id", "run_type", "trace_id", "inputs", "outputs"}, one per line or in a JSON array'
_KINDS = frozenset({"llm", "tool", "chain", "retriever", "embedding", "prompt", "parser"})
_THREAD = ("session_id", "thread_id", "conversation_id")

_LONGEST_LITERAL = 100_000


def read(source: Source) -> Iterator[Found]:
    """Yield the conversations in a file of runs; the traces of a thread form one conversation."""
    tree = RunTree()

    def parts() -> Iterator[TracePart]:
        for run in (mapping(item.value) for item in _runs(source) if isinstance(item, Record)):
            kind, part = run.get("run_type"), _part(run)
            tree.add(part.own, part.parent, part.trace, is_tool=kind == "tool", is_call=kind == "llm")
            yield part

    threads = Threads(parts())

    def key(value: JsonValue) -> str | None:
        part = _part(mapping(value))
        return subagent_key(threads.key(part), tree.subagent(part.own))

    records = grouped(source, lambda: _runs(source, threads), key)
    return conversations(source, NAME, or_nothing_found(source, records, EXPECTED), _conversation)


def looks_like(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a record is a LangSmith run."""
    return isinstance(value.get("run_type"), str) and "inputs" in value


def _runs(source: Source, threads: Threads | None = None) -> Iterator[Item]:
    """Yield the runs, with their traces if known; each run in `child_runs` becomes a separate record."""
    for record in records_of(source, EXPECTED):
        if not isinstance(record, Record):
            yield record
            continue
        waiting = [record.value]
        size = record.size
        while waiting:
            run = waiting.pop(0)
            around = mapping(run)
            if threads is not None and around and not around.get("trace_id"):
                run = {**around, "trace_id": threads.trace(_part(around))}
            yield Record(record.number, run, size)
            own = {"trace_id": around.get("trace_id"), "parent_run_id": around.get("id")}
            children = map(mapping, listed(around.get("child_runs")))
            waiting += [
                {**child, **{k: v for k, v in own.items() if child.get(k) is None}} for child in children
            ]
            size = 0


def _metadata(run: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    return mapping(mapping(parsed(run.get("extra"))).get("metadata"))


def _part(run: Mapping[str, JsonValue]) -> TracePart:
    """Return where a run belongs; the field `session_id` of a run is its project, not a session."""
    thread_ids = (*(text_of(_metadata(run).get(key)) for key in _THREAD), text_of(run.get("thread_id")))
    own, parent = text_of(run.get("id")), text_of(run.get("parent_run_id"))
    return TracePart(own, parent, text_of(run.get("trace_id")), next(filter(None, thread_ids), None))


def _conversation(group: Mapping[str, JsonValue], ids: Ids, number: int) -> Fields:
    traces: dict[str, list[Mapping[str, JsonValue]]] = {}
    for run in map(mapping, listed(group.get("records"))):
        traces.setdefault(text_of(run.get("trace_id") or run.get("id")) or "", []).append(run)
    ordered = sorted(traces.values(), key=lambda runs: min(sortable(run.get("start_time")) for run in runs))
    whole = session_of([*map(_thread, ordered)])
    if not whole.messages:
        raise NotThisFormatError("the trace contains no run with inputs or outputs")
    whole.metadata["trace_ids"] = [*filter(None, traces)]
    return whole.fields() | {"conversation_id": ids.named(text_of(group.get("key")) or str(number))}


def _thread(runs: list[Mapping[str, JsonValue]]) -> Thread:
    kinds = {text_of(run.get("id")): run.get("run_type") for run in runs}
    around = {text_of(run.get("parent_run_id")) for run in runs if run.get("run_type") == "llm"}
    own_trace = Trace()
    for run in runs:
        if run.get("run_type") == "llm" and text_of(run.get("id")) not in around:
            own_trace.calls.append(_call(run))
        elif run.get("run_type") == "tool":
            own_trace.runs.append(_tool(run))
    roots = [run for run in runs if text_of(run.get("parent_run_id")) not in kinds]
    if not own_trace.calls:
        own_trace.calls += [part for run in roots[:1] for part in as_one_exchange(_call(run))]
    whole = [run for run in roots if run.get("run_type") not in ("llm", "tool")]
    own_trace.error = next((error for run in whole if (error := _error(run))), None)
    thread = thread_of_trace(own_trace)
    thread.not_read(
        "run of type", Counter(k for run in runs if (k := str(run.get("run_type"))) not in _KINDS)
    )
    return thread


def _error(run: Mapping[str, JsonValue]) -> str | None:
    """Return the text of a run's error, or None; an empty error still is one, and so is the status of a run."""
    error = run.get("error")
    if error in (None, False):
        return NO_MESSAGE if run.get("status") == "error" else None
    return text_of(error) or NO_MESSAGE


def _call(run: Mapping[str, JsonValue]) -> ModelCall:
    start, inputs = _text(run, "start_time"), mapping(parsed(run.get("inputs")))
    outputs = mapping(parsed(run.get("outputs")))
    more = mapping(parsed(run.get("extra")))
    parameters = mapping(more.get("invocation_params"))
    model = _metadata(run).get("ls_model_name", parameters.get("model"))
    took = (sortable(run.get("end_time")) - sortable(run.get("start_time"))) * 1000
    usage = mapping(outputs.get("usage_metadata")) or _usage(run, outputs)
    return ModelCall(
        start=seconds_of(run.get("start_time")),
        input=dict(inputs) if {"messages", "input", "prompt", "question"} & set(inputs) else _only(inputs),
        output=_output(outputs, n_given=_n_messages(inputs)),
        tools=parameters.get("tools"),
        model=model if isinstance(model, str) else None,
        usage=dict(usage),
        cost_usd=paid(run.get("total_cost")),
        latency_ms=round(took, 3) if 0 <= took < float("inf") else None,
        timestamp=start or None,
        error=_error(run),
    )


def _usage(run: Mapping[str, JsonValue], outputs: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return the token counts of a run, else those of LangChain's reply or of its whole output."""
    token_counts = {
        key: run.get(key) for key in ("prompt_tokens", "completion_tokens") if run.get(key) is not None
    }
    message = mapping(_output(outputs, n_given=0))
    more = mapping(message.get("kwargs")) or mapping(message.get("data")) or message
    whole = mapping(mapping(outputs.get("llm_output")).get("token_usage"))
    return token_counts or mapping(more.get("usage_metadata")) or whole


def _n_messages(inputs: Mapping[str, JsonValue]) -> int:
    return len(listed(inputs.get("messages")))


def _output(outputs: Mapping[str, JsonValue], n_given: int) -> JsonValue:
    """Return the reply in a run's outputs.

    The reply is a generation's message or text, the messages that follow the input, or else the outputs' value.
    """
    generations = [each for batch in listed(outputs.get("generations")) for each in listed(batch)]
    if len(generations) > 1:
        return {"choices": generations}
    if first := mapping(next(iter(generations), None)):
        return first.get("message") or first.get("text")
    if messages := listed(outputs.get("messages")):
        return messages[n_given:] or messages[-1:]
    if isinstance(outputs.get("choices"), list):
        return dict(outputs)
    return _only(outputs)


def _only(values: Mapping[str, JsonValue]) -> JsonValue:
    """Return the value of an object with only one key; other objects are unchanged, an empty object becomes None."""
    return next(iter(values.values())) if len(values) == 1 else dict(values) or None


def _tool(run: Mapping[str, JsonValue]) -> ToolRun:
    inputs = mapping(parsed(run.get("inputs")))
    outputs = mapping(parsed(run.get("outputs")))
    output = outputs.get("output", _only(outputs))
    message = mapping(mapping(output).get("kwargs")) or mapping(output)
    tool_input = _literal(parsed(inputs.get("input"))) if set(inputs) == {"input"} else dict(inputs)
    call_id = message.get("tool_call_id")
    return ToolRun(
        start=seconds_of(run.get("start_time")),
        name=text_of(run.get("name")),
        arguments=tool_input,
        result=message.get("content", output),
        call_id=call_id if isinstance(call_id, str) else None,
        is_error=True if "error" in (mapping(output).get("status"), message.get("status")) else None,
        error=_error(run),
    )


def _literal(value: JsonValue) -> JsonValue:
    """Return arguments that LangChain writes as a Python literal, such as "{'k': 1}", as data."""
    if not isinstance(value, str) or not value.startswith("{") or len(value) > _LONGEST_LITERAL:
        return value
    try:
        literal = ast.literal_eval(value)
        return loads(dumps(literal)) if isinstance(literal, dict) else value
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return value


def _text(run: Mapping[str, JsonValue], key: str) -> str:
    return text_of(run.get(key)) or ""


FORMAT = Format(
    NAME,
    read,
    looks_like,
    order=150,
    content="runs of LangSmith, from its API, its SDK or a CSV file",
    conversation="a trace; the traces of one thread",
    details=(
        "Runs of type `llm` are read in the order of `start_time`, with the tool runs between them; if "
        "there are none, the inputs and outputs of the root run are read, with the tool runs between "
        "them. `session_id`, `thread_id` or `conversation_id` in `extra.metadata`, or `thread_id` of the "
        "run, identifies a thread"
    ),
)
"""This format, as `catalog` registers it."""
