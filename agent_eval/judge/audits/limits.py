"""Compute the 95 % limits of the kappas of an audit. The answers on a turn form a cluster."""

from collections.abc import Sequence

import numpy as np

from agent_eval.scores.statistics.agreement import label_kappa_of, number_chance, number_kappa_of
from agent_eval.scores.statistics.resampling import Figure, Floats, cluster_sums, jackknife, total


def by_turn(rows: Sequence[tuple[str | float, ...]]) -> Floats:
    """Return the column sums of each turn. The first entry of a row identifies the turn."""
    numbers = [row[1:] for row in rows]
    columns = np.array(numbers, dtype=np.float64).reshape(len(rows), -1 if rows else 1)
    return cluster_sums(columns, [row[0] for row in rows])


def number_kappa_limits(sums: Floats) -> tuple[float, float] | None:
    """Return the 95 % limits of the weighted kappa, given n, Σa, Σb, Σa², Σb² and Σab of each turn."""
    if not len(sums):
        return None
    chance = float(number_chance(total(sums))[0])
    limits = jackknife(sums, number_kappa_of, least=1 / chance if chance > 1e-12 else 0.0)
    return None if limits is None else (max(limits[0], -1.0), min(limits[1], 1.0))


def label_sums(labels: Sequence[tuple[str, str, str]]) -> tuple[Floats, Figure]:
    """Return the counts of each turn, and the function that computes kappa from sums of such counts.

    The counts are: answers, equal answers, and each label before and after.
    """
    words = sorted({word for _, *both in labels for word in both})
    sums = by_turn(
        [(turn, 1.0, float(a == b), *(float(a == w) for w in words), *(float(b == w) for w in words)) for turn, a, b in labels]
    )  # fmt: skip
    return sums, label_kappa_of
