"""The posterior of pass@k and pass^k: against integration, enumeration and the figures of the methodology."""

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from agent_eval.errors import AgentEvalError
from agent_eval.scores.reliability.pass_rates import interaction_pass_at_k, pass_at_k, pass_hat_k, posterior


@st.composite
def counts(draw: st.DrawFn) -> tuple[int, int, int]:
    n = draw(st.integers(1, 30))
    return n, draw(st.integers(0, n)), draw(st.integers(1, 10))


@settings(max_examples=60)
@given(counts(), st.sampled_from([(1.0, 1.0), (0.5, 0.5), (2.0, 5.0)]))
def test_means_equal_plain_integration(trials: tuple[int, int, int], prior: tuple[float, float]) -> None:
    n, c, k = trials
    a, b = prior[0] + c, prior[1] + n - c
    # Gauss and Jacobi: nodes and weights for the density p^(a−1) (1−p)^(b−1), which holds all of the trials
    nodes, weights = special.roots_jacobi(24, b - 1, a - 1)
    p, weights = (nodes + 1) / 2, weights / weights.sum()
    found = posterior(n, c, k, prior=prior)
    assert found.pass_hat_k.mean == pytest.approx(float(weights @ p**k), abs=1e-9)
    assert found.pass_at_k.mean == pytest.approx(float(weights @ (1 - (1 - p) ** k)), abs=1e-9)


@settings(max_examples=60)
@given(counts(), st.sampled_from([0.5, 0.9, 0.95]))
def test_the_interval_is_that_of_the_rate_transformed(trials: tuple[int, int, int], level: float) -> None:
    n, c, k = trials
    low, high = stats.beta.ppf([0.5 - level / 2, 0.5 + level / 2], 1 + c, 1 + n - c)
    found = posterior(n, c, k, level=level)
    assert (found.pass_hat_k.low, found.pass_hat_k.high) == pytest.approx((low**k, high**k), abs=1e-9)
    at = (1 - (1 - low) ** k, 1 - (1 - high) ** k)
    assert (found.pass_at_k.low, found.pass_at_k.high) == pytest.approx(at, abs=1e-9)


@given(counts())
def test_the_posterior_is_ordered_and_monotone(trials: tuple[int, int, int]) -> None:
    n, c, k = trials
    found, more = posterior(n, c, k), posterior(n, c, k + 1)
    for part in (found.pass_at_k, found.pass_hat_k):
        assert 0 <= part.low <= part.high <= 1
        assert 0 <= part.mean <= 1
    assert found.pass_hat_k.mean <= (1 + c) / (2 + n) + 1e-12 <= found.pass_at_k.mean + 2e-12
    assert more.pass_hat_k.mean <= found.pass_hat_k.mean
    assert more.pass_at_k.mean >= found.pass_at_k.mean
    if c < n:
        assert posterior(n, c + 1, k).pass_hat_k.mean > found.pass_hat_k.mean
        assert posterior(n, c + 1, k).pass_at_k.mean > found.pass_at_k.mean
    one = posterior(n, c, 1)
    assert vars(one.pass_at_k) == pytest.approx(vars(one.pass_hat_k))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_unbiased_estimates_average_to_the_truth(k: int) -> None:
    # every outcome of four trials at p = 0.3, with its probability
    p, n = 0.3, 4
    outcomes = list(itertools.product([0, 1], repeat=n))
    chances = [math.prod(p if right else 1 - p for right in outcome) for outcome in outcomes]
    hat = sum(q * pass_hat_k(n, sum(o), k) for q, o in zip(chances, outcomes, strict=True))
    at = sum(q * pass_at_k(n, sum(o), k) for q, o in zip(chances, outcomes, strict=True))
    assert hat == pytest.approx(p**k, abs=1e-12)
    assert at == pytest.approx(1 - (1 - p) ** k, abs=1e-12)
    if k > 1:  # the plug-in does not
        plug_in = [pass_hat_k(n, sum(o), k, estimator="plug_in") for o in outcomes]
        assert sum(q * value for q, value in zip(chances, plug_in, strict=True)) > p**k + 0.01


def test_interactions_have_their_own_name_and_the_plug_in() -> None:
    found = interaction_pass_at_k(5, 4, 3)
    assert found.interaction_pass_at_k == pytest.approx(1 - 0.2**3)
    assert found.interaction_pass_hat_k == pytest.approx(0.8**3)
    assert not hasattr(found, "pass_at_k")


@pytest.mark.parametrize(
    ("n", "c", "k", "more", "named"),
    [
        (0, 0, 1, {}, "n is 0"),
        (3, 4, 1, {}, "c is 4, but n is 3"),
        (3, 1, 0, {}, "k is 0"),
        (3, 1.0, 1, {}, r"c is 1\.0"),
        (3, 1, 1, {"prior": (0, 1)}, r"prior is \(0, 1\)"),
        (3, 1, 1, {"prior": (math.nan, 1)}, r"prior is \(nan, 1\)"),
        (3, 1, 1, {"prior": (1,)}, r"prior is \(1,\)"),
        (3, 1, 1, {"prior": ("1", 1)}, "prior is"),
        (3, 1, 1, {"level": 1}, "level is 1"),
        (3, 1, 1, {"level": math.nan}, "level is nan"),
    ],
)
def test_impossible_numbers_are_refused_by_name(n: Any, c: Any, k: Any, more: Any, named: str) -> None:
    with pytest.raises(AgentEvalError, match=named):
        posterior(n, c, k, **more)
