"""Read Harbor's Agent Trajectory Interchange Format (ATIF-v1.0 to v1.8): {"schema_version": "ATIF-v…", "steps": […]}."""

from collections.abc import Iterator, Mapping
from typing import cast

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
from agent_eval.transcripts.importers.rules.order import in_number_order, in_time_order
from agent_eval.transcripts.importers.rules.speakers import told_apart
from agent_eval.transcripts.importers.rules.unread import unknown_entry, without
from agent_eval.transcripts.importers.shared.dialects import native_messages
from agent_eval.transcripts.importers.shared.layouts import records_of
from agent_eval.transcripts.importers.shared.threads import Thread

NAME = "atif"
EXPECTED = 'an ATIF trajectory: {"schema_version": "ATIF-v…", "agent": {…}, "steps": […]}'
OWN = "agent_eval"
"""Key of the root's `extra`: native fields that ATIF lacks, written by `export`."""
_BESIDE = (
    *("step_id", "timestamp", "source", "model_name", "reasoning_effort", "reasoning_content", "tool_calls"),
    *("observation", "metrics", "extra", "source_call_id", "subagent_trajectory_ref"),
)
"""Keys of a step or a result that say nothing of what was said, or are read."""
_ROLES = {"agent": "assistant", "user": "user", "system": "system"}


def read(source: Source) -> Iterator[Found]:
    """Yield the trajectories of a file; a subagent's trajectory is a separate conversation.

    The file contains JSON lines, an array or a single trajectory.
    """
    return conversations(source, NAME, or_nothing_found(source, _records(source), EXPECTED), _conversation)


def looks_like(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a record is a trajectory."""
    version = value.get("schema_version", "")
    return str(version).startswith("ATIF") or (version is None and "steps" in value)


def _records(source: Source) -> Iterator[Record | Refusal]:
    for record in records_of(source, EXPECTED):
        yield record
        if isinstance(record, Record):
            for value in listed(mapping(record.value).get("subagent_trajectories")):
                yield Record(record.number, value)


def _conversation(record: Mapping[str, JsonValue], ids: Ids, number: int) -> Fields:
    steps = record.get("steps")
    if not isinstance(steps, list):
        raise NotThisFormatError(f"steps is missing or not a list; expected {EXPECTED}")
    thread = Thread()
    agent = mapping(record.get("agent"))
    thread.know_tools(agent.get("tool_definitions"))
    numbered = in_number_order([*enumerate(steps)], lambda pair: mapping(pair[1]).get("step_id"))
    ordered = in_time_order(numbered, lambda pair: mapping(pair[1]).get("timestamp"), _is_instruction)
    messages = [m for i, step in ordered for m in _step(mapping(step), i, agent.get("model_name"))]
    thread.extend(messages if mapping(record.get("extra")).get(OWN) else told_apart(messages))
    totals = mapping(record.get("final_metrics"))
    extra = mapping(record.get("extra"))
    own = mapping(extra.get(OWN))
    thread.metadata = without_nulls(
        {
            "agent": without_nulls({key: agent.get(key) for key in ("name", "version")}) or None,
            "agent_cost_usd": paid(totals.get("total_cost_usd")),
            "usage": {k: v for k, v in totals.items() if k.startswith("total_") and "token" in k} or None,
            "session_id": text_of(record.get("session_id")),
            "notes": record.get("notes"),
            "extra": {key: value for key, value in extra.items() if key != OWN} or None,
        }
    )
    conversation_fields = thread.fields()
    name = text_of(record.get("trajectory_id")) or text_of(record.get("session_id")) or str(number)
    return {"conversation_id": ids.named(name), **conversation_fields, **_own(own, conversation_fields)}


def _is_instruction(pair: tuple[int, JsonValue]) -> bool:
    return mapping(pair[1]).get("source") == "system"


def _own(own: Mapping[str, JsonValue], conversation_fields: Fields) -> Fields:
    """Return the fields that `export` added to the trajectory; their metadata replaces the trajectory's."""
    keys = {"tools": "tools", "metadata": "metadata"}
    return {key: value for key, value in own.items() if key not in ("messages", "source")} | (
        {} if own else {key: conversation_fields[key] for key in keys}
    )


def _step(step: Mapping[str, JsonValue], index: int, model: JsonValue) -> Iterator[Fields]:
    role = _ROLES.get(str(step.get("source")))
    if role is None:
        raise NotThisFormatError(
            f"steps[{index}].source is {step.get('source')!r}; allowed: agent, system, user"
        )
    yield from without("step", step, ("message",), _BESIDE)
    metrics = mapping(step.get("metrics"))
    usage = {
        key: value
        for key, value in metrics.items()
        if key.endswith("_tokens") and number_of(value) is not None
    }
    extra = mapping(mapping(step.get("extra")).get(OWN))
    calls = [_call(mapping(call)) for call in listed(step.get("tool_calls"))]
    spoken: dict[str, JsonValue] = {
        "role": role,
        "content": step.get("message"),
        "tool_calls": cast("JsonValue", calls),
        "timestamp": step.get("timestamp"),
        "reasoning_content": step.get("reasoning_content"),
        "cost_usd": metrics.get("cost_usd"),
        "usage": usage or None,
        "model": step.get("model_name") or (model if role == "assistant" else None),
    }
    is_observation = extra.get("is_observation") is True
    for message in () if is_observation else native_messages([spoken]):
        yield {**message, **extra}
    for result in map(mapping, listed(mapping(step.get("observation")).get("results"))):
        answer: dict[str, JsonValue] = {
            "role": "tool",
            "content": result.get("content"),
            "tool_call_id": result.get("source_call_id"),
        }
        own = dict(mapping(mapping(result.get("extra")).get(OWN)))
        yield from without("result", result, ("content",), _BESIDE)
        unknown = unknown_entry("result", result, ("content", "source_call_id"))
        yield from unknown or (message | own for message in native_messages([answer]))


def _call(call: Mapping[str, JsonValue]) -> Fields:
    call_fields: Fields = {
        "id": call.get("tool_call_id"),
        "name": call.get("function_name"),
        "arguments": call.get("arguments"),
    }
    return {**call_fields, **mapping(mapping(call.get("extra")).get(OWN))}


FORMAT = Format(
    NAME,
    read,
    looks_like,
    order=20,
    content="Harbor trajectories, ATIF-v1.0 to v1.8",
    conversation="a trajectory; each embedded subagent trajectory",
    details="An observation follows its step. `logprobs` are omitted",
)
"""This format, as `catalog` registers it."""
