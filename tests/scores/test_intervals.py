"""Intervals and tests: hand-derived cases, laws, and a small simulation; the whole table is in benchmarks/coverage.py."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from agent_eval.errors import AgentEvalError
from agent_eval.scores.statistics.intervals import (
    Interval,
    Sample,
    binomial_p,
    bounded_mean,
    holm,
    paired,
    scale_bound,
    share_mean,
    welch,
)

SCALE = (20.0, 100.0)
SCORES = st.lists(st.floats(20, 100), min_size=2, max_size=12)


def interval(sample: Sample | list[float], step: float = 4 / 3) -> Interval:
    """Of a mean on the scale; it has one."""
    found = bounded_mean(sample if isinstance(sample, Sample) else Sample.of(sample), bounds=SCALE, step=step)
    assert found
    return found


def test_an_interval_is_that_of_t_on_a_transform_of_the_share_of_the_scale() -> None:
    # mean 60 is half of the scale: log-odds x = 0; standard error 10/√4 = 5 points = 1/16 of the scale. There sinh(x/4)
    # grows by 1/4 per log-odd, that by 4 per share: ± 3.18/16, and e^x at its end is (e^asinh(3.18/16))^4
    end = 3.1824463 / 16
    odds = (end + math.sqrt(1 + end**2)) ** 4
    found = bounded_mean(Sample(4, 60.0, 10.0), bounds=SCALE, step=1.0)
    assert found == pytest.approx((20 + 80 / (1 + odds), 20 + 80 / (1 + 1 / odds)), abs=1e-5)


def test_one_value_has_no_interval() -> None:
    assert bounded_mean(Sample.of([80.0]), bounds=SCALE, step=1.0) is None
    assert share_mean(0.5, 0.0, 1, step=0.1) is None
    assert welch(Sample.of([80.0]), Sample.of([70.0, 71.0])).p_value is None


@pytest.mark.parametrize("value", [20.0, 60.0, 100.0])
def test_sessions_that_never_varied_are_not_certain(value: float) -> None:
    found = interval([value] * 5)
    assert found.high - found.low > 4 / 3 / 5
    assert SCALE[0] <= found.low <= value <= found.high <= SCALE[1]


@given(SCORES)
def test_an_interval_holds_its_mean_and_stays_on_the_scale(values: list[float]) -> None:
    found = interval(values)
    assert SCALE[0] <= found.low <= Sample.of(values).mean <= found.high <= SCALE[1] + 1e-9


@given(SCORES)
def test_the_mirrored_scale_has_the_mirrored_interval(values: list[float]) -> None:
    found, mirrored = interval(values, 1.0), interval([120 - v for v in values], 1.0)
    assert (120 - mirrored.high, 120 - mirrored.low) == pytest.approx(tuple(found), abs=1e-6)


def test_an_end_of_the_scale_has_the_bound_that_holds_for_any_values() -> None:
    # all at the top: a share q of sessions at the bottom leaves n sessions at the top with (1 − q)^n = 0.025
    for n in (2, 5, 8, 100):
        found = interval([100.0] * n)
        assert 20 + 80 * 0.025 ** (1 / n) <= found.low <= found.high == 100


@settings(max_examples=300)
@given(SCORES, st.floats(0, 80), st.floats(0, 1), st.sampled_from([0.1, 4 / 3, 5.0]))
def test_a_better_session_lowers_no_limit(
    values: list[float], raised: float, part: float, step: float
) -> None:
    before = interval(values, step).low
    first, *others = sorted(values)
    # as far as the mean of the others: beyond, the sessions move apart again
    nearer = [first + part * (sum(others) / len(others) - first), *others]
    shift = min(raised, 100 - max(values))
    for better in (nearer, [min(v + shift, 100.0) for v in values], [100.0] * len(values)):
        assert interval(better, step).low >= before - 1e-6


@given(st.integers(2, 30), st.floats(20, 100), st.floats(0, 30))
def test_an_interval_has_no_jumps(n: int, mean: float, deviation: float) -> None:
    one, other = (interval(Sample(n, m, deviation)) for m in (mean, max(20.0, mean - 1e-7)))
    assert other == pytest.approx(one, abs=1e-3)


@given(st.integers(2, 60), st.data())
def test_the_bound_of_the_scale_is_that_of_clopper_and_pearson(n: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, n))
    reference = stats.binomtest(c, n).proportion_ci(0.95, method="exact")
    assert scale_bound(c / n, n) == pytest.approx((reference.low, reference.high), abs=1e-9)


@given(st.integers(2, 60), st.data())
def test_single_trials_have_the_interval_of_jeffreys(n: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, n))
    values = [1.0] * c + [0.0] * (n - c)
    found = share_mean(c / n, float(np.var(values, ddof=1)), n, step=1)
    low, high = stats.beta.ppf([0.025, 0.975], c + 0.5, n - c + 0.5)
    assert found
    assert found == pytest.approx((min(low, c / n), max(high, c / n)), abs=1e-9)


@given(st.lists(st.sampled_from([0, 0.25, 0.5, 0.75, 1.0]), min_size=2, max_size=20))
def test_an_interval_of_shares_holds_its_mean_mirrors_and_narrows(values: list[float]) -> None:
    mean, variance, n = float(np.mean(values)), float(np.var(values, ddof=1)), len(values)
    given = ((mean, variance), (mean, variance / 2), (1 - mean, variance))
    wide, narrow, mirrored = (share_mean(m, v, n, step=0.25) or Interval(2, -1) for m, v in given)
    assert 0 <= wide.low <= mean <= wide.high <= 1
    assert narrow.high - narrow.low <= wide.high - wide.low + 1e-12
    assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx(tuple(wide), abs=1e-9)


def test_many_shares_of_little_variance_have_the_interval_of_t() -> None:
    found = share_mean(0.5, 0.05**2, 200, step=0.01)
    reach = 1.9719565 * 0.05 / math.sqrt(200)
    assert found == pytest.approx((0.5 - reach, 0.5 + reach), abs=1e-4)


def test_tasks_with_equal_shares_are_as_uncertain_as_with_half_a_trial_of_spread() -> None:
    # five tasks, 2 of 4 trials each; one trial more in one of them: variance (1/4)²/5
    found = share_mean(0.5, 0.0, 5, step=0.25)
    assert found == share_mean(0.5, 0.25**2 / 5 / 2, 5, step=0.25)
    assert found
    assert found.high - found.low > 0.1


@settings(max_examples=40)
@given(SCORES, SCORES)
def test_welch_agrees_with_scipy_and_mirrors(ours: list[float], theirs: list[float]) -> None:
    a, b = Sample.of(ours), Sample.of(theirs)
    found, turned = welch(a, b), welch(b, a)
    assume(min(a.deviation, b.deviation) > 1e-3)  # below, scipy warns of lost precision
    reference = stats.ttest_ind(ours, theirs, equal_var=False)
    assert found.p_value == pytest.approx(float(reference.pvalue), abs=1e-9)
    bounds = reference.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((float(bounds.low), float(bounds.high)), abs=1e-6)
    assert turned.p_value == found.p_value
    assert found.probability_better is not None
    assert turned.probability_better == pytest.approx(1 - found.probability_better)


@settings(max_examples=40)
@given(st.lists(st.integers(-3, 3), min_size=2, max_size=7))
def test_flipping_agrees_with_scipy(differences: list[int]) -> None:
    if not any(differences):
        assert paired([float(d) for d in differences])[:5] == (0, None, None, 1, 0.5)
        return
    reference = stats.permutation_test(
        (np.array(differences, dtype=float),), lambda x, axis: np.mean(x, axis=axis),
        permutation_type="samples", vectorized=True, n_resamples=10_000,
    )  # fmt: skip
    assert paired([float(d) for d in differences]).p_value == pytest.approx(float(reference.pvalue))


def test_many_tasks_are_tested_by_t() -> None:
    differences = [1.0, -0.5] * 15
    found = paired(differences)
    assert found.p_value == pytest.approx(float(stats.ttest_1samp(differences, 0).pvalue))


def test_the_same_difference_in_every_task_has_no_interval_but_a_p() -> None:
    assert paired([1.0] * 6)[:5] == (1.0, None, None, 2 / 64, None)
    assert paired([1.0])[:5] == (1.0, None, None, 1.0, None)
    assert paired([-1.0] * 20)[:5] == (-1.0, None, None, 2 / 2**20, None)


def test_nothing_common_gives_nothing() -> None:
    found = paired([])
    assert math.isnan(found.difference)
    assert set(found[1:]) == {None}


def test_holm_multiplies_by_the_tests_that_are_left() -> None:
    # 0.01 × 4; 0.02 × 3; 0.03 × 2 = 0.06 too; 0.04 × 1 = 0.04 is held at 0.06
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.04, None, 0.01]) == pytest.approx([0.04, None, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@given(st.integers(0, 60), st.data())
def test_the_sign_test_agrees_with_scipy(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    reference = float(stats.binomtest(k, n).pvalue) if n else 1.0
    assert binomial_p(k, n) == pytest.approx(reference, abs=1e-9)


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "1", True])
def test_what_is_no_number_is_refused_by_name(value: Any) -> None:
    with pytest.raises(AgentEvalError, match=f"Expected finite numbers, got {value!r}"):
        Sample.of([1.0, value])


def test_five_skewed_sessions_are_covered_about_95_times_in_100() -> None:
    # distances from the ceiling with a skewness of 1.2; a percentile bootstrap covers about 81 % here
    random = np.random.default_rng(5)
    draws = 100 - np.minimum(random.gamma(3, 4, (2000, 5)), 80)
    truth = 100.0 - 3 * 4
    found = [interval(row.tolist()) for row in draws]
    assert 0.93 <= np.mean([f.low <= truth <= f.high for f in found]) <= 0.97


def test_five_tasks_of_eight_trials_are_covered_about_95_times_in_100() -> None:
    # rates of tasks vary (correlation 0.3) around agents ~ Beta(3, 3): where Beta quantiles alone cover 92 %
    random = np.random.default_rng(5)
    agents = random.beta(3, 3, 4000)
    tasks = random.beta(agents[:, None] * 7 / 3, (1 - agents[:, None]) * 7 / 3, (4000, 5))
    shares = random.binomial(8, tasks) / 8
    found = [share_mean(float(row.mean()), float(row.var(ddof=1)), 5, step=1 / 8) for row in shares]
    held = [f is not None and f.low <= truth <= f.high for f, truth in zip(found, agents, strict=True)]
    assert 0.93 <= np.mean(held) <= 0.97


@pytest.mark.parametrize(
    ("refused", "named"),
    [
        (lambda: share_mean(math.nan, 0.1, 5, step=0.1), "mean is nan"),
        (lambda: share_mean(1.5, 0.1, 5, step=0.1), "mean is 1.5. Allowed: 0 to 1"),
        (lambda: share_mean(0.5, -0.1, 5, step=0.1), "variance is -0.1"),
        (lambda: share_mean(0.5, 0.1, 5, step=0), "step is 0. Allowed: above 0 and at most 1"),
        (lambda: bounded_mean(Sample(2, 120.0, 1.0), bounds=SCALE, step=1.0), "mean is 120.0. Allowed: 20 to 100"),
        (lambda: bounded_mean(Sample(2, 50.0, 1.0), bounds=SCALE, step=0.0), "step is 0.0"),
        (lambda: holm([0.5, math.nan]), "p value is nan"),
        (lambda: binomial_p(3, 2), "number of heads is 3. Allowed: 0 to 2"),
    ],
)  # fmt: skip
def test_numbers_that_make_no_interval_are_refused_by_name(refused: Callable[[], object], named: str) -> None:
    with pytest.raises(AgentEvalError, match=named):
        refused()
