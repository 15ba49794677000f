"""Correct a judge's rate for the judge's errors, with human labels of the same or of other conversations.

`double_sampled_rate` (Tenenbein, 1970) uses drawn labels of the rate's own conversations: the share of positives among
the labels for each answer of the judge. `corrected_rate` (Rogan and Gladen, 1978) uses labels of other agents: the
judge's sensitivity and specificity, which `accuracy_for_others` takes to differ from agent to agent. Both intervals
include the uncertainty of the judge's rate and of the labels. Functions take and return numbers.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent_eval.scores.statistics.agreement import Answer, Pairs
from agent_eval.scores.statistics.clustered import FEWEST_CLUSTERS
from agent_eval.scores.statistics.intervals import LEVEL, out_of_range
from agent_eval.scores.statistics.resampling import (
    Floats,
    cluster_sums,
    leave_one_out,
    strata_covariance,
    total,
)

TOO_FEW = "too few labels of each kind for sensitivity and specificity"
TOO_FEW_DRAWN = f"fewer than {FEWEST_CLUSTERS} conversations have a label that a sheet drew"
FEWEST_AGENTS = 2
_ROUNDING = 1e-20  # of a squared difference of two rates that are equal
_HALVINGS, _FAR = 45, 25.0  # of the range of a root, and its end


class Accuracy(NamedTuple):
    """Hold a judge's sensitivity and specificity (0–1) with their variances and covariance."""

    sensitivity: float
    specificity: float
    variance_sensitivity: float
    variance_specificity: float
    covariance: float
    freedom: float  # degrees of freedom of the variances


class CorrectedRate(NamedTuple):
    """Hold a corrected rate (0–1) with its 95 % interval, or the reason why the rate cannot be corrected.

    `predicted` has the expected answer of people to each part of a double sample; the rate is its mean over the shares.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    refused: str | None = None
    predicted: Floats | None = None


@dataclass(frozen=True)
class DoubleSample:
    """Hold a judge's answers and, for some of the same parts, people's labels, with one entry per judge's answer.

    Args:
        judge: The judge's answers, 0 or 1.
        human: The labels, 0 or 1, or the mean of several raters; NaN for parts without a label.
        shares: The share of each answer in the rate; the shares sum to 1.
        weights: The number of parts that each drawn label represents; NaN for a label that no sheet drew. Such a label
            decides its own part and says nothing about others. Ignored for parts without a label.
        clusters: The independent unit of each part, e.g. its session.
        conversations: The conversation of each part; by default, the clusters are conversations.
    """

    judge: Floats
    human: Floats
    shares: Floats
    weights: Floats
    clusters: Sequence[Hashable]
    conversations: Sequence[Hashable] | None = None

    @property
    def is_drawn(self) -> NDArray[np.bool_]:
        """Return which parts have a label that a sheet drew."""
        return np.isfinite(self.human) & np.isfinite(self.weights)

    @property
    def is_decided(self) -> NDArray[np.bool_]:
        """Return which parts people decided without a draw."""
        return np.isfinite(self.human) & ~np.isfinite(self.weights)

    @property
    def has_labels(self) -> bool:
        """Return whether sheets drew labels in at least five conversations, or people labelled every part."""
        is_drawn = self.is_drawn
        of_conversations = self.clusters if self.conversations is None else self.conversations
        labelled_conversations = {
            c for c, has_label in zip(of_conversations, is_drawn.tolist(), strict=True) if has_label
        }
        return len(labelled_conversations) >= FEWEST_CLUSTERS or bool(
            is_drawn.any() and np.isfinite(self.human).all()
        )


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


def accuracy_for_others(of_agents: Sequence[Accuracy]) -> Accuracy | None:
    """Return sensitivity and specificity for an agent without labels, from those of the labelled agents.

    A judge errs more often on some agents than on others. The variances are those of a further agent: 1 + 1/k times the
    variance over the k labelled agents, which is at least their mean variance, with k − 1 degrees of freedom. With few
    agents, `corrected_rate` therefore has a wide interval or is refused. The result is None for fewer than two agents.
    """
    k = len(of_agents)
    if k < FEWEST_AGENTS:
        return None
    rates = np.array([rates_of_agent[:2] for rates_of_agent in of_agents], dtype=np.float64)
    between = np.cov(rates, rowvar=False)
    within = np.array([rates_of_agent[2:4] for rates_of_agent in of_agents]).mean(axis=0)
    var_se, var_sp = (float(max(between[i, i], within[i])) * (1 + 1 / k) for i in (0, 1))
    se, sp = rates.mean(axis=0).tolist()
    return Accuracy(se, sp, var_se, var_sp, float(between[0, 1]) * (1 + 1 / k), k - 1)


def corrected_rate(rate: float, variance: float, of_judge: Accuracy | None) -> CorrectedRate:
    """Return the rate corrected after Rogan and Gladen, with its interval.

    The corrected rate is (rate + specificity − 1) / (sensitivity + specificity − 1), limited to 0–1. It is refused if
    the accuracy is unknown, or if sensitivity + specificity − 1 is not significantly above 0: any true rate would then
    be compatible with the judge's rate.

    Args:
        rate: The judge's share of positives, 0–1.
        variance: The variance of this share over conversations.
        of_judge: The accuracy from `accuracy_for_others`, based on labels of other agents.

    Raises:
        InvalidValueError: If the rate is not in 0–1 or the variance is negative.

    Source: Rogan, Gladen, Estimating prevalence from the results of a screening test, 1978; Fieller, 1954.
    """
    from scipy.special import stdtrit

    if not 0 <= rate <= 1:
        raise out_of_range("rate", rate, "0 to 1")
    if not variance >= 0:
        raise out_of_range("variance", variance, "0 or more")
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


def double_sampled_rate(sample: DoubleSample) -> CorrectedRate:
    """Return the rate corrected after Tenenbein, with its interval. It holds for any errors of the judge.

    The corrected rate is D + Σ A p over the judge's answers. D is the part of the rate that people decided without a
    draw, A is the share of the other parts with an answer, and p is the share of positives among the drawn labels of
    these parts, weighted unless all are labelled. An answer without a drawn label is unknown: half of its parts count,
    and the interval reaches from none to all of them.

    The interval holds the rates r with (rate − r)² ≤ z² Σ (A² p (1 − p) / n + S (p − r)²) + t² V. Here p are the most
    likely shares whose rate is r, n is the effective number of an answer's labels, S is the sum of the squared shares
    of its parts, so that the second term is the variance of A, and V is what parts of the same cluster add. The decided
    parts are one more answer, all of whose parts are labelled: other conversations would be decided otherwise. On the side
    on which the rate varies more than on the other, g (z² − 1) / 6 is added to z for the skewness g (Cornish and
    Fisher), so that neither end is missed more often than in 5 % of all samples. The rate is refused if fewer than five
    clusters have a drawn label.

    Source: Tenenbein, A double sampling scheme for estimating from binomial data with misclassifications, 1970; Tang,
    Qiu, Poon, Confidence interval construction for disease prevalence based on partial validation series, 2012; Cornish,
    Fisher, Moments and cumulants in the specification of distributions, 1938.
    """
    from scipy.special import ndtri, stdtrit

    if not sample.has_labels:
        return CorrectedRate(None, refused=TOO_FEW_DRAWN)
    shares, is_drawn = sample.shares, sample.is_drawn
    positive = np.where(sample.is_decided, sample.human, 0.0)
    label_shares, is_estimated = np.zeros(len(shares)), np.zeros(len(shares), dtype=bool)
    cells, unknown = [], 0.0
    for answer in {*sample.judge[~sample.is_decided & (shares > 0)].tolist()}:
        is_answer = (sample.judge == answer) & ~sample.is_decided
        labelled = is_answer & is_drawn
        of_answer = float(shares[is_answer].sum())
        is_census = bool((labelled == is_answer).all())  # on several sheets: each had weights of its own
        own = shares[labelled] * (1.0 if is_census else sample.weights[labelled])
        if not labelled.any():
            positive[is_answer] = 0.5
            unknown += of_answer / 2
            continue
        is_estimated |= is_answer
        label_shares[labelled] = of_answer * own / own.sum()
        share = min(float(own @ sample.human[labelled] / own.sum()), 1.0)
        positive[is_answer] = sample.human[is_answer] if is_census else share
        n_effective = float(own.sum() ** 2 / (own**2).sum())
        cells.append((of_answer, share, n_effective, float((shares[is_answer] ** 2).sum())))
    if (of_decided := float(shares[sample.is_decided].sum())) > 0:
        squares = float((shares[sample.is_decided] ** 2).sum())
        share = float((shares * positive)[sample.is_decided].sum()) / of_decided
        is_estimated |= sample.is_decided
        cells.append((of_decided, share, of_decided**2 / squares, squares))
    value = min(float(shares @ positive), 1.0)
    second = label_shares * (np.where(is_drawn, sample.human, 0.0) - positive)
    first = shares * (positive - value)
    sums = cluster_sums(np.stack([first + second, shares, label_shares], axis=1), sample.clusters)[:, 0]
    together, *concentrations = (sums**2).sum(axis=0).tolist()
    surplus = together - float(((first + second) ** 2).sum())
    surplus = surplus / (1 - concentrations[0]) if concentrations[0] < 1 else 0.0
    freedom = max(label_shares.sum() ** 2 / concentrations[1] - 1, 1.0)
    added = max(surplus, 0.0) * float(stdtrit(freedom, 0.5 + LEVEL / 2)) ** 2
    added += float(ndtri(0.5 + LEVEL / 2)) ** 2 * float((first[~is_estimated] ** 2).sum())
    judged_share = value - math.fsum(
        share * p for share, p, *_ in cells
    )  # of the answers without a drawn label
    low, high = _score_limits(np.array(cells), judged_share, added)
    return CorrectedRate(value, max(low - unknown, 0.0), min(high + unknown, 1.0), predicted=positive)


def _score_limits(cells: Floats, offset: float, added: float) -> tuple[float, float]:
    """Return the limits of `offset` + Σ A p.

    `cells` has A, p, n and S per answer; `added` is t² V, and z² times the variance of the parts that `offset` counts.
    """
    from scipy.special import ndtri

    share, p, n, squares = cells.T
    value, z = float(share @ p), float(ndtri(0.5 + LEVEL / 2))
    limits = []
    # the rate falls as m grows; steps on the scale of asinh, because m may be of any size
    for side, end in ((1, _FAR), (-1, -_FAR)):
        inside, outside = 0.0, end
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            likely = _most_likely(cells, math.sinh(middle))
            rate = float(share @ likely)
            of_labels, off = share**2 * likely * (1 - likely) / n, likely - offset - rate
            variance = float((of_labels + squares * off**2).sum()) + added / z**2
            third = float((share * of_labels / n * (1 - 2 * likely) + squares**2 / share * off**3).sum())
            skewness = side * third / variance**1.5 if variance > 0 else 0.0
            reach = z + max(skewness, 0.0) * (z**2 - 1) / 6
            is_inside = (value - rate) ** 2 <= reach**2 * variance + _ROUNDING
            inside, outside = (middle, outside) if is_inside else (inside, middle)
        limits.append(offset + float(share @ _most_likely(cells, math.sinh(outside))))
    return limits[0], limits[1]


def _most_likely(cells: Floats, m: float) -> Floats:
    """Return the most likely share of positives for each answer if Σ A p is not the observed one, but falls with m.

    They solve n (x / p − (1 − x) / (1 − p)) = m A for the observed shares x; m is Lagrange's multiplier.
    """
    share, observed, n, _ = cells.T
    b = m * share + n
    root = np.sqrt(np.maximum(b**2 - 4 * m * share * n * observed, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        likely = np.where(b > 0, 2 * n * observed / (b + root), (b - root) / (2 * m * share))
    return np.asarray(np.clip(likely, 0.0, 1.0))


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
