"""Evaluate non-inferiority to a baseline: passed only if the data rule out a loss larger than the margin.

The result is passed if the lower 95 % limit of the difference is above minus the margin, else failed if the upper
limit is below 0, else unknown. The evidence of an unknown result estimates how many sessions or tasks are needed.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import polars as pl

from agent_eval.gates.finding import GateFinding, Result, listed, worst
from agent_eval.scores.composite.leaderboard import SIGNIFICANCE
from agent_eval.scores.statistics.compare import LOWER_IS_BETTER, RATES
from agent_eval.scores.statistics.intervals import scale_bound
from agent_eval.scores.statistics.power import Design, paired_design, shared, units_needed

_SCORES = ("composite", "raw composite", "universal", "domain")
_RATING_POINTS = 4.0  # width of the scale from 1 to 5


def scale_of(quantity: str, frames: Mapping[str, pl.DataFrame]) -> float | None:
    """Return the width of a quantity's scale, or None for amounts such as costs, whose margin is relative."""
    if quantity in _SCORES:
        return 100.0
    if quantity in RATES:
        return 1.0
    judgments = pl.concat(
        frames[name].filter(metric=quantity).select("rating_1to5", "value")
        for name in ("turn_judgments", "conversation_judgments")
    )
    if judgments["rating_1to5"].drop_nulls().len():
        return _RATING_POINTS
    return 1.0 if judgments["value"].drop_nulls().is_between(0, 1).all() and judgments.height else None


def margin_finding(
    name: str,
    rows: pl.DataFrame,
    scales: Mapping[str, float | None],
    margin: Fraction,
    *,
    worse: Sequence[str] = (),
) -> GateFinding:
    """Return one finding for all rows: the worst of their results.

    Args:
        name: Display name of the baseline.
        rows: Rows of `compare` (agent minus baseline) for the quantities that the margin applies to.
        scales: Width of each quantity's scale, from `scale_of`.
        margin: Allowed loss in percent of the scale's width.
        worse: Descriptions of the other quantities that are significantly worse.
    """
    results: list[Result] = ["failed"] if worse else []
    parts = []
    for row in rows.iter_rows(named=True):
        result, text = _against(row, scales[row["quantity"]], margin)
        results.append(result)
        parts.append(text)
    also = f"; significantly worse: {listed(worse)}" if worse else ""
    evidence = f"against {name}, margin {float(margin):g}: {listed(parts)}{also}"
    return GateFinding("regression", worst(results), evidence, name, threshold=margin)


def unseen_loss(rows: pl.DataFrame, scales: Mapping[str, float | None]) -> str:
    """Return a sentence with the losses that the data do not rule out, for a gate without a margin; '' if none."""
    losses = [
        f"{row['quantity']} may be up to {-limits[0]:.3g} worse"
        for row in rows.iter_rows(named=True)
        if (limits := _limits(row, scales[row["quantity"]])) and limits[0] < 0
    ]
    return f". No [gates.regression] margin is set: {listed(losses)} (95 %)" if losses else ""


def _against(row: Mapping[str, Any], scale: float | None, margin: Fraction) -> tuple[Result, str]:
    quantity = row["quantity"]
    limits = _limits(row, scale)
    allowed = float(margin) / 100 * (abs(row["other_value"] or 0.0) if scale is None else scale)
    if limits is None:
        return "unknown", f"{quantity}: the difference has no interval" + (
            f" ({row['reason']})" if row["reason"] else ""
        )
    low, high = limits
    text = f"{quantity} {row['value']:.3g} against {row['other_value']:.3g}, 95 % {low:+.3g} to {high:+.3g}"
    if row["difference_worst"] is not None:
        text += " with unknown trials counted as lost"
    if low > -allowed:
        return "passed", text
    if high < 0 and (row["p_value"] is None or row["p_value"] < SIGNIFICANCE):
        return "failed", text
    return "unknown", f"{text}: inconclusive, {_needs(row, scale, allowed)}"


def _limits(row: Mapping[str, Any], scale: float | None) -> tuple[float, float] | None:
    """Return the 95 % limits of the agent's improvement, counting every unknown trial against the agent.

    If the difference is equal in all n tasks (or families), the limits are derived from the probability (1 − q)^n
    that n tasks include none of a share q of tasks that differ. A comparison without a p value, e.g. one of too
    few families, has no limits: the result is None.
    """
    low, high = row["low"], row["high"]
    if low is None or high is None:
        if row["p_value"] is None or scale is None or row["unit"] != "tasks":
            return None
        missed = scale * (1 - scale_bound(1.0, row["n_clusters"] or row["n"])[0])
        low, high = row["difference"] - missed, row["difference"] + missed
    if (lost := row["difference_worst"]) is not None:
        low -= max(0.0, row["difference"] - lost)
    if scale is not None:
        low, high = max(low, -scale), min(high, scale)
    return (-high, -low) if row["quantity"] in LOWER_IS_BETTER else (low, high)


def _needs(row: Mapping[str, Any], scale: float | None, allowed: float) -> str:
    """Return, as text, how many sessions or tasks are needed to decide the gate.

    With that number, an agent as good as the baseline passes with a probability of 80 %, if the spread stays the
    same.
    """
    unit = row["unit"]
    n = shared(row["n"], row["other_n"])
    design: Design = "unpaired"
    if unit == "tasks":
        limits = row["low"], row["high"], row["smallest_detectable"]
        design = "paired" if row["n_clusters"] else paired_design(row["n"], *limits)
    needed = None
    if allowed > 0 and row["smallest_detectable"] is not None:
        needed = units_needed(n, row["smallest_detectable"], allowed, design)
    elif scale and 0 < allowed < scale:
        needed = math.ceil(math.log(0.025) / math.log(1 - allowed / scale))
    return f"needs about {needed:,} {unit}" if needed else f"needs more {unit}"
