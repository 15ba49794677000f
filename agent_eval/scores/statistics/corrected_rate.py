"""Correct a judge's rate for its errors: sensitivity and specificity against people (Rogan and Gladen, 1978).

Sensitivity and specificity are those of the judge and pass to other agents; the share of positives may differ.
The interval (Fieller) has both uncertainties: that of the judge's rate and that of the labels. Functions take
and return numbers.
"""

import math
from typing import NamedTuple

import numpy as np

from agent_eval.scores.statistics.agreement import Answer, Pairs
from agent_eval.scores.statistics.clustered import FEWEST_CLUSTERS
from agent_eval.scores.statistics.intervals import LEVEL, OutOfRangeError
from agent_eval.scores.statistics.resampling import Floats, leave_one_out, strata_covariance, total


class Accuracy(NamedTuple):
    """Hold a judge's sensitivity and specificity (0–1) with the variances and the covariance of both."""

    sensitivity: float
    specificity: float
    variance_sensitivity: float
    variance_specificity: float
    covariance: float
    freedom: float  # degrees of freedom of the variances


class CorrectedRate(NamedTuple):
    """Hold a corrected rate, 0–1, with its 95 % interval; or the reason why there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None
    refused: str | None = None


def accuracy(pairs: Pairs, positive: Answer) -> Accuracy | None:
    """Return the judge's accuracy against people, by leaving out one conversation at a time.

    Each variance counts one label more, half of it wrong: no wrong label among a few does not show that there is
    never one. With strata it includes that of their sizes, which are those of as many parts as the weights add up
    to. None below five conversations with labels of a kind, or if one of them holds all labels of a kind.

    Args:
        pairs: What judge and people said of the same parts.
        positive: The answer whose rate is corrected, e.g. 'pass'.
    """
    judge = np.array([answer == positive for answer in pairs.judge], dtype=np.float64)
    human = np.array([answer == positive for answer in pairs.human], dtype=np.float64)
    sums = pairs.sums(human, judge * human, 1 - human, (1 - judge) * (1 - human))
    by_cluster = sums.sum(axis=1)
    fewest = min(int((by_cluster[:, side] > 0).sum()) for side in (1, 3)) if len(sums) else 0
    if fewest < FEWEST_CLUSTERS:
        return None
    without = _rates(leave_one_out(sums))
    if not np.isfinite(without).all():
        return None
    n = len(sums)
    centred = without - without.mean(axis=0)
    spread = (n - 1) / n * centred.T @ centred
    if pairs.strata is not None:
        n_parts = len(pairs.judge) if pairs.weights is None else math.fsum(pairs.weights)
        spread += strata_covariance(sums, _rates, n_parts)
    rates = [min(float(rate), 1.0) for rate in _rates(total(sums))[0]]
    effective = by_cluster.sum(axis=0) ** 2 / (by_cluster**2).sum(axis=0)
    variances = [_smoothed(rates[i], float(spread[i, i]), float(effective[1 + 2 * i])) for i in (0, 1)]
    grown = math.prod(v / spread[i, i] if spread[i, i] > 1e-15 else 0.0 for i, v in enumerate(variances))
    covariance = float(spread[0, 1]) * math.sqrt(grown)
    return Accuracy(rates[0], rates[1], variances[0], variances[1], covariance, n - 1)


def corrected_rate(rate: float, variance: float, of_judge: Accuracy | None) -> CorrectedRate:
    """Return (rate + specificity − 1) / (sensitivity + specificity − 1), within 0–1, with its interval.

    Refused if the accuracy is unknown, or if sensitivity + specificity − 1 is not above 0 by more than chance: then
    any true rate is compatible with the judge's.

    Args:
        rate: The judge's share of positives, 0–1.
        variance: Of this share, over conversations.
        of_judge: As of `accuracy`, of labels that do not belong to this rate.

    Raises:
        OutOfRangeError: If the rate is not in 0–1 or the variance negative.

    Source: Rogan, Gladen, Estimating prevalence from the results of a screening test, 1978; Fieller, 1954.
    """
    from scipy.special import stdtrit

    if not 0 <= rate <= 1:
        raise OutOfRangeError("rate", rate, "0 to 1")
    if not variance >= 0:
        raise OutOfRangeError("variance", variance, "0 or more")
    if of_judge is None:
        return CorrectedRate(None, refused="too few labels of each kind for sensitivity and specificity")
    se, sp, var_se, var_sp, covariance, freedom = of_judge
    better, above = se + sp - 1, rate + sp - 1
    squared = float(stdtrit(freedom, 0.5 + LEVEL / 2)) ** 2
    a = better**2 - squared * (var_se + var_sp + 2 * covariance)
    if better <= 0 or a <= 0:
        reach = math.sqrt(squared * max(var_se + var_sp + 2 * covariance, 0.0))
        return CorrectedRate(
            None,
            refused="the judge is not shown to be better than chance: sensitivity + specificity − 1 is "
            f"{better:.2f} ({better - reach:.2f} to {better + reach:.2f})",
        )
    b = above * better - squared * (var_sp + covariance)
    c = above**2 - squared * (variance + var_sp)
    root = math.sqrt(max(b**2 - a * c, 0.0))
    low, value, high = (min(max(x, 0.0), 1.0) for x in ((b - root) / a, above / better, (b + root) / a))
    return CorrectedRate(value, low, high)


def _rates(sums: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(sums[:, [2, 4]] / sums[:, [1, 3]])


def _smoothed(share: float, variance: float, n_effective: float) -> float:
    """Return the variance of a share with one label more, half of it wrong."""
    n = share * (1 - share) / variance if variance > 1e-15 and 0 < share < 1 else n_effective
    moved = (share * n + 0.5) / (n + 1)
    return moved * (1 - moved) / (n + 1)
