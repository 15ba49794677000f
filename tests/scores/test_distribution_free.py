"""What holds for any spread: the interval against sampling, laws, and verdicts that unseen sessions could make."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from agent_eval.errors import AgentEvalError
from agent_eval.scores.statistics.compare import compare
from agent_eval.scores.statistics.distribution_free import (
    any_spread_mean,
    has_breakdown,
    unseen_points,
    unseen_share,
)
from tests.scores.test_compare import NO_TASKS, of_sessions

SCALE = (20.0, 100.0)
SCORES = st.lists(st.floats(20, 100), min_size=2, max_size=12)


@pytest.mark.parametrize(
    "values", [[80.0] * 5, [50.0, 84, 85, 86, 88], [100.0, 20, 20], list(range(30, 90, 3))]
)
def test_the_limits_are_quantiles_of_a_mean_with_drawn_weights(values: list[float]) -> None:
    random = np.random.default_rng(4)
    weights = random.dirichlet(np.ones(len(values) + 1), 400_000)
    expected = [
        float(np.quantile(weights @ np.array([*values, end]), tail))
        for end, tail in ((20, 0.025), (100, 0.975))
    ]
    assert any_spread_mean(values, SCALE) == pytest.approx(expected, abs=0.3)


@given(st.integers(2, 40), st.data())
def test_values_at_the_ends_have_the_limits_of_clopper_and_pearson(n: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, n))
    reference = stats.binomtest(c, n).proportion_ci(0.95, method="exact")
    found = any_spread_mean([1.0] * c + [0.0] * (n - c), (0, 1))
    assert found == pytest.approx((reference.low, reference.high), abs=1e-5)


@settings(max_examples=60)
@given(SCORES, st.data())
def test_a_higher_value_never_lowers_a_limit(values: list[float], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(values) - 1))
    raised = [data.draw(st.floats(v, 100)) if i == place else v for i, v in enumerate(values)]
    before, after = any_spread_mean(values, SCALE), any_spread_mean(raised, SCALE)
    assert before
    assert after
    assert SCALE[0] <= before.low <= np.mean(values) + 1e-9
    assert after.low >= before.low - 1e-4
    assert after.high >= before.high - 1e-4


def test_one_value_has_none_and_one_off_the_scale_is_refused() -> None:
    assert any_spread_mean([80.0], SCALE) is None
    with pytest.raises(AgentEvalError, match="value is 101"):
        any_spread_mean([80.0, 101.0], SCALE)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([85.0, 86, 84, 50], True),
        ([85.0, 86, 84, 50, 52, 83, 87], True),  # two of seven
        ([85.0, 86, 84, 76], False),  # 8 points
        ([95.0, 80, 84, 68], False),  # the others are 15 apart
        ([50.0, 85], False),  # which of the two is the usual one is not seen
        ([50.0, 51, 85, 86], False),
    ],
)
def test_a_breakdown_is_a_minority_far_below_all_others(values: list[float], expected: bool) -> None:
    assert has_breakdown(values) is expected


def test_few_sessions_miss_one_breakdown_in_ten_and_many_less() -> None:
    assert unseen_share(5) == 0.1
    assert (1 - unseen_share(100)) ** 100 == pytest.approx(0.05)
    assert unseen_points((90, 5), (80, 5), SCALE) == pytest.approx(7)


def only(**values: list[float]) -> dict[str, Any]:
    return compare("a", "b", of_sessions(**values), NO_TASKS).row(0, named=True)


def test_a_difference_that_unseen_sessions_could_make_is_unknown_with_the_reason() -> None:
    found = only(a=[85.0, 85.2, 84.8, 85.1, 84.9], b=[81.5, 81.4, 81.6, 81.5, 81.5])
    assert found["p_value"] < 1e-4
    assert found["verdict"] == "unknown"
    # a tenth of the 65 points above the end of the scale
    assert "10 % of them unseen can be worth 6.5 points" in found["reason"]
    assert only(a=[95.0, 95.2, 94.8], b=[81.5, 81.4, 81.6])["verdict"] == "a better"
    steady = compare(
        "a", "b", of_sessions(a=[85.0, 85.2, 84.8], b=[81.5, 81.4, 81.6]), NO_TASKS, interval="t"
    )
    assert steady["verdict"].item() == "a better"
