"""Compute intervals and tests for means of few sessions or tasks.

The methods were chosen by their measured coverage (`python -m benchmarks coverage`, docs/statistics.md).
Functions take and return numbers. All intervals are two-sided 95 % intervals.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from agent_eval.errors import InvalidValueError
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
_LEAN = 0.25  # chosen by measured coverage; 0 would give plain log-odds
_EARLIER = 2.0  # see `_turning_share`
_ROUNDING = 1e-9
_ENOUGH_FREEDOM = 20  # above this, the estimate of Welch's degrees of freedom hardly varies
_N_QUANTILES = 48


def out_of_range(name: str, value: object, allowed: str) -> InvalidValueError:
    """Return the error for a number outside the range that an interval or a test requires."""
    return InvalidValueError(f"The {name} is {value!r}. Allowed: {allowed}.")


class Interval(NamedTuple):
    """Hold the two bounds of an interval, which includes the estimate."""

    low: float
    high: float


class Sample(NamedTuple):
    """Summarise independent values by their number, mean and standard deviation."""

    n: int
    mean: float
    deviation: float  # sample standard deviation; 0 for one value

    @classmethod
    def of(cls, values: Sequence[float]) -> "Sample":
        """Summarise these values.

        Raises:
            InvalidValueError: If a value is not a finite number.
        """
        # fast check of all values together; an invalid value is searched for only if the check fails
        if not ({*map(type, values)} <= {float, int} and all(map(math.isfinite, values))):
            for value in values:
                if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                    raise InvalidValueError(f"Expected finite numbers, got {value!r}. Omit unknown values.")
        n = len(values)
        mean = math.fsum(values) / n if n else math.nan
        return cls(n, mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / max(n - 1, 1)))

    def including(self, error: float) -> "Sample":
        """Return the sample with an independent standard error of its mean added to its spread."""
        return self._replace(deviation=math.hypot(self.deviation, error * math.sqrt(self.n)))


class Difference(NamedTuple):
    """Hold the comparison of A with B: the mean difference A − B with its interval and significance.

    If significance cannot be computed, as with one session, the interval and both probabilities are None.
    """

    difference: float
    low: float | None
    high: float | None
    p_value: float | None  # two-sided
    probability_better: float | None  # probability that A's true mean is the higher one, with a flat prior
    smallest_detectable: float | None = (
        None  # true difference that is found with 80 % power at 5 %; None if the interval is
    )


def bounded_mean(values: Sample, *, bounds: tuple[float, float], step: float) -> Interval | None:
    """Return the interval of the mean of independent values on a scale; None for fewer than two values.

    It is a t interval on a transform of the mean's share of the scale (`_leaning`). It stays on the scale and is
    longer on the side of the middle, because a plain t interval of skewed values near an end has too little
    coverage. The spread is at least that of a change of one value by `step`, because equal values in a few
    sessions do not show that sessions never vary.

    Near an end of the scale, the slope of the transform grows without bound, so that a limit would move away
    from a mean that approaches the end. The limit is therefore constant beyond `_turning_share`: at the same
    spread, a higher mean never has a lower limit. No limit is wider than that of `scale_bound`, which is valid
    for any values.

    Args:
        values: Summary of the values, one per session.
        bounds: The ends of the scale.
        step: The largest change of one value by one rating point.

    Raises:
        InvalidValueError: If the mean is off the scale, or the step is not positive.
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
    """Return the lower limit of the mean of n shares; 1 − share in place of share gives 1 − the upper limit."""
    at = min(share, _turning_share(reach))
    leaning = _leaning(at, reach)[0] if at > 0 else 0.0
    return max(leaning, scale_bound(share, n)[0])


def scale_bound(share: float, n: float) -> tuple[float, float]:
    """Return 97.5 % bounds of the mean of n independent values on the scale 0–1, from their mean alone.

    Values at the two ends of the scale vary the most of all values with this mean. The number of values at the
    upper end is binomial, so the bounds are those of Clopper and Pearson with n × share as that number. If all
    values are at the upper end, the lower bound is 0.025^(1/n).
    """
    from scipy.special import betaincinv

    c = share * n
    low = float(betaincinv(c, n - c + 1, 1 - _UPPER)) if c > 0 else 0.0
    high = float(betaincinv(c + 1, n - c, _UPPER)) if c < n else 1.0
    return low, high


def _turning_share(reach: float) -> float:
    """Return the share above which the lower limit is constant, between 1/2 and 1.

    With log-odds x and reach r, the lower limit of `_leaning` falls as the share p rises beyond the solution of
    p(1 − p) = r(tanh(x/4)/4 + 2p − 1). This function solves the equation with twice the reach, which was chosen
    by measured coverage; the reach itself would give too narrow intervals near the end.
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
    """Return the interval of the mean of n independent shares (0–1) with this variance; None for n < 2.

    Shares that are all 0 or 1 have the largest variance that their mean allows and are equivalent to n trials;
    their interval consists of Beta quantiles with Jeffreys' prior. A smaller variance is equivalent to more
    trials, but part of it is estimated rather than implied by the mean. For this part, the effective number of
    trials is reduced for the uncertainty of t (after Korn and Graubard, 1998, who correct the whole variance),
    and the interval is that of `_leaning`, because shares may be more skewed than trials.

    Args:
        mean: The mean of the shares.
        variance: The variance of the shares; at least half of the variance from a change of one share by `step`
            is used.
        n: The number of shares.
        step: The change that one trial makes to a share, approximately 1 / trials of a task.

    Raises:
        InvalidValueError: If mean or variance is not in 0–1, or the step is not above 0 and at most 1.
    """
    from scipy.special import betaincinv, ndtri, stdtrit

    if n < 2:
        return None
    _check("mean", mean, (0, 1))
    _check("variance", variance, (0, 1))
    _check("step", step, (0, 1), is_positive=True)
    mean = min(max(mean, 0.0), 1.0)
    most = mean * (1 - mean) * n / (n - 1)
    variance_share = min(max(variance, step**2 / n / 2) / most, 1.0) if most > 0 else 1.0
    z = float(ndtri(_UPPER))
    shrunk = (z / float(stdtrit(n - 1, _UPPER))) ** 2
    effective = n / variance_share * (variance_share + (1 - variance_share) * shrunk)
    a, b = mean * effective + 0.5, (1 - mean) * effective + 0.5
    share = (mean * effective + 0.25) / (effective + 0.5)
    leaning = _leaning(share, z * math.sqrt(share * (1 - share) / effective))
    low, high = (
        variance_share * float(betaincinv(a, b, q)) + (1 - variance_share) * end
        for q, end in zip((1 - _UPPER, _UPPER), leaning, strict=True)
    )
    return Interval(min(low, mean), max(high, mean))


def _leaning(share: float, reach: float) -> tuple[float, float]:
    """Return the ends of share ± reach, computed on sinh(x / 4) of the log-odds x.

    The interval stays within 0–1 and is longer towards 1/2. With plain log-odds, this asymmetry would be too
    small for the skewness of few sessions or tasks near an end of the scale.
    """
    bent, slope = _LEAN * math.log(share / (1 - share)), _LEAN / (share * (1 - share))
    ends = (math.asinh(math.sinh(bent) + side * reach * slope * math.cosh(bent)) / _LEAN for side in (-1, 1))
    low, high = (0.5 + 0.5 * math.tanh(end / 2) for end in ends)
    return low, high


def welch(a: Sample, b: Sample, *, step: float = 0.0) -> Difference:
    """Compare the means of two sets of independent values, one value per session, with Welch's t test.

    Args:
        a: Values of A.
        b: Values of B.
        step: As for `bounded_mean`. If it is 0 and neither side varies, significance is not computed.
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
    """Compare two agents on the same tasks, by the difference A − B per task.

    The interval is a t interval. If up to 16 tasks differ, p is exact by sign flipping: the share of all ways to
    swap the two agents task by task that give a difference at least as large. With more tasks, p is that of t.
    If all tasks differ by the same amount, p is 2 / 2^n for any number of tasks, and there is no interval. If no
    task differs, the result is a tie: p is 1, and the probability that A is better is 1/2. The smallest
    detectable difference is that of t, or that of `detectable_by_signs` if many tasks have equal differences;
    it is None if fewer than `FEWEST_PLANNED` tasks differ.

    Args:
        differences: The difference A − B of each task.
        plans: Whether to compute the detectable difference, which takes up to ten milliseconds.
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
    """Return the true difference that a t test finds with 80 % power at a two-sided 5 %, in the units of `error`.

    The statistic of a true difference d follows the noncentral t with noncentrality d / error.

    Args:
        error: The standard error of the difference.
        freedom: The degrees of freedom of `error`.

    Raises:
        InvalidValueError: If the error is negative or the degrees of freedom are not positive.
    """
    if not error >= 0:
        raise out_of_range("standard error", error, "0 or more")
    if not freedom > 0:
        raise out_of_range("number of degrees of freedom", freedom, "above 0")
    return error * detectable_multiple(freedom)


def t_reach(freedom: float) -> float:
    """Return half the width of a 95 % t interval in standard errors."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, _UPPER))


def detectable_multiple(freedom: float) -> float:
    """Return the smallest detectable difference in standard errors, with `freedom` rounded to three digits."""
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

    Welch's degrees of freedom depend on two estimated variances, and few values estimate them poorly. With
    three values per side, the result is 4.3 standard errors, although t with 4 degrees of freedom gives 3.7.

    Args:
        freedom_a: The degrees of freedom of the variance of A's mean.
        freedom_b: The degrees of freedom of the variance of B's mean.
        share: A's share of the variance of the difference.
    """
    if min(freedom_a, freedom_b) >= _ENOUGH_FREEDOM:
        return detectable_multiple(1 / (share**2 / freedom_a + (1 - share) ** 2 / freedom_b))
    return _welch_multiple(float(f"{freedom_a:.3g}"), float(f"{freedom_b:.3g}"), round(share, 2))


@lru_cache(maxsize=4096)
def _welch_multiple(freedom_a: float, freedom_b: float, share: float) -> float:
    """Compute `welch_multiple` with the power as a mean over quantiles of the two estimated variances.

    Given the variances, the difference is normally distributed.
    """
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
    """Return the p values corrected for multiple testing after Holm (1979), in the given order; None is ignored.

    Raises:
        InvalidValueError: If a p value is not in 0–1.
    """
    for p_value in p_values:
        if p_value is not None:
            _check("p value", p_value, (0, 1))
    sorted_p_values = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for place, (p, i) in enumerate(sorted_p_values):
        largest = max(largest, min(1.0, p * (len(sorted_p_values) - place)))
        corrected[i] = largest
    return corrected


def binomial_p(k: int, n: int) -> float:
    """Return the exact two-sided p of k heads in n tosses of a fair coin; 1 for n = 0.

    Raises:
        InvalidValueError: If the number of heads is negative or exceeds the number of tosses.
    """
    if not 0 <= k <= n:
        raise out_of_range("number of heads", k, f"0 to {n}, the number of tosses")
    if n == 0:
        return 1.0
    tail = sum(math.comb(n, i) for i in range(min(k, n - k) + 1))
    return float(min(1.0, 2 * tail / 2**n))


def _check(name: str, value: float, bounds: tuple[float, float], *, is_positive: bool = False) -> None:
    """Raise InvalidValueError for a value that is not a number or is out of bounds by more than rounding errors."""
    low, high = bounds
    if not low - _ROUNDING <= value <= high + _ROUNDING or (is_positive and value <= 0):
        above = f"above {low:g} and at most {high:g}" if is_positive else f"{low:g} to {high:g}"
        raise out_of_range(name, value, above)
