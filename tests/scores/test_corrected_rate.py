"""Rates corrected for the judge's errors: a worked example, both uncertainties, refusals, and a simulation."""

import numpy as np
import pytest
from scipy.stats import binom

from agent_eval.errors import InvalidValueError
from agent_eval.scores.statistics.agreement import Pairs
from agent_eval.scores.statistics.corrected_rate import (
    Accuracy,
    CorrectedRate,
    DoubleSample,
    accuracy,
    accuracy_for_others,
    corrected_rate,
    double_sampled_rate,
)
from benchmarks.calibration import Design, of_another_agent, simulate

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
    assert 0 < width(labels_only) < width(both)
    assert 0 < width(rate_only) < width(both)


def test_a_rate_stays_within_0_and_1() -> None:
    assert corrected_rate(0.05, 0.0004, GOOD)[:2] == (0.0, 0.0)
    assert corrected_rate(1.0, 0.0, GOOD)[:3:2] == (1.0, 1.0)


CHANCE = Accuracy(0.5, 0.5, 0.004, 0.004, 0.0, 49)


@pytest.mark.parametrize("judge", [CHANCE, Accuracy(0.6, 0.55, 0.004, 0.004, 0.0, 49)])
def test_a_judge_at_chance_or_not_shown_to_be_better_is_refused(judge: Accuracy) -> None:
    found = corrected_rate(0.6, 0.001, judge)
    assert found[:3] == (None, None, None)
    assert "not shown to be better than chance" in (found.refused or "")
    worse_however_sure = Accuracy(0.2, 0.3, 0.0, 0.0, 0.0, 49)
    assert corrected_rate(0.6, 0.001, worse_however_sure).value is None


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
    with pytest.raises(InvalidValueError, match=r"The (rate|variance) is .*Allowed: "):
        corrected_rate(rate, variance, GOOD)


def test_intervals_hold_the_rate_of_an_agent_on_which_the_judge_errs_more_or_less_often() -> None:
    # `python -m benchmarks calibration` has all designs with 2,000 repetitions each
    found = simulate(Design(100, 0.3), 200, np.random.default_rng(3), of_another_agent)
    assert found.coverage >= 0.93
    assert 0 < found.refused < 0.5
    assert abs(found.bias) < 4 * found.error


def double_sample(
    judge: list[float],
    human: list[float],
    weights: list[float] | None = None,
    clusters: list[int] | None = None,
) -> DoubleSample:
    """Answers of equal shares; without weights all count alike."""
    n = len(judge)
    answers, given = (np.array(judge), np.array(human)), np.array(weights or [1.0] * n)
    return DoubleSample(*answers, np.full(n, 1 / n), given, clusters or list(range(n)))


def limits(found: CorrectedRate) -> tuple[float, float, float]:
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    return found.value, found.low, found.high


def width(found: CorrectedRate) -> float:
    _, low, high = limits(found)
    return high - low


# of 100 answers 60 pass; people pass 15 of 20 of these and 2 of 10 of the others
NONE = float("nan")
ANSWERS = [1.0] * 60 + [0.0] * 40
SAID = [1.0] * 15 + [0.0] * 5 + [NONE] * 40 + [1.0] * 2 + [0.0] * 8 + [NONE] * 30


def test_labels_of_the_same_conversations_correct_the_rate_by_hand() -> None:
    sample = double_sample(ANSWERS, SAID)
    found = double_sampled_rate(sample)
    # 0.6 · 15/20 + 0.4 · 2/10, which is the judge's 0.6 plus the weighted mean of (person − judge), −0.6 · 5/20 + 0.4 · 2/10
    assert found.value == pytest.approx(0.53)
    assert found.value == pytest.approx(0.6 - 0.6 * 5 / 20 + 0.4 * 2 / 10)
    # Tenenbein's variance: Σ A² p q / n + Σ A (p − rate)² / N
    error = (0.36 * 0.1875 / 20 + 0.16 * 0.16 / 10 + (0.6 * 0.22**2 + 0.4 * 0.33**2) / 100) ** 0.5
    assert width(found) / 2 == pytest.approx(1.96 * error, rel=0.06)
    assert sample.has_labels


def test_its_interval_is_that_of_redrawn_conversations() -> None:
    random, sample = np.random.default_rng(1), double_sample(ANSWERS, SAID)
    rates = []
    for _ in range(4_000):
        drawn = random.integers(100, size=100)
        judge, human = sample.judge[drawn], sample.human[drawn]
        rates.append(sum((judge == side).mean() * np.nanmean(human[judge == side]) for side in (0, 1)))
    found = double_sampled_rate(sample)
    assert (found.low, found.high) == pytest.approx(np.quantile(rates, (0.025, 0.975)), abs=0.02)


def test_weights_are_how_many_parts_a_label_represents() -> None:
    weights = [3.0] * 15 + [1.0] * 85
    found = double_sampled_rate(double_sample(ANSWERS, SAID, weights=weights))
    assert found.value == pytest.approx(0.6 * 45 / 50 + 0.4 * 0.2)


def test_if_all_parts_are_labelled_the_rate_is_that_of_the_labels_whatever_the_weights_of_their_sheets() -> (
    None
):
    truth = [1.0] * 4 + [0.0] * 16
    found = double_sampled_rate(double_sample([1.0] * 20, truth, [5.0] * 4 + [16 / 15] * 16))
    assert found.value == pytest.approx(0.2)


def test_turns_of_one_conversation_that_are_alike_widen_the_interval() -> None:
    # the same answers, five of each conversation
    apart, together = (
        double_sampled_rate(double_sample(ANSWERS, SAID, clusters=clusters))
        for clusters in (None, [i // 5 for i in range(100)])
    )
    assert width(together) > 1.5 * width(apart)


def test_labels_without_an_error_leave_a_rate_uncertain() -> None:
    human = [1.0] * 20 + [NONE] * 40 + [0.0] * 10 + [NONE] * 30
    found = double_sampled_rate(double_sample(ANSWERS, human))
    assert found.value == pytest.approx(0.6)
    # by the rate's own chance alone: 0.6 ± 0.097
    assert (found.low or 0) < 0.5
    assert (found.high or 0) > 0.7


def test_an_answer_of_the_judge_without_a_label_is_unknown() -> None:
    found = double_sampled_rate(double_sample(ANSWERS, SAID[:60] + [NONE] * 40))
    # 0.6 · 15/20, and of the other 0.4 none to all
    assert found.value == pytest.approx(0.45 + 0.2)
    assert (found.low or 1) < 0.45 - 0.6 * 0.1
    assert (found.high or 0) > 0.85 + 0.6 * 0.1


def test_labels_of_fewer_than_five_conversations_correct_nothing() -> None:
    found = double_sampled_rate(double_sample(ANSWERS, SAID, clusters=[0] * 60 + [1] * 40))
    assert found.value is None
    assert "fewer than 5 conversations" in (found.refused or "")


def test_labels_that_no_sheet_drew_decide_their_own_parts_only() -> None:
    # the judge passes 70 of 100; a team labels 7 of its 30 fails, all as passed
    judge, disputed = [1.0] * 70 + [0.0] * 30, [NONE] * 70 + [1.0] * 7 + [NONE] * 23
    assert not double_sample(judge, disputed, [NONE] * 100).has_labels
    drawn = [1.0 if i % 5 == 0 else NONE for i in range(70)] + [
        0.0 if i % 4 == 0 else NONE for i in range(23)
    ]
    human = drawn[:70] + [1.0] * 7 + drawn[70:]
    weights = [5.0] * 70 + [NONE] * 7 + [4.0] * 23
    found = double_sampled_rate(double_sample(judge, human, weights))
    assert found.value == pytest.approx(0.77)
    alone = double_sampled_rate(double_sample(judge, drawn[:70] + [NONE] * 7 + drawn[70:], weights))
    assert alone.value == pytest.approx(0.7)


def test_the_interval_includes_that_other_conversations_would_be_decided_otherwise() -> None:
    # 9 of 16 declared outcomes are passes, and people deny all 12 drawn of 14 passes of the judge
    declared, judged = [1.0] * 9 + [0.0] * 7, [1.0] * 14
    human, weights = (
        [*declared, *[0.0] * 12, np.nan, np.nan],
        [*[np.nan] * 16, *[14 / 12] * 12, np.nan, np.nan],
    )
    sample = DoubleSample(
        np.array(declared + judged), np.array(human), np.full(30, 1 / 30), np.array(weights), range(30)
    )
    found = double_sampled_rate(sample)
    assert found.value == pytest.approx(9 / 30)
    assert found.low is not None
    assert found.low < binom.ppf(0.05, 30, 9 / 30) / 30 + 0.02


def test_a_judge_of_any_kind_is_corrected_and_all_labels_are_their_own_rate() -> None:
    random = np.random.default_rng(9)
    for _ in range(200):
        truth = random.integers(2, size=12).astype(float)
        judge = np.where(random.random(12) < random.random(), truth, 1 - truth)
        found = double_sampled_rate(double_sample(judge.tolist(), truth.tolist()))
        value, low, high = limits(found)
        assert value == pytest.approx(truth.mean())
        assert 0 <= low <= value <= high <= 1
        # the same with both answers named the other way round
        mirrored = double_sampled_rate(double_sample((1 - judge).tolist(), (1 - truth).tolist()))
        assert limits(mirrored) == pytest.approx((1 - value, 1 - high, 1 - low), abs=1e-6)


@pytest.mark.parametrize("answer", [0.0, 1.0])
def test_labels_that_are_all_equal_leave_a_rate_uncertain_whatever_the_shares(answer: float) -> None:
    # the limit by Wilson of 15 of 15 is 0.796; here two answers have 13 and 2 labels
    for n in range(13, 59):
        human = [answer] * 13 + [NONE] * (n - 13) + [answer] * 2 + [NONE] * (58 - n)
        found = double_sampled_rate(double_sample([1.0] * n + [0.0] * (60 - n), human))
        assert 0.2 < width(found) < 0.6


def test_neither_end_of_the_interval_is_missed_in_more_than_5_percent_of_samples() -> None:
    n, rates, missed = 30, np.arange(0.01, 1, 0.01), np.zeros((2, 99))
    for x in range(n + 1):
        human = [1.0] * x + [0.0] * (n - x) + [NONE] * 100
        _, low, high = limits(double_sampled_rate(double_sample([1.0] * (n + 100), human)))
        missed += binom.pmf(x, n, rates) * np.array([low > rates, high < rates])
    assert missed.max() <= 0.05


def test_accuracy_for_other_agents_is_as_uncertain_as_agents_differ() -> None:
    one, other = Accuracy(0.75, 0.9, 0.001, 0.002, 0.0, 30), Accuracy(0.85, 0.9, 0.001, 0.004, 0.0, 30)
    assert accuracy_for_others([one]) is None
    found = accuracy_for_others([one, other])
    assert found is not None
    assert found[:2] == pytest.approx((0.8, 0.9))
    # (0.1² / 2) (1 + 1/2), and the mean variance of the labels where agents do not differ
    assert found[2:4] == pytest.approx((0.005 * 1.5, 0.003 * 1.5))
    assert found.freedom == 1
    assert corrected_rate(0.6, 0.001, found).value is None


@pytest.mark.parametrize(
    "design",
    [
        Design(60, 0.3, 0.7, 0.8),
        Design(60, 0.3, is_halved=False, turns=5, correlation=0.3),
        Design(20, 0.1, 0.3, 0.3),
    ],
)
def test_intervals_by_labels_of_the_same_conversations_hold_the_truth(design: Design) -> None:
    found = simulate(design, 300, np.random.default_rng(3))
    assert 0.91 <= found.coverage <= 0.985
    assert abs(found.bias) < 4 * found.error
