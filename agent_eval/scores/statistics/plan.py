"""Plan comparisons: the difference that the data can show, and the amount of data that a difference needs.

The plan for one agent assumes a second agent with the same amount and spread of data, on the same tasks. The
plan for two agents uses their comparison. A difference counts as shown if an uncorrected test finds it with
80 % power at a two-sided 5 %.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from agent_eval.scores.reliability.attempts import pass_hat_k
from agent_eval.scores.statistics.clustered import clustered_difference, clustered_mean, has_two_clusters
from agent_eval.scores.statistics.compare import LOWER_IS_BETTER, RATES
from agent_eval.scores.statistics.intervals import (
    Sample,
    detectable_multiple,
    paired,
    smallest_detectable,
    welch,
)
from agent_eval.scores.statistics.power import Design, paired_design, shared, units_needed
from agent_eval.scores.statistics.sign_flips import FEWEST_PLANNED
from agent_eval.scores.statistics.unpaired import (
    CONVERSATIONS,
    DOMINATED,
    FAILURE_RATE,
    SUCCESS_RATE,
    clusters,
)

SCHEMA: Mapping[str, type[pl.DataType]] = {
    "quantity": pl.String,
    "task_set": pl.String,
    "unit": pl.String,
    "n": pl.Int64,
    "trials": pl.Float64,
    "smallest_detectable": pl.Float64,
    "wanted": pl.Float64,
    "n_needed": pl.Int64,
    "trials_needed": pl.Int64,
    "reason": pl.String,
}
Scales = Mapping[str, tuple[float, float]]
"""Metric → the ends of its scale."""
NO_SCALES: Scales = {}
SCORES = ("composite", "raw composite", "universal", "domain")
_MOST_TRIALS = 10_000


def plan_one(
    agent: str,
    session_values: pl.DataFrame,
    task_counts: pl.DataFrame,
    conversations: pl.DataFrame,
    points: float,
    scales: Scales = NO_SCALES,
) -> pl.DataFrame:
    """Plan comparisons of one agent with another agent that has the same amount and spread of data.

    Args:
        agent: The agent id.
        session_values: From `compared_values.session_values`.
        task_counts: One row per task, with the columns `task_set`, `n` (known trials) and `c` (correct trials).
        conversations: From `unpaired.conversation_values`.
        points: The wanted difference as a percentage of each quantity's scale.
        scales: The ends of the scale of each metric, if they are known (see `scale_width`).

    Returns:
        One row per quantity with the columns of `SCHEMA`. `n` and `n_needed` are per agent;
        `smallest_detectable` and `wanted` are in the units of the quantity; `reason` explains unknown values.
    """
    rows = []
    of_agent = session_values.filter(agent_id=agent).select("quantity", "values", "point")
    for quantity, values, point in of_agent.iter_rows():
        if values:
            sample = Sample.of(values)
            shows = welch(sample, sample, step=point or 0.0).smallest_detectable
            rows.append(_row(quantity, None, "sessions", len(values), shows, points, "unpaired"))
    for (task_set,), tasks in task_counts.sort("task_set").group_by("task_set", maintain_order=True):
        counts = list(tasks.select("n", "c").iter_rows())
        rows += [_of_tasks(str(task_set), counts, k, points) for k in _attempts(counts)]
    for (quantity,), quantity_rows in conversations.filter(agent_id=agent).group_by(
        "quantity", maintain_order=True
    ):
        values = quantity_rows["value"].to_list()
        mean = clustered_mean(values, clusters(quantity_rows))
        shows = None if mean is None else clustered_difference(mean, mean).smallest_detectable
        scale = scale_width(str(quantity), max(values), scales)
        n_clusters = None if mean is None else mean.freedom + 1
        row = _row(
            str(quantity), None, CONVERSATIONS, len(values), shows, points, "unpaired", scale, n_clusters
        )
        if mean is not None and not has_two_clusters(mean):
            row["reason"] = DOMINATED.format(agent)
        rows.append(row)
    return pl.DataFrame(rows, schema=SCHEMA)


def plan_two(
    compared: pl.DataFrame, common: pl.DataFrame, points: float, scales: Scales = NO_SCALES
) -> pl.DataFrame:
    """Plan the comparison of two agents from their current data.

    Args:
        compared: From `compare`.
        common: One row per common task, with the columns `task_set`, `n`, `c`, `other_n` and `other_c`.
        points: As for `plan_one`.
        scales: As for `plan_one`.

    Returns:
        Rows as from `plan_one`, based on the spread of the differences between the two agents.
    """
    rows = []
    for row in compared.iter_rows(named=True):
        n = round(shared(row["n"], row["other_n"])) if row["n"] and row["other_n"] else 0
        design: Design = "unpaired"
        if row["unit"] == "tasks":
            limits = row["low"], row["high"], row["smallest_detectable"]
            design = "paired" if row["n_clusters"] else paired_design(n, *limits)
        scale = scale_width(row["quantity"], max(row["value"] or 0.0, row["other_value"] or 0.0), scales)
        planned = _row(
            row["quantity"],
            row["task_set"],
            row["unit"],
            n,
            row["smallest_detectable"],
            points,
            design,
            scale,
            shared(row["n_effective"], row["other_n_effective"]) if row["unit"] == CONVERSATIONS else None,
        )
        if row["smallest_detectable"] is None and row["reason"]:
            planned["reason"] = row["reason"]
        elif design == "paired" and row["difference"] and row["low"] is None:
            planned["reason"] = f"all {n} tasks differ by the same: no spread to plan with"
        elif design == "paired" and row["n_clusters"] and row["smallest_detectable"] is None:
            planned["reason"] = f"fewer than {FEWEST_PLANNED} families differ, too few to plan with"
        rows.append(planned)
    for (task_set,), tasks in common.sort("task_set").group_by("task_set", maintain_order=True):
        counts = list(tasks.select("n", "c", "other_n", "other_c").iter_rows())
        for k in range(2, 9):
            both = [(n, c, m, d) for n, c, m, d in counts if min(n, m) >= k]
            if len(both) < max(2, len(counts) / 2):
                break
            differences = [round(pass_hat_k(n, c, k) - pass_hat_k(m, d, k), 12) for n, c, m, d in both]
            gap = paired(differences)
            rows.append(
                _row(
                    f"pass^{k}",
                    str(task_set),
                    "tasks",
                    len(both),
                    gap.smallest_detectable,
                    points,
                    paired_design(len(both), gap.low, gap.high, gap.smallest_detectable),
                    1.0,
                )
            )
    return pl.DataFrame(rows, schema=SCHEMA)


def _row(
    quantity: str,
    task_set: str | None,
    unit: str,
    n: int,
    shows: float | None,
    points: float,
    design: Design,
    scale: float = 100.0,
    n_clusters: float | None = None,
) -> dict[str, Any]:
    margin = points / 100 * scale
    needed = None if not shows or n < 2 or margin <= 0 else units_needed(n, shows, margin, design, n_clusters)
    if needed and design != "unpaired":
        needed = max(needed, n)  # among fewer tasks, too few may differ
    few = (
        f"{n} {unit} show no spread"
        if design == "unpaired"
        else f"fewer than {FEWEST_PLANNED} tasks differ, too few"
    )
    reason = None if shows else f"{few} to plan with"
    if shows and needed is None:
        reason = f"more than a million {unit}"
    return {
        "quantity": quantity,
        "task_set": task_set,
        "unit": unit,
        "n": n,
        "smallest_detectable": shows or None,
        "wanted": margin,
        "n_needed": needed,
        "reason": reason,
    }


def _attempts(counts: Sequence[tuple[int, int]]) -> list[int]:
    """Return k = 1 and every k for which half of the tasks have k + 1 trials, as the spread of pass^k requires."""
    trials = sorted((n for n, _ in counts), reverse=True)
    return [1, *range(2, trials[(len(trials) - 1) // 2])] if trials else []


def _of_tasks(task_set: str, counts: Sequence[tuple[int, int]], k: int, points: float) -> dict[str, Any]:
    """Plan the comparison of two agents' pass^k on the same tasks.

    The variance of the difference is twice the variance within tasks, because task difficulty cancels out. The
    variance of a task's estimate is computed by the jackknife over trials; for k = 1 it is
    c(n − c) / (n² (n − 1)).
    """
    counting = [(n, c) for n, c in counts if n > k]
    is_bound = not counting  # one trial per task: the spread within tasks is at most that of all trials
    if is_bound:
        share = sum(c for _, c in counts) / len(counts)
        variances = [share * (1 - share)] * len(counts)
    else:
        variances = [_jackknife(n, c, k) for n, c in counting]
    n_tasks = len(variances)
    error = math.sqrt(2 * sum(variances)) / n_tasks
    varying = sum(variances) ** 2 / sum(v**2 for v in variances) if error > 0 else 0.0
    differing = 2 * sum(variances) if is_bound else varying
    shows = smallest_detectable(error, varying - 1) if differing >= FEWEST_PLANNED else None
    row = _row("pass@1" if k == 1 else f"pass^{k}", task_set, "tasks", n_tasks, shows, points, "paired", 1.0)
    trials = 1.0 if is_bound else sum(n for n, _ in counting) / n_tasks
    row["trials"] = trials
    if shows and k == 1:
        error_wanted = row["wanted"] / detectable_multiple(varying - 1)
        needed = math.ceil(trials * (error / error_wanted) ** 2 - 1e-9)
        row["trials_needed"] = needed if needed <= _MOST_TRIALS else None
    if shows is None and is_bound:
        row["reason"] = (
            f"one trial per task: about {differing:.0f} of {n_tasks} tasks would differ; {FEWEST_PLANNED} are needed to plan with"
        )
    elif shows is None:
        row["reason"] = (
            f"trials of the same task differ in about {varying:.0f} of {n_tasks} tasks; {FEWEST_PLANNED} are needed to plan with"
        )
    elif is_bound:
        row["reason"] = "at most: one trial per task does not show the spread within tasks"
    return row


def _jackknife(n: int, c: int, k: int) -> float:
    values = [(pass_hat_k(n - 1, c - 1, k), c)] if c else []
    values += [(pass_hat_k(n - 1, c, k), n - c)] if c < n else []
    mean = sum(value * times for value, times in values) / n
    return (n - 1) / n * sum(times * (value - mean) ** 2 for value, times in values)


def scale_width(quantity: str, largest: float, scales: Scales = NO_SCALES) -> float:
    """Return the width of the quantity's scale, or `largest` for quantities without a scale, such as costs.

    Without the ends of a metric's scale, it is taken for 1 to 5 if a value is above 1, else for 0 to 1.
    """
    if quantity in scales:
        return scales[quantity][1] - scales[quantity][0]
    if quantity in SCORES:
        return 100.0
    if quantity in RATES or quantity == SUCCESS_RATE or quantity.startswith(FAILURE_RATE):
        return 1.0
    if quantity in LOWER_IS_BETTER:
        return largest
    return 4.0 if largest > 1 else 1.0
