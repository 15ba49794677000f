"""Read Langfuse exports: {"trace": {…}, "observations": […]}, a trace with its observations, or observations alone."""

from collections import Counter
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from agent_eval.formats.refusals import Refusal
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
    number_of,
    or_nothing_found,
    paid,
    text_of,
    without_nulls,
)
from agent_eval.transcripts.importers.registry import Format
from agent_eval.transcripts.importers.rules.branches import LEFT_OUT
from agent_eval.transcripts.importers.rules.grouping import RunTree, subagent_key
from agent_eval.transcripts.importers.rules.order import in_time_order, seconds_of, sortable
from agent_eval.transcripts.importers.shared.assembly import (
    NO_MESSAGE,
    ModelCall,
    ToolRun,
    Trace,
    as_one_exchange,
    thread_of_trace,
)
from agent_eval.transcripts.importers.shared.dialects import native_messages, parsed
from agent_eval.transcripts.importers.shared.layouts import DELIVERED_TWICE, ONE_ID, Item, grouped, records_of
from agent_eval.transcripts.importers.shared.sessions import session_of
from agent_eval.transcripts.importers.shared.threads import SOURCE_SCORES, Thread

NAME = "langfuse"
EXPECTED = '{"trace": {…}, "observations": [{"type": "GENERATION", "input", "output"}]}, or observations with a traceId'
_TRACE = ("name", "userId", "tags", "release", "version", "environment")
_KINDS = frozenset(
    {
        *("GENERATION", "TOOL", "SPAN", "EVENT", "AGENT", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING"),
        "GUARDRAIL",
    }
)
_MOST_TRIED = 50  # records of a page, so that one of an unknown type does not hide the others
_SCORE = ("name", "value", "stringValue", "dataType", "source", "comment", "observationId", "timestamp")


def read(source: Source) -> Iterator[Found]:
    """Yield the conversations of an export; traces with the same `sessionId` form one conversation, in time order.

    A trace that the file delivers in several records, such as overlapping pages of the API, is one trace.
    """
    groups = grouped(source, lambda: _traces(source), lambda value: _session(mapping(value)))
    records = or_nothing_found(source, map(_as_recorded, groups), EXPECTED)
    return conversations(source, NAME, records, _conversation)


def _as_recorded(item: Item) -> Item:
    """Return a single trace without a session in the form of which earlier releases stored the hash."""
    group = mapping(item.value) if isinstance(item, Record) else {}
    traces = listed(group.get("records"))
    if (
        not isinstance(item, Record)
        or len(traces) != 1
        or mapping(mapping(traces[0]).get("trace")).get("sessionId")
    ):
        return item
    return Record(item.number, {**group, "key": None}, item.size)


def looks_like(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a record is a Langfuse trace or observation."""
    is_trace = isinstance(value.get("observations"), list) and ("timestamp" in value or "id" in value)
    is_export = "trace" in value and "observations" in value
    page = _page(value)
    return (
        is_trace
        or is_export
        or _is_observation(value)
        or any(looks_like(mapping(entry)) for entry in page[:_MOST_TRIED])
    )


def _is_observation(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a record is an observation; null keys, such as the parent of a root, may be absent."""
    value = _in_camel_case(value)
    is_typed = str(value.get("type")) in _KINDS and "startTime" in value
    return "traceId" in value and ("parentObservationId" in value or is_typed)


def _in_camel_case(value: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return an observation with the API's keys, given those of an export to a bucket such as `parent_observation_id`."""
    if "trace_id" not in value or "traceId" in value:
        return value
    words = {key: key.split("_") for key in value}
    fields = {first + "".join(map(str.capitalize, rest)): value[key] for key, (first, *rest) in words.items()}
    return {"model": fields.get("providedModelName"), **fields}


def _page(value: Mapping[str, JsonValue]) -> list[JsonValue]:
    """Return the records of a page of the API, {"data": […]}, usually with `meta`; empty for any other value."""
    entries = listed(value.get("data"))
    is_other = "observations" in value or "traceId" in value
    return [] if is_other or not all(isinstance(entry, dict) for entry in entries) else entries


def _unpaged(source: Source) -> Iterator[Record | Refusal]:
    """Yield the records; a page of the API, {"data": […], "meta": {…}}, is split into its records."""
    for record in records_of(source, EXPECTED):
        value = mapping(record.value) if isinstance(record, Record) else {}
        if isinstance(record, Record) and "trace_id" in value:
            yield Record(record.number, {**_in_camel_case(value)}, record.size)
        elif isinstance(record, Record) and ((entries := _page(value)) or "meta" in value):
            for entry in entries:
                yield Record(record.number, entry, record.size // len(entries))
        else:
            yield record


def _traces(source: Source) -> Iterator[Item]:
    """Yield the traces; observations without a trace are grouped into one trace per `traceId`.

    The observations of a subagent, which a tool runs, form a separate trace.
    """
    for item in grouped_observations(source) if _is_flat(source) else _whole(source):
        if isinstance(item, Record):
            yield from (Record(item.number, part, item.size) for part in _agents(mapping(item.value)))
        else:
            yield item


def _agents(record: Mapping[str, JsonValue]) -> Iterator[dict[str, JsonValue]]:
    """Yield a trace without its subagents, then a trace for each of them."""
    trace, observations = mapping(record.get("trace")), listed(record.get("observations"))
    tree = RunTree()
    for o in map(mapping, observations):
        parent = text_of(o.get("parentObservationId"))
        is_tool = o.get("type") == "TOOL" or _is_tool(o)
        tree.add(text_of(o.get("id")), parent, None, is_tool=is_tool, is_call=o.get("type") == "GENERATION")
    of_agent: dict[str | None, list[JsonValue]] = {None: []}
    for value in observations:
        of_agent.setdefault(tree.subagent(text_of(mapping(value).get("id"))), []).append(value)
    if len(of_agent) == 1:
        yield dict(record)
        return
    for agent, own in of_agent.items():
        trace_fields: dict[str, JsonValue] = {"id": subagent_key(text_of(trace.get("id")), agent)}
        trace_fields = {**trace} if agent is None else trace_fields
        yield {**record, "trace": trace_fields, "observations": own}


def _is_flat(source: Source) -> bool:
    first = next((r for r in _unpaged(source) if isinstance(r, Record)), None)
    return (
        first is not None and "observations" not in mapping(first.value) and "traceId" in mapping(first.value)
    )


def grouped_observations(source: Source) -> Iterator[Item]:
    """Yield a trace for each `traceId` in a file of observations."""
    for item in grouped(source, lambda: _unpaged(source), lambda v: text_of(mapping(v).get("traceId"))):
        if isinstance(item, Record):
            group = mapping(item.value)
            observations = [mapping(value) for value in listed(group.get("records"))]
            observations.sort(key=lambda observation: observation.get("parentObservationId") is not None)
            session = next((name for o in observations if (name := o.get("sessionId"))), None)
            trace = without_nulls({"id": group.get("key"), "sessionId": session})
            yield Record(item.number, {"trace": trace, "observations": group.get("records")}, item.size)
        else:
            yield item


def _whole(source: Source) -> Iterator[Record | Refusal]:
    for record in _unpaged(source):
        value = mapping(record.value) if isinstance(record, Record) else {}
        if isinstance(record, Record) and "trace" not in value and "observations" in value:
            trace = {key: item for key, item in value.items() if key != "observations"}
            yield Record(record.number, {"trace": trace, "observations": value["observations"]}, record.size)
        else:
            yield record


def _session(record: Mapping[str, JsonValue]) -> str | None:
    trace = mapping(record.get("trace"))
    return text_of(trace.get("sessionId")) or text_of(trace.get("id"))


def _conversation(group: Mapping[str, JsonValue], ids: Ids, number: int) -> Fields:
    parts: list[Thread] = []
    names: list[str] = []
    left_out: list[str] = []
    by_id: dict[str, list[Mapping[str, JsonValue]]] = {}
    for record in in_time_order([*map(mapping, listed(group.get("records")))], _time):
        observations = record.get("observations")
        if not isinstance(observations, list):
            raise NotThisFormatError(f"observations is missing or not a list; expected {EXPECTED}")
        trace = mapping(record.get("trace"))
        names.append(text_of(trace.get("id")) or str(number))
        own = []
        for observation in map(mapping, observations):
            same_id = (
                by_id.setdefault(f"{trace.get('id')} {name}", []) if (name := observation.get("id")) else []
            )
            if observation in same_id:
                left_out.append(DELIVERED_TWICE)
                continue
            left_out += [ONE_ID] if same_id else []
            same_id.append(observation)
            own.append(observation)
        if own or not observations:
            parts.append(_thread(trace, own))
    whole = session_of(parts)
    if not whole.messages:
        raise NotThisFormatError("neither the trace nor any of its generations has an input or an output")
    whole.metadata["trace_ids"] = [*names]
    name = text_of(group.get("key")) or names[0]
    fields = whole.fields()
    withdrawn = fields.get(LEFT_OUT)
    left_out += withdrawn if isinstance(withdrawn, list) else []
    return fields | {"conversation_id": ids.named(name), LEFT_OUT: left_out}


def _time(record: Mapping[str, JsonValue]) -> JsonValue:
    """Return the time of a trace, or of its first observation."""
    starts = [mapping(o).get("startTime") for o in listed(record.get("observations"))]
    start_times = sorted((start for start in starts if start), key=sortable)
    return mapping(record.get("trace")).get("timestamp") or next(iter(start_times), None)


def _thread(trace: Mapping[str, JsonValue], observations: list[Mapping[str, JsonValue]]) -> Thread:
    inner = {text_of(o.get("parentObservationId")) for o in observations if o.get("type") == "GENERATION"}
    own_trace = Trace()
    for observation in observations:
        if observation.get("type") == "GENERATION" and text_of(observation.get("id")) not in inner:
            own_trace.calls.append(_call(observation))
        elif observation.get("type") == "TOOL" or _is_tool(observation):
            own_trace.runs.append(_run(observation))
    unknown = Counter(str(o.get("type")) for o in observations if str(o.get("type")) not in _KINDS)
    roots = [o for o in observations if o.get("parentObservationId") is None]
    opening = _opening(trace, roots)
    if not own_trace.calls:
        outer = next((o for o in (trace, *roots) if o.get("input") or o.get("output")), {})
        own_trace.calls += as_one_exchange(_call(outer))
    steps = ("GENERATION", "TOOL")
    whole = [root for root in roots if root.get("type") not in steps and not _is_tool(root)]
    own_trace.error = next((error for root in whole if (error := _error(root))), None)
    thread = thread_of_trace(own_trace)
    if opening is not None and not any(m["role"] == "user" for m in thread.messages):
        before = thread_of_trace(Trace(calls=[opening]))
        before.follow(thread)
        thread = before
    for root in (trace, *roots):
        system = mapping(parsed(root.get("input"))).get("system")
        thread.instruct(system if isinstance(system, str) else None)
        values = map(mapping, listed(parsed(parsed(root.get("input")))))
        instructions = [dict(value) for value in values if value.get("role") in ("system", "developer")]
        contents = {m.get("content") for m in thread.messages}
        for text in (m["content"] for m in native_messages(instructions) if m.get("content") not in contents):
            thread.instruct(text if isinstance(text, str) else None)
    scores: list[JsonValue] = [
        without_nulls({key: mapping(score).get(key) for key in _SCORE})
        for score in listed(trace.get("scores"))
    ]
    thread.not_read("observation of type", unknown)
    thread.metadata = without_nulls(
        {
            **{key: trace.get(key) or None for key in _TRACE},
            SOURCE_SCORES: scores or None,
            "timestamp": text_of(trace.get("timestamp")),
        }
    )
    return thread


def _opening(trace: Mapping[str, JsonValue], roots: list[Mapping[str, JsonValue]]) -> ModelCall | None:
    """Return the user's question from the trace or its root observation, if no generation contains it."""
    value = next((o.get("input") for o in (trace, *roots) if o.get("input")), None)
    return None if value is None else ModelCall(start=0, input=value, output=None)


def _error(observation: Mapping[str, JsonValue]) -> str | None:
    """Return the message of an observation that ended with an error, or None."""
    if observation.get("level") != "ERROR":
        return None
    return text_of(observation.get("statusMessage")) or NO_MESSAGE


def _is_tool(observation: Mapping[str, JsonValue]) -> bool:
    attributes = mapping(_metadata(observation).get("attributes"))
    name_keys = ("gen_ai.tool.name", "ai.toolCall.name", "tool.name")
    return observation.get("type") == "SPAN" and any(key in attributes for key in name_keys)


def _metadata(observation: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    return mapping(parsed(observation.get("metadata")))


def _call(observation: Mapping[str, JsonValue]) -> ModelCall:
    attributes = mapping(_metadata(observation).get("attributes"))
    tools = _metadata(observation).get("tools") or attributes.get("gen_ai.tool.definitions")
    start, end = observation.get("startTime"), observation.get("endTime")
    usage = observation.get("usageDetails") or observation.get("usage")
    parameters = mapping(observation.get("modelParameters"))
    reason = parameters.get("finishReason")
    return ModelCall(
        start=seconds_of(start),
        input=observation.get("input"),
        output=observation.get("output"),
        system=attributes.get("gen_ai.system_instructions"),
        tools=tools or observation.get("toolDefinitions") or None,
        model=text_of(observation.get("model")),
        usage=usage,
        cost_usd=paid(observation.get("totalCost", observation.get("calculatedTotalCost"))),
        latency_ms=_milliseconds(start, end, observation.get("latency")),
        timestamp=text_of(start) or None,
        finish_reason=reason if isinstance(reason, str) else None,
        error=_error(observation),
    )


def _milliseconds(start: JsonValue, end: JsonValue, latency_s: JsonValue) -> float | None:
    if (seconds := number_of(latency_s)) is not None:
        return round(seconds * 1000, 3)
    took = (sortable(end) - sortable(start)) * 1000
    return round(took, 3) if 0 <= took < float("inf") else None


def _run(observation: Mapping[str, JsonValue]) -> ToolRun:
    attributes = mapping(_metadata(observation).get("attributes"))
    tool_input = parsed(observation.get("input"))
    inner = mapping(tool_input).get("input")
    names = (attributes.get(key) for key in ("gen_ai.tool.name", "ai.toolCall.name", "tool.name"))
    ids = (attributes.get(key) for key in ("gen_ai.tool.call.id", "ai.toolCall.id", "tool_call.id"))
    result = parsed(observation.get("output"))
    content = mapping(result).get("content")
    return ToolRun(
        start=seconds_of(observation.get("startTime")),
        name=next((name for name in names if isinstance(name, str)), _tool_name(observation)),
        arguments=inner if isinstance(inner, dict) else tool_input,
        result=content if isinstance(content, list | str) else result,
        call_id=next((i for i in ids if isinstance(i, str)), text_of(mapping(result).get("tool_call_id"))),
        error=_error(observation),
    )


def _tool_name(observation: Mapping[str, JsonValue]) -> str | None:
    """Return the tool of an observation; the GenAI conventions name its span `execute_tool <tool>`."""
    name = text_of(observation.get("name"))
    return None if name is None else name.removeprefix("execute_tool ").strip() or name


FORMAT = Format(
    NAME,
    read,
    looks_like,
    order=160,
    content='`{"trace", "observations"}`, traces with their observations, or observations',
    conversation="a trace; the traces with the same `sessionId`",
    details=(
        "Generations are read in the order of `startTime`, with the tool runs between them. A generation "
        "that encloses other generations is not read. Spans are read only if they are tool runs. The keys"
        " of exports to a bucket (`trace_id`, `start_time`, …) are read too"
    ),
)
"""This format, as `catalog` registers it."""
