"""Correct the mean of a judge's ratings or other numbers with drawn labels of the same parts.

Two-valued answers have an estimator of their own, `corrected_rate.double_sampled_rate`. Functions take and return
numbers.
"""

import numpy as np

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


def corrected_mean(sample: DoubleSample, bounds: tuple[float, float], step: float) -> CorrectedRate:
    """Return the mean of people's answers with its 95 % interval on the scale, from a judge's and drawn labels.

    If all answers are the ends of the scale, the result is that of `double_sampled_rate`. Other numbers are regressed:
    people's answers on the judge's, among the drawn labels and with their weights. The mean is that of the predictions
    for all parts, with the answers of people for parts that were decided without a draw. It holds for any errors of the
    judge, because the predictions have the right mean whatever the slope is; a judge without information has slope 0.
    If all parts are labelled, their mean is used. The variance is that of the residuals of both phases over clusters,
    with the residuals of the labels divided by the root of 1 − leverage and as many degrees of freedom as labels minus
    coefficients; the interval is that of `bounded_mean`.

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
    shares, drawn, decided = sample.shares, sample.is_drawn, sample.is_decided
    of_judge = float(shares[~decided].sum())
    is_census = bool((drawn | decided).all())
    weights = shares[drawn] * (1.0 if is_census else sample.weights[drawn])
    weights = weights / weights.sum()
    asked, said = sample.judge[drawn], sample.human[drawn]
    centre, mean = float(weights @ asked), float(weights @ said)
    variance = float(weights @ (asked - centre) ** 2)
    has_slope = variance > _LEAST_VARIANCE and not is_census
    slope = float(weights @ ((asked - centre) * (said - mean))) / variance if has_slope else 0.0
    predicted = np.where(decided, sample.human, mean + slope * (sample.judge - centre))
    distance = (asked - centre) / variance if has_slope else np.zeros(len(asked))
    beyond = float(shares[~decided] @ sample.judge[~decided]) / of_judge - centre
    influence = weights * (1 + beyond * distance) * of_judge
    leverage = np.minimum(weights * (1 + distance * (asked - centre)), _MOST_LEVERAGE)
    value = min(max(float(shares @ predicted), low), high)
    second = np.zeros(len(shares))
    second[drawn] = influence * (said - predicted[drawn]) / np.sqrt(1 - leverage)
    predicted = np.where(drawn, sample.human, predicted) if is_census else predicted
    first = shares * (predicted - value)
    if is_census:
        second = np.zeros(len(shares))
    label_shares = np.zeros(len(shares))
    label_shares[drawn] = weights
    sums = cluster_sums(np.stack([first + second, shares, label_shares], axis=1), sample.clusters)[:, 0]
    together, of_shares, of_labels = (sums**2).sum(axis=0).tolist()
    surplus = together - float(((first + second) ** 2).sum())
    surplus = max(surplus, 0.0) / (1 - of_shares) if of_shares < 1 else 0.0
    freedom = max(1 / float(weights @ weights) - 1 - has_slope, 1.0)
    if surplus > 0:
        freedom = min(freedom, max(1 / of_labels - 1, 1.0))
    spread = float((first**2).sum() + (second**2).sum()) + surplus
    n = max(2, round(freedom + 1))
    ends = bounded_mean(
        Sample(n, value, float(np.sqrt(spread * n))), bounds=bounds, step=min(step, high - low)
    )
    limits = (None, None) if ends is None else (ends.low, ends.high)
    return CorrectedRate(value, limits[0], limits[1], predicted=predicted)
