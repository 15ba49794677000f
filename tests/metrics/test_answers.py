"""An answer fits its metric, or the reason says what is allowed."""

import dataclasses

import pytest

from agent_eval.metrics.answers import why_unfit
from agent_eval.metrics.base import Measured, Metric
from agent_eval.metrics.builtin.agent_behavior_failure import AGENT_BEHAVIOR_FAILURE
from agent_eval.metrics.builtin.answer_correctness import ANSWER_CORRECTNESS, STRICTNESS, is_correct
from agent_eval.metrics.builtin.goal_completion import GOAL_COMPLETION
from agent_eval.metrics.builtin.helpfulness import HELPFULNESS

REAL = dataclasses.replace(HELPFULNESS, name="effort", minimum=-1.5, maximum=10.0)


@pytest.mark.parametrize(
    ("metric", "given"),
    [
        (HELPFULNESS, Measured("x", rating_1to5=1)),
        (HELPFULNESS, Measured("x", rating_1to5=5)),
        (REAL, Measured("x", value=-1.5)),
        (REAL, Measured("x", value=9.25)),
        (ANSWER_CORRECTNESS, Measured("x", value=0.5)),
        (GOAL_COMPLETION, Measured("x", value=0)),
        (AGENT_BEHAVIOR_FAILURE, Measured("x", label="repetition", further_labels=("unsafe state",))),
    ],
)
def test_an_answer_on_the_scale_fits(metric: Metric, given: Measured) -> None:
    assert why_unfit(metric, given) is None


@pytest.mark.parametrize(
    ("metric", "given", "says"),
    [
        (HELPFULNESS, Measured("x", rating_1to5=6), "6; allowed: 1 to 5"),
        (HELPFULNESS, Measured("x", value=3.0), "value; helpfulness has a rating_1to5"),
        (HELPFULNESS, Measured("x"), "nothing; helpfulness has a rating_1to5"),
        (HELPFULNESS, Measured("x", rating_1to5=3, label="good"), "rating_1to5 and label"),
        (HELPFULNESS, Measured("x", rating_1to5=3, further_labels=("a",)), "only labels have them"),
        (HELPFULNESS, Measured("x", rating_1to5=True), "True; allowed: a number"),
        (REAL, Measured("x", value=10.5), "10.5; allowed: -1.5 to 10"),
        (REAL, Measured("x", value=float("nan")), "nan; allowed: a number"),
        (GOAL_COMPLETION, Measured("x", value=0.5), "0.5; allowed: whole numbers from 0 to 1"),
        (
            AGENT_BEHAVIOR_FAILURE,
            Measured("x", label="bad"),
            "the label 'bad'; allowed: no failure, repetition",
        ),
        (
            AGENT_BEHAVIOR_FAILURE,
            Measured("x", label="repetition", further_labels=("repetition",)),
            "a label twice",
        ),
        (
            AGENT_BEHAVIOR_FAILURE,
            Measured("x", label="no failure", further_labels=("repetition",)),
            "beside a failure",
        ),
    ],
)
def test_an_answer_off_the_scale_is_named_with_what_is_allowed(
    metric: Metric, given: Measured, says: str
) -> None:
    assert says in (why_unfit(metric, given) or "")


def test_an_answer_is_correct_from_the_threshold_on_and_equality_passes() -> None:
    assert is_correct(0.7)
    assert is_correct(0.7 - 1e-12)
    assert not is_correct(0.69)
    assert [is_correct(0.75, at) for at in STRICTNESS.values()] == [True, True, False, False]
