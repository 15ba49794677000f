"""The posterior for new tasks of the kind that was run: against sampling from the prior, laws, and its coverage."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from scipy.special import betaln

from agent_eval.errors import AgentEvalError
from agent_eval.scores.reliability.hierarchical import posterior_of_new_tasks
from benchmarks.exact_coverage import coverage

TASKS = st.dictionaries(
    st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))),
    st.integers(1, 5),
    min_size=1,
    max_size=5,
)


def drawn(tasks: dict[tuple[int, int], int], k: int) -> tuple[float, float, float]:
    """Mean and interval of pass^k by weighting 400,000 draws from the prior: another path than the grid."""
    random, size = np.random.default_rng(0), 400_000
    mean, kind = random.beta(0.7, 0.7, size), random.choice(3, size, p=[0.4, 0.2, 0.4])
    spread = 1 / random.uniform(1e-9, 1, size) - 1
    a, b = np.maximum(mean * spread, 1e-300), np.maximum((1 - mean) * spread, 1e-300)
    easy, slips, guesses = (random.uniform(0, most, size) for most in (1, 0.03, 0.03))
    logs: NDArray[np.float64] = np.zeros(size)
    for (n, c), times in tasks.items():
        alike = stats.binom.logpmf(c, n, mean) - math.log(math.comb(n, c))
        between = betaln(a + c, b + n - c) - betaln(a, b)
        two = np.log(
            easy * (1 - slips) ** c * slips ** (n - c) + (1 - easy) * guesses**c * (1 - guesses) ** (n - c)
        )
        logs += times * np.choose(kind, [alike, between, two])
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    of_kinds = easy * (1 - slips) ** k + (1 - easy) * guesses**k
    values = np.choose(kind, [mean**k, np.exp(betaln(a + k, b) - betaln(a, b)), of_kinds])
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


@pytest.mark.parametrize(("c", "n"), [(20, 20), (3, 7), (0, 2), (39, 40)])
def test_single_trials_have_the_posterior_of_the_mean_alone(c: int, n: int) -> None:
    # with one trial of each task nothing is seen of how trials go together; prior by quadrature, slips being few
    rates = (np.arange(200_000) + 0.5) / 200_000
    prior = 0.6 * stats.beta(0.7, 0.7).pdf(rates) + 0.4 * stats.uniform(0.015, 0.97).pdf(rates)
    weights = prior * rates**c * (1 - rates) ** (n - c)
    below = np.cumsum(weights) / weights.sum()
    found = posterior_of_new_tasks({(1, 1): c, (1, 0): n - c}, 1).pass_hat_k
    expected = (float(weights @ rates / weights.sum()), *np.interp([0.025, 0.975], below, rates))
    assert (found.mean, found.low, found.high) == pytest.approx(expected, abs=6e-3)


@settings(max_examples=40, deadline=None)
@example({(1, 1): 5, (3, 3): 5, (4, 0): 1, (4, 3): 5}, 1)
@given(TASKS, st.integers(1, 6))
def test_the_posterior_is_ordered_mirrored_and_monotone(tasks: dict[tuple[int, int], int], k: int) -> None:
    k = min(k, max(n for n, _ in tasks))
    found = posterior_of_new_tasks(tasks, k)
    for estimate in (found.pass_at_k, found.pass_hat_k):
        assert 0 <= estimate.low <= estimate.mean <= estimate.high <= 1
    assert found.pass_hat_k.mean <= found.pass_at_k.mean + 1e-9
    mirrored = posterior_of_new_tasks({(n, n - c): times for (n, c), times in tasks.items()}, k)
    assert mirrored.pass_at_k.mean == pytest.approx(1 - found.pass_hat_k.mean, abs=1e-5)
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


def test_equal_and_mixed_tasks_are_covered_by_exact_count() -> None:
    # ten tasks of two trials have 66 samples; the interval of the beta-binomial alone covers 88.8 % of "80 % easy"
    held = coverage(10, 2, 2)
    assert min(held) >= 0.925
    assert max(held) <= 0.985


def test_tasks_that_are_all_hard_so_far_leave_room_for_easy_ones() -> None:
    # six of six hard, one lucky trial: 30 % easy tasks are missed by six tasks in one sample of nine
    assert posterior_of_new_tasks({(4, 0): 5, (4, 1): 1}, 1).pass_hat_k.high > 0.3 * 0.98 + 0.7 * 0.02
