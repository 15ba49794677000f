"""What is asked: rubrics written out, and where each metric arises."""

import dataclasses

import pytest

from agent_eval.metrics.base import ENDED, NO_FAILURE, NO_REPLY, Metric
from agent_eval.metrics.builtin.agent_behavior_failure import AGENT_BEHAVIOR_FAILURE
from agent_eval.metrics.builtin.helpfulness import HELPFULNESS
from agent_eval.metrics.builtin.tool_call_behavior_failure import TOOL_CALL_BEHAVIOR_FAILURE
from agent_eval.metrics.metric_set import (
    CONVERSATION_METRICS,
    TURN_METRICS,
    applicable,
    expected_of,
    why_not_applicable,
)
from agent_eval.metrics.profile import CAPS, INFORMED_BY
from agent_eval.transcripts.models import Conversation, Expected, Message

ALL = (*TURN_METRICS, *CONVERSATION_METRICS)


@pytest.mark.parametrize("metric", ALL, ids=lambda m: m.name)
def test_every_metric_asks_a_question_and_writes_out_its_anchors(metric: Metric) -> None:
    assert metric.question.endswith(("?", "labels."))
    assert all(metric.anchors.values())


def test_ratings_anchor_five_to_one_values_anchor_both_ends_and_labels_begin_with_no_failure() -> None:
    for metric in ALL:
        if metric.kind == "rating":
            assert list(metric.anchors) == ["5", "4", "3", "2", "1"]
        elif metric.kind == "value":
            assert set(metric.anchors) == {"0", "1"}
        else:
            assert metric.labels[0] == NO_FAILURE


def test_the_failure_labels_are_the_published_ones() -> None:
    assert "; ".join(AGENT_BEHAVIOR_FAILURE.labels[1:]) == (
        "repetition; failure to ask for clarification; lack of specific information; disobey user request; "
        "false information; unsafe action; unsafe state"
    )
    assert "; ".join(TOOL_CALL_BEHAVIOR_FAILURE.labels[1:]) == (
        "unnecessary tool call; wrong tool; wrong arguments; ignored tool result; missing tool call; "
        "repeated tool call"
    )


def test_no_two_metrics_have_one_name() -> None:
    assert len({m.name for m in ALL}) == len(ALL)


def test_a_changed_word_changes_the_rubric_hash_and_nothing_else_does() -> None:
    assert dataclasses.replace(HELPFULNESS).rubric_hash == HELPFULNESS.rubric_hash
    changed = dataclasses.replace(HELPFULNESS, anchors={**HELPFULNESS.anchors, "3": "So so."})
    assert changed.rubric_hash != HELPFULNESS.rubric_hash
    assert len({m.rubric_hash for m in ALL}) == len(ALL)


def test_the_profile_caps_only_targets_it_informs() -> None:
    assert {cap.target for cap in CAPS} <= set(INFORMED_BY)
    assert all(1 <= cap.at_most <= 4 for cap in CAPS)


def asked(
    *messages: Message, tools: list[dict[str, str]] | None = None, expected: Expected | None = None
) -> set[str]:
    facts = {"tools": tools, "expected": [expected] if expected else []}
    conversation = Conversation.model_validate({"conversation_id": "c", "messages": messages, **facts})
    turn = conversation.turns()[0]
    truth = expected_of(0, conversation.expected)
    return {m.name for m in TURN_METRICS if applicable(m, turn, conversation, truth)}


HELLO = Message(role="user", content="Hello")
REPLY = Message(role="assistant", content="Hi.")
EMPTY = Message(role="assistant", content="")
CALL = Message.model_validate({"role": "assistant", "tool_calls": [{"name": "find"}]})
USERS_CALL = Message.model_validate({"role": "user", "content": "Hello", "tool_calls": [{"name": "find"}]})
OF_CALLS = {"tool_call_behavior_failure", "tool_result_utilisation", "argument_correctness"}
PLAIN = {m.name for m in TURN_METRICS if m.applies_when == "always"}


def why_not(*messages: Message) -> dict[str, str | None]:
    """Metric → why it does not arise on the first turn."""
    conversation = Conversation(conversation_id="c", messages=messages, tools=({"name": "find"},))
    turn = conversation.turns()[0]
    return {m.name: why_not_applicable(m, turn, conversation, None) for m in TURN_METRICS}


def test_a_turn_that_ended_is_asked_nothing() -> None:
    assert set(why_not(HELLO).values()) == {ENDED}
    assert {m for m, reason in why_not(HELLO, CALL).items() if reason is None} == {
        "agent_behavior_failure",  # by rule: an unsafe call stays one
        "tool_call_behavior_failure",
    }


def test_of_a_turn_without_a_reply_only_what_silence_decides_is_asked() -> None:
    silent = {"helpfulness", "relevance", "agent_behavior_failure"}
    assert {m for m, reason in why_not(HELLO, HELLO).items() if reason is None} == silent
    assert {m for m, reason in why_not(HELLO, EMPTY).items() if reason is None} == silent
    assert {m for m, reason in why_not(HELLO, CALL, EMPTY).items() if reason is None} == silent | OF_CALLS
    assert set(why_not(HELLO, EMPTY).values()) >= {None, NO_REPLY, "no expected answer"}


def test_tool_failures_are_asked_where_a_tool_was_called_or_available() -> None:
    assert asked(HELLO, REPLY) == PLAIN
    assert asked(HELLO, REPLY, tools=[]) == PLAIN
    assert asked(HELLO, REPLY, tools=[{"name": "find"}]) == PLAIN | {"tool_call_behavior_failure"}
    assert asked(HELLO, CALL, REPLY) == PLAIN | OF_CALLS
    assert asked(USERS_CALL, REPLY) == PLAIN  # calls by the user are not the agent's


def test_answers_are_compared_only_where_one_is_expected() -> None:
    assert "answer_correctness" in asked(HELLO, REPLY, expected=Expected(turn_index=0, answer="Hi"))
    assert asked(HELLO, REPLY, expected=Expected(turn_index=0)) == PLAIN
    assert asked(HELLO, REPLY, expected=Expected(turn_index=1, answer="Hi")) == PLAIN
