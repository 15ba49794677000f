"""Read SWE-agent trajectories (`<instance>.traj`): {"trajectory": […], "history": […], "info": {…}, …}."""

from collections.abc import Iterator, Mapping
from pathlib import PurePath

from pydantic import JsonValue

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
    without_nulls,
)
from agent_eval.transcripts.importers.registry import Format
from agent_eval.transcripts.importers.rules.speakers import told_apart
from agent_eval.transcripts.importers.rules.unread import without
from agent_eval.transcripts.importers.shared.dialects import native_messages, parsed
from agent_eval.transcripts.importers.shared.layouts import records_of
from agent_eval.transcripts.importers.shared.threads import Thread
from agent_eval.transcripts.outcomes import class_of_error

NAME = "swe-agent"
EXPECTED = 'a SWE-agent trajectory: {"trajectory": […], "history": […], "info": {…}}'
_BESIDE = (
    *("role", "agent", "message_type", "action", "thought", "response", "tool_calls", "tool_call_ids"),
    *("thinking_blocks", "cache_control", "tags"),
)
"""Keys of an entry that say nothing of what was said, or are read."""
LIMITS = frozenset(
    {
        *("exit_cost", "exit_context", "exit_calls", "exit_format", "exit_command_timeout"),
        *("exit_total_execution_time", "early_exit", "limits_exceeded"),
        *("limitsexceeded", "timeexceeded", "contextwindowexceedederror"),
        *("instancecostlimitexceedederror", "instancecalllimitexceedederror"),
    }
)
"""Exit statuses of a run that ended at a limit of SWE-agent or mini-swe-agent, in lower case."""


def read(source: Source) -> Iterator[Found]:
    """Yield the trajectory of a file; its task id is the run's instance, else the file's name."""
    stem = PurePath(source.file).name.split(".")[0]

    def convert(record: Mapping[str, JsonValue], ids: Ids, _number: int) -> Fields:
        return _conversation(record, ids, stem)

    return conversations(
        source, NAME, or_nothing_found(source, records_of(source, EXPECTED), EXPECTED), convert
    )


def looks_like(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a record is an SWE-agent trajectory."""
    return "trajectory" in value and ("history" in value or "environment" in value) and "info" in value


def _conversation(record: Mapping[str, JsonValue], ids: Ids, stem: str) -> Fields:
    history, steps = listed(record.get("history")), listed(record.get("trajectory"))
    if not history and not steps:
        raise NotThisFormatError(f"history and trajectory are missing or empty; expected {EXPECTED}")
    info = mapping(record.get("info"))
    stats = mapping(info.get("model_stats"))
    replay = mapping(parsed(record.get("replay_config")))
    problem = mapping(replay.get("problem_statement"))
    thread = Thread()
    entries = [(i, e) for i, value in enumerate(history) if (e := mapping(value)).get("is_demo") is not True]
    first = next((i for i, entry in entries if entry.get("role") == "assistant"), len(history))
    thread.extend(told_apart([m for i, entry in entries for m in _entry(entry, i, is_task=i < first)]))
    if not history:
        thread.extend(m for i, step in enumerate(steps) for m in _step(mapping(step), i))
    thread.metadata = without_nulls(
        {
            "exit_status": text_of(info.get("exit_status")),
            "submission": text_of(info.get("submission")),
            "agent_cost_usd": paid(stats.get("instance_cost")),
            "usage": {k: v for k, v in stats.items() if k.startswith("tokens_") and v} or None,
        }
    )
    agent = mapping(mapping(replay.get("agent")).get("model")).get("name")
    if isinstance(agent, str):
        thread.models.setdefault(agent)
    task = text_of(problem.get("id")) or text_of(record.get("instance_id")) or stem
    return {
        **thread.fields(),
        **ids.numbered(task, None),
        "outcome": outcome_of(NAME, info.get("exit_status")),
    }


def outcome_of(format_name: str, exit_status: JsonValue) -> Fields:
    """Return the outcome for an exit status.

    The class is unknown after a submission and failed after a limit; otherwise the error determines the class.
    """
    status = text_of(exit_status) or ""
    if not status or status.lower().startswith("submitted"):
        return {}
    by_exit: Fields = {"source": f"{format_name} exit_status", "basis": "exit"}
    if status.strip().lower() in LIMITS:
        return by_exit | {"correct": False}
    return by_exit | {"error": status, "outcome_class": class_of_error(status)}


def _entry(entry: Mapping[str, JsonValue], index: int, *, is_task: bool) -> Iterator[Fields]:
    """Yield the messages of a history entry; a command's output, which follows a command, is a tool result."""
    yield from without("entry of the history", entry, ("content",), _BESIDE)
    calls = listed(entry.get("tool_calls"))
    if entry.get("role") == "assistant" and not calls and isinstance(entry.get("action"), str):
        yield from _step({**entry, "response": entry.get("content"), "observation": None}, index)
    elif (
        entry.get("role") == "user"
        and not is_task
        and entry.get("message_type", "observation") == "observation"
    ):
        yield from native_messages([{**entry, "role": "tool"}])
    else:
        message_keys = ("role", "content", "tool_calls", "tool_call_ids", "name", "thinking_blocks")
        yield from native_messages([{key: entry[key] for key in message_keys if key in entry}])


def _step(step: Mapping[str, JsonValue], index: int) -> Iterator[Fields]:
    """Yield the messages of a trajectory step: the model's text, its command as a call, and the output."""
    action = text_of(step.get("action")) or ""
    call: Fields = {"id": f"step-{index}", "name": action.split(None, 1)[0] if action.strip() else "command"}
    call["arguments"] = {"command": action}
    calls = {"tool_calls": [call]} if action.strip() else {}
    model_message: JsonValue = {"role": "assistant", "content": step.get("response") or step.get("thought")}
    *before, last = native_messages([model_message])
    yield from [*before, last | calls]
    if step.get("observation") is not None:
        result: JsonValue = {"role": "tool", "tool_call_id": f"step-{index}", "content": step["observation"]}
        yield from native_messages([result])


FORMAT = Format(
    NAME,
    read,
    looks_like,
    order=90,
    content="`.traj` files of SWE-agent",
    conversation="a run",
    details=(
        "The history without demonstrations is read, else the steps. User messages before the first "
        "action are the task, wherever they are"
    ),
    outcome=(
        "none, because a submission is not necessarily a solution",
        (
            "`exit_status`: a known limit (`exit_cost`, `exit_context`, `exit_format`, `LimitsExceeded`, "
            "…) is `failed`; any other status except a submission is classified by the list below"
        ),
        "unknown",
    ),
)
"""This format, as `catalog` registers it."""
