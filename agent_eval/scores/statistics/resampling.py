"""Compute limits of figures of summed answers by leaving out or redrawing clusters.

A cluster is what is drawn independently: a turn with all its answers, or a conversation with all its turns.
Sums have one line per cluster and stratum; their first column is the weight, and a figure is a function of
the sums over all clusters. Strata are groups of which a fixed number was drawn: their share of the weight is
the same in every replicate. Functions take and return arrays.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from agent_eval.scores.statistics.intervals import LEVEL, scale_bound

Floats: TypeAlias = NDArray[np.float64]
Figure: TypeAlias = Callable[[Floats], Floats]
"""Maps sums (replicates × columns) to one number per replicate, NaN where it is undefined."""

SEED = 20261122  # the same answers always have the same interval
_MOST_DRAWS, _MOST, _FEWEST = 2_000_000, 10_000, 1_000


def cluster_sums(
    columns: Floats, clusters: Sequence[Hashable], strata: Sequence[Hashable] | None = None
) -> Floats:
    """Return the sums of the columns (one line per answer) as clusters × strata × columns."""
    of_cluster, n_clusters = _numbered(clusters)
    of_stratum, n_strata = _numbered(strata) if strata else (np.zeros(len(clusters), dtype=np.int64), 1)
    sums = np.zeros((n_clusters, n_strata, columns.shape[1]))
    np.add.at(sums, (of_cluster, of_stratum), columns)
    return sums


def total(sums: Floats) -> Floats:
    """Return the sums over all clusters and strata: one line."""
    return np.asarray(sums.sum(axis=(0, 1)))[np.newaxis]


def leave_one_out(sums: Floats) -> Floats:
    """Return the sums without each cluster in turn: clusters × columns."""
    whole = sums.sum(axis=0, keepdims=True)
    return _reweighted(whole - sums, whole)


def redrawn(sums: Floats) -> Floats:
    """Return the sums of clusters that are drawn with replacement: replicates × columns.

    10,000 replicates up to 200 clusters, fewer beyond, at least 1,000; the seed is fixed.
    """
    n = len(sums)
    repeats = max(_FEWEST, min(_MOST, _MOST_DRAWS // max(n, 1)))
    random = np.random.default_rng(SEED)
    whole = sums.sum(axis=0, keepdims=True)
    parts = []
    for start in range(0, repeats, 1_000):
        size = min(1_000, repeats - start)
        drawn = random.integers(n, size=(size, n)) + n * np.arange(size)[:, np.newaxis]
        times = np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n)
        parts.append(_reweighted(np.tensordot(times.astype(np.float64), sums, axes=1), whole))
    return np.concatenate(parts)


def jackknife_variance(without: Floats) -> Floats:
    """Return the variance of figures (last axis) from their values without each cluster (first axis)."""
    n = len(without)
    return np.asarray((n - 1) / n * ((without - without.mean(axis=0)) ** 2).sum(axis=0))


def strata_covariance(sums: Floats, figure: Figure, n_parts: float) -> Floats:
    """Return the covariance of figures (last axis) by the sizes of the strata, which a sample of parts has.

    With the derivatives g of the figure by the logarithm of a stratum's weight and its share q of the weight, it
    is Σ g gᵀ / q / parts: the sizes are multinomial.

    Args:
        sums: As of `cluster_sums`.
        figure: Maps sums to figures (replicates × figures); it depends on ratios of weights only.
        n_parts: Number of parts that the strata divide.
    """
    strata = sums.sum(axis=0)
    share = strata[:, 0] / strata[:, 0].sum()
    step = 1e-5
    slope = (figure(strata.sum(axis=0) + step * strata) - figure(strata.sum(axis=0) - step * strata)) / (
        2 * step
    )
    return np.asarray((slope / share[:, np.newaxis]).T @ slope / n_parts)


def jackknife(sums: Floats, figure: Figure, *, least: float = 0.0) -> tuple[float, float] | None:
    """Return the 95 % limits of a figure; None below two clusters or if it is undefined.

    Delete-one-cluster jackknife, Student's t, clusters − 1 degrees of freedom (Efron, Tibshirani 1993, 11). The
    limits are at least as wide as what n clusters miss with probability 2.5 %: a share 1 − 0.025^(1/n) of
    answers that differ by `least`. With `least` 0, there are no limits if leaving out any one cluster does not
    change the figure.
    """
    from scipy.special import stdtrit

    n = len(sums)
    if n < 2:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        value, without = float(figure(total(sums))[0]), figure(leave_one_out(sums))
    if not (math.isfinite(value) and np.isfinite(without).all()):
        return None
    error = math.sqrt(float(jackknife_variance(without)))
    reach = max(float(stdtrit(n - 1, 0.5 + LEVEL / 2)) * error, least * (1 - scale_bound(1.0, n)[0]))
    return (value - reach, value + reach) if reach > 1e-9 else None


def percentiles(sums: Floats, figure: Figure) -> tuple[float, float] | None:
    """Return the 2.5 and 97.5 % quantiles of a figure of redrawn clusters (percentile bootstrap).

    None below two clusters, or if the figure is undefined in more than half of the replicates; the others
    leave it out.

    Source: Efron, Tibshirani, An Introduction to the Bootstrap, 1993, 13.
    """
    if len(sums) < 2:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        values = figure(redrawn(sums))
    known = values[np.isfinite(values)]
    if 2 * len(known) < len(values):
        return None
    low, high = np.quantile(known, (0.5 - LEVEL / 2, 0.5 + LEVEL / 2))
    return float(low), float(high)


def share_limits(sums: Floats) -> tuple[float, float] | None:
    """Return limits of the share column 1 / column 0, within 0–1 and at most as wide as n clusters allow."""
    if len(sums) < 2:
        return None
    whole = total(sums)[0]
    bound = scale_bound(float(whole[1] / whole[0]), len(sums))
    limits = jackknife(sums, lambda s: s[:, 1] / s[:, 0])
    return bound if limits is None else (max(limits[0], bound[0]), min(limits[1], bound[1]))


def _reweighted(sums: Floats, whole: Floats) -> Floats:
    """Give every stratum (axis 1) its weight in the whole again, and add up the strata."""
    if sums.shape[1] == 1:
        return np.asarray(sums[:, 0])
    weight = sums[..., :1]
    scale = np.divide(
        whole[..., :1], weight, out=np.zeros_like(weight), where=weight > 1e-12 * whole[..., :1]
    )
    return np.asarray((sums * scale).sum(axis=1))


def _numbered(names: Sequence[Hashable]) -> tuple[NDArray[np.int64], int]:
    places: dict[Hashable, int] = {}
    numbers = np.array([places.setdefault(name, len(places)) for name in names], dtype=np.int64)
    return numbers, len(places)
