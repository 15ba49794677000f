"""Compute distribution-free intervals of means on a scale, and the effect of breakdowns that few sessions miss.

t intervals assume that the observed sessions are typical of how sessions vary. If an agent breaks down in one
session of ten, five sessions show no breakdown with a probability of 59 %.
"""

import math
from collections.abc import Sequence
from typing import Literal

from agent_eval.scores.statistics.intervals import LEVEL, Difference, Interval, Sample, out_of_range, welch

IntervalMethod = Literal["auto", "t", "bounded"]
"""The method of an interval; auto is bounded if the sessions show a breakdown or few are all near an end, else t."""
BREAKDOWN_POINTS = 10.0
BREAKDOWN_SHARE = 0.1
"""Largest share of sessions that is assumed to break down unseen; `unseen_share` lowers it for many sessions."""
NEAR_POINTS = 5.0
ENOUGH_NEAR_AN_END = 20
FEW_NEAR_AN_END = 10
"""With fewer sessions, all of them near an end, t intervals cover in less than 90 % of samples where sessions are rarely bad."""
_MISSED = 0.05
_MOST_SESSIONS = 1000


def any_spread_mean(values: Sequence[float], bounds: tuple[float, float]) -> Interval | None:
    """Return an interval of the mean on a scale that is valid for any distribution; None for fewer than two values.

    The values are assumed independent. The lower limit is the 2.5 % quantile of a weighted mean of the values
    and the lower end of the scale, with random weights that are uniformly distributed and sum to 1; the upper
    limit is computed symmetrically (Gaffke, 2005). If all values are at the upper end, the lower limit
    is 0.025^(1/n) of the scale, as for Clopper and Pearson. No distribution on a scale is known for which
    coverage is below 95 %. The interval is wide: for five sessions at 80 on a scale of 20 to 100, it is 49 to
    90.

    Raises:
        InvalidValueError: If a value is off the scale.
    """
    low, high = bounds
    for value in values:
        if not low - 1e-9 <= value <= high + 1e-9:
            raise out_of_range("value", value, f"{low:g} to {high:g}")
    if len(values) < 2:
        return None
    width = high - low
    shares = [min(max((value - low) / width, 0.0), 1.0) for value in values]
    mean = low + width * math.fsum(shares) / len(shares)
    lower, upper = _lower_limit(shares), 1 - _lower_limit([1 - share for share in shares])
    return Interval(min(low + width * lower, mean), max(low + width * upper, mean))


def has_breakdown(values: Sequence[float]) -> bool:
    """Return whether fewer than half of the values are far below all others.

    Far means by at least 10 points and by more than the range of all others.
    """
    ordered = sorted(values)
    for i in range(1, (len(ordered) + 1) // 2):
        gap = ordered[i] - ordered[i - 1]
        if gap >= BREAKDOWN_POINTS and gap > ordered[-1] - ordered[i]:
            return True
    return False


def is_near_an_end(values: Sequence[float], bounds: tuple[float, float]) -> bool:
    """Return whether there are fewer than 20 values, all within 5 points of the same end of the scale.

    Such a sample does not show the spread of the other values. For distributions with most values at an end,
    t intervals miss the mean in more than 5 % of samples, and nearly all of the excess comes from samples
    like this (docs/statistics.md).
    """
    if not 2 <= len(values) < ENOUGH_NEAR_AN_END:
        return False
    return min(values) >= bounds[1] - NEAR_POINTS or max(values) <= bounds[0] + NEAR_POINTS


def unseen_share(n: int) -> float:
    """Return the share of sessions that may break down although none of n sessions does, at most one in ten.

    A share q is missed by n sessions with a probability of (1 − q)^n. Shares for which this probability is below
    5 % are excluded, so that the result is below one in ten for 29 or more sessions.
    """
    missed: float = 1 - _MISSED ** (1 / n)
    return min(BREAKDOWN_SHARE, missed)


def unseen_points(better: tuple[float, int], worse: tuple[float, int], bounds: tuple[float, float]) -> float:
    """Return how many points unseen sessions can explain, from the mean and number of sessions of both agents.

    The worst case is that unseen sessions of the better agent are at the lower end of the scale, or those of
    the other agent at the upper end.
    """
    (high, n_high), (low, n_low) = better, worse
    return max(unseen_share(n_high) * (high - bounds[0]), unseen_share(n_low) * (bounds[1] - low), 0.0)


def unseen_reason(
    ours: tuple[str, Sample],
    theirs: tuple[str, Sample],
    gap: Difference,
    bounds: tuple[float, float],
    *,
    n_tests: int = 1,
    step: float = 0.0,
) -> str | None:
    """Return why unseen sessions could explain a significant difference; None if they could not.

    For several tests, they could not if the difference minus the points that unseen sessions can explain is
    still significant by Welch's t, with p multiplied by the number of tests. For one test, they could not if the
    95 % interval excludes differences of up to that many points.

    Args:
        ours: Name and sessions of A.
        theirs: Name and sessions of B.
        gap: The difference A − B with its interval.
        bounds: The ends of the scale.
        n_tests: The number of differences tested together.
        step: As for `welch`; used only for several tests.
    """
    if gap.low is None or gap.high is None:
        return None
    (name, better), (_, worse) = (ours, theirs) if gap.difference > 0 else (theirs, ours)
    points = unseen_points((better.mean, better.n), (worse.mean, worse.n), bounds)
    if n_tests > 1:
        less = welch(better._replace(mean=better.mean - points), worse, step=step)
        if less.difference > 0 and less.p_value is not None and less.p_value * n_tests < _MISSED:
            return None
    elif max(gap.low, -gap.high) > points:
        return None
    n = min(better.n, worse.n)
    return (
        f"{name} better as far as seen, but {n} sessions do not show how often sessions break down: "
        f"{100 * unseen_share(n):.0f} % of them unseen can be worth {points:.1f} points; needs about "
        f"{_sessions_needed(better, worse, gap, bounds)} sessions"
    )


def _sessions_needed(better: Sample, worse: Sample, gap: Difference, bounds: tuple[float, float]) -> str:
    """Return the number of sessions per agent that would show this difference at the same spread."""
    reach = abs(gap.difference) - max(gap.low or 0.0, -(gap.high or 0.0))
    n_sessions = min(better.n, worse.n)
    for n in range(n_sessions + 1, _MOST_SESSIONS):
        points = unseen_points((better.mean, n), (worse.mean, n), bounds)
        if abs(gap.difference) - reach * math.sqrt(n_sessions / n) > points:
            return str(n)
    return f"more than {_MOST_SESSIONS:,}"


def _lower_limit(shares: Sequence[float]) -> float:
    """Return the 2.5 % quantile of the randomly weighted mean of the shares and 0, by bisection."""
    low, high = 0.0, math.fsum(shares) / len(shares)
    if high == 0:
        return 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _below(shares, middle) <= 0.5 - LEVEL / 2 else (low, middle)
    return low


def _below(shares: Sequence[float], limit: float) -> float:
    """Return the probability that the randomly weighted mean of the shares and 0 is at most `limit`.

    With exponential weights, it is the probability that Σ (share − limit) · weight ≤ 0. It is computed with
    Imhof's integral (1961) of the characteristic function, over the logarithm of its argument.
    """
    import numpy as np

    distances = np.array([*shares, 0.0]) - limit
    largest = float(np.abs(distances).max())
    if largest == 0:
        return 1.0
    steps = np.linspace(-18.0, 16.0, 700)
    scaled = np.exp(steps)[:, None] * (distances / largest)[None, :]
    angle = np.arctan(scaled).sum(axis=1)
    size = np.exp(-0.5 * np.log1p(scaled**2).sum(axis=1))
    integral = float((np.sin(angle) * size).sum() * (steps[1] - steps[0]))
    return min(max(0.5 - integral / math.pi, 0.0), 1.0)
