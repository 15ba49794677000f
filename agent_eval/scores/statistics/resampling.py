"""Compute limits of figures of summed answers with the jackknife and the bootstrap over clusters.

Clusters are independent: a cluster is a turn with all its answers, or a conversation with all its turns. Sums
have one row per cluster and stratum; their first column is the weight. A figure is a function of the sums over
all clusters. A fixed number of parts was drawn from each stratum, so a stratum's share of the weight is the
same in every replicate. Functions take and return arrays.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from agent_eval.scores.statistics.intervals import LEVEL, scale_bound

Floats: TypeAlias = NDArray[np.float64]
Figure: TypeAlias = Callable[[Floats], Floats]
"""A function from sums (replicates × columns) to one number per replicate, NaN if it is undefined."""

SEED = 20261122  # fixed, so that the same answers always give the same interval
_MOST_DRAWS, _MOST, _FEWEST = 2_000_000, 10_000, 1_000


def cluster_sums(
    columns: Floats, clusters: Sequence[Hashable], strata: Sequence[Hashable] | None = None
) -> Floats:
    """Return the sums of the columns (one row per answer) as clusters × strata × columns."""
    of_cluster, n_clusters = _numbered(clusters)
    of_stratum, n_strata = _numbered(strata) if strata else (np.zeros(len(clusters), dtype=np.int64), 1)
    sums = np.zeros((n_clusters, n_strata, columns.shape[1]))
    np.add.at(sums, (of_cluster, of_stratum), columns)
    return sums


def total(sums: Floats) -> Floats:
    """Return the sums over all clusters and strata as a single row."""
    return np.asarray(sums.sum(axis=(0, 1)))[np.newaxis]


def leave_one_out(sums: Floats) -> Floats:
    """Return the sums that leave out one cluster each, as clusters × columns."""
    whole = sums.sum(axis=0, keepdims=True)
    return _reweighted(whole - sums, whole)


def redrawn(sums: Floats) -> Floats:
    """Return the sums of clusters drawn with replacement, as replicates × columns.

    There are 10,000 replicates for up to 200 clusters and fewer, but at least 1,000, for more clusters. The
    seed is fixed.
    """
    n = len(sums)
    repeats = max(_FEWEST, min(_MOST, _MOST_DRAWS // max(n, 1)))
    random = np.random.default_rng(SEED)
    whole = sums.sum(axis=0, keepdims=True)
    parts = []
    for start in range(0, repeats, 1_000):
        size = min(1_000, repeats - start)
        indices = random.integers(n, size=(size, n)) + n * np.arange(size)[:, np.newaxis]
        times = np.bincount(indices.ravel(), minlength=size * n).reshape(size, n)
        parts.append(_reweighted(np.tensordot(times.astype(np.float64), sums, axes=1), whole))
    return np.concatenate(parts)


def jackknife_variance(without: Floats) -> Floats:
    """Return the jackknife variance of figures (last axis) from their leave-one-out values (first axis)."""
    n = len(without)
    return np.asarray((n - 1) / n * ((without - without.mean(axis=0)) ** 2).sum(axis=0))


def strata_covariance(sums: Floats, figure: Figure, n_parts: float) -> Floats:
    """Return the covariance of figures (last axis) that comes from the sampling of the strata's sizes.

    The covariance is Σ g gᵀ / q / n_parts, with the derivative g of the figures by the logarithm of a stratum's
    weight and the stratum's share q of the weight. The sizes are assumed multinomial.

    Args:
        sums: Sums as from `cluster_sums`.
        figure: Maps sums to figures (replicates × figures); it must depend only on ratios of weights.
        n_parts: The number of parts in all strata.
    """
    strata = sums.sum(axis=0)
    share = strata[:, 0] / strata[:, 0].sum()
    step = 1e-5
    slope = (figure(strata.sum(axis=0) + step * strata) - figure(strata.sum(axis=0) - step * strata)) / (
        2 * step
    )
    return np.asarray((slope / share[:, np.newaxis]).T @ slope / n_parts)


def jackknife(sums: Floats, figure: Figure, *, least: float = 0.0) -> tuple[float, float] | None:
    """Return the 95 % jackknife limits of a figure; None for fewer than two clusters or an undefined figure.

    The limits use the delete-one-cluster jackknife and Student's t with clusters − 1 degrees of freedom (Efron,
    Tibshirani 1993, 11). They allow at least for answers that n clusters miss with a probability of 2.5 %: a
    share 1 − 0.025^(1/n) of answers that differ by `least`. If `least` is 0 and no single cluster changes the
    figure, the result is None.
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
    """Return the 2.5 % and 97.5 % quantiles of a figure over bootstrap samples of clusters.

    Replicates in which the figure is undefined are ignored. The result is None for fewer than two clusters, or
    if the figure is undefined in more than half of the replicates.

    Source: Efron, Tibshirani, An Introduction to the Bootstrap, 1993, 13.
    """
    if len(sums) < 2:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        values = figure(redrawn(sums))
    finite_values = values[np.isfinite(values)]
    if 2 * len(finite_values) < len(values):
        return None
    low, high = np.quantile(finite_values, (0.5 - LEVEL / 2, 0.5 + LEVEL / 2))
    return float(low), float(high)


def share_limits(sums: Floats) -> tuple[float, float] | None:
    """Return jackknife limits of the share column 1 / column 0, within the limits of `scale_bound`."""
    if len(sums) < 2:
        return None
    whole = total(sums)[0]
    bound = scale_bound(float(whole[1] / whole[0]), len(sums))
    limits = jackknife(sums, lambda s: s[:, 1] / s[:, 0])
    return bound if limits is None else (max(limits[0], bound[0]), min(limits[1], bound[1]))


def _reweighted(sums: Floats, whole: Floats) -> Floats:
    """Rescale every stratum (axis 1) to its total weight, and sum over strata."""
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
