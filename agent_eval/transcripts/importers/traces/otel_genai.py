"""Read OpenTelemetry traces of GenAI applications: OTLP JSON, SDK console spans, dumps of attributes."""

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import cast

from pydantic import JsonValue

from agent_eval.formats.refusals import Refusal
from agent_eval.formats.streams import Record
from agent_eval.formats.timestamps import seconds
from agent_eval.transcripts.importers.base import (
    Fields,
    Found,
    Ids,
    LeftOut,
    NotThisFormatError,
    Source,
    conversations,
    listed,
    mapping,
    number_of,
    or_nothing_found,
    text_of,
)
from agent_eval.transcripts.importers.registry import Format
from agent_eval.transcripts.importers.rules.grouping import RunTree, subagent_key
from agent_eval.transcripts.importers.shared import otel_attributes as otel
from agent_eval.transcripts.importers.shared.assembly import (
    NO_MESSAGE,
    ModelCall,
    ToolRun,
    Trace,
    session_thread,
)
from agent_eval.transcripts.importers.shared.layouts import Item, grouped, records_of

NAME = "otel-genai"
EXPECTED = 'OTLP JSON {"resourceSpans": […]}, spans with attributes, or attributes such as {"gen_ai.input.messages": …}'
NO_MESSAGES = "spans without model messages (HTTP calls, embeddings, chains) are omitted"
TOOLS_ONLY = "traces that contain only tool runs, without the model call that requested them, are omitted"
_PREFIXES = (
    "gen_ai.",
    "llm.",
    "openinference.",
    "ai.prompt",
    "ai.response",
    "ai.toolCall",
    "ai.operationId",
    "traceloop.",
)
_LISTS = ("scopeSpans", "instrumentationLibrarySpans", "scope_spans")


def read(source: Source) -> Iterator[Found]:
    """Yield the conversations in a file of spans; traces with the same session id form one conversation."""
    sessions: dict[str, str] = {}
    errors: dict[str, str] = {}
    tree = RunTree()

    def spans() -> Iterator[Item]:
        return _spans(source, sessions, errors, tree)

    for _ in spans():  # any span of a trace may carry the session id, and its root the error that ended it
        pass

    def convert(group: Mapping[str, JsonValue], ids: Ids, number: int) -> Fields:
        return _conversation(group, ids, number, errors, tree)

    groups = grouped(source, spans, lambda value: _key(mapping(value), sessions, tree))
    records = (item if _has_model_call(item) else LeftOut(TOOLS_ONLY) for item in groups)
    return conversations(source, NAME, or_nothing_found(source, records, EXPECTED), convert)


def looks_like(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a record is OTLP JSON, a span or a span's attributes."""
    if "resourceSpans" in value or "resource_spans" in value:
        return True
    attributes = value.get("attributes")
    is_span = isinstance(attributes, dict | list) and any(
        key in value for key in ("spanContext", "spanId", "span_id", "context", "traceId")
    )
    return is_span or any(key.startswith(_PREFIXES) for key in value)


def _has_model_call(item: Item) -> bool:
    """Return whether a group of spans contains a model call; true for items that are not groups."""
    if not isinstance(item, Record):
        return True
    spans = map(mapping, listed(mapping(item.value).get("records")))
    return not all(otel.is_tool_run(mapping(span.get("attributes"))) for span in spans)


def _spans(source: Source, sessions: dict[str, str], errors: dict[str, str], tree: RunTree) -> Iterator[Item]:
    """Yield the spans with messages or tool runs in a common form.

    The session of each trace is added to `sessions`, the error of its root span to `errors`, and the span to `tree`.
    """
    for record in records_of(source, EXPECTED):
        if isinstance(record, Refusal):
            yield record
            continue
        spans = list(_in(record.value))
        for span in spans:
            fields = _plain(span, record.number)
            attributes = mapping(fields["attributes"])
            if session := text_of(otel.first(attributes, otel.SESSIONS)):
                sessions.setdefault(str(fields["trace"]), session)
            if fields["parent"] is None and fields["is_error"] and not otel.is_tool_run(attributes):
                errors.setdefault(str(fields["trace"]), str(fields.get("error")))
            size = record.size // max(1, len(spans))
            is_tool, is_call = otel.is_tool_run(attributes), otel.holds_messages(attributes)
            is_told = is_tool or is_call
            own, parent = text_of(fields["span"]), text_of(fields["parent"])
            tree.add(own, parent, text_of(fields["trace"]), is_tool=is_tool, is_call=is_call and not is_tool)
            yield Record(record.number, fields, size) if is_told else LeftOut(NO_MESSAGES)


def _in(value: JsonValue) -> Iterator[Mapping[str, JsonValue]]:
    """Yield the spans in a record, at any level of OTLP's nesting."""
    record = mapping(value)
    resources = listed(record.get("resourceSpans", record.get("resource_spans")))
    if not resources:
        yield record
        return
    for resource in map(mapping, resources):
        scopes = next((scope_list for key in _LISTS if (scope_list := listed(resource.get(key)))), [])
        for scope in map(mapping, scopes):
            yield from map(mapping, listed(scope.get("spans")))


def _plain(span: Mapping[str, JsonValue], number: int) -> dict[str, JsonValue]:
    """Return a span from any source as {trace, span, parent, start, end, attributes, is_error}."""
    context = mapping(span.get("spanContext", span.get("context")))
    is_bare = "attributes" not in span
    attributes = dict(span) if is_bare else _attributes(span["attributes"])
    events = [
        (e.get("name"), _attributes(e.get("attributes"))) for e in map(mapping, listed(span.get("events")))
    ]
    for _, of_event in events:
        attributes = {**of_event, **attributes}
    attributes = {**otel.messages_of_events(events), **attributes}
    trace = next(
        (
            span.get(key) or context.get(key)
            for key in ("traceId", "trace_id")
            if span.get(key) or context.get(key)
        ),
        None,
    )
    identity = next(
        (
            span.get(key) or context.get(key)
            for key in ("spanId", "span_id")
            if span.get(key) or context.get(key)
        ),
        None,
    )
    parent = span.get("parentSpanId", span.get("parent_id")) or mapping(span.get("parentSpanContext")).get(
        "spanId"
    )
    status = mapping(span.get("status"))
    is_error = status.get("code") in (2, "STATUS_CODE_ERROR", "ERROR") or status.get("status_code") == "ERROR"
    is_error = is_error or bool(attributes.get("error.type"))
    keys = ("exception.message", "error.message", "exception.type", "error.type")
    error_texts = (status.get("message"), status.get("description"), *(attributes.get(key) for key in keys))
    return {
        "trace": text_of(trace) or f"record {number}",
        "span": text_of(identity),
        "parent": text_of(parent),
        "start": _time(span, ("startTimeUnixNano", "start_time_unix_nano", "startTime", "start_time")),
        "end": _time(span, ("endTimeUnixNano", "end_time_unix_nano", "endTime", "end_time")),
        "attributes": cast("JsonValue", attributes),
        "is_error": is_error or None,
    } | (
        {"error": next((text for text in error_texts if isinstance(text, str) and text), NO_MESSAGE)}
        if is_error
        else {}
    )


def _attributes(value: JsonValue) -> dict[str, JsonValue]:
    """Return attributes as a flat object, given OTLP's list of typed values or a nested object."""
    if isinstance(value, list):
        pairs = [mapping(item) for item in value]
        return {str(pair.get("key")): _typed(pair.get("value")) for pair in pairs if "key" in pair}
    flat: dict[str, JsonValue] = {}
    open_objects: list[tuple[str, Mapping[str, JsonValue]]] = [("", mapping(value))]
    while open_objects:
        prefix, fields = open_objects.pop()
        for key, item in fields.items():
            if isinstance(item, dict) and f"{prefix}{key}".split(".")[0] in (
                "gen_ai",
                "llm",
                "session",
                "tool",
                "ai",
            ):
                open_objects.append((f"{prefix}{key}.", item))
            else:
                flat[f"{prefix}{key}"] = item
    return flat


def _typed(value: JsonValue) -> JsonValue:
    """Return a typed OTLP value, e.g. {"stringValue": …}, as JSON."""
    fields = mapping(value)
    for kind in ("stringValue", "boolValue", "doubleValue", "bytesValue"):
        if kind in fields:
            return fields[kind]
    if "intValue" in fields:  # OTLP JSON represents int64 as text
        text = text_of(fields["intValue"]) or ""
        return int(text) if len(text) < 20 and text.removeprefix("-").isdecimal() else text
    if "arrayValue" in fields:
        return [_typed(item) for item in listed(mapping(fields["arrayValue"]).get("values"))]
    if "kvlistValue" in fields:
        pairs = [mapping(item) for item in listed(mapping(fields["kvlistValue"]).get("values"))]
        return {str(pair.get("key")): _typed(pair.get("value")) for pair in pairs}
    return None if isinstance(value, dict) else value


def _time(span: Mapping[str, JsonValue], keys: tuple[str, ...]) -> int | None:
    """Return a time of a span in nanoseconds since 1970, or None if it is missing."""
    value = next((span[key] for key in keys if span.get(key) is not None), None)
    if isinstance(value, list) and len(value) == 2:  # [seconds, nanoseconds]
        whole, part = number_of(value[0]), number_of(value[1])
        return None if whole is None or part is None else int(whole) * 10**9 + int(part)
    if isinstance(value, str) and len(value) < 30 and value.isascii() and value.isdecimal():
        value = int(value)
    if isinstance(value, str):
        when = seconds(value)
        return round(when * 10**6) * 1000 if when > float("-inf") else None
    if number_of(value) is None or not isinstance(value, int | float):
        return None
    scale = 1 if value > 1e16 else 1000 if value > 1e14 else 10**6 if value > 1e11 else 10**9  # ns, us, ms, s
    return int(value * scale)


def _key(span: Mapping[str, JsonValue], sessions: Mapping[str, str], tree: RunTree) -> str | None:
    trace = text_of(span.get("trace")) or ""
    return subagent_key(sessions.get(trace, trace), tree.subagent(text_of(span.get("span"))))


def _conversation(
    group: Mapping[str, JsonValue], ids: Ids, number: int, errors: Mapping[str, str], tree: RunTree
) -> Fields:
    traces: dict[str, list[Mapping[str, JsonValue]]] = {}
    for span in map(mapping, listed(group.get("records"))):
        traces.setdefault(str(span.get("trace")), []).append(span)
    order = sorted(traces, key=lambda trace: min(_start(span) for span in traces[trace]))
    traces_in_order = [_trace(traces[trace], errors.get(trace), tree) for trace in order]
    thread = session_thread(traces_in_order)
    if not thread.messages:
        raise NotThisFormatError("the trace's model calls contain no messages")
    name = text_of(group.get("key")) or str(number)
    own = str(number) if name.startswith("record ") else name
    return thread.fields() | {"conversation_id": ids.named(own)}


def _start(span: Mapping[str, JsonValue]) -> int:
    start = span.get("start")
    return start if isinstance(start, int) else 0


def _trace(spans: list[Mapping[str, JsonValue]], error: str | None, tree: RunTree) -> Trace:
    """Return the model calls and tool runs of a trace; spans that contain other model calls are skipped."""
    calls = [s for s in spans if not otel.is_tool_run(mapping(s.get("attributes")))]
    around = {ancestor for call in calls for ancestor in tree.around(text_of(call.get("span")))}
    trace = Trace(error=error)
    for span in spans:
        attributes = mapping(span.get("attributes"))
        start = _start(span)
        when = None if span.get("start") is None else start
        if otel.is_tool_run(attributes):
            name, call_id, arguments, result = otel.tool_run(attributes)
            trace.runs.append(
                ToolRun(when, name, arguments, result, call_id, error=text_of(span.get("error")))
            )
        elif span.get("span") is None or span.get("span") not in around:
            trace.calls.append(replace(_call(span, attributes, start), start=when))
    return trace


def _call(span: Mapping[str, JsonValue], attributes: Mapping[str, JsonValue], start: int) -> ModelCall:
    end = span.get("end")
    return ModelCall(
        start=start,
        input=otel.inputs(attributes),
        output=otel.outputs(attributes),
        system=otel.system(attributes),
        tools=otel.tools(attributes),
        model=otel.model(attributes),
        usage=otel.usage(attributes),
        cost_usd=otel.cost(attributes),
        latency_ms=(end - start) / 1e6 if isinstance(end, int) and start and end >= start else None,
        timestamp=None if not start else _iso(start),
        finish_reason=otel.finish_reason(attributes),
        error=text_of(span.get("error")),
    )


def _iso(when: int) -> str | None:
    try:
        return datetime.datetime.fromtimestamp(when / 1e9, datetime.UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None


FORMAT = Format(
    NAME,
    read,
    looks_like,
    order=170,
    content="OTLP JSON, spans as printed by SDKs, or the attributes of a span",
    conversation="a trace; the traces with the same `session.id` or `gen_ai.conversation.id`",
    details=(
        "The attributes `gen_ai.input.messages` and `gen_ai.output.messages` (current), `gen_ai.prompt` "
        "and `gen_ai.completion` (older, also numbered), OpenInference `llm.*` and AI SDK `ai.*` are "
        "read. Spans without messages (HTTP calls, embeddings) and traces with only tool runs are skipped"
        " and counted. A span that encloses other model calls repeats them and is not read"
    ),
    also="OpenTelemetry, OpenInference",
)
"""This format, as `catalog` registers it."""
