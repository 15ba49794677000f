"""The posterior of pass@k and pass^k for new tasks of the kind that was run: success rates that differ from task to task.

Beta-binomial: the success rate of a task is drawn from a Beta distribution with mean m and intraclass correlation r
(the share of an outcome's variance that lies between tasks), its trials are independent. The prior of m is Jeffreys'.
That of r puts a third each on 0 (all tasks alike), on 1 (each task is always or never solved) and evenly on the values
between: few tasks can not tell these apart, and an interval has to serve all of them. Computed on a grid that is
narrowed to where the posterior lies; nothing is sampled.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from agent_eval.scores.reliability.attempts import (
    LEVEL,
    Estimate,
    TrialCountError,
    check_attempts,
    check_counts,
    check_prior,
    not_identified,
)

_Floats: TypeAlias = NDArray[np.float64]
_N_MEANS, _N_CORRELATIONS = 160, 40  # cells of the grid
_NEGLIGIBLE = 14.0  # a cell whose log posterior is that much below the largest one is left out when narrowing
_MOST_NARROWED = 10


@dataclass(frozen=True)
class TaskPosterior:
    """pass@k and pass^k of a new task of this kind."""

    pass_at_k: Estimate
    pass_hat_k: Estimate


@dataclass(frozen=True)
class _Grid:
    """Means (rows) by correlations (columns: 0, those between, 1) with their posterior weights, which sum to 1."""

    means: _Floats
    correlations: _Floats
    weights: _Floats


def posterior_of_new_tasks(
    tasks: Mapping[tuple[int, int], int], k: int, *, level: float = LEVEL
) -> TaskPosterior:
    """Return the posterior mean and equal-tailed interval of E[p^k] and 1 − E[(1 − p)^k] over new tasks.

    Args:
        tasks: How many tasks have n trials of which c are correct, by (n, c).
        k: Attempts, at most the largest n: how successes of one task go together is not seen beyond.
        level: What the interval holds.

    Raises:
        TrialCountError: If there is no task, k exceeds every n, or counts are no trials and successes.
        PriorError: If the level is not between 0 and 1.
    """
    check_prior((0.5, 0.5), level)
    for n, c in tasks:
        check_counts(n, c, 1, "plug_in")
    most = max((n for (n, _), times in tasks.items() if times > 0), default=0)
    if check_attempts(k) > most:
        raise TrialCountError(not_identified(k, most))
    grid = _posterior(tuple(sorted((n, c, times) for (n, c), times in tasks.items() if times > 0)))
    hat = _estimate(grid, _moments(grid.means, grid.correlations, k), level)
    missed = _estimate(grid, _moments(1 - grid.means, grid.correlations, k), level)
    return TaskPosterior(Estimate(1 - missed.mean, 1 - missed.high, 1 - missed.low), hat)


def _moments(means: _Floats, correlations: _Floats, k: int) -> _Floats:
    """E[p^k] for every mean (rows) and correlation (columns): Π (m(1 − r) + ir) / (1 − r + ir) over i < k."""
    found = np.ones((len(means), len(correlations)))
    for i in range(k):
        apart = 1 - correlations
        if i == 0:
            found *= means[:, None]
        else:
            found *= (means[:, None] * apart + i * correlations) / (apart + i * correlations)
    return found


def _estimate(grid: _Grid, values: _Floats, level: float) -> Estimate:
    """The mean and the quantiles of a quantity that is `values` in the cells of the grid."""
    order = np.argsort(values, axis=None, kind="stable")
    weights, ordered = grid.weights.ravel()[order], values.ravel()[order]
    below = np.cumsum(weights) - weights / 2
    low, high = np.interp([0.5 - level / 2, 0.5 + level / 2], below, ordered)
    mean = min(max(float(weights @ ordered), 0.0), 1.0)
    return Estimate(mean, float(min(low, mean)), float(max(high, mean)))


@lru_cache(maxsize=64)
def _posterior(tasks: tuple[tuple[int, int, int], ...]) -> _Grid:
    """The grid of the posterior, narrowed until the posterior fills it."""
    counts = np.array(tasks, dtype=np.int64)
    n, c, times = counts.T
    # how many tasks have more than i successes, failures, trials
    passed, failed, tried = (_more_than(of, times, int(n.max())) for of in (c, n - c, n))
    mixed = bool(((c > 0) & (c < n)).any())
    n_all, n_none = int(times[c == n].sum()), int(times[c == 0].sum())
    means, between = (0.0, 1.0), (0.0, 1.0)
    for _ in range(_MOST_NARROWED):
        share, correlation = _cells(means, _N_MEANS), _cells(between, _N_CORRELATIONS)
        mean = np.sin(np.pi * share / 2) ** 2  # even in `share`: Jeffreys' prior of the mean
        logs = np.empty((_N_MEANS, _N_CORRELATIONS + 2))
        logs[:, 0] = _weighted_log(mean, int(passed.sum())) + _weighted_log(1 - mean, int(failed.sum()))
        logs[:, 1:-1] = _between(mean, correlation, (passed, failed, tried)) + np.log(
            (between[1] - between[0]) / _N_CORRELATIONS
        )
        logs[:, -1] = -np.inf if mixed else _weighted_log(mean, n_all) + _weighted_log(1 - mean, n_none)
        logs -= logs.max()
        is_held = logs > -_NEGLIGIBLE
        narrower = _held(share, means, is_held), _held(correlation, between, is_held[:, 1:-1].T)
        if all(_width(new) > 0.7 * _width(old) for new, old in zip(narrower, (means, between), strict=True)):
            break
        means, between = narrower
    weights = np.exp(logs)
    return _Grid(mean, np.concatenate([[0.0], correlation, [1.0]]), weights / weights.sum())


def _between(mean: _Floats, correlation: _Floats, counts: tuple[_Floats, _Floats, _Floats]) -> _Floats:
    """The log likelihood for correlations strictly between 0 and 1, by mean and correlation."""
    size = 1 / correlation - 1
    a, b = mean[:, None] * size, (1 - mean)[:, None] * size
    found = np.zeros(a.shape)
    for i, (passed, failed, tried) in enumerate(zip(*counts, strict=True)):
        if passed:
            found += passed * np.log(a + i)
        if failed:
            found += failed * np.log(b + i)
        found -= tried * np.log(size + i)
    return found


def _more_than(values: NDArray[np.int64], times: NDArray[np.int64], most: int) -> _Floats:
    """How many tasks have more than 0, 1, … most − 1 of these."""
    per_value = np.bincount(values, weights=times, minlength=most + 1)
    return np.asarray(per_value.sum() - np.cumsum(per_value)[:most])


def _weighted_log(values: _Floats, times: int) -> _Floats:
    return np.zeros(values.shape) if times == 0 else times * np.log(values)


def _cells(ends: tuple[float, float], n: int) -> _Floats:
    """The middles of n equal cells."""
    return ends[0] + (np.arange(n) + 0.5) / n * (ends[1] - ends[0])


def _held(cells: _Floats, ends: tuple[float, float], is_held: NDArray[np.bool_]) -> tuple[float, float]:
    """The part of an axis (the rows) that cells which are held take, with one cell to either side; all of it if none is."""
    if not is_held.any():
        return ends
    cell, places = _width(ends) / len(cells), np.flatnonzero(is_held.any(axis=1))
    low, high = cells[places[0]] - 1.5 * cell, cells[places[-1]] + 1.5 * cell
    return max(ends[0], float(low)), min(ends[1], float(high))


def _width(ends: tuple[float, float]) -> float:
    return ends[1] - ends[0]
