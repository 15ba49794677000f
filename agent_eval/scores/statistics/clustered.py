"""Estimate means of values that are dependent within clusters: tasks of a family, conversations of a session.

The cluster is the unit: values of one cluster may depend on each other in any way, clusters are independent.
Functions take and return numbers.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from agent_eval.scores.statistics.intervals import (
    LEVEL,
    Difference,
    Interval,
    Sample,
    bounded_mean,
    paired,
    share_mean,
    smallest_detectable,
    welch_multiple,
)
from agent_eval.scores.statistics.sign_flips import FEWEST_FLIPPED, FEWEST_PLANNED, MOST_FLIPPED, repeats

FEWEST_CLUSTERS = 5
"""With fewer families their spread is too uncertain for an interval."""


class ClusteredMean(NamedTuple):
    """Hold a mean with its cluster-robust standard error."""

    mean: float
    error: float
    freedom: float  # effective number of clusters − 1
    n_clusters: int


def clustered_mean(values: Sequence[float], clusters: Sequence[str]) -> ClusteredMean | None:
    """Return the mean of values with the standard error over clusters; None for fewer than two clusters.

    With the residuals e summed in each cluster the variance is Σ (Σ e)² / (n² (1 − Σ w²)), for the clusters'
    shares w of the values: for clusters of equal size the variance of their means over their number. Degrees
    of freedom are 1 / Σ w² − 1, the number of clusters minus one if they are of equal size (Kish, 1965).
    """
    n = len(values)
    sizes: dict[str, int] = defaultdict(int)
    sums: dict[str, float] = defaultdict(float)
    mean = math.fsum(values) / n if n else math.nan
    for value, cluster in zip(values, clusters, strict=True):
        sizes[cluster] += 1
        sums[cluster] += value - mean
    if len(sizes) < 2:
        return None
    concentration = sum((size / n) ** 2 for size in sizes.values())
    variance = math.fsum(total**2 for total in sums.values()) / (n**2 * (1 - concentration))
    return ClusteredMean(mean, math.sqrt(variance), 1 / concentration - 1, len(sizes))


def clustered_difference(a: ClusteredMean, b: ClusteredMean | None = None) -> Difference:
    """Return a mean difference (`b` None: of paired values), or A − B of two agents, with a t interval and p.

    Degrees of freedom of two agents are Welch's. A side with fewer than two effective clusters, i.e. with nearly
    all values in one, has no interval and no p. If no cluster varies within an agent, p is exact: the share of
    all ways to divide the clusters between two agents that separate them as completely.
    """
    from scipy.special import stdtr, stdtrit

    difference = a.mean - (b.mean if b else 0.0)
    sides = [side for side in (a, b) if side]
    if not all(map(has_two_clusters, sides)):
        return Difference(difference, None, None, None, None)
    parts = [(side.error**2, side.freedom) for side in sides]
    error = math.sqrt(sum(variance for variance, _ in parts))
    if error < 1e-12:
        is_separated = b is not None and abs(difference) > 1e-12
        n_ways = math.comb(a.n_clusters + b.n_clusters, a.n_clusters) if b and is_separated else 0
        return Difference(difference, None, None, min(1.0, 2 / n_ways) if n_ways else None, None)
    freedom = error**4 / sum(variance**2 / own for variance, own in parts)
    reach = float(stdtrit(freedom, 0.5 + LEVEL / 2)) * error
    below = float(stdtr(freedom, -abs(difference) / error))
    better = below if difference < 0 else 1 - below
    multiple = welch_multiple(a.freedom, b.freedom, parts[0][0] / error**2) if b else None
    shows = smallest_detectable(error, freedom) if multiple is None else error * multiple
    return Difference(difference, difference - reach, difference + reach, min(2 * below, 1.0), better, shows)


def has_two_clusters(side: ClusteredMean) -> bool:
    """Return whether the clusters count as at least two of equal size."""
    return side.freedom >= 1 - 1e-9


def paired_by_cluster(
    differences: Sequence[float], clusters: Sequence[str], *, plans: bool = True
) -> Difference:
    """Return A − B per task if tasks of a family depend on each other: families are the units.

    p by flipping the signs of whole families, exact up to 16 of them, else t; the interval is that of t over
    families. With fewer than six families no difference has p < 5 %, and significance is not reported
    (`too_few`); neither is it if nearly all tasks are in one family. No difference is detectable with fewer than
    eight families by their sizes, or if fewer than eight differ.
    """
    found = clustered_mean(differences, clusters)
    mean = math.fsum(differences) / len(differences)
    if found is None or found.n_clusters < FEWEST_FLIPPED or not has_two_clusters(found):
        return Difference(mean, None, None, None, None)
    sums: dict[str, float] = defaultdict(float)
    for value, cluster in zip(differences, clusters, strict=True):
        sums[cluster] += value
    families = [value if abs(value) > 1e-9 else 0.0 for value in sums.values()]
    flipped, compared = paired(families, plans=plans), clustered_difference(found)
    shows = None
    if flipped.smallest_detectable is not None and found.freedom + 1 > FEWEST_PLANNED - 0.5:
        per_task = flipped.smallest_detectable * len(families) / len(differences)
        shows = per_task if repeats(families) else compared.smallest_detectable
    compared = compared._replace(smallest_detectable=shows)
    if compared.p_value is None or len(sums) <= MOST_FLIPPED:
        return compared._replace(p_value=flipped.p_value)
    return compared


def too_few(n_families: int) -> str | None:
    """Return why significance is not reported; None from six families on."""
    if n_families >= FEWEST_FLIPPED:
        return None
    return f"too few families: {n_families}, and no difference of fewer than {FEWEST_FLIPPED} has p < 5 %"


def clustered_share(values: Sequence[float], clusters: Sequence[str], *, step: float) -> Interval | None:
    """Return the interval of a mean of shares over families, like `share_mean`; None for fewer than five.

    The families count as their effective number of shares, with the variance of their mean.

    Args:
        values: One share per task.
        clusters: The family of each.
        step: The change of one task's share by one trial.
    """
    found = clustered_mean(values, clusters)
    if found is None or found.n_clusters < FEWEST_CLUSTERS:
        return None
    n = max(2, round(found.freedom + 1))
    variance = min(found.error**2 * n, 1.0)
    return share_mean(found.mean, variance, n, step=step * found.n_clusters / len(values))


def clustered_interval(
    values: Sequence[float], clusters: Sequence[str], *, bounds: tuple[float, float | None], point: float
) -> Interval | None:
    """Return the 95 % interval of a mean of values on a scale; None for fewer than two clusters.

    The clusters count as their effective number of values, with the variance of their mean: the interval is
    that of `bounded_mean`, or plain t above the lower end if the scale has no upper end.

    Args:
        values: One per conversation.
        clusters: The cluster of each.
        bounds: The ends of the scale; None: no upper end.
        point: The largest change of one value by one answer.
    """
    from scipy.special import stdtrit

    found = clustered_mean(values, clusters)
    if found is None:
        return None
    low, high = bounds
    if high is None:
        reach = float(stdtrit(found.freedom, 0.5 + LEVEL / 2)) * found.error
        return Interval(max(low, found.mean - reach), found.mean + reach)
    n = max(2, round(found.freedom + 1))
    sample = Sample(n, found.mean, found.error * math.sqrt(n))
    return bounded_mean(
        sample, bounds=(low, high), step=min(point * found.n_clusters / len(values), high - low)
    )
