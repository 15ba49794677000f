"""Read mini-swe-agent trajectories: {"info": {…}, "messages": […], "trajectory_format": "mini-swe-agent-1…"}, or its messages alone."""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath

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
from agent_eval.transcripts.importers.coding.swe_agent import FORMAT as SWE_AGENT
from agent_eval.transcripts.importers.coding.swe_agent import outcome_of
from agent_eval.transcripts.importers.registry import Format
from agent_eval.transcripts.importers.rules.speakers import told_apart
from agent_eval.transcripts.importers.shared.dialects import native_messages
from agent_eval.transcripts.importers.shared.layouts import records_of
from agent_eval.transcripts.importers.shared.threads import Thread

NAME = "mini-swe-agent"
EXPECTED = 'a mini-swe-agent trajectory: {"info": {…}, "messages": […], "trajectory_format": …}, or a list of messages'
_COMMAND = re.compile(r"```(?:mswea_bash_command|bash)\s*\n(.*?)\n```", re.DOTALL)
_OUTPUT = re.compile(r"\s*<returncode>(-?\d+)</returncode>")


def read(source: Source) -> Iterator[Found]:
    """Yield the trajectory of a file; commands in the agent's text become calls of `bash` with their output."""
    stem = PurePath(source.file).name.split(".")[0]

    def convert(record: Mapping[str, JsonValue], ids: Ids, _number: int) -> Fields:
        return _conversation(record, ids, stem)

    return conversations(source, NAME, or_nothing_found(source, _records(source), EXPECTED), convert)


def looks_like(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a record is a mini-swe-agent trajectory."""
    if str(value.get("trajectory_format", "")).startswith("mini-swe-agent"):
        return True
    messages = [mapping(m) for m in listed(value.get("messages"))[:6]]
    texts = [text for m in messages if isinstance(text := m.get("content"), str)]
    return any("mswea_bash_command" in text or _OUTPUT.match(text) for text in texts)


def _records(source: Source) -> Iterator[Record | Refusal]:
    for record in records_of(source, EXPECTED, lambda value: "role" in mapping(value)):
        if isinstance(record, Record) and isinstance(record.value, list):
            yield Record(record.number, {"messages": record.value}, record.size)
        else:
            yield record


def _conversation(record: Mapping[str, JsonValue], ids: Ids, stem: str) -> Fields:
    values = record.get("messages")
    if not isinstance(values, list):
        raise NotThisFormatError(f"messages is missing or not a list; expected {EXPECTED}")
    info = mapping(record.get("info"))
    stats = mapping(info.get("model_stats"))
    ends = [mapping(value) for value in values if mapping(value).get("role") == "exit"]
    if ends:
        info = {"submission": ends[-1].get("content"), **mapping(ends[-1].get("extra")), **info}
    thread = Thread()
    for index, value in enumerate(values):
        if mapping(value).get("role") != "exit":
            thread.extend(_message(mapping(value), index, thread))
    thread.messages = told_apart(thread.messages)
    thread.metadata = without_nulls(
        {
            "exit_status": text_of(info.get("exit_status")),
            "submission": text_of(info.get("submission")),
            "agent_cost_usd": paid(stats.get("instance_cost")),
            "api_calls": number_of(stats.get("api_calls")),
            "mini_version": text_of(info.get("mini_version")),
        }
    )
    model = mapping(mapping(info.get("config")).get("model")).get("model_name")
    if isinstance(model, str):
        thread.models.setdefault(model)
    task = text_of(record.get("instance_id")) or stem
    return {
        **thread.fields(),
        **ids.numbered(task, None),
        "outcome": outcome_of(NAME, info.get("exit_status")),
    }


def _message(value: Mapping[str, JsonValue], index: int, thread: Thread) -> list[Fields]:
    if value.get("type") and "role" not in value:  # an item of the Responses API
        return native_messages([dict(value)])
    before = thread.messages[-1] if thread.messages else {}
    content = value.get("content")
    extra = mapping(value.get("extra"))
    message_fields: dict[str, JsonValue] = {key: item for key, item in value.items() if key != "extra"}
    if (cost := paid(extra.get("cost"))) is not None:
        message_fields["cost_usd"] = cost
    if value.get("role") == "user" and before.get("role") == "assistant":
        calls = before.get("tool_calls")
        if not calls:  # the harness says what is wrong with the answer, or the person interrupts
            is_person = str(extra.get("interrupt_type")).startswith("User")
            return native_messages([{**message_fields, "role": "user" if is_person else "developer"}])
        last = mapping(calls[-1]).get("id") if isinstance(calls, list) else None
        answer: dict[str, JsonValue] = {**message_fields, "role": "tool", "tool_call_id": last}
        return [m | _failure(content, extra) for m in native_messages([answer])]
    messages = native_messages([message_fields])
    if value.get("role") == "tool":
        messages = [m | _failure(content, extra) for m in messages]
    if value.get("role") == "assistant" and isinstance(content, str) and not value.get("tool_calls"):
        commands = _COMMAND.findall(content)
        calls = [
            {"id": f"m{index}-{i}", "name": "bash", "arguments": {"command": c}}
            for i, c in enumerate(commands)
        ]
        messages = [m | ({"tool_calls": calls} if calls else {}) for m in messages]
    return messages


def _failure(content: JsonValue, extra: Mapping[str, JsonValue]) -> Fields:
    """Return `is_error` of an observation by its return code, in `extra` or in its text; empty without one."""
    code = extra.get("returncode")
    if code is None and isinstance(content, str) and (output_match := _OUTPUT.match(content)):
        code = output_match[1]
    return {} if code is None else {"is_error": str(code) != "0"}


FORMAT = Format(
    NAME,
    read,
    looks_like,
    order=100,
    content="`.traj.json` files of mini-swe-agent",
    conversation="a run",
    details=(
        "A command in the agent's text is a call of `bash`, and its output is the answer, which is an "
        "error unless the return code is 0"
    ),
    outcome=SWE_AGENT.outcome,
)
"""This format, as `catalog` registers it."""
