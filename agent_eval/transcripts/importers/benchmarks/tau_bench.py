"""Read tau-bench results: a JSON array of {task_id, reward, info, traj, trial}."""

from collections.abc import Iterator, Mapping
from typing import cast

from pydantic import JsonValue

from agent_eval.transcripts.importers.base import (
    Fields,
    Found,
    Ids,
    NotThisFormatError,
    Source,
    array_records,
    base_success,
    conversations,
    joined,
    mapping,
    or_nothing_found,
    reward_note,
    reward_outcome,
    task_id_of,
    text_of,
    tools_called,
    unrepeated,
    whole_truth,
    without_nulls,
)
from agent_eval.transcripts.importers.registry import Format
from agent_eval.transcripts.importers.shared.messages import chat_messages_with_reasoning
from agent_eval.transcripts.importers.shared.threads import Thread

NAME = "tau-bench"
EXPECTED = "a JSON array of {task_id, reward, info, traj, trial}"


def read(source: Source) -> Iterator[Found]:
    """Yield the conversations of a tau-bench result file."""
    records = unrepeated(source, array_records(source, "item"), "traj", names=["trial"])
    return conversations(source, NAME, or_nothing_found(source, records, EXPECTED), _conversation)


def looks_like(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a record is a tau-bench trial."""
    return "traj" in value and "task_id" in value


def _conversation(record: Mapping[str, JsonValue], ids: Ids, number: int) -> Fields:
    info = mapping(record.get("info"))
    error = _error(record, info)
    is_told = "traj" in record or record.get("reward") is not None or error[1] is not None
    if "task_id" not in record or not is_told:
        raise NotThisFormatError(f"task_id or traj is missing; expected {EXPECTED}")
    thread = Thread()
    thread.extend(chat_messages_with_reasoning(record.get("traj")))
    conversation_fields = thread.fields()
    task = mapping(info.get("task"))
    names = ids.of_record(task_id_of(record), record.get("trial"), number)
    return names | {
        "goal": text_of(task.get("instruction")),
        "task_family": text_of(record.get("task_family")) or text_of(task.get("task_family")),
        "messages": conversation_fields["messages"],
        "expected": whole_truth(tools_called(task.get("actions"), "kwargs"), joined(task.get("outputs")), []),
        "outcome": reward_outcome(NAME, record.get("reward"), base_success(record, "traj"), error),
        "metadata": _metadata(record, error[1], names["trial"])
        | cast("dict[str, JsonValue]", conversation_fields["metadata"]),
    }


def _error(record: Mapping[str, JsonValue], info: Mapping[str, JsonValue]) -> tuple[str, JsonValue]:
    """Return the key and the value of the record's error, which may be inside `info` or at the top level."""
    is_beside = info.get("error") in (None, False, "")
    return ("error", record.get("error")) if is_beside else ("info.error", info.get("error"))


def _metadata(record: Mapping[str, JsonValue], error: JsonValue, trial: object) -> dict[str, JsonValue]:
    recorded = record.get("trial")
    info = mapping(record.get("info"))
    return without_nulls(
        {
            "user_id": mapping(info.get("task")).get("user_id"),
            "policy": text_of(info.get("wiki")),
            "user_cost_usd": info.get("user_cost"),
            "error": error,
            "recorded_trial": None if recorded == trial else recorded,
            **reward_note(record.get("reward")),
        }
    )


FORMAT = Format(
    NAME,
    read,
    looks_like,
    order=40,
    content="result files of tau-bench: an array of trials",
    conversation="a trial",
    outcome=(
        ("`base_success` anywhere in the record outside `traj` (true, false, 1, 0, 1.0, 0.0)"),
        (
            "`info.error`, else `error` next to `info`, if `base_success` is false, or if it is absent "
            "and the reward is 0, negative or missing: by the list below"
        ),
        (
            "`reward` within 1e-6 of 1: passed; within 1e-6 of 0: failed; other rewards: "
            "`success_reward`, else unknown"
        ),
    ),
)
"""This format, as `catalog` registers it."""
