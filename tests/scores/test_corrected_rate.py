"""Rates corrected for the judge's errors: a worked example, both uncertainties, refusals, and a simulation."""

import numpy as np
import pytest

from agent_eval.scores.statistics.agreement import Pairs
from agent_eval.scores.statistics.corrected_rate import Accuracy, accuracy, corrected_rate
from agent_eval.scores.statistics.intervals import OutOfRangeError
from benchmarks.calibration import Design, simulate

EXACT = Accuracy(0.9, 0.8, 0.0, 0.0, 0.0, 49)
GOOD = Accuracy(0.9, 0.8, 0.003, 0.004, 0.0, 49)
# people pass 30 of 50, the judge 26 of these and 3 of the others
LABELS = Pairs([1] * 26 + [0] * 4 + [0] * 17 + [1] * 3, [1] * 30 + [0] * 20, range(50))


def test_a_rate_is_corrected_as_by_hand() -> None:
    # (0.66 + 0.8 − 1) / (0.9 + 0.8 − 1) = 0.46 / 0.7
    assert corrected_rate(0.66, 0.0, EXACT)[:3] == pytest.approx([0.46 / 0.7] * 3)


def test_the_rate_and_its_label_uncertainty_are_those_of_judgy() -> None:
    # judgy 0.1.0 on these labels and 60 of 100 passes: 0.6279 (0.484 to 0.778) by 20,000 bootstrap replicates
    found = corrected_rate(0.6, 0.0, accuracy(LABELS, 1))
    assert found.value == pytest.approx((0.6 + 17 / 20 - 1) / (26 / 30 + 17 / 20 - 1))
    assert (found.low, found.high) == pytest.approx((0.484, 0.778), abs=0.02)


def test_both_uncertainties_widen_the_interval() -> None:
    labels_only, rate_only, both = (
        corrected_rate(0.66, variance, judge)
        for variance, judge in ((0, GOOD), (0.002, EXACT), (0.002, GOOD))
    )
    widths = [(r.high or 0) - (r.low or 0) for r in (labels_only, rate_only, both)]
    assert 0 < widths[0] < widths[2]
    assert 0 < widths[1] < widths[2]


def test_a_rate_stays_within_0_and_1() -> None:
    assert corrected_rate(0.05, 0.0004, GOOD)[:2] == (0.0, 0.0)
    assert corrected_rate(1.0, 0.0, GOOD)[::2] == (1.0, 1.0)


@pytest.mark.parametrize(
    "judge", [Accuracy(0.5, 0.5, 0.004, 0.004, 0.0, 49), Accuracy(0.6, 0.55, 0.004, 0.004, 0.0, 49)]
)
def test_a_judge_at_chance_or_not_shown_to_be_better_is_refused(judge: Accuracy) -> None:
    found = corrected_rate(0.6, 0.001, judge)
    assert found[:3] == (None, None, None)
    assert "not shown to be better than chance" in (found.refused or "")


def test_a_judge_worse_than_chance_is_refused_however_sure() -> None:
    assert corrected_rate(0.6, 0.001, Accuracy(0.2, 0.3, 0.0, 0.0, 0.0, 49)).value is None


def test_accuracy_needs_labels_of_both_kinds_in_five_conversations() -> None:
    assert accuracy(Pairs([1] * 30, [1] * 30, range(30)), 1) is None
    assert accuracy(Pairs([1, 0] * 15, [1, 0] * 15, [i // 8 for i in range(30)]), 1) is None
    assert "too few labels" in (corrected_rate(0.6, 0.001, None).refused or "")


def test_labels_without_an_error_leave_the_judge_uncertain() -> None:
    found = accuracy(Pairs([1, 0] * 15, [1, 0] * 15, range(30)), 1)
    assert found is not None
    assert found[:2] == (1.0, 1.0)
    # one label more, half of it wrong: p = 15.5 / 16
    assert found.variance_sensitivity == pytest.approx(15.5 / 16 * 0.5 / 16 / 16)


def test_strata_of_a_small_population_have_uncertain_sizes() -> None:
    # sensitivity = q v / (q v + (1 − q) u), by the share q of parts that the judge passes: here q = 1/2, v = 2/3,
    # u = 1/3, so that it is 2/3 with the slope v u / (q v + (1 − q) u)² = 8/9 by q, whose variance is 1 / 4 N
    judge, human = [1] * 30 + [0] * 30, ([1] * 20 + [0] * 10) + ([1] * 10 + [0] * 20)
    few, many = (accuracy(Pairs(judge, human, range(60), [n / 60] * 60, judge), 1) for n in (120, 1e12))
    assert few is not None
    assert many is not None
    added = few.variance_sensitivity - many.variance_sensitivity
    assert added == pytest.approx((8 / 9) ** 2 / 4 / 120, rel=0.1)  # the label more has a part in both


@pytest.mark.parametrize(("rate", "variance"), [(1.2, 0.0), (0.5, -1.0)])
def test_a_rate_that_is_none_is_refused(rate: float, variance: float) -> None:
    with pytest.raises(OutOfRangeError):
        corrected_rate(rate, variance, GOOD)


def test_intervals_of_a_stratified_sample_hold_the_truth() -> None:
    # `python -m benchmarks calibration` has all designs with 2,000 repetitions each
    found = simulate(Design(100, 0.3), 200, np.random.default_rng(3))
    assert 0.90 <= found.coverage <= 0.99
    assert abs(found.bias) < 4 * found.error
