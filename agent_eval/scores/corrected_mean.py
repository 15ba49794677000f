"""Correct the mean of a judge's ratings or other numbers with drawn labels of the same parts.

Two-valued answers have an estimator of their own, `corrected_rate.double_sampled_rate`. Functions take and return
numbers.
"""

import numpy as np
from numpy.typing import NDArray

from agent_eval.scores.statistics.corrected_rate import (
    TOO_FEW_DRAWN,
    CorrectedRate,
    DoubleSample,
    double_sampled_rate,
)
from agent_eval.scores.statistics.intervals import Sample, bounded_mean
from agent_eval.scores.statistics.resampling import cluster_sums

_LEAST_VARIANCE = 1e-9  # of the judge's answers among the labels, for a slope
_MOST_LEVERAGE = 0.9
_CLASSES = 5  # of the judge's answers, equal parts of the scale
_UNSEEN = 0.65  # of the largest error that labels can have missed, chosen by measured coverage


def corrected_mean(sample: DoubleSample, bounds: tuple[float, float], step: float) -> CorrectedRate:
    """Return the mean of people's answers with its 95 % interval on the scale, from a judge's and drawn labels.

    If all answers are the ends of the scale, the result is that of `double_sampled_rate`. Other numbers are regressed:
    people's answers on the judge's, among the drawn labels and with their weights. The mean is that of the predictions
    for all parts, with the answers of people for parts that were decided without a draw. It holds for any errors of the
    judge, because the predictions have the right mean whatever the slope is; a judge without information has slope 0.
    If all parts are labelled, their mean is used. The variance is that of the residuals of both phases over clusters,
    with the residuals of the labels divided by the root of 1 − leverage and as many degrees of freedom as labels minus
    coefficients; the interval is that of `bounded_mean`.

    Labels that agree with the judge do not show that it never errs: a judge that is wrong in one of 20 answers agrees
    with 30 labels in every fifth sample. Towards each end, the variance of the residuals is therefore at least that of
    `_unseen_errors`. No interval is wider than that of the labels alone.

    Args:
        sample: The answers and labels on the scale.
        bounds: The ends of the scale.
        step: The smallest difference of two answers, e.g. 1 for ratings from 1 to 5.

    Source: Cochran, Sampling Techniques, 1977, chapter 12 (regression estimators of double samples).
    """
    if not sample.has_labels:
        return CorrectedRate(None, refused=TOO_FEW_DRAWN)
    answers = np.concatenate([sample.judge, sample.human[np.isfinite(sample.human)]])
    low, high = bounds
    if step >= high - low and set(((answers - low) / (high - low)).tolist()) <= {0.0, 1.0}:
        return double_sampled_rate(sample)
    shares, is_drawn, decided = sample.shares, sample.is_drawn, sample.is_decided
    of_judge = float(shares[~decided].sum())
    is_census = bool((is_drawn | decided).all())
    weights = shares[is_drawn] * (1.0 if is_census else sample.weights[is_drawn])
    weights = weights / weights.sum()
    judge, people = sample.judge[is_drawn], sample.human[is_drawn]
    centre, mean = float(weights @ judge), float(weights @ people)
    variance = float(weights @ (judge - centre) ** 2)
    has_slope = variance > _LEAST_VARIANCE and not is_census
    slope = float(weights @ ((judge - centre) * (people - mean))) / variance if has_slope else 0.0
    predicted = np.where(decided, sample.human, mean + slope * (sample.judge - centre))
    distance = (judge - centre) / variance if has_slope else np.zeros(len(judge))
    beyond = float(shares[~decided] @ sample.judge[~decided]) / of_judge - centre
    influence = weights * (1 + beyond * distance) * of_judge
    leverage = np.minimum(weights * (1 + distance * (judge - centre)), _MOST_LEVERAGE)
    value = min(max(float(shares @ predicted), low), high)
    second = np.zeros(len(shares))
    second[is_drawn] = influence * (people - predicted[is_drawn]) / np.sqrt(1 - leverage)
    predicted = np.where(is_drawn, sample.human, predicted) if is_census else predicted
    first = shares * (predicted - value)
    alone = shares * (np.where(decided, sample.human, mean) - value)
    alone[is_drawn] += of_judge * weights * (people - mean) / np.sqrt(1 - np.minimum(weights, _MOST_LEVERAGE))
    if is_census:
        second = np.zeros(len(shares))
    label_shares = np.zeros(len(shares))
    label_shares[is_drawn] = weights
    sums = cluster_sums(np.stack([first + second, shares, label_shares], axis=1), sample.clusters)[:, 0]
    together, of_shares, of_labels = (sums**2).sum(axis=0).tolist()
    surplus = together - float(((first + second) ** 2).sum())
    surplus = max(surplus, 0.0) / (1 - of_shares) if of_shares < 1 else 0.0
    freedom = max(1 / float(weights @ weights) - 1 - has_slope, 1.0)
    if surplus > 0:
        freedom = min(freedom, max(1 / of_labels - 1, 1.0))
    n = max(2, round(freedom + 1))
    residual = float((second**2).sum())
    unseen = (0.0, 0.0) if is_census else _unseen_errors(sample, predicted, bounds)
    limits: list[float | None] = []
    for end, least in enumerate(unseen):
        spread = float((first**2).sum()) + max(residual, least)
        spread = spread if is_census else min(spread, float((alone**2).sum()))
        deviation = float(np.sqrt((spread + surplus) * n))
        ends = bounded_mean(Sample(n, value, deviation), bounds=bounds, step=min(step, high - low))
        limits.append(None if ends is None else (ends.low, ends.high)[end])
    return CorrectedRate(value, limits[0], limits[1], predicted=predicted)


def _unseen_errors(
    sample: DoubleSample, predicted: NDArray[np.float64], bounds: tuple[float, float]
) -> tuple[float, float]:
    """Return the variance of errors of the judge below and above the predictions that the labels can have missed.

    In each class of the judge's answers, they are a share of the distance to the end of the scale that is inverse to
    the number of its labels plus one half.
    """
    low, high = bounds
    place = np.clip((sample.judge - low) / (high - low), 0.0, 1.0)
    classes = np.rint(place * (_CLASSES - 1)).astype(np.int64)
    shares = np.where(sample.is_decided, 0.0, sample.shares)
    n_labels = np.bincount(classes[sample.is_drawn], minlength=_CLASSES)

    def variance(distance: NDArray[np.float64]) -> float:
        sums = np.bincount(classes, weights=shares * np.maximum(distance, 0.0), minlength=_CLASSES)
        return float(((_UNSEEN * sums / (n_labels + 0.5)) ** 2).sum())

    return variance(predicted - low), variance(high - predicted)
