"""The posterior for new tasks of the kind that was run: against sampling from the prior, laws, and its coverage."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from scipy.special import betaln

from agent_eval.errors import AgentEvalError
from agent_eval.scores.reliability.hierarchical import posterior_of_new_tasks

TASKS = st.dictionaries(
    st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))),
    st.integers(1, 5),
    min_size=1,
    max_size=5,
)


def drawn(tasks: dict[tuple[int, int], int], k: int) -> tuple[float, float, float]:
    """Mean and interval of pass^k by weighting 400,000 draws from the prior: another path than the grid."""
    random, size = np.random.default_rng(0), 400_000
    mean, kind = random.beta(0.5, 0.5, size), random.integers(0, 3, size)
    spread = 1 / random.uniform(1e-9, 1, size) - 1
    a, b = np.maximum(mean * spread, 1e-300), np.maximum((1 - mean) * spread, 1e-300)
    logs: NDArray[np.float64] = np.zeros(size)
    for (n, c), times in tasks.items():
        alike = stats.binom.logpmf(c, n, mean) - math.log(math.comb(n, c))
        always = np.log(mean) if c == n else np.log(1 - mean) if c == 0 else np.full(size, -np.inf)
        between = betaln(a + c, b + n - c) - betaln(a, b)
        logs += times * np.choose(kind, [alike, between, always])
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    values = np.choose(kind, [mean**k, np.exp(betaln(a + k, b) - betaln(a, b)), mean])
    order = np.argsort(values)
    low, high = np.interp([0.025, 0.975], np.cumsum(weights[order]), values[order])
    return float(weights @ values), float(low), float(high)


@pytest.mark.parametrize(
    ("tasks", "k"),
    [
        ({(1, 1): 20}, 1),
        ({(1, 1): 17, (1, 0): 3}, 1),
        ({(4, 4): 4, (4, 0): 1}, 4),
        ({(4, 4): 2, (4, 3): 2, (4, 2): 1}, 2),
        ({(2, 2): 6, (2, 1): 3, (2, 0): 1}, 2),
        ({(4, 1): 3, (2, 1): 2, (1, 1): 1}, 2),
    ],
)
def test_the_grid_agrees_with_draws_from_the_prior(tasks: dict[tuple[int, int], int], k: int) -> None:
    found = posterior_of_new_tasks(tasks, k).pass_hat_k
    assert (found.mean, found.low, found.high) == pytest.approx(drawn(tasks, k), abs=5e-3)


@given(st.integers(2, 40), st.data())
def test_single_trials_have_the_posterior_of_jeffreys(n: int, data: st.DataObject) -> None:
    # with one trial of each task nothing is seen of how trials go together
    c = data.draw(st.integers(0, n))
    found = posterior_of_new_tasks({(1, 1): c, (1, 0): n - c}, 1).pass_hat_k
    beta = stats.beta(c + 0.5, n - c + 0.5)
    limits = min(beta.ppf(0.025), found.mean), max(beta.ppf(0.975), found.mean)
    assert (found.mean, found.low, found.high) == pytest.approx((beta.mean(), *limits), abs=4e-3)


def test_twenty_of_twenty_are_not_two_thirds() -> None:
    # Jeffreys: 20.5 / 21
    assert posterior_of_new_tasks({(1, 1): 20}, 1).pass_hat_k.mean == pytest.approx(20.5 / 21, abs=1e-4)


@settings(max_examples=40, deadline=None)
@given(TASKS, st.integers(1, 6))
def test_the_posterior_is_ordered_mirrored_and_falls_with_k(
    tasks: dict[tuple[int, int], int], k: int
) -> None:
    k = min(k, max(n for n, _ in tasks))
    found = posterior_of_new_tasks(tasks, k)
    for estimate in (found.pass_at_k, found.pass_hat_k):
        assert 0 <= estimate.low <= estimate.mean <= estimate.high <= 1
    assert found.pass_hat_k.mean <= found.pass_at_k.mean + 1e-9
    mirrored = posterior_of_new_tasks({(n, n - c): times for (n, c), times in tasks.items()}, k)
    assert mirrored.pass_at_k.mean == pytest.approx(1 - found.pass_hat_k.mean, abs=1e-6)
    if k > 1:
        fewer = posterior_of_new_tasks(tasks, k - 1)
        assert found.pass_hat_k.mean <= fewer.pass_hat_k.mean + 1e-9
        assert found.pass_at_k.mean >= fewer.pass_at_k.mean - 1e-9


def test_more_attempts_than_trials_are_refused_with_the_reason() -> None:
    with pytest.raises(
        AgentEvalError, match=r"k is 2, but no task has more than 1 known trials: .* not identified"
    ):
        posterior_of_new_tasks({(1, 1): 5, (1, 0): 5}, 2)
    with pytest.raises(AgentEvalError, match="k is 1, but no task has more than 0"):
        posterior_of_new_tasks({}, 1)


@pytest.mark.parametrize(
    ("n_tasks", "trials", "rate"), [(20, 1, 0.9), (10, 2, 0.8), (6, 4, 0.6), (5, 4, 0.7)]
)
def test_equally_hard_tasks_are_covered(n_tasks: int, trials: int, rate: float) -> None:
    random = np.random.default_rng(5)
    held, of = 0, 1000
    for row in random.binomial(trials, rate, (of, n_tasks)):
        counts = Counter((trials, int(c)) for c in row)
        found = posterior_of_new_tasks(counts, 1).pass_hat_k
        held += found.low <= rate <= found.high
    assert 0.93 <= held / of <= 0.985
