"""tau2-bench result files: one JSON object with `tasks` and `simulations`."""

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from agent_eval.formats.refusals import Refusal
from agent_eval.transcripts.importers.base import (
    Fields,
    Ids,
    NotThisFormatError,
    Source,
    array_records,
    conversations,
    joined,
    listed,
    mapping,
    or_nothing_found,
    paid,
    reward_outcome,
    text_of,
    tools_called,
    unrepeated,
    whole_truth,
    without_nulls,
)
from agent_eval.transcripts.importers.messages import chat_messages
from agent_eval.transcripts.models import Conversation

NAME = "tau2"
EXPECTED = "a JSON object with the arrays tasks and simulations"
_KEPT = ("termination_reason", "duration", "seed")


def read(source: Source) -> Iterator[Conversation | Refusal]:
    """The conversations of a tau2 result file.

    The file is gone through twice, for tasks and for simulations, so that their order does not matter and
    no more than the tasks' ground truth and one simulation is in memory.
    """
    truths = {
        task_id: truth for record in array_records(source, "tasks.item") for task_id, truth in _truth(record)
    }

    def convert(record: Mapping[str, JsonValue], ids: Ids, _: int) -> Fields:
        return _conversation(record, ids, truths)

    simulations = or_nothing_found(
        source, unrepeated(source, array_records(source, "simulations.item")), EXPECTED
    )
    return conversations(source, NAME, simulations, convert)


def _conversation(record: Mapping[str, JsonValue], ids: Ids, truths: Mapping[str, Fields]) -> Fields:
    if "messages" not in record or "task_id" not in record:
        raise NotThisFormatError("task_id or messages is missing in the simulation")
    messages = _with_crash(chat_messages(_flat(record["messages"])), record.get("termination_reason"))
    task_id = text_of(record["task_id"]) or "null"
    names = ids.numbered(task_id, record.get("trial"))
    own_id = text_of(record.get("id"))
    if own_id and len(own_id) <= 512 and not ids.is_claimed(own_id):
        names["conversation_id"] = own_id
    reward = mapping(record.get("reward_info"))
    base_success = record.get("base_success", reward.get("base_success"))
    return (
        names
        | truths.get(task_id, {})
        | {
            "messages": messages,
            "outcome": reward_outcome(NAME, reward.get("reward"), base_success),
            "metadata": _metadata(record, names["trial"]),
        }
    )


def _with_crash(messages: list[Fields], termination_reason: JsonValue) -> list[Fields]:
    """Mark the message with which the agent broke the simulation off: the harness refused it, so nobody read it."""
    if termination_reason == "agent_error" and messages and messages[-1].get("role") == "assistant":
        messages[-1]["is_error"] = True
    return messages


def _flat(messages: JsonValue) -> JsonValue:
    """Several tool answers packed into one message stand one by one."""
    if not isinstance(messages, list):
        return messages
    flat: list[JsonValue] = []
    for message in messages:
        packed = listed(mapping(message).get("tool_messages"))
        flat.extend(packed or [message])
    return flat


def _metadata(record: Mapping[str, JsonValue], trial: object) -> dict[str, JsonValue]:
    recorded = record.get("trial")
    return without_nulls(
        {
            **{name: record.get(name) for name in _KEPT},
            "agent_cost_usd": paid(record.get("agent_cost")),
            "user_cost_usd": paid(record.get("user_cost")),
            "simulation_id": record.get("id"),
            "recorded_trial": None if recorded == trial else recorded,
        }
    )


def _truth(record: object) -> Iterator[tuple[str, Fields]]:
    """What a task says of goal, profile and ground truth, by its id. A file that breaks here breaks below too."""
    task = mapping(getattr(record, "value", None))
    task_id = text_of(task.get("id"))
    if task_id is None:
        return
    scenario = mapping(task.get("user_scenario"))
    criteria = mapping(task.get("evaluation_criteria"))
    actions: list[JsonValue] = [
        a for a in listed(criteria.get("actions")) if mapping(a).get("requestor", "assistant") == "assistant"
    ]
    truth = whole_truth(
        tools_called(actions, "arguments"),
        joined(criteria.get("communicate_info")),
        listed(criteria.get("nl_assertions")),
    )
    yield task_id, {"goal": _goal(scenario), "profile": _profile(scenario), "expected": truth}


def _goal(scenario: Mapping[str, JsonValue]) -> str | None:
    instructions = scenario.get("instructions")
    if isinstance(instructions, str):
        return instructions
    parts = mapping(instructions)
    return _paragraphs(parts.get("reason_for_call"), parts.get("task_instructions"))


def _profile(scenario: Mapping[str, JsonValue]) -> str | None:
    return _paragraphs(scenario.get("persona"), mapping(scenario.get("instructions")).get("known_info"))


def _paragraphs(*parts: JsonValue) -> str | None:
    return "\n\n".join(text for part in parts if (text := text_of(part))) or None
