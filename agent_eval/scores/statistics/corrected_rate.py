"""Correct a judge's rate for its errors, with labels by people of the same conversations or of other ones.

Labels of the conversations of the rate itself: `double_sampled_rate` (Tenenbein, 1970), which takes the share of
positives among the labels of each answer of the judge. Labels of other conversations: `corrected_rate` (Rogan and
Gladen, 1978), from the judge's sensitivity and specificity, which have to be the same there; the share of positives may
differ. Both intervals have the uncertainty of the judge's rate and that of the labels. Functions take and return
numbers.
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

_PRIOR = 0.4  # of Beta, between Jeffreys' 1/2 and Kerman's 1/3: chosen by measured coverage
TOO_FEW = "too few labels of each kind for sensitivity and specificity"


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


@dataclass(frozen=True)
class DoubleSample:
    """Hold a judge's answers and, for some of the same parts, those of people: one entry per answer of the judge.

    Args:
        judge: 0 or 1.
        human: 0 or 1; of several raters their mean; NaN where people labelled nothing.
        shares: Of each answer in the rate; together 1.
        weights: How many parts each labelled one represents; ignored where there is no label.
        clusters: What is drawn independently, e.g. the session of each part.
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
        """Return whether people labelled parts of each answer that the judge gave, in five clusters or more."""
        is_labelled = np.isfinite(self.human)
        labelled = {c for c, known in zip(self.clusters, is_labelled.tolist(), strict=True) if known}
        answers = {*self.judge[self.shares > 0].tolist()}
        return len(labelled) >= FEWEST_CLUSTERS and answers <= {*self.judge[is_labelled].tolist()}


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
    """Return Σ A p with its interval: A, the share of an answer of the judge, and p, that of positives where it said so.

    p is estimated from the labels; it is unbiased whatever the judge's errors are, and equal to the judge's rate plus
    the weighted mean of (person − judge). Refused, as `corrected_rate`, for a judge that is not shown to be better than
    chance: then its answers add nothing to the labels.

    The limits have the distances √(Σ A² d² + t² V), after Zou and Donner. d are the distances of Beta quantiles of each
    p for its effective number of labels: few labels may show no error although there are some. V has the rest of the
    variance: that of A, and what parts of a cluster have in common.

    Args:
        sample: With `has_labels`.
        of_judge: As of `accuracy`, of any labels.

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
    """Return the reason why a judge corrects nothing, with the interval of sensitivity + specificity − 1."""
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
    """Return the variance of a share with one label more, half of it wrong."""
    n = share * (1 - share) / variance if variance > 1e-15 and 0 < share < 1 else n_effective
    moved = (share * n + 0.5) / (n + 1)
    return moved * (1 - moved) / (n + 1)
