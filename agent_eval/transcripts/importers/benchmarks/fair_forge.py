"""Read Fair Forge data sets: [{"session_id", "assistant_id", "context", "conversation": [{"query", "assistant", …}]}]."""

from collections.abc import Iterator, Mapping

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
    number_of,
    or_nothing_found,
    text_of,
    without_nulls,
)
from agent_eval.transcripts.importers.registry import Format
from agent_eval.transcripts.importers.rules.branches import spoken_in_order
from agent_eval.transcripts.importers.rules.unread import unknown_entry, without
from agent_eval.transcripts.importers.shared.dialects import native_messages, result_of_call
from agent_eval.transcripts.importers.shared.layouts import records_of
from agent_eval.transcripts.importers.shared.threads import Thread

NAME = "fair-forge"
EXPECTED = '{"session_id", "assistant_id", "conversation": [{"query", "assistant"}]}, in a JSON array or one per line'
_BESIDE = ("qa_id", "agentic", "ground_truth_assistant", "ground_truth_agentic", "observation", "logprobs")
"""Keys of a turn that say nothing of what was said, or are read."""
_KEPT = ("assistant_id", "language")


def read(source: Source) -> Iterator[Found]:
    """Yield the sessions of a data set as one conversation each; `context` is background knowledge for judges."""
    return conversations(
        source, NAME, or_nothing_found(source, records_of(source, EXPECTED), EXPECTED), _conversation
    )


def looks_like(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a record is a Fair Forge session."""
    turns = value.get("conversation")
    return isinstance(turns, list) and (
        (bool(turns) and "query" in mapping(turns[0])) or "assistant_id" in value
    )


def _conversation(record: Mapping[str, JsonValue], ids: Ids, number: int) -> Fields:
    values = record.get("conversation")
    if not isinstance(values, list):
        raise NotThisFormatError(f"conversation is missing or not a list; expected {EXPECTED}")
    thread = Thread()
    truth: list[Fields] = []
    for index, turn in enumerate(map(mapping, spoken_in_order(values)[0])):
        thread.extend(unknown_entry("turn", turn, ("query", "assistant", "agentic")) or _turn(turn, index))
        truth += _truth(turn, index)
    context = text_of(record.get("context"))
    thread.metadata = without_nulls({key: record.get(key) for key in _KEPT})
    return {
        **thread.fields(),
        "conversation_id": ids.named(text_of(record.get("session_id")) or str(number)),
        "knowledge": [context] if context else [],
        "expected": truth,
    }


def _turn(turn: Mapping[str, JsonValue], index: int) -> Iterator[Fields]:
    yield from without("turn", turn, ("query", "assistant"), _BESIDE)
    yield from native_messages([{"role": "user", "content": turn.get("query")}])
    used = _in_steps(mapping(turn.get("agentic")).get("tools_used"))
    calls = [
        {"id": f"t{index}-{i}", "name": call.get("tool_name"), "arguments": call.get("parameters")}
        for i, call in enumerate(used)
    ]
    if calls:
        yield {"role": "assistant", "content": None, "tool_calls": calls}
    for i, call in enumerate(used):
        yield result_of_call(f"t{index}-{i}", call)
    yield from native_messages([{"role": "assistant", "content": turn.get("assistant")}])


def _in_steps(calls: JsonValue) -> list[Mapping[str, JsonValue]]:
    return sorted(map(mapping, listed(calls)), key=lambda call: number_of(call.get("step")) or 0.0)


def _truth(turn: Mapping[str, JsonValue], index: int) -> list[Fields]:
    """Return the expected answer and calls of a turn; empty if the file contains neither.

    The defaults are those of the source: order matters if the file does not state it, and the results of calls were
    not used if the file does not state it.
    """
    agentic, actual = mapping(turn.get("ground_truth_agentic")), mapping(turn.get("agentic"))
    answer = text_of(turn.get("ground_truth_assistant"))
    tools = [
        {"name": call.get("tool_name"), "arguments": call.get("parameters") or {}}
        for call in _in_steps(agentic.get("expected_tools"))
    ]
    has_tools = "expected_tools" in agentic
    if not answer and not has_tools:
        return []
    return [
        {
            "turn_index": index,
            "answer": answer,
            "tools": tools if has_tools else None,
            "tool_sequence_matters": has_tools and bool(agentic.get("tool_sequence_matters", True)),
            "results_used": bool(actual.get("final_answer_uses_tools")) if actual.get("tools_used") else None,
        }
    ]


FORMAT = Format(
    NAME,
    read,
    looks_like,
    order=70,
    content='`{"session_id", "conversation": [{"query", "assistant"}]}`',
    conversation="a session",
    details=(
        "`context` is stored as knowledge for judges; the ground truth of each turn is stored, with the "
        "defaults of the source (`tool_sequence_matters` true, `final_answer_uses_tools` false); see [the"
        " counterparts](howto/from-fair-forge.md)"
    ),
)
"""This format, as `catalog` registers it."""
