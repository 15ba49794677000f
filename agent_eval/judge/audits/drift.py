"""Measure drift: whether a judge model still gives the same answers to the same questions.

The answers before and after are compared per model and metric: the share of equal answers (rating, value or main
label), the mean difference (after minus before) in rating points or units of the value, and Cohen's kappa (Cohen
1960, 1968). Kappa has quadratic weights for numbers and is unweighted for labels. It is undefined if all answers,
before and after, are the same. Each figure has a 95 % interval over the audited turns: the answers on a turn form
a cluster (delete-one-cluster jackknife, t with turns − 1 degrees of freedom).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

ALL_METRICS = "all"  # value of `metric` in the row that covers all metrics of a model
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


@dataclass(frozen=True)
class Audit:
    """Represent the result of an audit: the measured drift, or the reason why no question was asked."""

    drift: pl.DataFrame  # result of latest_drift; empty if no question was asked
    skipped: str | None = None
    n_asked: int = 0  # number of answers requested
    n_lost: int = 0
    why_lost: str = ""


def latest_drift(judge_audits: pl.DataFrame) -> pl.DataFrame:
    """Return the drift in the latest audit of each model: one row per metric, and one for `all` metrics.

    In the row `all`, the mean difference and kappa cover only ratings from 1 to 5, because the values of different
    metrics have different units.
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
    """Return Cohen's kappa with quadratic weights, which equals the unweighted kappa for labels coded as 0 and 1.

    Kappa is 1 if all answers are equal and 0 if the agreement is the one expected by chance. The result is None if
    there are no answers, or if the expected agreement by chance is 1.
    """
    n = len(before)
    if n == 0:
        return None
    mean_squared_difference = sum((a - b) ** 2 for a, b in zip(before, after, strict=True)) / n
    means = [sum(side) / n for side in (before, after)]
    variances = [sum((x - m) ** 2 for x in side) / n for side, m in zip((before, after), means, strict=True)]
    by_chance = variances[0] + variances[1] + (means[0] - means[1]) ** 2  # E(a − b)² if independent
    return None if by_chance == 0 else 1 - mean_squared_difference / by_chance


def label_kappa(before: Sequence[str], after: Sequence[str]) -> float | None:
    """Return Cohen's kappa of labels, or None if there are no answers or the expected agreement by chance is 1."""
    n = len(before)
    if n == 0:
        return None
    observed_agreement = sum(a == b for a, b in zip(before, after, strict=True)) / n
    by_chance = sum(before.count(label) * after.count(label) for label in set(before)) / n**2
    return None if by_chance == 1 else (observed_agreement - by_chance) / (1 - by_chance)


def _figures(judge: str, metric: str, answers: pl.DataFrame) -> dict[str, object]:
    # imported here because they load numpy, which the gates do not need
    from agent_eval.judge.audits import limits as limits_of
    from agent_eval.scores.statistics.resampling import jackknife, share_limits

    pairs = [
        (json.loads(before), json.loads(after))
        for before, after in answers.select("verdict_before", "verdict").iter_rows()
    ]
    pairs_of_answers = [(_answer(before), _answer(after)) for before, after in pairs]
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
        for turn, (a, b) in zip(turns, pairs_of_answers, strict=True)
        if isinstance(a, str) and metric != ALL_METRICS
    ]
    n_equal = sum(a == b for a, b in pairs_of_answers)
    by_number = limits_of.by_turn([(turn, 1.0, a, b, a * a, b * b, a * b) for turn, a, b in numbers])
    equal = limits_of.by_turn(
        [(turn, 1.0, float(a == b)) for turn, (a, b) in zip(turns, pairs_of_answers, strict=True)]
    )
    figures = {
        "share_equal": (n_equal / len(pairs_of_answers), share_limits(equal)),
        "mean_difference": (
            sum(b - a for _, a, b in numbers) / len(numbers) if numbers else None,
            jackknife(by_number, lambda s: (s[:, 2] - s[:, 1]) / s[:, 0], least=1.0),
        ),
        "kappa": (
            label_kappa([a for _, a, _ in labels], [b for _, _, b in labels])
            if labels
            else weighted_kappa([a for _, a, _ in numbers], [b for _, _, b in numbers]),
            jackknife(*limits_of.label_sums(labels)) if labels else limits_of.number_kappa_limits(by_number),
        ),
    }
    return {
        "judge": judge,
        "metric": metric,
        "audited_at": answers["audit_id"][0],
        "n": len(pairs_of_answers),
        "n_equal": n_equal,
        "n_turns": len({*turns}),
        **{name: value for name, (value, _) in figures.items()},
        **{
            f"{name}_{end}": None if limits is None or value is None else limit
            for name, (value, limits) in figures.items()
            for end, limit in zip(("low", "high"), limits or (None, None), strict=True)
        },
    }


def _answer(verdict: dict[str, object]) -> object:
    return next(
        (verdict[key] for key in ("label", "rating_1to5", "value") if verdict.get(key) is not None), None
    )
