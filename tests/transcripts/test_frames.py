from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from agent_eval.transcripts.content_hash import conversation_hash, turn_hashes
from agent_eval.transcripts.frames import ConversationRows, conversations_from
from agent_eval.transcripts.models import Conversation, n_turn_indexes

texts = st.text(max_size=12)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(texts, v, max_size=3), max_leaves=6
)
objects = st.dictionaries(texts, values, max_size=3)
arguments = st.one_of(
    values, st.sampled_from(['{"a": null}', "not json", '"\\"7\\""', "", "1e400", "NaN", '"\\ud800"'])
)
calls = st.fixed_dictionaries({"id": st.none() | texts, "name": texts, "arguments": arguments})
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool"])},
    optional={
        "content": st.none() | texts | st.lists(objects, max_size=2),
        "name": texts,
        "tool_calls": st.none() | st.lists(calls, max_size=2),
        "tool_call_id": texts,
        "is_error": st.none() | st.booleans(),
        "timestamp": texts,
        "latency_ms": st.floats(0, 1e6),
        "usage": objects,
        "cost_usd": st.floats(0, 10),
    },
)
truths = st.fixed_dictionaries(
    {},
    optional={
        "turn_index": st.none() | st.integers(0, 5),
        "tools": st.none() | st.lists(objects, max_size=2),
        "answer": texts,
        "assertions": st.lists(values, max_size=2),
    },
)
conversations = st.fixed_dictionaries(
    {
        "conversation_id": st.text(min_size=1, max_size=8),
        "messages": st.lists(messages, min_size=1, max_size=6),
    },
    optional={
        "task_id": texts,
        "trial": st.integers(-(2**63), 2**63 - 1),
        "scenario": st.sampled_from(["D1", "hallucination"]),
        "goal": texts,
        "profile": texts,
        "knowledge": st.lists(texts, max_size=2),
        "tools": st.none() | st.lists(objects, max_size=2),
        "expected": st.lists(truths, max_size=2),
        "outcome": st.fixed_dictionaries({}, optional={"correct": st.booleans(), "reward": st.floats(-1, 1)}),
        "interventions": st.none()
        | st.lists(st.fixed_dictionaries({"kind": st.sampled_from(["help", "blocked"])}), max_size=2),
        "injected_error": values,
        "source": texts,
        "metadata": objects,
    },
).map(Conversation.model_validate)


def stored(*given: tuple[str, Conversation]) -> tuple[Any, Any, Any]:
    rows = ConversationRows()
    for agent_id, conversation in given:
        rows.add(agent_id, "s1", None, conversation)
    return rows.conversations.frame(), rows.turns.frame(), rows.tool_calls.frame()


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(conversations)
def test_a_conversation_comes_back_from_the_tables_and_its_line(conversation: Conversation) -> None:
    held, turns, calls = stored(("a", conversation))
    ((agent_id, back),) = conversations_from(held, turns)
    assert (agent_id, back) == ("a", conversation)
    hashes = list(turn_hashes(back, back.turns()))
    assert turns["content_hash"].to_list() == hashes
    row = held.row(0, named=True)
    assert row["content_hash"] == conversation_hash(back, hashes[-1])
    assert row["n_turns"] == turns.height <= n_turn_indexes(len(back.messages), row["n_user_messages"])
    assert row["n_tool_calls"] == calls.height == turns["n_tool_calls"].sum()
    line = conversation.model_dump_json(exclude_defaults=True)
    assert Conversation.model_validate_json(line) == conversation


def one(conversation_id: str, text: str = "hi") -> Conversation:
    messages = [{"role": "user", "content": text}, {"role": "assistant", "content": "yes"}, {"role": "user"}]
    return Conversation.model_validate({"conversation_id": conversation_id, "messages": messages})


def test_conversations_come_back_in_the_order_of_agent_and_id_whatever_the_order_of_rows() -> None:
    held, turns, _ = stored(("b", one("x")), ("a", one("z")), ("a", one("y", "hello")))
    back = list(conversations_from(held, turns.reverse()))
    assert back == [("a", one("y", "hello")), ("a", one("z")), ("b", one("x"))]


def test_a_conversation_whose_turns_are_missing_is_an_error_not_an_empty_one() -> None:
    held, turns, _ = stored(("a", one("x")))
    with pytest.raises(ValidationError, match="messages"):
        list(conversations_from(held, turns.clear()))


def test_unknown_tools_and_no_tools_stay_two_things() -> None:
    unknown = one("x")
    none = unknown.model_copy(update={"tools": (), "interventions": (), "conversation_id": "y"})
    held, _, _ = stored(("a", unknown), ("a", none))
    assert held.select("tools", "interventions").rows() == [(None, None), ("[]", "[]")]
