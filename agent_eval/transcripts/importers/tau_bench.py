"""tau-bench result files: a JSON array of {task_id, reward, info, traj, trial}."""

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from agent_eval.formats.refusals import Refusal
from agent_eval.transcripts.importers.base import (
    Fields,
    Ids,
    NotThisFormatError,
    Source,
    array_records,
    base_success,
    conversations,
    joined,
    mapping,
    or_nothing_found,
    reward_outcome,
    text_of,
    tools_called,
    unrepeated,
    whole_truth,
    without_nulls,
)
from agent_eval.transcripts.importers.messages import chat_messages
from agent_eval.transcripts.models import Conversation

NAME = "tau-bench"
EXPECTED = "a JSON array of {task_id, reward, info, traj, trial}"


def read(source: Source) -> Iterator[Conversation | Refusal]:
    """The conversations of a tau-bench result file."""
    records = unrepeated(source, array_records(source, "item"), "traj", names=["trial"])
    return conversations(source, NAME, or_nothing_found(source, records, EXPECTED), _conversation)


def _conversation(record: Mapping[str, JsonValue], ids: Ids, _: int) -> Fields:
    info = mapping(record.get("info"))
    is_told = "traj" in record or record.get("reward") is not None or info.get("error") is not None
    if "task_id" not in record or not is_told:
        raise NotThisFormatError(f"task_id or traj is missing; expected {EXPECTED}")
    messages = chat_messages(record.get("traj"))
    task = mapping(info.get("task"))
    names = ids.numbered(text_of(record["task_id"]) or "null", record.get("trial"))
    return names | {
        "goal": text_of(task.get("instruction")),
        "messages": messages,
        "expected": whole_truth(tools_called(task.get("actions"), "kwargs"), joined(task.get("outputs")), []),
        "outcome": reward_outcome(
            NAME, record.get("reward"), base_success(record, "traj"), ("info.error", info.get("error"))
        ),
        "metadata": _metadata(record, info, names["trial"]),
    }


def _metadata(
    record: Mapping[str, JsonValue], info: Mapping[str, JsonValue], trial: object
) -> dict[str, JsonValue]:
    recorded = record.get("trial")
    return without_nulls(
        {
            "user_id": mapping(info.get("task")).get("user_id"),
            "user_cost_usd": info.get("user_cost"),
            "error": info.get("error"),
            "recorded_trial": None if recorded == trial else recorded,
        }
    )
