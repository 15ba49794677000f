"""Compute the 95 % limits of an audit's figures over the audited turns: answers on one turn are one cluster.

Uses the delete-one-cluster jackknife, Student's t, turns − 1 degrees of freedom (Efron, Tibshirani 1993, 11).
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from agent_eval.scores.statistics.intervals import LEVEL, scale_bound

Floats: TypeAlias = NDArray[np.float64]


def by_turn(rows: Sequence[tuple[str | float, ...]]) -> Floats:
    """Return the sums of the numbers per turn (the first entry of a row is the turn); one line per turn."""
    places: dict[str, int] = {}
    turns = np.array([places.setdefault(str(row[0]), len(places)) for row in rows], dtype=np.int64)
    sums = np.zeros((len(places), len(rows[0]) - 1 if rows else 1))
    if rows:
        np.add.at(sums, turns, np.array([row[1:] for row in rows], dtype=np.float64))
    return sums


def jackknife(
    sums: Floats, figure: Callable[[Floats], Floats], *, least: float = 0.0
) -> tuple[float, float] | None:
    """Return the 95 % limits of a figure of summed answers; None below two turns or if it is undefined.

    The limits are at least as wide as what n turns miss with probability 2.5 %: a share 1 − 0.025^(1/n) of
    answers that differ by `least`. With `least` 0, there are no limits if leaving out any one turn does not
    change the figure.
    """
    from scipy.special import stdtrit

    n = len(sums)
    if n < 2:
        return None
    total = sums.sum(axis=0, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        value, without = float(figure(total)[0]), figure(total - sums)
    if not (math.isfinite(value) and np.isfinite(without).all()):
        return None
    error = math.sqrt((n - 1) / n * float(((without - without.mean()) ** 2).sum()))
    reach = max(float(stdtrit(n - 1, 0.5 + LEVEL / 2)) * error, least * (1 - scale_bound(1.0, n)[0]))
    return (value - reach, value + reach) if reach > 1e-9 else None


def share_limits(sums: Floats) -> tuple[float, float] | None:
    """Return limits of the share of equal answers, within 0–1 and at most as wide as n turns allow."""
    if len(sums) < 2:
        return None
    bound = scale_bound(float(sums[:, 1].sum() / sums[:, 0].sum()), len(sums))
    limits = jackknife(sums, lambda s: s[:, 1] / s[:, 0])
    return bound if limits is None else (max(limits[0], bound[0]), min(limits[1], bound[1]))


def number_kappa_limits(sums: Floats) -> tuple[float, float] | None:
    """Return the limits of the weighted kappa from n, Σa, Σb, Σa², Σb² and Σab of each turn."""

    def by_chance(s: Floats) -> Floats:
        n, a, b, aa, bb = s.T[:5]
        return np.asarray(aa / n - (a / n) ** 2 + bb / n - (b / n) ** 2 + (a / n - b / n) ** 2)

    def kappa(s: Floats) -> Floats:
        chance = by_chance(s)
        seen = (s[:, 3] + s[:, 4] - 2 * s[:, 5]) / s[:, 0]
        return np.where(chance > 1e-12, 1 - seen / np.where(chance > 1e-12, chance, 1), np.nan)

    if not len(sums) or sums.shape[1] < 6:
        return None
    chance = float(by_chance(sums.sum(axis=0, keepdims=True))[0])
    limits = jackknife(sums, kappa, least=1 / chance if chance > 1e-12 else 0.0)
    return None if limits is None else (max(limits[0], -1.0), min(limits[1], 1.0))


def label_sums(labels: Sequence[tuple[str, str, str]]) -> tuple[Floats, Callable[[Floats], Floats]]:
    """Return each turn's counts (answers, equal ones, labels before and after) and kappa of their sums."""
    words = sorted({word for _, *both in labels for word in both})
    sums = by_turn(
        [(turn, 1.0, float(a == b), *(float(a == w) for w in words), *(float(b == w) for w in words)) for turn, a, b in labels]
    )  # fmt: skip

    def kappa(s: Floats) -> Floats:
        n, seen = s[:, 0], s[:, 1] / s[:, 0]
        chance = (s[:, 2 : 2 + len(words)] * s[:, 2 + len(words) :]).sum(axis=1) / n**2
        return np.where(chance < 1, (seen - chance) / np.where(chance < 1, 1 - chance, 1), np.nan)

    return sums, kappa
