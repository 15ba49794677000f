"""Compute the posterior of pass@k and pass^k for new tasks of the same kind, with success rates that vary by task.

The trials of a task are assumed independent given its success rate. A few tasks do not show how rates vary, and
an interval must cover every kind of variation that is compatible with them. The prior is therefore divided among
three hypotheses:

- alike (2/5): all tasks have the same rate m;
- between (1/5): rates are drawn from a Beta distribution with mean m and intraclass correlation r, which is the
  share of an outcome's variance that lies between tasks and is uniform on 0 to 1 (beta-binomial model);
- two kinds (2/5): a share w of the tasks, uniform on 0 to 1, is easy and fails with rate s; the others are hard
  and succeed with rate g. Both rates are uniform on 0 to 3 % (slips and guesses, as in the DINA model of Junker
  and Sijtsma, 2001). If all tasks so far were easy, they inform about w like the same number of coin tosses.

The prior of m is Beta(0.7, 0.7). The weights, this prior and the limit of 3 % were chosen by exact coverage
(docs/statistics.md). The posterior is computed on a grid per hypothesis, which is narrowed to the posterior's
range; it is not sampled.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, xlogy

from agent_eval.scores.reliability.attempts import (
    LEVEL,
    Estimate,
    check_attempts,
    check_counts,
    check_prior,
    invalid_count,
    not_identified,
)

_Floats: TypeAlias = NDArray[np.float64]
MEAN_PRIOR = 0.7  # both parameters of the Beta prior of m
MOST_SLIPS = 0.03
WEIGHTS = (0.4, 0.2, 0.4)  # alike, between, two kinds
_NEGLIGIBLE = 14.0  # narrowing drops cells whose log posterior is this far below the largest
_NARROWED_TO = 0.699
"""An axis is narrowed if the share of its cells that are kept is smaller. No share is equal to this number, so that
rounding does not decide, and mirrored results have mirrored posteriors."""
_MOST_NARROWED = 10


@dataclass(frozen=True)
class TaskPosterior:
    """Hold pass@k and pass^k of a new task of this kind."""

    pass_at_k: Estimate
    pass_hat_k: Estimate


@dataclass(frozen=True)
class _Cells:
    """Hold the grid cells of one hypothesis: rates and shares per axis, and log(prior × likelihood × size)."""

    axes: tuple[_Floats, ...]
    logs: _Floats


def posterior_of_new_tasks(
    tasks: Mapping[tuple[int, int], int], k: int, *, level: float = LEVEL
) -> TaskPosterior:
    """Return the posterior mean and equal-tailed interval of pass@k and pass^k over new tasks.

    pass^k is E[p^k] and pass@k is 1 − E[(1 − p)^k] over the tasks' success rates p.

    Args:
        tasks: The number of tasks with n trials and c correct trials, by (n, c).
        k: The number of attempts, at most the largest n, because the data do not show the joint probability of
            more successes of a task.
        level: The probability that the interval covers.

    Raises:
        InvalidValueError: If there is no task, k exceeds every n, or a count is invalid,
            or if the level is not between 0 and 1.
    """
    check_prior((0.5, 0.5), level)
    for n, c in tasks:
        check_counts(n, c, 1, "plug_in")
    most = max((n for (n, _), times in tasks.items() if times > 0), default=0)
    if check_attempts(k) > most:
        raise invalid_count(not_identified(k, most))
    parts, weights = _posterior(tuple(sorted((n, c, times) for (n, c), times in tasks.items() if times > 0)))
    hat = _estimate(weights, _moments(parts, k), level)
    missed = _estimate(weights, _moments(parts, k, is_missed=True), level)
    return TaskPosterior(Estimate(1 - missed.mean, 1 - missed.high, 1 - missed.low), hat)


def _moments(parts: Sequence[_Cells], k: int, *, is_missed: bool = False) -> _Floats:
    """Return E[p^k] of a new task in every cell, or E[(1 − p)^k] if `is_missed`."""
    (_, *alike), (_, *between, correlation), (share, other, slips, guesses) = (part.axes for part in parts)
    mean, spread = (axes[int(is_missed)] for axes in (alike, between))
    moments = np.ones(parts[1].logs.shape)
    for i in range(k):  # Π (m(1 − r) + ir) / (1 − r + ir)
        if i == 0:
            moments *= spread
        else:
            moments *= (spread * (1 - correlation) + i * correlation) / (1 - correlation + i * correlation)
    kinds = (
        share * slips**k + other * (1 - guesses) ** k
        if is_missed
        else share * (1 - slips) ** k + other * guesses**k
    )
    return np.concatenate([(mean**k).ravel(), moments.ravel(), kinds.ravel()])


def _estimate(weights: _Floats, values: _Floats, level: float) -> Estimate:
    """Return the weighted mean and the quantiles of a quantity whose values in the cells are given."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    below = np.cumsum(weights[order]) - weights[order] / 2
    low, high = np.interp([0.5 - level / 2, 0.5 + level / 2], below, ordered)
    mean = min(max(float((weights * values).sum()), 0.0), 1.0)  # avoids BLAS, which starts threads
    return Estimate(mean, float(min(low, mean)), float(max(high, mean)))


@lru_cache(maxsize=64)
def _posterior(tasks: tuple[tuple[int, int, int], ...]) -> tuple[tuple[_Cells, ...], _Floats]:
    """Return the cells of the three hypotheses and their joint posterior weights, which sum to 1."""
    n, c, times = np.array(tasks, dtype=np.int64).T
    parts = (
        _narrowed(lambda u: _alike(u, int((c * times).sum()), int(((n - c) * times).sum())), (320,)),
        _narrowed(lambda u, r: _between(u, r, n, c, times), (160, 40)),
        _narrowed(lambda w, s, g: _two_kinds(w, MOST_SLIPS * s, MOST_SLIPS * g, tasks), (80, 8, 8)),
    )
    logs = np.concatenate(
        [(part.logs + math.log(weight)).ravel() for part, weight in zip(parts, WEIGHTS, strict=True)]
    )
    weights = np.exp(logs - logs.max())
    return parts, weights / weights.sum()


def _narrowed(make_cells: Callable[..., _Cells], sizes: tuple[int, ...]) -> _Cells:
    """Return cells of equal prior probability that are narrowed to the range of the posterior.

    Args:
        make_cells: A function that builds cells with log likelihoods from the midpoints on each axis; axes are 0–1
            with a uniform prior.
        sizes: The number of cells per axis.
    """
    ends = [(0.0, 1.0)] * len(sizes)
    for _ in range(_MOST_NARROWED):
        middles = [
            low + (np.arange(n) + 0.5) / n * (high - low) for (low, high), n in zip(ends, sizes, strict=True)
        ]
        cells = make_cells(*np.meshgrid(*middles, indexing="ij", sparse=True))
        is_held = cells.logs > cells.logs.max() - _NEGLIGIBLE
        narrower = [_held(is_held, axis, ends[axis]) for axis in range(len(sizes))]
        if all(_width(new) > _NARROWED_TO * _width(old) for new, old in zip(narrower, ends, strict=True)):
            break
        ends = narrower
    return _Cells(
        cells.axes, cells.logs + sum(math.log(_width(e) / n) for e, n in zip(ends, sizes, strict=True))
    )


def _mean_of(u: _Floats) -> tuple[_Floats, _Floats]:
    """Return the mean at a quantile of its prior, and one minus the mean, both precise near 0."""
    return betaincinv(MEAN_PRIOR, MEAN_PRIOR, u), betaincinv(MEAN_PRIOR, MEAN_PRIOR, 1 - u)


def _alike(u: _Floats, n_passed: int, n_failed: int) -> _Cells:
    mean, missed = _mean_of(u)
    return _Cells((u, mean, missed), xlogy(n_passed, mean) + xlogy(n_failed, missed))


def _between(
    u: _Floats, correlation: _Floats, n: NDArray[np.int64], c: NDArray[np.int64], times: NDArray[np.int64]
) -> _Cells:
    mean, missed = _mean_of(u)
    size = 1 / correlation - 1
    a, b = mean * size, missed * size
    logs = np.zeros(a.shape)
    for of, start in ((c, a), (n - c, b), (n, size)):
        sign = -1 if of is n else 1
        for i, n_more in enumerate(_more_than(of, times)):  # the number of tasks with more than i of these
            logs += sign * n_more * np.log(start + i)
    return _Cells((u, mean, missed, correlation), logs)


def _two_kinds(
    share: _Floats, slips: _Floats, guesses: _Floats, tasks: Sequence[tuple[int, int, int]]
) -> _Cells:
    easy, hard = np.log(share), np.log1p(-share)
    passes = np.log1p(-slips), np.log(guesses)
    fails = np.log(slips), np.log1p(-guesses)
    logs = np.zeros(np.broadcast_shapes(share.shape, slips.shape, guesses.shape))
    for n, c, times in tasks:
        logs += times * np.logaddexp(
            easy + c * passes[0] + (n - c) * fails[0], hard + c * passes[1] + (n - c) * fails[1]
        )
    return _Cells((share, 1 - share, slips, guesses), logs)


def _more_than(values: NDArray[np.int64], times: NDArray[np.int64]) -> list[float]:
    """Return the numbers of tasks whose value exceeds 0, 1, … up to the largest value minus one."""
    per_value = np.bincount(values, weights=times)
    return [float(n) for n in per_value.sum() - np.cumsum(per_value)[:-1]]


def _held(is_held: NDArray[np.bool_], axis: int, ends: tuple[float, float]) -> tuple[float, float]:
    """Return the range of an axis that the kept cells cover, with an additional cell on each side."""
    others = tuple(other for other in range(is_held.ndim) if other != axis)
    places = np.flatnonzero(is_held.any(axis=others))
    cell = _width(ends) / is_held.shape[axis]
    low, high = ends[0] + (places[0] - 1) * cell, ends[0] + (places[-1] + 2) * cell
    return max(ends[0], float(low)), min(ends[1], float(high))


def _width(ends: tuple[float, float]) -> float:
    return ends[1] - ends[0]
