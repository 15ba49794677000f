"""Drift: does a judge model, asked the same again, still answer as it did? The arithmetic of an audit's answers.

Answers before and after are compared per model and metric: the share that is equal (rating, value or main label), the
mean difference in rating points or values (after minus before), and Cohen's kappa, weighted by the squared distance
for numbers and unweighted for labels (Cohen 1960, 1968). Kappa is undefined where both sides always say the same one
thing. Each figure has a 95 % interval over the turns that were asked about: answers on one turn are one cluster
(delete-one-cluster jackknife, t with turns − 1 degrees of freedom).
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from agent_eval.scores.statistics.intervals import LEVEL, scale_bound

ALL_METRICS = "all"  # the metric of the row over all metrics of a model
SCHEMA = pl.Schema(
    {
        "judge": pl.String,
        "metric": pl.String,
        "audited_at": pl.String,
        "n": pl.Int64,
        "n_equal": pl.Int64,
        "share_equal": pl.Float64,
        "mean_difference": pl.Float64,
        "kappa": pl.Float64,
        "n_turns": pl.Int64,
        **{
            f"{name}_{end}": pl.Float64
            for name in ("share_equal", "mean_difference", "kappa")
            for end in ("low", "high")
        },
    }
)
_Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Audit:
    """What an audit did: the drift it found, or why nothing was asked."""

    drift: pl.DataFrame  # as of latest_drift; no rows when nothing was asked
    skipped: str | None = None
    n_asked: int = 0  # answers
    n_lost: int = 0
    why_lost: str = ""


def latest_drift(judge_audits: pl.DataFrame) -> pl.DataFrame:
    """The drift that the latest audit of each model found: one row per model and metric, and per model one for `all`.

    Of all metrics together the mean difference and kappa are over the ratings from 1 to 5 alone: other numbers have
    other units.
    """
    latest = judge_audits.filter(pl.col("audit_id") == pl.col("audit_id").max().over("model"))
    rows: list[dict[str, object]] = []
    for (model, metric), answers in latest.sort("model", "metric", "cache_key").group_by(
        "model", "metric", maintain_order=True
    ):
        rows.append(_figures(str(model), str(metric), answers))
    for (model,), answers in latest.sort("model", "cache_key").group_by("model", maintain_order=True):
        rows.append(_figures(str(model), ALL_METRICS, answers))
    return pl.DataFrame(rows, schema=SCHEMA).sort("judge", "metric")


def weighted_kappa(before: Sequence[float], after: Sequence[float]) -> float | None:
    """Cohen's kappa with squared distances; of labels, coded as numbers that are 0 or 1 apart, the plain one.

    1: always the same; 0: as by chance; None where chance alone would always agree, or without answers.
    """
    n = len(before)
    if n == 0:
        return None
    seen = sum((a - b) ** 2 for a, b in zip(before, after, strict=True)) / n
    means = [sum(side) / n for side in (before, after)]
    variances = [sum((x - m) ** 2 for x in side) / n for side, m in zip((before, after), means, strict=True)]
    by_chance = variances[0] + variances[1] + (means[0] - means[1]) ** 2  # E(a − b)² of independent draws
    return None if by_chance == 0 else 1 - seen / by_chance


def label_kappa(before: Sequence[str], after: Sequence[str]) -> float | None:
    """Cohen's kappa of labels; None where chance alone would always agree, or without answers."""
    n = len(before)
    if n == 0:
        return None
    seen = sum(a == b for a, b in zip(before, after, strict=True)) / n
    by_chance = sum(before.count(label) * after.count(label) for label in set(before)) / n**2
    return None if by_chance == 1 else (seen - by_chance) / (1 - by_chance)


def _figures(judge: str, metric: str, answers: pl.DataFrame) -> dict[str, object]:
    pairs = [
        (json.loads(before), json.loads(after))
        for before, after in answers.select("verdict_before", "verdict").iter_rows()
    ]
    said = [(_answer(before), _answer(after)) for before, after in pairs]
    keys = ("rating_1to5",) if metric == ALL_METRICS else ("rating_1to5", "value")
    turns = [
        f"{content}#{turn}" for content, turn in answers.select("content_hash", "turn_index").iter_rows()
    ]
    numbers = [
        (turn, float(before[key]), float(after[key]))
        for turn, (before, after) in zip(turns, pairs, strict=True)
        for key in keys
        if before.get(key) is not None and after.get(key) is not None
    ]
    labels = [
        (turn, str(a), str(b))
        for turn, (a, b) in zip(turns, said, strict=True)
        if isinstance(a, str) and metric != ALL_METRICS
    ]
    n_equal = sum(a == b for a, b in said)
    by_number = _by_turn([(turn, 1.0, a, b, a * a, b * b, a * b) for turn, a, b in numbers])
    equal = _by_turn([(turn, 1.0, float(a == b)) for turn, (a, b) in zip(turns, said, strict=True)])
    figures = {
        "share_equal": (n_equal / len(said), _share_limits(equal)),
        "mean_difference": (
            sum(b - a for _, a, b in numbers) / len(numbers) if numbers else None,
            _jackknife(by_number, lambda s: (s[:, 2] - s[:, 1]) / s[:, 0], least=1.0),
        ),
        "kappa": (
            label_kappa([a for _, a, _ in labels], [b for _, _, b in labels])
            if labels
            else weighted_kappa([a for _, a, _ in numbers], [b for _, _, b in numbers]),
            _jackknife(*_label_sums(labels)) if labels else _number_kappa_limits(by_number),
        ),
    }
    return {
        "judge": judge,
        "metric": metric,
        "audited_at": answers["audit_id"][0],
        "n": len(said),
        "n_equal": n_equal,
        "n_turns": len({*turns}),
        **{name: value for name, (value, _) in figures.items()},
        **{
            f"{name}_{end}": None if limits is None or value is None else limit
            for name, (value, limits) in figures.items()
            for end, limit in zip(("low", "high"), limits or (None, None), strict=True)
        },
    }


def _by_turn(rows: Sequence[tuple[str | float, ...]]) -> _Floats:
    """The sums of the numbers of each turn, which is the first entry of a row; one line per turn."""
    places: dict[str, int] = {}
    turns = np.array([places.setdefault(str(row[0]), len(places)) for row in rows], dtype=np.int64)
    sums = np.zeros((len(places), len(rows[0]) - 1 if rows else 1))
    if rows:
        np.add.at(sums, turns, np.array([row[1:] for row in rows], dtype=np.float64))
    return sums


def _jackknife(
    sums: _Floats, figure: Callable[[_Floats], _Floats], *, least: float = 0.0
) -> tuple[float, float] | None:
    """The 95 % limits of a figure of summed answers; None with fewer than two turns, or where it is undefined.

    Where it is the same without any of the turns the limits leave room for what n turns miss with probability 2.5 %:
    a share 1 − 0.025^(1/n) of answers that differ by `least`; with `least` 0 there are none.
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
    if error < 1e-9:
        reach = least * (1 - scale_bound(1.0, n)[0])
        return (value - reach, value + reach) if reach else None
    reach = float(stdtrit(n - 1, 0.5 + LEVEL / 2)) * error
    return value - reach, value + reach


def _share_limits(sums: _Floats) -> tuple[float, float] | None:
    """Limits of the share of equal answers, within 0–1 and never wider than the bound of so many turns."""
    if len(sums) < 2:
        return None
    bound = scale_bound(float(sums[:, 1].sum() / sums[:, 0].sum()), len(sums))
    limits = _jackknife(sums, lambda s: s[:, 1] / s[:, 0])
    return bound if limits is None else (max(limits[0], bound[0]), min(limits[1], bound[1]))


def _number_kappa_limits(sums: _Floats) -> tuple[float, float] | None:
    """Limits of the weighted kappa from n, Σa, Σb, Σa², Σb² and Σab of each turn."""

    def by_chance(s: _Floats) -> _Floats:
        n, a, b, aa, bb = s.T[:5]
        return np.asarray(aa / n - (a / n) ** 2 + bb / n - (b / n) ** 2 + (a / n - b / n) ** 2)

    def kappa(s: _Floats) -> _Floats:
        chance = by_chance(s)
        seen = (s[:, 3] + s[:, 4] - 2 * s[:, 5]) / s[:, 0]
        return np.where(chance > 1e-12, 1 - seen / np.where(chance > 1e-12, chance, 1), np.nan)

    if not len(sums) or sums.shape[1] < 6:
        return None
    chance = float(by_chance(sums.sum(axis=0, keepdims=True))[0])
    limits = _jackknife(sums, kappa, least=1 / chance if chance > 1e-12 else 0.0)
    return None if limits is None else (max(limits[0], -1.0), min(limits[1], 1.0))


def _label_sums(labels: Sequence[tuple[str, str, str]]) -> tuple[_Floats, Callable[[_Floats], _Floats]]:
    """The counts of each turn (answers, equal ones, each label before and after), and kappa of their sums."""
    words = sorted({word for _, *both in labels for word in both})
    sums = _by_turn(
        [(turn, 1.0, float(a == b), *(float(a == w) for w in words), *(float(b == w) for w in words)) for turn, a, b in labels]
    )  # fmt: skip

    def kappa(s: _Floats) -> _Floats:
        n, seen = s[:, 0], s[:, 1] / s[:, 0]
        chance = (s[:, 2 : 2 + len(words)] * s[:, 2 + len(words) :]).sum(axis=1) / n**2
        return np.where(chance < 1, (seen - chance) / np.where(chance < 1, 1 - chance, 1), np.nan)

    return sums, kappa


def _answer(verdict: dict[str, object]) -> object:
    return next(
        (verdict[key] for key in ("label", "rating_1to5", "value") if verdict.get(key) is not None), None
    )
