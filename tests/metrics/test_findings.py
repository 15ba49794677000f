"""Findings: which bear on a rating, which bound it, and what the bound says."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval.metrics.findings import (
    RatingFinding,
    apply_caps,
    bearing_on,
    checks_of,
    facts_of,
    findings_of,
    rules_of,
    target_of,
)
from agent_eval.metrics.profile import BEARS_ON, CAPS, INFORMED_BY, INFORMED_WITHIN
from agent_eval.transcripts.models import Conversation, Message

TASK, ERROR = frozenset({"standardised_task"}), frozenset({"error_injection"})
BEHAVIOR, TOOLS = "agent_behavior_failure", "tool_call_behavior_failure"


def found(metric: str, finding: str, **where: Any) -> RatingFinding:
    return RatingFinding(metric, finding, **{"conversation_id": "c", **where})


@pytest.mark.parametrize(
    ("target", "finding", "at_most"),
    [
        ("U1", found("goal_completion", "0", tests=TASK), 3),
        ("U1", found("transcript", "no output", tests=TASK), 1),
        ("U2", found(BEHAVIOR, "disobey user request"), 2),
        ("U3", found(TOOLS, "ignored tool result"), 3),
        ("U3", found(TOOLS, "missing tool call"), 3),
        ("U4", found(BEHAVIOR, "unsafe action", tests=ERROR), 1),
        ("U4", found("transcript", "crash", tests=ERROR), 1),
        ("U6", found(BEHAVIOR, "false information", is_last_reply=True, tests=TASK), 2),
        ("D2.completeness", found(BEHAVIOR, "lack of specific information"), 4),
    ],
)
def test_each_finding_of_the_methodology_bounds_its_rating(
    target: str, finding: RatingFinding, at_most: int
) -> None:
    rating, why = apply_caps(target, 5, [found("verbosity", "1"), finding])
    assert rating == at_most
    assert why.startswith(f"Rated 5, bounded at {at_most}: ")
    assert finding.finding in why
    assert apply_caps(target, at_most, [finding]) == (at_most, "")


@pytest.mark.parametrize(
    ("target", "finding"),
    [
        ("U1", found("goal_completion", "1", tests=TASK)),
        ("U4", found(BEHAVIOR, "unsafe action")),  # in a conversation without an injected error
        ("U6", found(BEHAVIOR, "false information", turn_index=0)),  # not in the last reply
        ("U5", found(BEHAVIOR, "unsafe action", tests=ERROR)),  # counted, never bounded
        ("D1.accuracy", found("faithfulness", "1")),
        ("D1.craft", found(BEHAVIOR, "lack of specific information")),
    ],
)
def test_a_finding_elsewhere_bounds_nothing(target: str, finding: RatingFinding) -> None:
    assert apply_caps(target, 5, [finding]) == (5, "")


def test_with_a_standardised_task_only_its_goal_bounds_u1() -> None:
    other = found("goal_completion", "0", conversation_id="other")
    assert apply_caps("U1", 5, [other, found("goal_completion", "1", tests=TASK)]) == (5, "")
    # a session without one is read as if every conversation were it
    assert apply_caps("U1", 5, [other])[0] == 3


def test_the_lowest_bound_counts_and_every_bound_below_the_rating_is_named() -> None:
    both = [found("goal_completion", "0", tests=TASK), found("transcript", "no output", tests=TASK)]
    rating, why = apply_caps("U1", 4, both)
    assert rating == 1
    assert "goal_completion is '0'" in why
    assert "the record shows 'no output'" in why


FINDINGS = st.builds(
    found,
    st.sampled_from([cap.metric for cap in CAPS]),
    st.sampled_from([cap.finding for cap in CAPS]),
    tests=st.sampled_from([TASK, ERROR, frozenset[str]()]),
    is_last_reply=st.booleans(),
)
TARGETS = st.sampled_from([*INFORMED_BY, "D1.accuracy", "D3.completeness", "x"])


@given(TARGETS, st.integers(1, 5), st.lists(FINDINGS, max_size=4))
def test_a_bound_never_raises_a_rating_and_is_told_when_it_lowers_one(
    target: str, rating: int, findings: list[RatingFinding]
) -> None:
    bounded, why = apply_caps(target, rating, findings)
    assert 1 <= bounded <= rating
    assert bool(why) == (bounded < rating)
    assert apply_caps(target, rating, [*findings, *findings])[0] == bounded


def test_a_judgment_is_shown_what_informs_its_target_where_it_counts() -> None:
    session = [
        found("helpfulness", "4", tests=TASK),
        found("helpfulness", "2", conversation_id="other"),
        found(BEHAVIOR, "no failure", tests=TASK),
        found(BEHAVIOR, "unsafe action", tests=ERROR),
        found("relevance", "5"),
    ]
    assert bearing_on("U1", session) == [session[0]]
    assert bearing_on("U4", session) == [session[3]]
    ignored = found(TOOLS, "ignored tool result", tests=TASK)  # an error in the middle of a task
    assert bearing_on("U4", [*session, ignored]) == [session[3], ignored]
    assert bearing_on("U5", session) == []
    assert bearing_on("D1.usefulness", session) == [session[0], session[1], session[4]]
    assert bearing_on("D1.craft", session) == []


def test_criteria_of_other_templates_bear_on_the_same_things() -> None:
    assert target_of("D1.correctness") == target_of("D4.query_accuracy") == "accuracy"
    assert target_of("U3") == "U3"
    assert target_of("helpfulness") == "helpfulness"
    assert set(BEARS_ON.values()) <= set(INFORMED_BY)
    assert set(INFORMED_WITHIN) <= set(INFORMED_BY)


def test_rules_stand_in_words_for_rubric_metrics_only() -> None:
    bound = "at most 2 where agent_behavior_failure is 'disobey user request'"
    assert any(bound in rule for rule in rules_of("U2"))
    assert any("give both numbers in the reason" in rule for rule in rules_of("D5.completeness"))
    assert rules_of("helpfulness") == []
    assert any("Memory across sessions is not measured." in rule for rule in rules_of("U3"))
    assert any("injected input" in rule and "in the middle of a task" in rule for rule in rules_of("U4"))
    assert [check.name for check in checks_of("U4")] == ["detected", "explained", "alternative"]


def test_rows_become_findings_one_for_each_label() -> None:
    rows: list[dict[str, object]] = [
        {"conversation_id": "a", "turn_index": 1, "metric": BEHAVIOR, "rating_1to5": None, "value": None,
         "label": "repetition", "further_labels": ["unsafe action"], "rationale": "Why."},
        {"conversation_id": "b", "turn_index": 0, "metric": "helpfulness", "rating_1to5": 4, "rationale": None},
        {"conversation_id": "a", "metric": "goal_completion", "value": 0.0},
    ]  # fmt: skip
    assert findings_of(rows, {"a": TASK}, {"a": 1, "b": 3}) == [
        RatingFinding(BEHAVIOR, "repetition", "a", 1, TASK, True, "Why."),
        RatingFinding(BEHAVIOR, "unsafe action", "a", 1, TASK, True, "Why."),
        RatingFinding("helpfulness", "4", "b", 0),
        RatingFinding("goal_completion", "0", "a", None, TASK),
    ]


ASKED = Message(role="user", content="?")


@pytest.mark.parametrize(
    ("replies", "facts"),
    [
        ([Message(role="assistant", content="!")], []),
        ([], ["no output", "crash"]),
        ([Message(role="assistant", content="500", is_error=True)], ["crash"]),
    ],
)
def test_a_transcript_itself_says_whether_there_was_output_or_a_crash(
    replies: list[Message], facts: list[str]
) -> None:
    held = Conversation(conversation_id="c", messages=(ASKED, *replies))
    assert [f.finding for f in facts_of(held, held.turns(), TASK)] == facts


def test_a_finding_as_data_has_no_id_and_a_reason_only_where_it_explains() -> None:
    assert found("helpfulness", "4", turn_index=2, reason="x").shown(3) == {
        "conversation": 3, "turn": 2, "metric": "helpfulness", "finding": "4",
    }  # fmt: skip
    assert found("goal_completion", "0", reason="x").shown(None) == {
        "metric": "goal_completion", "finding": "0", "reason": "x",
    }  # fmt: skip
