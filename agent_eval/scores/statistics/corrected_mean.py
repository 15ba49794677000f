"""Correct the mean of a judge's ratings or other numbers with drawn labels of the same parts.

The estimator is that of `corrected_rate.double_sampled_rate`, with groups of neighbouring answers in place of single
ones, because a few labels do not cover every answer of a scale. Functions take and return numbers.
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

FEWEST_IN_CELL = 5


def corrected_mean(sample: DoubleSample, bounds: tuple[float, float], step: float) -> CorrectedRate:
    """Return the mean of people's answers with its 95 % interval on the scale, from a judge's and drawn labels.

    Two-valued answers have the estimator and interval of `double_sampled_rate`. For other numbers, the judge's answers
    are divided into cells of neighbouring answers with at least five labels each, which depends on how many labels
    the answers have and not on what they say. The mean is D + Σ A m: D is the part of the mean that was decided without
    a draw, A the share of the other parts in a cell and m the weighted mean of the cell's labels. The variance is that
    of the residuals of both phases over clusters, with as many degrees of freedom as labels minus cells; the interval
    is that of `bounded_mean`.

    Args:
        sample: The answers and labels on the scale.
        bounds: The ends of the scale.
        step: The smallest difference of two answers, e.g. 1 for ratings from 1 to 5.
    """
    if not sample.has_labels:
        return CorrectedRate(None, refused=TOO_FEW_DRAWN)
    answers = np.concatenate([sample.judge, sample.human[np.isfinite(sample.human)]])
    low, high = bounds
    if set(((answers - low) / (high - low)).tolist()) <= {0.0, 1.0} and step >= high - low:
        return double_sampled_rate(sample)
    shares, is_drawn = sample.shares, sample.is_drawn
    predicted = np.where(sample.is_decided, sample.human, 0.0)
    label_shares = np.zeros(len(shares))
    n_cells = 0
    for is_cell in _cells(sample):
        labelled = is_cell & is_drawn
        n_cells += 1
        is_census = bool((labelled == is_cell).all())
        own = shares[labelled] * (1.0 if is_census else sample.weights[labelled])
        label_shares[labelled] = float(shares[is_cell].sum()) * own / own.sum()
        predicted[is_cell] = (
            sample.human[is_cell] if is_census else float(own @ sample.human[labelled] / own.sum())
        )
    value = min(max(float(shares @ predicted), low), high)
    first = shares * (predicted - value)
    second = np.where(is_drawn, label_shares * (np.where(is_drawn, sample.human, 0.0) - predicted), 0.0)
    n_labels = label_shares.sum() ** 2 / (label_shares**2).sum()
    freedom = max(n_labels - n_cells, 1.0)
    second *= np.sqrt(n_labels / freedom)
    sums = cluster_sums(np.stack([first + second, shares, label_shares], axis=1), sample.clusters)[:, 0]
    together, of_shares, of_labels = (sums**2).sum(axis=0).tolist()
    apart = float((first**2).sum() + (second**2).sum())
    if of_shares < 1:
        surplus = (together - float(((first + second) ** 2).sum())) / (1 - of_shares)
        if surplus > 0:
            apart += surplus
            freedom = min(freedom, max(label_shares.sum() ** 2 / of_labels - 1, 1.0))
    n = max(2, round(freedom + 1))
    ends = bounded_mean(Sample(n, value, float(np.sqrt(apart * n))), bounds=bounds, step=step)
    assert ends is not None
    return CorrectedRate(value, ends.low, ends.high, predicted=predicted)


def _cells(sample: DoubleSample) -> list[NDArray[np.bool_]]:
    """Return the parts of each cell: neighbouring answers of the judge with at least five labels together."""
    is_estimated, is_drawn = ~sample.is_decided, sample.is_drawn
    cells: list[NDArray[np.bool_]] = []
    cell = np.zeros(len(sample.judge), dtype=bool)
    for answer in np.unique(sample.judge[is_estimated]):
        cell = cell | (is_estimated & (sample.judge == answer))
        if int((cell & is_drawn).sum()) >= FEWEST_IN_CELL:
            cells.append(cell)
            cell = np.zeros_like(cell)
    if cell.any():
        cells = [*cells[:-1], cells[-1] | cell] if cells else [cell]
    return [cell for cell in cells if (cell & is_drawn).any()]
