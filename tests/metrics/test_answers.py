"""An answer fits its metric, or the reason says what is allowed."""

import dataclasses

import pytest

from agent_eval.metrics.answers import most_severe_first, why_unfit
from agent_eval.metrics.base import SEVERITIES, Measured, Metric
from agent_eval.metrics.builtin.agent_behavior_failure import AGENT_BEHAVIOR_FAILURE as FAILURE
from agent_eval.metrics.builtin.answer_correctness import ANSWER_CORRECTNESS, STRICTNESS, is_correct
from agent_eval.metrics.builtin.goal_completion import GOAL_COMPLETION
from agent_eval.metrics.builtin.helpfulness import HELPFULNESS

REAL = dataclasses.replace(HELPFULNESS, name="effort", minimum=-1.5, maximum=10.0)


def labels(label: str, *further: str) -> Measured:
    return Measured("x", label=label, further_labels=further)


@pytest.mark.parametrize(
    ("metric", "given", "says"),
    [
        (HELPFULNESS, Measured("x", rating_1to5=1), None),
        (HELPFULNESS, Measured("x", rating_1to5=5), None),
        (REAL, Measured("x", value=-1.5), None),
        (REAL, Measured("x", value=9.25), None),
        (ANSWER_CORRECTNESS, Measured("x", value=0.5), None),
        (GOAL_COMPLETION, Measured("x", value=0), None),
        (FAILURE, labels("repetition", "unsafe state"), None),
        (HELPFULNESS, Measured("x", rating_1to5=6), "6; allowed: 1 to 5"),
        (HELPFULNESS, Measured("x", value=3.0), "value; helpfulness has a rating_1to5"),
        (HELPFULNESS, Measured("x"), "nothing; helpfulness has a rating_1to5"),
        (HELPFULNESS, Measured("x", rating_1to5=3, label="good"), "rating_1to5 and label"),
        (HELPFULNESS, Measured("x", rating_1to5=3, further_labels=("a",)), "only labels have them"),
        (HELPFULNESS, Measured("x", rating_1to5=True), "True; allowed: a number"),
        (REAL, Measured("x", value=10.5), "10.5; allowed: -1.5 to 10"),
        (REAL, Measured("x", value=float("nan")), "nan; allowed: a number"),
        (GOAL_COMPLETION, Measured("x", value=0.5), "0.5; allowed: whole numbers from 0 to 1"),
        (FAILURE, labels("bad"), "the label 'bad'; allowed: no failure, repetition"),
        (FAILURE, labels("repetition", "repetition"), "a label twice"),
        (FAILURE, labels("no failure", "repetition"), "beside a failure"),
    ],
)
def test_an_answer_fits_its_metric_or_the_reason_says_what_is_allowed(
    metric: Metric, given: Measured, says: str | None
) -> None:
    found = why_unfit(metric, given)
    assert found is None if says is None else says in (found or "")


def test_an_answer_is_correct_from_the_threshold_on_and_equality_passes() -> None:
    assert is_correct(0.7)
    assert is_correct(0.7 - 1e-12)
    assert not is_correct(0.69)
    assert [is_correct(0.75, at) for at in STRICTNESS.values()] == [True, True, False, False]


def test_the_most_severe_label_is_first_and_equals_keep_their_order() -> None:
    listed = (*FAILURE.labels, *FAILURE.labels[::-1])
    ranks = {label: -SEVERITIES.index(FAILURE.severity_of(label)) for label in listed}
    assert len({*ranks.values()}) > 2
    for labels in (listed, listed[::-1]):
        assert most_severe_first(FAILURE, labels) == tuple(
            sorted(dict.fromkeys(labels), key=ranks.__getitem__)
        )
