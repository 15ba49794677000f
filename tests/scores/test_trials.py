"""What makes an interaction, and through it a trial, correct: answers, tools, and what stays unknown."""

import json
import math
from typing import Any, get_args

import polars as pl
import pytest

from agent_eval.errors import AgentEvalError
from agent_eval.scores.reliability import posterior
from agent_eval.scores.reliability.attempts import InteractionEstimator
from agent_eval.scores.reliability.pass_rates import interaction_reliability, reliability
from agent_eval.scores.reliability.trials import (
    TrialTables,
    interaction_outcomes,
    is_between_rewards,
    trial_outcomes,
)
from agent_eval.tables import table

PAIR: dict[str, Any] = {"methodology_version": "1.3.0", "agent_id": "a", "conversation_id": "c"}


def inputs(
    expected: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None = None,
    answers: list[tuple[int | None, float | None]] | None = None,
    goal: float | None = None,
) -> TrialTables:
    """What is known of one conversation."""
    scored = PAIR | {"status": "scored", "is_effective": True}
    judged = [
        scored | {"metric": "answer_correctness", "turn_index": turn, "value": value}
        for turn, value in answers or []
    ]
    judged = [row | ({"status": "unscored"} if row["value"] is None else {}) for row in judged]
    goals = [scored | {"metric": "goal_completion", "value": value} for value in [goal] if value is not None]
    return TrialTables(
        table("transcripts").frame([PAIR | {"session_id": "s", "task_id": "t", "is_admitted": True}]),
        table("conversations").frame([PAIR | {"expected": json.dumps(expected)}]),
        table("tool_correctness").frame(PAIR | {"status": "scored"} | row for row in tools or []),
        table("conversation_judgments").frame(
            [*goals, *(row for row in judged if row["turn_index"] is None)]
        ),
        table("turn_judgments").frame(row for row in judged if row["turn_index"] is not None),
    )


ANSWER = {"turn_index": 0, "answer": "42"}


def outcome(expected: list[dict[str, Any]], **more: Any) -> tuple[bool | None, str | None]:
    options = {name: more.pop(name) for name in ("answer_threshold", "tools_count") if name in more}
    return trial_outcomes(inputs(expected, **more), **options).select("is_correct", "source").row(0)


@pytest.mark.parametrize(
    ("value", "is_correct"), [(0.7, True), (0.7 - 1e-10, True), (0.69, False), (1.0, True)]
)
def test_an_answer_is_correct_from_the_threshold_on(value: float, is_correct: bool) -> None:
    assert outcome([ANSWER], answers=[(0, value)]) == (is_correct, "interactions")


def test_the_threshold_is_a_choice() -> None:
    assert outcome([ANSWER], answers=[(0, 0.75)], answer_threshold=0.8) == (False, "interactions")
    assert outcome([ANSWER], answers=[(0, 0.65)], answer_threshold=0.6) == (True, "interactions")
    for impossible in (-0.1, 1.1, math.nan, True, "0.7", None):
        with pytest.raises(AgentEvalError, match=f"answer threshold is {impossible!r}"):
            outcome([ANSWER], answer_threshold=impossible)


def test_a_conversation_is_correct_only_if_every_interaction_is() -> None:
    expected = [ANSWER, {"turn_index": 1, "answer": "43"}]
    assert outcome(expected, answers=[(0, 1.0), (1, 1.0)]) == (True, "interactions")
    assert outcome(expected, answers=[(0, 1.0), (1, 0.0)]) == (False, "interactions")


def test_tools_count_where_they_are_expected_unless_switched_off() -> None:
    expected = [ANSWER | {"tools": [{"name": "f"}]}]
    wrong = [{"turn_index": 0, "is_correct": False}]
    assert outcome(expected, tools=wrong, answers=[(0, 1.0)]) == (False, "interactions")
    assert outcome(expected, tools=wrong, answers=[(0, 1.0)], tools_count=False) == (True, "interactions")
    right = [{"turn_index": 0, "is_correct": True}]
    assert outcome(expected, tools=right, answers=[(0, 1.0)]) == (True, "interactions")


def test_an_interaction_without_all_its_parts_is_unknown_even_when_one_part_is_wrong() -> None:
    # else a lost judgment could only ever count against the agent
    expected = [ANSWER | {"tools": [{"name": "f"}]}]
    wrong = [{"turn_index": 0, "is_correct": False}]
    assert outcome(expected, tools=wrong) == (None, None)
    assert outcome(expected, tools=wrong, goal=1.0) == (True, "goal_completion")
    assert outcome([ANSWER, {"turn_index": 1, "answer": "x"}], answers=[(0, 0.0)]) == (None, None)


def test_an_answer_of_the_whole_conversation_is_judged_on_the_conversation() -> None:
    whole = [{"turn_index": None, "answer": "42"}]
    assert outcome(whole, answers=[(None, 0.9)]) == (True, "interactions")
    assert outcome(whole, answers=[(0, 0.9)]) == (None, None)


def test_interactions_without_tools_or_with_tools_that_do_not_apply_are_decided_by_the_answer() -> None:
    off = [{"turn_index": 0, "status": "not_applicable"}]
    assert outcome([ANSWER], tools=off, answers=[(0, 1.0)]) == (True, "interactions")


def test_a_lost_judgment_is_told_apart_from_one_never_asked() -> None:
    lost = trial_outcomes(inputs([ANSWER], answers=[(0, None)]))
    never = trial_outcomes(inputs([ANSWER]))
    assert (lost["judge_failed"].item(), never["judge_failed"].item()) == (True, False)
    row = reliability(inputs([ANSWER], answers=[(0, None)])).row(0, named=True)
    assert (row["n_trials"], row["n_trials_unknown"], row["n_trials_judge_failed"]) == (0, 1, 1)


def test_interactions_are_told_one_by_one() -> None:
    expected = [ANSWER, {"turn_index": 1, "tools": [{"name": "f"}]}]
    found = interaction_outcomes(
        inputs(expected, tools=[{"turn_index": 1, "is_correct": False}], answers=[(0, 0.9)])
    )
    columns = ("turn_index", "answer", "answer_correct", "tools_correct", "is_correct")
    assert found.select(columns).rows() == [(0, 0.9, True, None, True), (1, None, None, False, False)]


def test_interactions_have_every_estimator_and_only_the_bayesian_one_has_bounds() -> None:
    expected = [ANSWER, {"turn_index": 1, "answer": "x"}]
    outcomes = trial_outcomes(inputs(expected, answers=[(0, 1.0), (1, 0.0)]))
    found = interaction_reliability(outcomes, [2, 3], estimators=get_args(InteractionEstimator))
    # three of two interactions cannot be drawn without putting back
    wanted = [(k, name) for k in (2, 3) for name in ("bayesian", "plug_in", "unbiased")]
    assert found.select("k", "estimator").rows() == wanted[:-1]
    by_estimator = dict(found.filter(k=2).select("estimator", "interaction_pass_hat_k").iter_rows())
    # p ~ Beta(2, 2): E[p²] = 2/4 × 3/5; (1/2)²; C(1, 2) = 0
    assert by_estimator == pytest.approx({"bayesian": 0.3, "plug_in": 0.25, "unbiased": 0})
    assert set(found.select("n_interactions", "n_interactions_correct").rows()) == {(2, 1)}
    at = found.filter(k=2, estimator="plug_in")["interaction_pass_at_k"].item()
    assert (at, "pass_at_k" in found.columns) == (0.75, False)
    bounded = found.filter(pl.col("interaction_pass_at_k_low").is_not_null())
    assert set(bounded["estimator"]) == {"bayesian"}
    own = posterior(2, 1, 2).pass_at_k
    row = bounded.filter(k=2).row(0, named=True)
    assert (row["interaction_pass_at_k_low"], row["interaction_pass_at_k_high"]) == (own.low, own.high)


def test_a_partial_tool_score_does_not_decide_a_trial() -> None:
    # without the judgment of utilisation a tool score can only be known to be wrong
    expected = [{"turn_index": 0, "tools": [{"name": "f"}]}]
    partial = {"turn_index": 0, "is_correct": False, "unknown_aspects": ["utilisation"]}
    found = trial_outcomes(inputs(expected, tools=[partial]))
    assert found.select("is_correct", "judge_failed").rows() == [(None, True)]
    whole = {"turn_index": 0, "is_correct": False, "unknown_aspects": []}
    assert trial_outcomes(inputs(expected, tools=[whole]))["is_correct"].to_list() == [False]


def test_a_partial_reward_of_a_harness_error_leaves_the_outcome_decided() -> None:
    rows = [("unknown", None, 0.4), ("harness_error", None, 0.4), ("failed", False, 0.4), (None, None, 0.4)]
    types = {"outcome_class": pl.String, "outcome_correct": pl.Boolean, "outcome_reward": pl.Float64}
    frame = pl.DataFrame(rows, schema=types, orient="row")
    assert frame.select(is_between_rewards()).to_series().to_list() == [True, False, False, True]
