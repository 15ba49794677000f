"""Estimate means of values that depend on each other within clusters, such as families or sessions.

Values within a cluster may depend on each other in any way; clusters are assumed independent.
Functions take and return numbers.
"""

import itertools
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
"""Fewest families for an interval; the spread of fewer families is too uncertain."""


FEWEST_SERIAL = 8
"""Fewest successive values that show whether they depend on each other."""
_MOST_SERIAL, _LEAST_SHARE = 0.9, 0.2


class ClusteredMean(NamedTuple):
    """Hold a mean with its cluster-robust standard error."""

    mean: float
    error: float
    freedom: float  # effective number of clusters − 1
    n_clusters: int


def clustered_mean(values: Sequence[float], clusters: Sequence[str]) -> ClusteredMean | None:
    """Return the mean of values with its standard error over clusters; None for fewer than two clusters.

    The variance is Σ (Σ e)² / (n² (1 − Σ w²)), with the sum Σ e of residuals in each cluster and each cluster's
    share w of the values. For clusters of equal size, it is the variance of the cluster means divided by their
    number. The degrees of freedom are 1 / Σ w² − 1, which is the number of clusters minus one if all have the
    same size (Kish, 1965).
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
    """Return the difference A − B of two agents, or the mean of paired differences `a`, with a t interval and p.

    For two agents, Welch's degrees of freedom are used. If a side has fewer than two effective clusters, i.e.
    nearly all its values are in one cluster, interval and p are None. If neither agent's clusters vary, p is
    exact: the share of all ways to divide the clusters between the agents that separate them as completely.
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
    """Return whether the effective number of clusters is at least two."""
    return side.freedom >= 1 - 1e-9


def paired_by_cluster(
    differences: Sequence[float], clusters: Sequence[str], *, plans: bool = True
) -> Difference:
    """Compare A with B on common tasks if tasks of a family depend on each other; the families are the units.

    p comes from flipping the signs of whole families, exactly for up to 16 families, and from t for more. The
    interval is a t interval over families. Significance is not reported with fewer than six families, because
    no difference can have p < 5 % (`too_few`), or if nearly all tasks are in one family. The smallest detectable
    difference is None with fewer than eight effective families or if fewer than eight families differ.
    """
    cluster_mean = clustered_mean(differences, clusters)
    mean = math.fsum(differences) / len(differences)
    if cluster_mean is None or cluster_mean.n_clusters < FEWEST_FLIPPED or not has_two_clusters(cluster_mean):
        return Difference(mean, None, None, None, None)
    sums: dict[str, float] = defaultdict(float)
    for value, cluster in zip(differences, clusters, strict=True):
        sums[cluster] += value
    families = [value if abs(value) > 1e-9 else 0.0 for value in sums.values()]
    flipped, compared = paired(families, plans=plans), clustered_difference(cluster_mean)
    shows = None
    if flipped.smallest_detectable is not None and cluster_mean.freedom + 1 > FEWEST_PLANNED - 0.5:
        per_task = flipped.smallest_detectable * len(families) / len(differences)
        shows = per_task if repeats(families) else compared.smallest_detectable
    compared = compared._replace(smallest_detectable=shows)
    if compared.p_value is None or len(sums) <= MOST_FLIPPED:
        return compared._replace(p_value=flipped.p_value)
    return compared


def too_few(n_families: int) -> str | None:
    """Return why significance is not reported; None for six or more families."""
    if n_families >= FEWEST_FLIPPED:
        return None
    return f"too few families: {n_families}, and no difference of fewer than {FEWEST_FLIPPED} has p < 5 %"


def clustered_share(values: Sequence[float], clusters: Sequence[str], *, step: float) -> Interval | None:
    """Return the interval of a mean of shares over families; None for fewer than five families.

    The interval is that of `share_mean` for the effective number of families and the variance of their mean.

    Args:
        values: One share per task.
        clusters: The family of each task.
        step: The change that one trial makes to a task's share.
    """
    mean = clustered_mean(values, clusters)
    if mean is None or mean.n_clusters < FEWEST_CLUSTERS:
        return None
    n = max(2, round(mean.freedom + 1))
    variance = min(mean.error**2 * n, 1.0)
    return share_mean(mean.mean, variance, n, step=step * mean.n_clusters / len(values))


def clustered_interval(
    values: Sequence[float], clusters: Sequence[str], *, bounds: tuple[float, float | None], point: float
) -> Interval | None:
    """Return the 95 % interval of a mean of values on a scale; None for fewer than two clusters.

    The interval is that of `bounded_mean` for the effective number of clusters and the variance of their mean.
    If the scale has no upper end, it is a t interval that is cut off at the lower end.

    Args:
        values: One value per conversation.
        clusters: The cluster of each conversation.
        bounds: The ends of the scale; the upper end is None if there is none.
        point: The largest change that one answer makes to a value.
    """
    from scipy.special import stdtrit

    mean = clustered_mean(values, clusters)
    if mean is None:
        return None
    low, high = bounds
    if high is None:
        reach = float(stdtrit(mean.freedom, 0.5 + LEVEL / 2)) * mean.error
        return Interval(max(low, mean.mean - reach), mean.mean + reach)
    n = max(2, round(mean.freedom + 1))
    sample = Sample(n, mean.mean, mean.error * math.sqrt(n))
    return bounded_mean(
        sample, bounds=(low, high), step=min(point * mean.n_clusters / len(values), high - low)
    )


def serial_inflation(values: Sequence[float]) -> float:
    """Return the factor by which dependence of successive values raises the standard error of their mean.

    Values of a first-order autoregression with coefficient ρ are assumed. Its estimate from few values is too low (Marriott
    and Pope, 1954), and the excess is uncertain: (3 + 3 r) / n is added to the correlation r of successive values. The factor
    includes that the variance of dependent values is estimated too low. It is 1 for values that alternate, and for fewer
    than eight values, which do not show whether they depend on each other.

    Args:
        values: The values in the order of time.
    """
    n = len(values)
    mean = math.fsum(values) / n if n else 0.0
    residuals = [value - mean for value in values]
    total = math.fsum(r * r for r in residuals)
    if n < FEWEST_SERIAL or total <= 0:
        return 1.0
    successive = math.fsum(a * b for a, b in itertools.pairwise(residuals)) / total
    rho = min(max(successive + (3 + 3 * successive) / n, 0.0), _MOST_SERIAL)
    variance = 1 + 2 * math.fsum((1 - k / n) * rho**k for k in range(1, n))
    return math.sqrt(variance / max(1 - (variance - 1) / (n - 1), _LEAST_SHARE))
