"""Correct a judge's rate for the judge's errors, with human labels of the same or of other conversations.

`double_sampled_rate` (Tenenbein, 1970) uses labels of the rate's own conversations: the share of positives among the
labels for each answer of the judge. `corrected_rate` (Rogan and Gladen, 1978) uses labels of other conversations: the
judge's sensitivity and specificity, which must be the same there, although the share of positives may differ. Both
intervals include the uncertainty of the judge's rate and of the labels. Functions take and return numbers.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from agent_eval.scores.statistics.agreement import Answer, Pairs, share_interval
from agent_eval.scores.statistics.clustered import FEWEST_CLUSTERS
from agent_eval.scores.statistics.intervals import LEVEL, OutOfRangeError
from agent_eval.scores.statistics.resampling import (
    Floats,
    cluster_sums,
    leave_one_out,
    strata_covariance,
    total,
)

_PRIOR = 0.4  # of the Beta prior, between Jeffreys' 1/2 and Kerman's 1/3, chosen by measured coverage
TOO_FEW = "too few labels of each kind for sensitivity and specificity"


class Accuracy(NamedTuple):
    """Hold a judge's sensitivity and specificity (0–1) with their variances and covariance."""

    sensitivity: float
    specificity: float
    variance_sensitivity: float
    variance_specificity: float
    covariance: float
    freedom: float  # degrees of freedom of the variances


class CorrectedRate(NamedTuple):
    """Hold a corrected rate (0–1) with its 95 % interval, or the reason why the rate cannot be corrected."""

    value: float | None
    low: float | None = None
    high: float | None = None
    refused: str | None = None


@dataclass(frozen=True)
class DoubleSample:
    """Hold a judge's answers and, for some of the same parts, people's labels, with one entry per judge's answer.

    Args:
        judge: The judge's answers, 0 or 1.
        human: The labels, 0 or 1, or the mean of several raters; NaN for parts without a label.
        shares: The share of each answer in the rate; the shares sum to 1.
        weights: The number of parts that each labelled part represents; ignored for parts without a label.
        clusters: The independent unit of each part, e.g. its session.
    """

    judge: Floats
    human: Floats
    shares: Floats
    weights: Floats
    clusters: Sequence[Hashable]

    @property
    def n_labels(self) -> int:
        """Return the number of labelled parts."""
        return int(np.isfinite(self.human).sum())

    @property
    def has_labels(self) -> bool:
        """Return whether people labelled parts with each of the judge's answers, in at least five clusters."""
        is_labelled = np.isfinite(self.human)
        labelled = {c for c, known in zip(self.clusters, is_labelled.tolist(), strict=True) if known}
        answers = {*self.judge[self.shares > 0].tolist()}
        return len(labelled) >= FEWEST_CLUSTERS and answers <= {*self.judge[is_labelled].tolist()}


def accuracy(pairs: Pairs, positive: Answer) -> Accuracy | None:
    """Return the judge's sensitivity and specificity against people, with jackknife variances over conversations.

    Each variance is computed with one additional label, half of it wrong, because a few labels without an error do not
    show that there are no errors. With strata, it includes the variance of the strata's sizes among as many parts as
    the weights sum to. The result is None if fewer than five conversations have positive labels or fewer than five have
    negative ones, or if one conversation has all labels of a kind.

    Args:
        pairs: The answers of judge and people about the same parts.
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
    """Return the rate corrected after Rogan and Gladen, with its interval.

    The corrected rate is (rate + specificity − 1) / (sensitivity + specificity − 1), limited to 0–1. It is refused if
    the accuracy is unknown, or if sensitivity + specificity − 1 is not significantly above 0: any true rate would then
    be compatible with the judge's rate.

    Args:
        rate: The judge's share of positives, 0–1.
        variance: The variance of this share over conversations.
        of_judge: The accuracy from `accuracy`, based on labels of other conversations.

    Raises:
        OutOfRangeError: If the rate is not in 0–1 or the variance is negative.

    Source: Rogan, Gladen, Estimating prevalence from the results of a screening test, 1978; Fieller, 1954.
    """
    from scipy.special import stdtrit

    if not 0 <= rate <= 1:
        raise OutOfRangeError("rate", rate, "0 to 1")
    if not variance >= 0:
        raise OutOfRangeError("variance", variance, "0 or more")
    if of_judge is None or (reason := _not_better_than_chance(of_judge)):
        return CorrectedRate(None, refused=TOO_FEW if of_judge is None else reason)
    se, sp, var_se, var_sp, covariance, freedom = of_judge
    better, above = se + sp - 1, rate + sp - 1
    squared = float(stdtrit(freedom, 0.5 + LEVEL / 2)) ** 2
    a = better**2 - squared * (var_se + var_sp + 2 * covariance)
    b = above * better - squared * (var_sp + covariance)
    c = above**2 - squared * (variance + var_sp)
    root = math.sqrt(max(b**2 - a * c, 0.0))
    low, value, high = (min(max(x, 0.0), 1.0) for x in ((b - root) / a, above / better, (b + root) / a))
    return CorrectedRate(value, low, high)


def double_sampled_rate(sample: DoubleSample, of_judge: Accuracy | None) -> CorrectedRate:
    """Return the rate corrected after Tenenbein, with its interval.

    The corrected rate is Σ A p over the judge's answers, where A is the share of an answer and p is the share of
    positives among the labels of parts with this answer. It is unbiased for any errors of the judge. Like
    `corrected_rate`, it is refused for a judge that is not shown to be better than chance, because such a judge's
    answers add no information to the labels.

    The distances of the limits are √(Σ A² d² + t² V), after Zou and Donner. d is the distance of the Beta quantile from
    p for the effective number of labels, because a few labels can miss existing errors. V is the remaining variance:
    that of A, and the covariance of parts within a cluster.

    Args:
        sample: A sample for which `has_labels` is true.
        of_judge: The accuracy from `accuracy`, based on any labels.

    Source: Tenenbein, A double sampling scheme for estimating from binomial data with misclassifications, 1970;
    Zou, Donner, Construction of confidence limits about effect measures, 2008.
    """
    from scipy.special import stdtrit

    if of_judge is None or (reason := _not_better_than_chance(of_judge)):
        return CorrectedRate(None, refused=TOO_FEW if of_judge is None else reason)
    shares, is_labelled = sample.shares, np.isfinite(sample.human)
    positive, label_shares = np.zeros(len(shares)), np.zeros(len(shares))
    below, above = 0.0, 0.0
    for answer in {*sample.judge[shares > 0].tolist()}:
        is_answer = sample.judge == answer
        labelled = is_answer & is_labelled
        own = sample.weights[labelled] * shares[labelled]
        of_answer = float(shares[is_answer].sum())
        label_shares[labelled] = of_answer * own / own.sum()
        share = min(float(own @ sample.human[labelled] / own.sum()), 1.0)
        n_effective = float(own.sum() ** 2 / (own**2).sum())
        low, high = share_interval(share, 0.0, n_effective, 1, prior=_PRIOR)
        positive[is_answer] = share
        below += (of_answer * (share - low)) ** 2
        above += (of_answer * (high - share)) ** 2
    value = min(float(shares @ positive), 1.0)
    first = shares * (positive - value)
    second = label_shares * (np.where(is_labelled, sample.human, 0.0) - positive)
    sums = cluster_sums(np.stack([first + second, shares, label_shares], axis=1), sample.clusters)[:, 0]
    together, *concentrations = (sums**2).sum(axis=0).tolist()
    rest = (together - float((second**2 + 2 * first * second).sum())) / (1 - concentrations[0])
    squared = float(stdtrit(1 / max(concentrations) - 1, 0.5 + LEVEL / 2)) ** 2
    low, high = (math.sqrt(distance + squared * max(rest, 0.0)) for distance in (below, above))
    return CorrectedRate(value, max(value - low, 0.0), min(value + high, 1.0))


def _not_better_than_chance(of_judge: Accuracy) -> str | None:
    """Return why the judge is not better than chance, with the interval of sensitivity + specificity − 1, or None."""
    from scipy.special import stdtrit

    better = of_judge.sensitivity + of_judge.specificity - 1
    variance = of_judge.variance_sensitivity + of_judge.variance_specificity + 2 * of_judge.covariance
    reach = float(stdtrit(of_judge.freedom, 0.5 + LEVEL / 2)) * math.sqrt(max(variance, 0.0))
    if better - reach > 0:
        return None
    return (
        "the judge is not shown to be better than chance: sensitivity + specificity − 1 is "
        f"{better:.2f} ({better - reach:.2f} to {better + reach:.2f})"
    )


def _rates(sums: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(sums[:, [2, 4]] / sums[:, [1, 3]])


def _smoothed(share: float, variance: float, n_effective: float) -> float:
    """Return the variance of a share with one additional label, half of it wrong."""
    n = share * (1 - share) / variance if variance > 1e-15 and 0 < share < 1 else n_effective
    moved = (share * n + 0.5) / (n + 1)
    return moved * (1 - moved) / (n + 1)
