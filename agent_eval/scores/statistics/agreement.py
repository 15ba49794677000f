"""Measure the agreement of a judge with people, or of raters with each other.

The measures are raw agreement, Cohen's kappa (unweighted and with quadratic weights), Krippendorff's alpha,
sensitivity, specificity and mean bias. Each has a 95 % interval that takes conversations as clusters and uses
the sampling weights and strata of the labels. Intervals of kappas, alpha and bias are percentiles over
bootstrap samples of clusters. Intervals of shares are Beta quantiles with Jeffreys' prior for the effective
number of labels (Korn and Graubard, 1998). With fewer than five clusters, no interval is computed, and with a single
label, no figure. Functions take and return numbers.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, Literal, NamedTuple, ParamSpec, TypeAlias

import numpy as np

from agent_eval.scores.statistics.clustered import FEWEST_CLUSTERS
from agent_eval.scores.statistics.intervals import LEVEL, out_of_range, scale_bound
from agent_eval.scores.statistics.resampling import (
    Figure,
    Floats,
    cluster_sums,
    jackknife_variance,
    leave_one_out,
    percentiles,
    total,
)

Level: TypeAlias = Literal["nominal", "ordinal", "interval"]
Answer: TypeAlias = str | float
_FEW_DIFFERENCES = 3
FEWEST_LABELS = 2
"""Minimum number of labelled parts for any figure: one label shows neither agreement nor chance."""
MOST_VALUES = 100
"""Maximum number of distinct values for a nominal or ordinal alpha, which has a cell for each pair of values."""


class IntervalEstimate(NamedTuple):
    """Hold a figure with its 95 % interval; None if the figure is undefined or there are too few clusters."""

    value: float | None
    low: float | None = None
    high: float | None = None


UNDEFINED = IntervalEstimate(None)


class Correlations(NamedTuple):
    """Hold correlations of two sides' numbers, −1 to 1; None if a side is constant or has fewer than three parts."""

    pearson: float | None
    spearman: float | None
    kendall: float | None  # tau-b


@dataclass(frozen=True)
class Pairs:
    """Hold the answers of a judge and of people about the same parts, with one entry per part and person.

    Args:
        judge: The judge's answers: labels or numbers.
        human: The people's answers: labels or numbers.
        clusters: The conversation of each part.
        weights: The number of parts that each labelled part represents; None for equal weights.
        strata: The group that each part was sampled from, if a fixed number of parts was drawn per group.

    Raises:
        InvalidValueError: If lengths differ, a weight is not positive, or a number is not finite.
    """

    judge: Sequence[Answer]
    human: Sequence[Answer]
    clusters: Sequence[Hashable]
    weights: Sequence[float] | None = None
    strata: Sequence[Hashable] | None = None

    def __post_init__(self) -> None:
        """Validate lengths, weights and numbers."""
        n = len(self.judge)
        for name, column in (("human", self.human), ("clusters", self.clusters), *self._optional()):
            if len(column) != n:
                raise out_of_range(f"number of {name}", len(column), f"{n}, one per answer of the judge")
        if wrong := [w for w in self.weights or () if not (math.isfinite(w) and w > 0)]:
            raise out_of_range("sampling weight", wrong[0], "finite numbers above 0")
        for answer in (*self.judge, *self.human):
            if not isinstance(answer, str) and not math.isfinite(answer):
                raise out_of_range("answer", answer, "labels, or finite numbers")

    def _optional(self) -> list[tuple[str, Sequence[object]]]:
        return [(n, c) for n, c in (("weights", self.weights), ("strata", self.strata)) if c is not None]

    @property
    def weight(self) -> Floats:
        """Return the weights, scaled to a mean of 1."""
        raw = np.asarray(self.weights if self.weights is not None else [1.0] * len(self.judge), dtype=float)
        return np.asarray(raw / raw.mean()) if len(raw) else raw

    def sums(self, *columns: Floats) -> Floats:
        """Return the sum of weights and the weighted sum of each column, by cluster and stratum."""
        rows = np.stack([np.ones(len(self.judge)), *columns], axis=1) * self.weight[:, np.newaxis]
        return cluster_sums(rows, self.clusters, self.strata)

    def numbers(self) -> tuple[Floats, Floats]:
        """Return the judge's and the people's answers as numbers.

        Raises:
            InvalidValueError: If an answer is a label.
        """
        for answer in (*self.judge, *self.human):
            if isinstance(answer, str):
                raise out_of_range("answer", answer, "numbers, for a figure of distances")
        return np.asarray(self.judge, dtype=np.float64), np.asarray(self.human, dtype=np.float64)


_Rest = ParamSpec("_Rest")
_Agreement: TypeAlias = Callable[Concatenate[Pairs, _Rest], IntervalEstimate]


def _of_several_labels(figure: _Agreement[_Rest]) -> _Agreement[_Rest]:
    """Make a figure undefined for fewer than FEWEST_LABELS parts."""

    @wraps(figure)
    def of_several(pairs: Pairs, /, *args: _Rest.args, **kwargs: _Rest.kwargs) -> IntervalEstimate:
        return UNDEFINED if len(pairs.judge) < FEWEST_LABELS else figure(pairs, *args, **kwargs)

    return of_several


def confusion(pairs: Pairs) -> dict[tuple[Answer, Answer], tuple[int, float]]:
    """Return the number of parts and their sum of weights (mean 1) by judge's answer and person's answer."""
    cells: dict[tuple[Answer, Answer], tuple[int, float]] = {}
    for judge, human, weight in zip(pairs.judge, pairs.human, pairs.weight.tolist(), strict=True):
        n, of_all = cells.get((judge, human), (0, 0.0))
        cells[judge, human] = n + 1, of_all + weight
    return cells


@_of_several_labels
def raw_agreement(pairs: Pairs) -> IntervalEstimate:
    """Return the share of parts with equal answers, 0–1."""
    return _share(pairs, _is(pairs.judge, pairs.human), np.ones(len(pairs.judge)))


@_of_several_labels
def sensitivity(pairs: Pairs, positive: Answer) -> IntervalEstimate:
    """Return the share of parts that the judge answers `positive` among those that people do, 0–1."""
    return _share(pairs, _equals(pairs.judge, positive), _equals(pairs.human, positive))


@_of_several_labels
def specificity(pairs: Pairs, positive: Answer) -> IntervalEstimate:
    """Return the share of parts that the judge does not answer `positive` among those that people do not, 0–1."""
    return _share(pairs, 1 - _equals(pairs.judge, positive), 1 - _equals(pairs.human, positive))


@_of_several_labels
def base_rate(pairs: Pairs, positive: Answer) -> IntervalEstimate:
    """Return the share of parts that people answer `positive`, 0–1."""
    return _share(pairs, _equals(pairs.human, positive), np.ones(len(pairs.human)))


@_of_several_labels
def cohen_kappa(pairs: Pairs) -> IntervalEstimate:
    """Return Cohen's kappa: 1 for perfect agreement, 0 for agreement by chance.

    Kappa is undefined if both sides always give the same single answer.

    Source: Cohen, A coefficient of agreement for nominal scales, 1960.
    """
    words = sorted({*pairs.judge, *pairs.human}, key=str)
    sums = pairs.sums(
        _is(pairs.judge, pairs.human),
        *(_equals(pairs.judge, word) for word in words),
        *(_equals(pairs.human, word) for word in words),
    )
    kappa = _estimate(sums, label_kappa_of, least=lambda s: 1 / (1 - label_chance(s)), bounds=(-1, 1))
    return _with_few_differences(pairs, kappa)


@_of_several_labels
def quadratic_kappa(pairs: Pairs) -> IntervalEstimate:
    """Return Cohen's kappa for numbers, weighted by the squared distance.

    Kappa is undefined if both sides always give the same single number. Source: Cohen, Weighted kappa, 1968.

    Raises:
        InvalidValueError: If an answer is a label.
    """
    judge, human = pairs.numbers()
    middle = human.mean() if len(human) else 0.0  # a shift does not change kappa; sums of squares stay exact
    judge, human = judge - middle, human - middle
    sums = pairs.sums(judge, human, judge**2, human**2, judge * human)
    kappa = _estimate(sums, number_kappa_of, least=lambda s: 1 / number_chance(s), bounds=(-1, 1))
    return _with_few_differences(pairs, kappa)


@_of_several_labels
def mean_bias(pairs: Pairs) -> IntervalEstimate:
    """Return the mean difference judge − person, in the units of the answers.

    Raises:
        InvalidValueError: If an answer is a label.
    """
    judge, human = pairs.numbers()
    return _estimate(pairs.sums(judge - human), lambda s: s[:, 1] / s[:, 0])


def correlations(pairs: Pairs) -> Correlations:
    """Return the unweighted correlations of judge and people, for answers on different scales.

    Raises:
        InvalidValueError: If an answer is a label.
    """
    from scipy.stats import kendalltau, pearsonr, spearmanr

    judge, human = pairs.numbers()
    if len(judge) < 3 or not np.ptp(judge) or not np.ptp(human):
        return Correlations(None, None, None)
    return Correlations(*(float(f(judge, human).statistic) for f in (pearsonr, spearmanr, kendalltau)))


@_of_several_labels
def rank_correlation(pairs: Pairs) -> IntervalEstimate:
    """Return Spearman's correlation of two sides' numbers, −1 to 1; undefined if either side is constant.

    Ranks are computed once, over all parts; bootstrap samples of conversations keep these ranks.

    Raises:
        InvalidValueError: If an answer is a label.
    """
    one, other = (_ranks(side) - len(side) / 2 for side in pairs.numbers())
    return _estimate(pairs.sums(one, other, one**2, other**2, one * other), _correlation_of, bounds=(-1, 1))


def _ranks(values: Floats) -> Floats:
    """Return the rank of each value, from 1; equal values share their mean rank.

    The result equals that of `scipy.stats.rankdata`, whose import would take longer than all other statistics
    of a small run.
    """
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[place], dtype=float)


def _correlation_of(sums: Floats) -> Floats:
    n, a, b, aa, bb, ab = sums.T
    spread = np.maximum(aa / n - (a / n) ** 2, 0) * np.maximum(bb / n - (b / n) ** 2, 0)
    return np.where(spread > 1e-12, (ab / n - a / n * b / n) / np.sqrt(np.maximum(spread, 1e-12)), np.nan)


def krippendorff_alpha(
    units: Sequence[Mapping[str, Answer]],
    level: Level,
    clusters: Sequence[Hashable],
    weights: Sequence[float] | None = None,
) -> IntervalEstimate:
    """Return Krippendorff's alpha for any number of raters; missing answers are allowed.

    Alpha is undefined if all answers are equal or no unit has two answers.

    Args:
        units: The answer of each rater who gave one, per part.
        level: The distance between two answers: nominal (equal or not), ordinal (ranks) or interval (numbers).
        clusters: The conversation of each part.
        weights: As in `Pairs`.

    Raises:
        InvalidValueError: If an answer is a label and the level is ordinal or interval, or if there are more than
            100 distinct values and the level is nominal or ordinal.

    Source: Krippendorff, Computing Krippendorff's Alpha-Reliability, 2011.
    """
    indices = [i for i, unit in enumerate(units) if len(unit) > 1]
    values: list[list[Answer]] = [[*units[i].values()] for i in indices]
    distinct_answers: list[Answer] = sorted(
        {v for of_unit in values for v in of_unit}, key=lambda v: (isinstance(v, str), v)
    )
    if level != "nominal" and (words := [v for v in distinct_answers if isinstance(v, str)]):
        raise out_of_range("answer", words[0], f"numbers, for the {level} level")
    if level != "interval" and len(distinct_answers) > MOST_VALUES:
        raise out_of_range("number of distinct answers", len(distinct_answers), f"at most {MOST_VALUES}")
    if len(indices) < FEWEST_LABELS:
        return UNDEFINED
    weight = np.array([weights[i] if weights is not None else 1.0 for i in indices], dtype=np.float64)
    weight /= weight.mean()
    rows = _squares(values) if level == "interval" else _coincidences(values, distinct_answers)
    sums = cluster_sums(rows * weight[:, np.newaxis], [clusters[i] for i in indices])
    figure = (
        _alpha_of_squares
        if level == "interval"
        else _alpha_of_cells(len(distinct_answers), is_ordinal=level == "ordinal")
    )
    return _estimate(sums, figure, bounds=(-1, 1))


def label_chance(sums: Floats) -> Floats:
    """Return chance agreement from the sums of weights, of equal answers, and of each side's labels."""
    half = (sums.shape[1] - 2) // 2
    return np.asarray((sums[:, 2 : 2 + half] * sums[:, 2 + half :]).sum(axis=1) / sums[:, 0] ** 2)


def label_kappa_of(sums: Floats) -> Floats:
    """Return Cohen's kappa from the sums of `label_chance`; NaN if chance agreement is 1."""
    chance, agreement = label_chance(sums), sums[:, 1] / sums[:, 0]
    is_defined = chance < 1 - 1e-12
    return np.where(is_defined, (agreement - chance) / np.where(is_defined, 1 - chance, 1), np.nan)


def number_chance(sums: Floats) -> Floats:
    """Return the mean squared distance of independent draws, from the sums of 1, a, b, a², b² and ab."""
    n, a, b, aa, bb = sums.T[:5]
    return np.asarray(aa / n - (a / n) ** 2 + bb / n - (b / n) ** 2 + (a / n - b / n) ** 2)


def number_kappa_of(sums: Floats) -> Floats:
    """Return the quadratic kappa from the sums of `number_chance`; NaN if all numbers are the same."""
    chance = number_chance(sums)
    squared_distance = (sums[:, 3] + sums[:, 4] - 2 * sums[:, 5]) / sums[:, 0]
    return np.where(chance > 1e-12, 1 - squared_distance / np.where(chance > 1e-12, chance, 1), np.nan)


def share_interval(
    share: float, variance: float, n_effective: float, freedom: float, *, prior: float = 0.5
) -> tuple[float, float]:
    """Return the 95 % interval of a share: Beta quantiles for its effective number of labels.

    Args:
        share: The share, 0–1.
        variance: The variance of the share; 0 for a share of 0 or 1.
        n_effective: The number of labels to use if the variance is 0.
        freedom: The degrees of freedom of the variance.
        prior: The number of successes and of failures that the prior adds; 0.5 is Jeffreys' prior.
    """
    from scipy.special import betaincinv, ndtri, stdtrit

    n = n_effective
    if variance > 0:
        upper = 0.5 + LEVEL / 2
        n = share * (1 - share) / variance * float(ndtri(upper) / stdtrit(freedom, upper)) ** 2
    a, b = share * n + prior, (1 - share) * n + prior
    low, high = (float(betaincinv(a, b, q)) for q in (0.5 - LEVEL / 2, 0.5 + LEVEL / 2))
    return min(low, share), max(high, share)


def _estimate(
    sums: Floats,
    figure: Figure,
    *,
    least: Figure | None = None,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> IntervalEstimate:
    """Return a figure with its percentile interval.

    If all replicates are equal, the limits allow for answers that n clusters miss with a probability of 2.5 %:
    a share 1 − 0.025^(1/n) of answers that change the figure by `least`. Without `least`, such a figure has no
    limits.
    """
    if not len(sums):
        return UNDEFINED
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = total(sums)
        value = float(figure(whole)[0])
    if not math.isfinite(value):
        return UNDEFINED
    limits = percentiles(sums, figure) if len(sums) >= FEWEST_CLUSTERS else None
    if limits is not None and limits[1] - limits[0] < 1e-9:
        reach = float(least(whole)[0]) * (1 - scale_bound(1.0, len(sums))[0]) if least else 0.0
        limits = (value - reach, value + reach) if reach else None
    if limits is None:
        return IntervalEstimate(value)
    return IntervalEstimate(value, *(min(max(limit, bounds[0]), bounds[1]) for limit in limits))


def _with_few_differences(pairs: Pairs, kappa: IntervalEstimate) -> IntervalEstimate:
    """Return the kappa with a lower limit that is corrected for few clusters with differing answers.

    Bootstrap samples contain equally few differences, so that their percentiles are too narrow. The corrected limit
    follows from Clopper and Pearson's upper bound of the share of differing answers, at the same chance agreement and
    distances.
    """
    if kappa.value is None or kappa.low is None:
        return kappa
    by_cluster = pairs.sums(1 - _is(pairs.judge, pairs.human)).sum(axis=1)
    weight, differing = by_cluster.T
    if not 0 < (differing > 0).sum() < _FEW_DIFFERENCES:
        return kappa
    share = float(differing.sum() / weight.sum())
    n_effective = float(weight.sum() ** 2 / (weight**2).sum())
    low = 1 - (1 - kappa.value) * scale_bound(share, n_effective)[1] / share
    return kappa._replace(low=max(min(kappa.low, low), -1.0))


def _share(pairs: Pairs, numerator: Floats, denominator: Floats) -> IntervalEstimate:
    """Return the share of `numerator` within `denominator` (both 0 or 1 per part), with its interval."""
    sums = pairs.sums(denominator, numerator * denominator)
    n = int((sums[:, :, 1].sum(axis=1) > 0).sum())  # clusters with a part in the denominator
    if not n:
        return UNDEFINED
    of_all, n_in_both = total(sums)[0, 1:]
    share = min(float(n_in_both / of_all), 1.0)
    if n < FEWEST_CLUSTERS:
        return IntervalEstimate(share)
    with np.errstate(divide="ignore", invalid="ignore"):
        without = leave_one_out(sums)
        variance = float(jackknife_variance(without[:, 2] / without[:, 1]))
    if not math.isfinite(variance):
        return IntervalEstimate(share)
    by_cluster = sums[:, :, 1].sum(axis=1)
    effective = float(by_cluster.sum() ** 2 / (by_cluster**2).sum())
    variance = variance if 1e-12 < share < 1 - 1e-12 else 0.0
    return IntervalEstimate(share, *share_interval(share, variance, effective, n - 1))


def _squares(values: Sequence[Sequence[Answer]]) -> Floats:
    """Return n, the sum of squared distances of ordered pairs / (n − 1), Σ a and Σ a² for each unit's n answers."""
    rows = []
    middle = float(np.mean([float(v) for of_unit in values for v in of_unit]))
    for of_unit in values:
        answers = np.array(of_unit, dtype=np.float64) - middle
        n, one, two = len(answers), float(answers.sum()), float((answers**2).sum())
        rows.append((n, (2 * n * two - 2 * one**2) / (n - 1), one, two))
    return np.array(rows, dtype=np.float64)


def _alpha_of_squares(sums: Floats) -> Floats:
    n, distance_sum, one, two = sums.T
    by_chance = (2 * n * two - 2 * one**2) / (n * (n - 1))
    return np.where(
        by_chance > 1e-12, 1 - distance_sum / n / np.where(by_chance > 1e-12, by_chance, 1), np.nan
    )


def _coincidences(values: Sequence[Sequence[Answer]], distinct_answers: Sequence[Answer]) -> Floats:
    """Return one row per unit with the number of answers and the flattened matrix of value coincidences."""
    place = {value: i for i, value in enumerate(distinct_answers)}
    rows = np.zeros((len(values), 1 + len(distinct_answers) ** 2))
    for row, of_unit in zip(rows, values, strict=True):
        counts = np.bincount([place[v] for v in of_unit], minlength=len(distinct_answers)).astype(np.float64)
        row[0] = len(of_unit)
        row[1:] = ((np.outer(counts, counts) - np.diag(counts)) / (len(of_unit) - 1)).ravel()
    return rows


def _alpha_of_cells(n_values: int, *, is_ordinal: bool) -> Figure:
    """Return alpha as a function of summed coincidences; ordinal distances are differences of mid-ranks."""

    def alpha(sums: Floats) -> Floats:
        cells = sums[:, 1:].reshape(-1, n_values, n_values)
        each = cells.sum(axis=2)
        n = each.sum(axis=1)
        if is_ordinal:
            ranks = each.cumsum(axis=1) - each / 2
            distance = (ranks[:, :, np.newaxis] - ranks[:, np.newaxis, :]) ** 2
        else:
            distance = np.broadcast_to(1 - np.eye(n_values), cells.shape)
        mean_distance = (cells * distance).sum(axis=(1, 2)) / n
        by_chance = np.einsum("ic,icd,id->i", each, distance, each) / (n * (n - 1))
        return np.where(
            by_chance > 1e-12, 1 - mean_distance / np.where(by_chance > 1e-12, by_chance, 1), np.nan
        )

    return alpha


def _is(left: Sequence[Answer], right: Sequence[Answer]) -> Floats:
    return np.array([a == b for a, b in zip(left, right, strict=True)], dtype=np.float64)


def _equals(answers: Sequence[Answer], positive: Answer) -> Floats:
    return np.array([answer == positive for answer in answers], dtype=np.float64)
