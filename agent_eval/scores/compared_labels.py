"""Compare two agents' means that labels of people correct."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl

from agent_eval.scores.labelled_parts import Corrected, corrected
from agent_eval.scores.statistics.compared_values import PASS_AT_1
from agent_eval.scores.statistics.intervals import LEVEL
from agent_eval.scores.statistics.unpaired import SUCCESS_RATE
from agent_eval.tables.judging import HUMAN

_SIDES = ("", "other_")
_POWER_REACH = 0.8416  # standard errors beyond significance for a power of 80 %
_ZERO = 1e-12


class _Side(NamedTuple):
    mean: Corrected
    by_task: dict[str, float]  # the expected mean of people's answers to the parts of each task


def with_labels(
    row: Mapping[str, Any], parts: pl.DataFrame, scales: Mapping[str, tuple[float, float]]
) -> dict[str, Any]:
    """Return a row of a comparison, with means, difference and tests corrected by the labels that sheets drew.

    The interval of the difference is that of Zou and Donner: it combines the distances from each mean to the ends of
    its interval, less the covariance of the agents' tasks for common tasks. p is that of the level at which this interval
    would end at 0. If labels correct only one of the agents, there is no test unless rules, declared outcomes or people
    decided every part of the other: the values rest on different instruments.

    Args:
        row: The row, with quantity, unit, task_set and both agents.
        parts: From `placed_parts`, with `task` and `task_set`, of both agents.
        scales: The ends of the scale of each metric; a metric without an entry has the scale 0–1.

    Source: Zou, Donner, Construction of confidence limits about effect measures, 2008.
    """
    quantity = SUCCESS_RATE if row["quantity"] == PASS_AT_1 else row["quantity"]
    of = parts.filter(quantity=quantity)
    if row["unit"] == "tasks":
        of = of.filter(task_set=row["task_set"])
        shared = of.group_by("task").agg(pl.col("agent_id").n_unique() == 2).filter("agent_id")
        of = of.join(shared, on="task", how="semi")
    sides = [_side(of.filter(agent_id=row[name]), row, scales) for name in ("agent_id", "other_agent_id")]
    a, b = sides
    of_labels = [(side, s) for side, s in zip(_SIDES, sides, strict=True) if s and s.mean.n_drawn]
    compared = {**row, **_label_counts(row, of)}
    if not of_labels:
        return compared
    for side, s in of_labels:
        compared |= {f"{side}value": s.mean.value, f"{side}value_of_judge": s.mean.of_judge}
    if a is None or b is None:
        lacking = row["agent_id"] if a is None else row["other_agent_id"]
        only = f"labels correct only one of the agents, so two instruments would be compared; label parts of {lacking} too"
        untested = {"difference": compared["value"] - compared["other_value"], **dict.fromkeys(_TESTED)}
        return compared | untested | {"cases": {}, "verdict_limit": only}
    is_paired = row["unit"] == "tasks"
    if (
        not is_paired
    ):  # the intervals of corrected values are those of conversations, so plans scale with these
        compared |= {f"{side}n_effective": float(row[f"{side}n"]) for side in _SIDES}
    return (compared := compared | _difference(a, b, is_paired=is_paired)) | _in_cases(compared)


def _label_counts(row: Mapping[str, Any], parts: pl.DataFrame) -> dict[str, int | None]:
    """Return, of each agent, the labels that sheets drew, and the parts that people decided without a draw or only a judge."""
    is_drawn = pl.all_horizontal(pl.col("human", "weight").is_not_null())
    is_own = pl.col("weight").is_null() & (pl.col("judge") == HUMAN)
    is_of_kind = {"labels_drawn": is_drawn, "labels_own": is_own, "unchecked": pl.col("human").is_null()}
    of_agent = {
        side: parts.filter(agent_id=row[f"{side}agent_id"]).select(
            n.sum().alias(name) for name, n in is_of_kind.items()
        )
        for side in _SIDES
    }
    return {
        f"{side}n_{name}": of[name][0] if parts.height and (of[name][0] or name == "unchecked") else None
        for side, of in of_agent.items()
        for name in is_of_kind
    }


def _side(
    parts: pl.DataFrame, row: Mapping[str, Any], scales: Mapping[str, tuple[float, float]]
) -> _Side | None:
    if parts.is_empty():
        return None
    unit = "task" if row["unit"] == "tasks" else "conversation_id"
    mean_and_parts = corrected(
        parts, unit, scales.get(str(row["quantity"]), (0.0, 1.0)), is_known_enough=True
    )
    if mean_and_parts is None:
        return None
    if row["unit"] != "tasks":
        return _Side(mean_and_parts[0], {})
    means = parts.select("task", predicted=mean_and_parts[1]).group_by("task").agg(pl.col("predicted").mean())
    return _Side(mean_and_parts[0], dict(means.iter_rows()))


def _difference(a: _Side, b: _Side, *, is_paired: bool) -> dict[str, float | None]:
    from scipy.special import ndtr, ndtri

    difference = a.mean.value - b.mean.value
    ends = (a.mean.low, a.mean.high, b.mean.low, b.mean.high)
    if None in ends:
        return {"difference": difference, **dict.fromkeys(_TESTED)}
    low_a, high_a, low_b, high_b = (float(end) for end in ends if end is not None)
    reach = float(ndtri(0.5 + LEVEL / 2))
    shared = 2 * reach**2 * _covariance(a, b) if is_paired else 0.0
    below = (a.mean.value - low_a) ** 2 + (high_b - b.mean.value) ** 2
    above = (high_a - a.mean.value) ** 2 + (b.mean.value - low_b) ** 2
    below, above = (max(side - shared, side / 4) for side in (below, above))
    towards_zero = math.sqrt(below if difference > 0 else above) / reach
    p = (
        1.0
        if abs(difference) < _ZERO or towards_zero == 0
        else 2 * float(ndtr(-abs(difference) / towards_zero))
    )
    error = (math.sqrt(below) + math.sqrt(above)) / 2 / reach
    return {
        "difference": difference,
        "low": difference - math.sqrt(below),
        "high": difference + math.sqrt(above),
        "p_value": p,
        "probability_better": 1 - p / 2 if difference > 0 else p / 2,
        "smallest_detectable": error * (reach + _POWER_REACH),
    }


_TESTED = ("low", "high", "p_value", "probability_better", "smallest_detectable")


def _covariance(a: _Side, b: _Side) -> float:
    """Return the covariance of the two means over common tasks; labels were drawn independently for each agent."""
    tasks = sorted(a.by_task.keys() & b.by_task.keys())
    n = len(tasks)
    if n < 2:
        return 0.0
    means = [sum(side.by_task[task] for task in tasks) / n for side in (a, b)]
    products = ((a.by_task[t] - means[0]) * (b.by_task[t] - means[1]) for t in tasks)
    return max(sum(products) / (n - 1) / n, 0.0)


def _in_cases(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return worst and best case of a share of trials, with the unknown trials as failed or passed."""
    if not row.get("n_planned") or not row.get("other_n_planned"):
        return {}
    compared: dict[str, Any] = {}
    for side in _SIDES:
        share = row[f"{side}n_known"] / row[f"{side}n_planned"]
        doubted = (row[f"{side}n_unexplained_errors"] or 0) / row[f"{side}n_planned"]
        compared[f"{side}value_worst"] = row[f"{side}value"] * share
        compared[f"{side}value_best"] = min(row[f"{side}value"] * share + 1 - share + doubted, 1.0)
    compared["difference_worst"] = compared["value_worst"] - compared["other_value_best"]
    compared["difference_best"] = compared["value_best"] - compared["other_value_worst"]
    if row.get("cases"):
        compared["cases"] = {
            end: {**row["cases"][end], **_shifted(row, compared[f"difference_{end}"])} for end in row["cases"]
        }
    return compared


def _shifted(row: Mapping[str, Any], difference: float) -> dict[str, Any]:
    """Return the test of a difference with the same errors as that of the row."""
    from scipy.special import ndtr, ndtri

    if row["low"] is None:
        return {"difference": difference, **dict.fromkeys(_TESTED)}
    below, above = row["difference"] - row["low"], row["high"] - row["difference"]
    error = (below if difference > 0 else above) / float(ndtri(0.5 + LEVEL / 2))
    p = 2 * float(ndtr(-abs(difference) / error)) if error else 1.0
    return {
        "difference": difference,
        "low": difference - below,
        "high": difference + above,
        "p_value": p,
        "probability_better": 1 - p / 2 if difference > 0 else p / 2,
    }
