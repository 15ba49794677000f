"""Compute intervals and tests for means of few sessions or tasks.

The methods were chosen by their measured coverage (`python -m benchmarks coverage`, docs/statistics.md).
Functions take and return numbers; sessions and tasks are defined elsewhere. All intervals are
two-sided, 95 %.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from agent_eval.errors import InputError
from agent_eval.scores.statistics.sign_flips import (
    FEWEST_PLANNED,
    MOST_FLIPPED,
    POWER,
    detectable_by_signs,
    flipping_p,
    repeats,
)

LEVEL = 0.95
_UPPER = 0.5 + LEVEL / 2
_LEAN = 0.25  # chosen by measured coverage; 0 would be the log-odds themselves
_EARLIER = 2.0  # see `_turning_share`
_ROUNDING = 1e-9
_ENOUGH_FREEDOM = 20  # from here on Welch's degrees of freedom hardly vary
_N_QUANTILES = 48


class NotANumberError(InputError, ValueError):
    """Raised for a value that a mean cannot be computed from."""

    def __init__(self, value: object) -> None:
        super().__init__(f"Expected finite numbers, got {value!r}. Omit unknown values.")


class OutOfRangeError(InputError, ValueError):
    """Raised for a number that an interval or a test cannot be computed from."""

    def __init__(self, name: str, value: object, allowed: str) -> None:
        super().__init__(f"The {name} is {value!r}. Allowed: {allowed}.")


class Interval(NamedTuple):
    """Hold two-sided bounds; they include the estimate."""

    low: float
    high: float


class Sample(NamedTuple):
    """Summarise independent values in three numbers."""

    n: int
    mean: float
    deviation: float  # sample standard deviation; 0 for one value

    @classmethod
    def of(cls, values: Sequence[float]) -> "Sample":
        """Summarise these values.

        Raises:
            NotANumberError: If one is not a finite number.
        """
        # fast check of all values; the invalid one is searched for only if there is one
        if not ({*map(type, values)} <= {float, int} and all(map(math.isfinite, values))):
            for value in values:
                if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                    raise NotANumberError(value)
        n = len(values)
        mean = math.fsum(values) / n if n else math.nan
        return cls(n, mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / max(n - 1, 1)))


class Difference(NamedTuple):
    """Hold the comparison of A with B: the mean difference A − B with its interval and significance.

    If significance cannot be computed (one session), the interval and both probabilities are null.
    """

    difference: float
    low: float | None
    high: float | None
    p_value: float | None  # two-sided
    probability_better: float | None  # that A's true mean is the higher one, flat prior
    smallest_detectable: float | None = (
        None  # true difference found with 80 % power at 5 %; null with the interval
    )


def bounded_mean(values: Sample, *, bounds: tuple[float, float], step: float) -> Interval | None:
    """Return the interval of the mean of independent values on a scale; None for fewer than two.

    t on a transform of the mean's share of the scale (`_leaning`): it stays on the scale and leans away from
    its ends, where a plain t interval of skewed values covers too little. The spread is at least that of
    `step` in one of the values: equal values in a few sessions do not show that sessions never vary.

    At the ends the slope of the transform grows without bound, so a limit would move away from a mean that
    comes closer to the end. From `_turning_share` on, a limit is therefore constant: a higher mean never has
    a lower limit, at the same spread. No limit is wider than that of `scale_bound`, which holds for any
    values.

    Args:
        values: One per session.
        bounds: The ends of the scale.
        step: The largest change of one value by one rating point.

    Raises:
        OutOfRangeError: If the mean is off the scale, or the step is not positive.
    """
    from scipy.special import stdtrit

    n, mean, deviation = values
    if n < 2:
        return None
    _check("mean", mean, bounds)
    bottom, width = bounds[0], bounds[1] - bounds[0]
    _check("step", step, (0, width), is_positive=True)
    error = max(deviation, step / math.sqrt(n)) / math.sqrt(n)
    reach = float(stdtrit(n - 1, _UPPER)) * error / width
    share = min(max((mean - bottom) / width, 0.0), 1.0)
    lower, upper = (_lower_limit(side, n, reach) for side in (share, 1 - share))
    return Interval(min(bottom + width * lower, mean), max(bottom + width * (1 - upper), mean))


def _lower_limit(share: float, n: int, reach: float) -> float:
    """Return the lower limit of the mean of n shares; for the upper one mirror the shares and the result."""
    at = min(share, _turning_share(reach))
    leaning = _leaning(at, reach)[0] if at > 0 else 0.0
    return max(leaning, scale_bound(share, n)[0])


def scale_bound(share: float, n: float) -> tuple[float, float]:
    """Return bounds of the mean of n independent values on the scale 0–1 from their mean alone, 97.5 % each.

    Of all values with this mean those at the two ends of the scale vary most. Their number is binomial:
    Clopper and Pearson's bounds, with n × share as the number of values at the upper end. If all are there,
    the lower bound is 0.025^(1/n).
    """
    from scipy.special import betaincinv

    c = share * n
    low = float(betaincinv(c, n - c + 1, 1 - _UPPER)) if c > 0 else 0.0
    high = float(betaincinv(c + 1, n - c, _UPPER)) if c < n else 1.0
    return low, high


def _turning_share(reach: float) -> float:
    """Return the share from which the lower limit of `_leaning` is constant, above 1/2 and below 1.

    The limit would fall with a rising share p from p(1 − p) = r(tanh(x/4)/4 + 2p − 1) on, for the log-odds x
    and the reach r. It is constant from twice that reach on: chosen by measured coverage, once would be too
    narrow near the end.
    """
    low, high = 0.5, 1.0
    for _ in range(50):
        share = (low + high) / 2
        bent = _LEAN * math.log(share / (1 - share)) if share < 1 else math.inf
        if share * (1 - share) >= _EARLIER * reach * (_LEAN * math.tanh(bent) + 2 * share - 1):
            low = share
        else:
            high = share
    return low


def share_mean(mean: float, variance: float, n: int, *, step: float) -> Interval | None:
    """Return the interval of the mean of n independent shares (0–1) with that variance; None for n < 2.

    Shares that are all 0 or 1 have the largest variance that their mean allows and are n trials: the interval
    is that of Beta quantiles with Jeffreys' prior. Less variance is equivalent to more trials, but the part
    of it that was estimated and is not implied by the mean has the uncertainty of t (after Korn and Graubard,
    1998, who correct the whole of it), and shares may be more skewed than trials: for that part the interval
    is that of `_leaning`.

    Args:
        mean: Of the shares.
        variance: Of the shares; at least half of the variance that `step` in one of them makes is used.
        n: Number of shares.
        step: The change of one share by one trial, approximately: 1 / trials of a task.

    Raises:
        OutOfRangeError: If mean or variance is not in 0–1, or the step not above 0 and at most 1.
    """
    from scipy.special import betaincinv, ndtri, stdtrit

    if n < 2:
        return None
    _check("mean", mean, (0, 1))
    _check("variance", variance, (0, 1))
    _check("step", step, (0, 1), is_positive=True)
    mean = min(max(mean, 0.0), 1.0)
    most = mean * (1 - mean) * n / (n - 1)
    taken = min(max(variance, step**2 / n / 2) / most, 1.0) if most > 0 else 1.0
    z = float(ndtri(_UPPER))
    shrunk = (z / float(stdtrit(n - 1, _UPPER))) ** 2
    effective = n / taken * (taken + (1 - taken) * shrunk)
    a, b = mean * effective + 0.5, (1 - mean) * effective + 0.5
    share = (mean * effective + 0.25) / (effective + 0.5)
    leaning = _leaning(share, z * math.sqrt(share * (1 - share) / effective))
    low, high = (
        taken * float(betaincinv(a, b, q)) + (1 - taken) * end
        for q, end in zip((1 - _UPPER, _UPPER), leaning, strict=True)
    )
    return Interval(min(low, mean), max(high, mean))


def _leaning(share: float, reach: float) -> tuple[float, float]:
    """Return the ends of share ± reach, on sinh(x / 4) of the log-odds x: inside 0–1, longer towards 1/2.

    Log-odds alone lean too little for the skewness of few sessions or tasks near an end of the scale.
    """
    bent, slope = _LEAN * math.log(share / (1 - share)), _LEAN / (share * (1 - share))
    ends = (math.asinh(math.sinh(bent) + side * reach * slope * math.cosh(bent)) / _LEAN for side in (-1, 1))
    low, high = (0.5 + 0.5 * math.tanh(end / 2) for end in ends)
    return low, high


def welch(a: Sample, b: Sample, *, step: float = 0.0) -> Difference:
    """Compare two sets of independent values, one per session: difference of their means, Welch's t.

    Args:
        a: Values of A.
        b: Values of B.
        step: As for `bounded_mean`; if neither varies and it is 0, significance is not computed.
    """
    from scipy.special import stdtr, stdtrit

    difference = a.mean - b.mean
    nothing = Difference(difference, None, None, None, None)
    if min(a.n, b.n) < 2:
        return nothing
    parts = [max(s.deviation**2, step**2 / s.n) / s.n for s in (a, b)]
    error = math.sqrt(sum(parts))
    if error == 0:
        return nothing
    freedom = sum(parts) ** 2 / sum(part**2 / (s.n - 1) for part, s in zip(parts, (a, b), strict=True))
    reach = float(stdtrit(freedom, _UPPER)) * error
    below = float(stdtr(freedom, -abs(difference) / error))
    better = below if difference < 0 else 1 - below
    shows = error * welch_multiple(a.n - 1, b.n - 1, parts[0] / sum(parts))
    return Difference(difference, difference - reach, difference + reach, min(2 * below, 1.0), better, shows)


def paired(differences: Sequence[float], *, plans: bool = True) -> Difference:
    """Compare the same tasks done by both: A − B per task.

    p by flipping signs, exact for up to 16 tasks that differ: the share of all ways to swap the two agents
    task by task that give a difference at least as large. Beyond, the interval and p are those of t; if all
    tasks differ equally, p is exact for any number of them, 2 / 2^n, without an interval. Without any
    difference it is a tie: p = 1, and better is as likely as worse. The detectable difference is that of t where
    all tasks move by the same amount; where tasks tie, that of `detectable_by_signs`; null if fewer than
    `FEWEST_PLANNED` tasks differ.

    Args:
        differences: One per task.
        plans: Compute the detectable difference, which takes up to ten milliseconds.
    """
    from scipy.special import stdtr

    n, mean, deviation = Sample.of(differences)
    if not any(differences):
        return Difference(mean, None, None, 1.0 if n else None, 0.5 if n else None)
    differing = [d for d in differences if d]
    p_value = flipping_p(differing) if len(differing) <= MOST_FLIPPED else None
    error = deviation / math.sqrt(n)
    if error == 0:
        return Difference(mean, None, None, 2.0 ** (1 - n), None)
    critical = t_reach(n - 1)
    reach = critical * error
    below = float(stdtr(n - 1, -abs(mean) / error))
    better = below if mean < 0 else 1 - below
    shows = None
    if plans and len(differing) >= FEWEST_PLANNED:
        multiple = detectable_multiple(n - 1)
        shows = (
            detectable_by_signs(differences, critical, multiple) if repeats(differences) else error * multiple
        )
    return Difference(
        mean, mean - reach, mean + reach, 2 * below if p_value is None else p_value, better, shows
    )


def smallest_detectable(error: float, freedom: float) -> float:
    """Return the true difference that a t test finds with 80 % power at a two-sided 5 %, in units of `error`.

    The statistic of a true difference d follows the noncentral t with noncentrality d / error.

    Args:
        error: Standard error of the difference.
        freedom: Degrees of freedom of `error`.

    Raises:
        OutOfRangeError: If the error is negative or the degrees of freedom are not positive.
    """
    if not error >= 0:
        raise OutOfRangeError("standard error", error, "0 or more")
    if not freedom > 0:
        raise OutOfRangeError("number of degrees of freedom", freedom, "above 0")
    return error * detectable_multiple(freedom)


def t_reach(freedom: float) -> float:
    """Return half the width of a 95 % interval of t in standard errors."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, _UPPER))


def detectable_multiple(freedom: float) -> float:
    """Return the smallest detectable difference in standard errors; `freedom` to three digits."""
    return _multiple(float(f"{freedom:.3g}"))


@lru_cache(maxsize=4096)
def _multiple(freedom: float) -> float:
    """Return the noncentrality at which t exceeds its critical value with a probability of 80 %.

    The probability that t falls below the negative critical value adds less than 0.0001.
    """
    from scipy.special import nctdtr, stdtrit

    critical = float(stdtrit(freedom, _UPPER))
    low, high = 0.0, 2.0 * critical
    for _ in range(50):
        middle = (low + high) / 2
        missed = float(nctdtr(freedom, middle, critical))
        low, high = (low, middle) if missed <= 1 - POWER else (middle, high)
    return high


def welch_multiple(freedom_a: float, freedom_b: float, share: float) -> float:
    """Return the smallest difference that Welch's t detects, in standard errors of the difference.

    Welch's degrees of freedom come from the two variances that are estimated, and few values estimate them
    badly: with three of each it is 4.3 standard errors, where the t table with 4 degrees of freedom gives
    3.7.

    Args:
        freedom_a: Degrees of freedom of the variance of A's mean.
        freedom_b: The same of B.
        share: The share of the variance of the difference that is A's.
    """
    if min(freedom_a, freedom_b) >= _ENOUGH_FREEDOM:
        return detectable_multiple(1 / (share**2 / freedom_a + (1 - share) ** 2 / freedom_b))
    return _welch_multiple(float(f"{freedom_a:.3g}"), float(f"{freedom_b:.3g}"), round(share, 2))


@lru_cache(maxsize=4096)
def _welch_multiple(freedom_a: float, freedom_b: float, share: float) -> float:
    """Compute the power as a mean over quantiles of both estimated variances; given these it is normal."""
    import numpy as np
    from scipy.special import chdtri, ndtr, stdtrit

    tails = (np.arange(_N_QUANTILES) + 0.5) / _N_QUANTILES
    ours, theirs = np.meshgrid(
        share * chdtri(freedom_a, tails) / freedom_a, (1 - share) * chdtri(freedom_b, tails) / freedom_b
    )
    freedom = (ours + theirs) ** 2 / (ours**2 / freedom_a + theirs**2 / freedom_b)
    critical = stdtrit(freedom, _UPPER) * np.sqrt(ours + theirs)
    low, high = 0.0, 1.0
    while float(ndtr(high - critical).mean()) < POWER:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if float(ndtr(middle - critical).mean()) >= POWER else (middle, high)
    return high


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p values corrected for their number after Holm (1979), in the given order; nulls do not count.

    Raises:
        OutOfRangeError: If one is not in 0–1.
    """
    for p_value in p_values:
        if p_value is not None:
            _check("p value", p_value, (0, 1))
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for place, (p, i) in enumerate(known):
        largest = max(largest, min(1.0, p * (len(known) - place)))
        corrected[i] = largest
    return corrected


def binomial_p(k: int, n: int) -> float:
    """Return the two-sided exact p of k heads in n throws of a fair coin; 1 for n = 0.

    Raises:
        OutOfRangeError: If the number of heads is negative or exceeds that of throws.
    """
    if not 0 <= k <= n:
        raise OutOfRangeError("number of heads", k, f"0 to {n}, the number of throws")
    if n == 0:
        return 1.0
    tail = sum(math.comb(n, i) for i in range(min(k, n - k) + 1))
    return float(min(1.0, 2 * tail / 2**n))


def _check(name: str, value: float, bounds: tuple[float, float], *, is_positive: bool = False) -> None:
    """Raise for values that are not numbers or are out of bounds; float sums may miss them slightly."""
    low, high = bounds
    if not low - _ROUNDING <= value <= high + _ROUNDING or (is_positive and value <= 0):
        above = f"above {low:g} and at most {high:g}" if is_positive else f"{low:g} to {high:g}"
        raise OutOfRangeError(name, value, above)
