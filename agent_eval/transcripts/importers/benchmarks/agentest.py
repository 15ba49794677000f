"""Read Agentest results: {"summary", "scenarios": [{"name", "conversations": [{"turns": […]}]}]}.

Its JSON reporter writes this form; its documentation shows {"runId", "scenarios": [{"scenarioName", …}]}. Both are read.
"""

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
    array_records,
    conversations,
    listed,
    mapping,
    or_nothing_found,
    reward_outcome,
    text_of,
    without_nulls,
    yes_or_no,
)
from agent_eval.transcripts.importers.registry import Format
from agent_eval.transcripts.importers.rules.branches import spoken_in_order
from agent_eval.transcripts.importers.rules.unread import unknown_entry, without
from agent_eval.transcripts.importers.shared.dialects import native_messages, result_of_call
from agent_eval.transcripts.importers.shared.threads import SOURCE_SCORES, Thread

NAME = "agentest"
EXPECTED = 'a JSON object with "scenarios": [{"name", "conversations": [{"turns": […]}]}]'
_BESIDE = ("turnIndex", "toolCalls", "evaluation", "metrics", "timestamp", "error")
"""Keys of a turn that say nothing of what was said, or are read."""
_STARTS = ("runId", "startedAt")
_NAMES = ("scenarioName", "name", "scenarioId")


_OF_SEVERAL = "the file compares several agents; run Agentest for each of them and import the results under its own agent id"


def read(source: Source) -> Iterator[Found]:
    """Yield the conversations of all scenarios; a scenario is a task, and its conversations are the trials."""
    return conversations(source, NAME, or_nothing_found(source, _records(source), EXPECTED), _conversation)


def looks_like(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a document contains Agentest results. Of a large document, only the keys are known."""
    if "scenarios" not in value:
        return False
    scenarios = value["scenarios"]
    first = mapping(next(iter(scenarios), None)) if isinstance(scenarios, list) else {}
    is_written = "summary" in value and (scenarios is None or "conversations" in first or "agents" in first)
    return is_written or any(key in value for key in _STARTS)


def _records(source: Source) -> Iterator[Record | Refusal]:
    number = 0
    for scenario in array_records(source, "scenarios.item"):
        if isinstance(scenario, Refusal):
            yield scenario
            continue
        fields = mapping(scenario.value)
        if isinstance(fields.get("agents"), list):
            number += 1
            yield Refusal(source.file, number, _OF_SEVERAL)
        elif not isinstance(fields.get("conversations"), list):
            number += 1
            yield Refusal(source.file, number, f"conversations is missing or not a list; expected {EXPECTED}")
        for conversation in listed(fields.get("conversations")):
            number += 1
            scenario_fields = {key: fields.get(key) for key in _NAMES}
            yield Record(number, {"scenario": scenario_fields, "conversation": conversation})


def _conversation(record: Mapping[str, JsonValue], ids: Ids, number: int) -> Fields:
    scenario, conversation = mapping(record.get("scenario")), mapping(record.get("conversation"))
    turns = conversation.get("turns")
    if not isinstance(turns, list):
        raise NotThisFormatError(f"turns is missing or not a list; expected {EXPECTED}")
    thread = Thread()
    evaluation = dict(mapping(conversation.get("evaluation")))
    of_turns = listed(evaluation.pop("turnEvaluations", None))
    scores: list[JsonValue] = _scores(without_nulls(evaluation), None)
    for turn_fields in map(mapping, of_turns):
        index = turn_fields.get("turnIndex")
        scores += _scores(mapping(turn_fields.get("metrics")), index if isinstance(index, int) else None)
    for index, turn in enumerate(map(mapping, spoken_in_order(turns)[0])):
        thread.extend(
            unknown_entry("turn", turn, ("userMessage", "agentMessage", "toolCalls")) or _turn(turn, index)
        )
        scores += _scores(mapping(turn.get("evaluation")), index)
    trajectory = mapping(conversation.get("trajectory") or conversation.get("trajectoryResult"))
    if trajectory:
        scores.append({"name": "trajectory", "value": trajectory.get("matched"), **trajectory})
    thread.metadata = without_nulls(
        {SOURCE_SCORES: scores or None, "scenario_id": text_of(scenario.get("scenarioId"))}
    )
    task = next((name for key in _NAMES if (name := text_of(scenario.get(key)))), None)
    goal = text_of(scenario.get("scenarioName")) or text_of(scenario.get("name"))
    names = ids.of_record(task, None, number)
    if own := text_of(conversation.get("conversationId")):
        names["conversation_id"] = ids.named(own)
    error = conversation.get("error")
    passed = yes_or_no(conversation.get("passed")) if error in (None, "") else None
    outcome = reward_outcome(NAME, None, None, ("error", error))
    if passed is not None:
        outcome |= {"correct": passed, "source": f"{NAME} passed", "basis": "declared"}
    return {**thread.fields(), **names, "goal": goal, "outcome": outcome}


def _turn(turn: Mapping[str, JsonValue], index: int) -> Iterator[Fields]:
    yield from without("turn", turn, ("userMessage", "agentMessage"), _BESIDE)
    yield from native_messages([{"role": "user", "content": turn.get("userMessage")}])
    calls = [mapping(call) for call in listed(turn.get("toolCalls"))]
    complete_calls = [
        {
            "id": f"t{index}-{i}",
            "name": call.get("name"),
            "arguments": call.get("arguments", call.get("args")),
        }
        for i, call in enumerate(calls)
    ]
    if complete_calls:
        yield {"role": "assistant", "content": None, "tool_calls": complete_calls}
    for i, call in enumerate(calls):
        yield result_of_call(f"t{index}-{i}", call)
    if turn.get("agentMessage") is not None:
        yield from native_messages([{"role": "assistant", "content": turn.get("agentMessage")}])


def _scores(evaluation: Mapping[str, JsonValue], turn_index: int | None) -> list[JsonValue]:
    """Return the scores of Agentest's judge, by metric."""
    return [
        without_nulls({"name": name, "turn_index": turn_index, **mapping(score)})
        if isinstance(score, dict)
        else {"name": name, "turn_index": turn_index, "value": score}
        for name, score in evaluation.items()
    ]


FORMAT = Format(
    NAME,
    read,
    looks_like,
    order=60,
    content="results with `scenarios`",
    conversation="a conversation of a scenario",
    is_document=True,
    details=(
        "A scenario is a task. The scores of turns, goal completion and the trajectory check are stored "
        "in `source_scores`. The `passed` of a scenario is a verdict on means over its conversations and "
        "decides none of them. A comparison of several agents is rejected"
    ),
    outcome=(
        "`passed`",
        "`error`: by the list below",
        "unknown",
    ),
)
"""This format, as `catalog` registers it."""
