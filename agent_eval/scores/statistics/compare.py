"""Compare two agents: which is better, by how much, and whether the difference is significant.

Composite, U and D are compared over sessions, which are independent runs, by Welch's t test. Quantities that
are measured per task are compared in pairs, over the tasks that both agents were given. A fixed rule chooses
one primary quantity independently of the results. It is tested without correction; the p values of all other
quantities are corrected together (Holm).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from agent_eval.errors import InvalidValueError
from agent_eval.formats.plain_text import count_of
from agent_eval.scores.compared_labels import with_labels
from agent_eval.scores.composite.leaderboard import SCALE_0TO100, SIGNIFICANCE
from agent_eval.scores.statistics.clustered import paired_by_cluster, too_few
from agent_eval.scores.statistics.compared_values import (
    PASS_AT_1,
    RATES,
    says_goal,
    session_values,
    task_values,
)
from agent_eval.scores.statistics.distribution_free import IntervalMethod, unseen_reason
from agent_eval.scores.statistics.intervals import Difference, Sample, holm, paired, welch
from agent_eval.scores.statistics.power import shared, units_needed
from agent_eval.scores.statistics.unpaired import (
    CONVERSATIONS,
    FAILURE_RATE,
    ONE_SESSION,
    SUCCESS_RATE,
    unpaired_rows,
)

__all__ = ["PASS_AT_1", "RATES", "compare", "says_goal", "session_values", "task_values"]

LOWER_IS_BETTER = frozenset({"cost_usd"})
COUNTS = ("n_planned", "n_known", "n_harness_errors", "n_unknown", "n_refused", "n_unexplained_errors")
PRIMARY, SECONDARY = "primary", "secondary"
SCHEMA: Mapping[str, type[pl.DataType]] = {
    "quantity": pl.String,
    "role": pl.String,
    "task_set": pl.String,
    "agent_id": pl.String,
    "other_agent_id": pl.String,
    "value": pl.Float64,
    "other_value": pl.Float64,
    **{f"{side}value_of_judge": pl.Float64 for side in ("", "other_")},
    **{
        f"{side}n_{name}": pl.Int64
        for side in ("", "other_")
        for name in ("labels_drawn", "labels_own", "unchecked")
    },
    "difference": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "p_value": pl.Float64,
    "p_holm": pl.Float64,
    "probability_better": pl.Float64,
    "smallest_detectable": pl.Float64,
    "n": pl.Int64,
    "other_n": pl.Int64,
    "n_clusters": pl.Int64,
    "other_n_clusters": pl.Int64,
    "n_effective": pl.Float64,
    "other_n_effective": pl.Float64,
    "unit": pl.String,
    "verdict": pl.String,
    "reason": pl.String,
    "verdict_worst": pl.String,
    "verdict_best": pl.String,
    **{f"{end}": pl.Float64 for end in ("difference_worst", "difference_best")},
    **{f"{side}value_{end}": pl.Float64 for side in ("", "other_") for end in ("worst", "best")},
    **{f"{side}{name}": pl.Int64 for side in ("", "other_") for name in COUNTS},
}
OF_THIS_SIZE = "a true difference of this size needs"
"""The beginning of a reason that states how many conversations would show the difference."""
_ROUNDING = 1e-9


def is_lower_better(quantity: str) -> bool:
    """Return whether lower values of a quantity are better, as for costs and failure rates."""
    return quantity in LOWER_IS_BETTER or quantity.startswith(FAILURE_RATE)


def compare(
    agent: str,
    other: str,
    session_values: pl.DataFrame,
    task_values: pl.DataFrame,
    refused: pl.DataFrame | None = None,
    *,
    thresholds: Sequence[str] = (),
    interval: IntervalMethod = "auto",
    conversations: pl.DataFrame | None = None,
    parts: pl.DataFrame | None = None,
    scales: Mapping[str, tuple[float, float]] | None = None,
) -> pl.DataFrame:
    """Compare two agents in every quantity that both have.

    The primary quantity is the first of these for which both agents have two or more units: the composite, the
    raw composite, pass@1, the success rate of conversations, and the metrics in `thresholds` in their order. It
    is tested at 5 %; all other p values are corrected together after Holm. If there is no such quantity, all
    quantities are secondary.

    The verdict on a share of trials is unknown if unknown trials could change it. It is therefore also computed
    with all unknown trials of A failed and those of B passed (`difference_worst`), and the reverse
    (`difference_best`).

    Args:
        agent: Agent A; differences are A − B.
        other: Agent B.
        session_values: Columns `agent_id`, `quantity`, `values` (one per session; empty if one is missing) and
            `point` (the change that one rating point makes to a value). `judge_error`, if present, is a standard error
            of the mean that is added.
        task_values: From `task_values`.
        refused: From `refused_records`; a refused record has no task and counts as an additional task.
        thresholds: The metrics that have a threshold in the gates.
        interval: Unless this is t, the verdict on a difference over sessions that unseen sessions could explain
            is unknown, with the reason.
        conversations: From `conversation_values`; used only if there are no common tasks.
        parts: From `labelled_parts.placed_parts`, of both agents; labels that sheets drew correct the means.
        scales: The ends of the scale of each metric in `parts`; by default 0–1.

    Returns:
        One row per quantity, and per task set if the quantity is measured per task, with the columns of
        `SCHEMA`. `n` and `other_n` count sessions, common tasks or conversations; `n_effective` is the effective
        number of clusters of conversations. `verdict` is '<agent id> better', tie (equal in every task, or equal
        session means), not distinguishable, or unknown (with one session or task, or as `reason` explains).

    Raises:
        InvalidValueError: If both ids are the same.
    """
    if agent == other:
        raise InvalidValueError(f"Agent {agent!r} is compared with itself. Choose two different agents.")
    n_refused = {side: _n_refused(refused, side) for side in (agent, other)}
    rows = [
        *_over_sessions(agent, other, session_values),
        *_over_tasks(agent, other, task_values, n_refused[agent], n_refused[other]),
    ]
    if conversations is not None and not any(row["unit"] == "tasks" for row in rows):
        rows += map(_with_direction, unpaired_rows(agent, other, conversations))
    if parts is not None and not parts.is_empty():
        sides = {"agent_id": agent, "other_agent_id": other}
        rows = [
            row if row["unit"] == "sessions" else with_labels({**row, **sides}, parts, scales or {})
            for row in rows
        ]
    primary = _primary(rows, thresholds)
    p_values = [row["p_value"] for row in rows]
    for i, (row, p_holm) in enumerate(zip(rows, _corrected(p_values, primary), strict=True)):
        row |= {"agent_id": agent, "other_agent_id": other, "p_holm": p_holm}
        row["role"] = PRIMARY if i == primary else SECONDARY
        row["verdict"] = _verdict(row)
        row |= _in_cases(row, p_values, i, primary)
        doubt = _turned(row) or row.get("verdict_limit")
        if doubt is None and interval != "t" and row["verdict"].endswith(" better"):
            doubt = _unseen(row)
        if doubt:
            row |= {"verdict": "unknown", "reason": doubt}
        elif row["unit"] == CONVERSATIONS:
            row["reason"] = row.get("reason") or _more_conversations(row) or _of_one_session(row)
        elif row["verdict"] == "unknown" and not row.get("reason") and row["n"] == 1:
            row["reason"] = "one common task shows no spread" if row["unit"] == "tasks" else None
    return pl.DataFrame(rows, schema=SCHEMA)


def _with_direction(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with the probability that A is better, which is that of a lower value for costs and failure rates."""
    higher = row["probability_better"]
    return (
        row
        if higher is None or not is_lower_better(row["quantity"])
        else {**row, "probability_better": 1 - higher}
    )


def _n_refused(refused: pl.DataFrame | None, agent: str) -> dict[str, int]:
    """Return the number of an agent's refused records by task set."""
    if refused is None:
        return {}
    return dict(refused.filter(pl.col("agent_id") == agent).select("task_set", "n_refused").iter_rows())


def _primary(rows: Sequence[Mapping[str, Any]], thresholds: Sequence[str]) -> int | None:
    """Return the index of the primary quantity's row, for the task set with the most common tasks."""
    for name in ("composite", "raw composite", PASS_AT_1, SUCCESS_RATE, *thresholds):
        places = [
            i for i, row in enumerate(rows) if row["quantity"] == name and min(row["n"], row["other_n"]) > 1
        ]
        if places:
            return min(places, key=lambda i: (-rows[i]["n"], rows[i]["task_set"] or ""))
    return None


def _corrected(p_values: Sequence[float | None], primary: int | None) -> list[float | None]:
    """Return the p values corrected after Holm, except that of the primary quantity, which is not counted."""
    others = holm([None if i == primary else p for i, p in enumerate(p_values)])
    return [p if i == primary else other for i, (p, other) in enumerate(zip(p_values, others, strict=True))]


def _in_cases(
    row: Mapping[str, Any], p_values: Sequence[float | None], i: int, primary: int | None
) -> dict[str, str]:
    """Return the verdicts in the worst and best case, if there are any, with the p values of all other rows."""
    verdict_of_case = {}
    for end, case in row.get("cases", {}).items():
        p_holm = _corrected([*p_values[:i], case["p_value"], *p_values[i + 1 :]], primary)[i]
        verdict_of_case[f"verdict_{end}"] = _verdict({**row, **case, "p_holm": p_holm})
    return verdict_of_case


def _more_conversations(row: Mapping[str, Any]) -> str | None:
    """Return how many conversations would show the difference; None if it is 0 or already significant."""
    if row["verdict"] not in ("not distinguishable", "unknown") or not row["difference"]:
        return None
    if row["smallest_detectable"] is None:
        return "the conversations of neither vary: more of them are needed"
    n, n_clusters = shared(row["n"], row["other_n"]), shared(row["n_effective"], row["other_n_effective"])
    needed = units_needed(n, row["smallest_detectable"], abs(row["difference"]), "unpaired", n_clusters)
    of = f"about {needed:,}" if needed else "more than a million"
    spread = "" if row["single"] else ", in as many more sessions"
    return f"{OF_THIS_SIZE} {of} conversations of each{spread}"


def _of_one_session(row: Mapping[str, Any]) -> str | None:
    """Return the limitation of a significant difference if an agent has only one session, else None."""
    if not row["single"] or not row["verdict"].endswith(" better"):
        return None
    return ONE_SESSION.format(" and ".join(row["single"]))


def _unseen(row: Mapping[str, Any]) -> str | None:
    """Return why unseen sessions could explain a difference over sessions; None if they could not."""
    if row["unit"] != "sessions":
        return None
    ends = min(SCALE_0TO100[0], row["value"], row["other_value"]), SCALE_0TO100[1]
    sides = [
        (row[name], Sample(row[f"{side}n"], row[f"{side}value"], 0.0))
        for side, name in (("", "agent_id"), ("other_", "other_agent_id"))
    ]
    difference = Difference(*(row[name] for name in Difference._fields))
    return unseen_reason(sides[0], sides[1], difference, ends)


def _turned(row: Mapping[str, Any]) -> str | None:
    """Return why unknown trials make the verdict unknown; None if they cannot change it."""
    if not row.get("cases"):
        return None
    verdicts = {
        f"{verdict} at {end}"
        for end in ("worst", "best")
        if (verdict := row.get(f"verdict_{end}")) not in (None, row["verdict"], "unknown")
    }
    lost = " and ".join(
        f"{row[f'{side}n_planned'] - row[f'{side}n_known']} of {row[f'{side}n_planned']} trials of {row[name]}"
        for side, name in (("", "agent_id"), ("other_", "other_agent_id"))
        if row[f"{side}n_planned"] > row[f"{side}n_known"]
    )
    if row["verdict"] == "unknown":
        return f"too few trials are known of both: {lost} are not"
    if not verdicts:
        return None
    return f"{row['verdict']} as far as known, but {lost} are not known: {', '.join(sorted(verdicts))}"


def _over_sessions(agent: str, other: str, values: pl.DataFrame) -> list[dict[str, Any]]:
    if "judge_error" not in values.columns:
        values = values.with_columns(judge_error=0.0)
    columns = ("agent_id", "quantity", "values", "point", "judge_error")
    of: dict[tuple[str, str], tuple[list[float], float | None, float]] = {
        (a, q): (v, point, error) for a, q, v, point, error in values.select(columns).iter_rows()
    }
    rows = []
    for quantity in values["quantity"].unique(maintain_order=True):
        (ours, point, error), (theirs, other_point, other_error) = (
            of.get((a, quantity), ([], None, 0.0)) for a in (agent, other)
        )
        if not ours or not theirs:
            continue
        sides = Sample.of(ours).including(error), Sample.of(theirs).including(other_error)
        gap = welch(*sides, step=max(point or 0.0, other_point or 0.0))
        rows.append(_row(quantity, None, "sessions", ours, theirs, gap))
    return rows


def _over_tasks(
    agent: str,
    other: str,
    values: pl.DataFrame,
    refused: Mapping[str, int],
    other_refused: Mapping[str, int],
) -> list[dict[str, Any]]:
    key = ["task_set", "quantity", "task"]
    both = (
        values.filter(pl.col("agent_id") == agent)
        .join(values.filter(pl.col("agent_id") == other), on=key, suffix="_other")
        .sort(key)
    )
    rows = []
    for (task_set, quantity), tasks in both.group_by("task_set", "quantity", maintain_order=True):
        common_tasks = tasks.drop_nulls(["value", "value_other"])
        is_rate = quantity in RATES and "worst" in tasks.columns
        if common_tasks.is_empty() and not is_rate:
            continue
        if common_tasks.is_empty():
            row = _unknown_row(str(quantity), str(task_set), tasks)
        else:
            ours, theirs = common_tasks["value"].to_list(), common_tasks["value_other"].to_list()
            differences = [_rounded(a - b) for a, b in zip(ours, theirs, strict=True)]
            families, n_conflicts = _families(common_tasks), _conflicts(common_tasks)
            gap = paired(differences) if families is None else paired_by_cluster(differences, families)
            if n_conflicts:
                gap = Difference(gap.difference, None, None, None, None)
            row = _row(str(quantity), str(task_set), "tasks", ours, theirs, gap)
            if families is not None:
                row["n_clusters"] = row["other_n_clusters"] = len({*families})
                row["reason"] = too_few(len({*families}))
                if row["reason"] is None and gap.p_value is None:
                    row["reason"] = "nearly all tasks are in one family"
            if n_conflicts:
                row["reason"] = (
                    f"the agents declare different families for {n_conflicts} of {count_of(common_tasks.height, 'task')}"
                )
        if is_rate:
            lost = refused.get(str(task_set), 0), other_refused.get(str(task_set), 0)
            row |= _rate(tasks, *lost)
        rows.append(row)
    return rows


def _families(tasks: pl.DataFrame) -> list[str] | None:
    """Return the family of each task; None unless both agents' data declare a family for every task."""
    if not {"family", "family_other"}.issubset(tasks.columns):
        return None
    if tasks["family"].null_count() or tasks["family_other"].null_count():
        return None
    return tasks["family"].to_list()


def _conflicts(tasks: pl.DataFrame) -> int:
    """Count the tasks for which the two agents' data declare different families."""
    if not {"family", "family_other"}.issubset(tasks.columns):
        return 0
    return tasks.filter(pl.col("family") != pl.col("family_other")).height


def _rate(tasks: pl.DataFrame, n_refused: int, other_n_refused: int) -> dict[str, Any]:
    """Return the trial counts of a compared share, and its difference in A's worst and best case."""
    row: dict[str, Any] = {}
    for side, suffix, lost in (("", "", n_refused), ("other_", "_other", other_n_refused)):
        counts = {name: int(tasks[f"{name}{suffix}"].sum()) for name in COUNTS[1:4]} | {"n_refused": lost}
        row |= {f"{side}{name}": n for name, n in counts.items()}
        row[f"{side}n_planned"] = sum(counts.values())
        row[f"{side}n_unexplained_errors"] = int(tasks[f"n_unexplained_errors{suffix}"].sum())
        worst, best = (tasks[f"{end}{suffix}"].to_list() for end in ("worst", "best"))
        row[f"{side}value_worst"] = sum(worst) / (len(worst) + lost)
        row[f"{side}value_best"] = (sum(best) + lost) / (len(best) + lost)
    extra = n_refused + other_n_refused
    cases: dict[str, Mapping[str, object]] = {}
    for end, ours, theirs, sign in (("worst", "worst", "best", -1.0), ("best", "best", "worst", 1.0)):
        pairs = zip(tasks[ours].to_list(), tasks[f"{theirs}_other"].to_list(), strict=True)
        differences = [*(_rounded(a - b) for a, b in pairs), *([sign] * extra)]
        families = _families(tasks)
        gap = (
            paired(differences, plans=False)
            if families is None
            else paired_by_cluster(
                differences, [*families, *(f"refused {i}" for i in range(extra))], plans=False
            )
        )
        n = tasks.height + extra
        cases[end] = {**gap._asdict(), "difference": _rounded(gap.difference), "n": n, "other_n": n}
        row[f"difference_{end}"] = cases[end]["difference"]
    is_known = row["n_planned"] == row["n_known"] and row["other_n_planned"] == row["other_n_known"]
    return row | {"cases": {} if is_known else cases}


def _unknown_row(quantity: str, task_set: str, tasks: pl.DataFrame) -> dict[str, Any]:
    """Return the row for a share of trials if no task has known trials of both agents."""
    return {
        "quantity": quantity,
        "task_set": task_set,
        "value": tasks["value"].mean(),
        "other_value": tasks["value_other"].mean(),
        **dict.fromkeys(("difference", *Difference._fields)),
        "n": 0,
        "other_n": 0,
        "unit": "tasks",
    }


def _rounded(difference: float) -> float:
    """Return 0 for a difference that is only floating-point error, so that equal shares compare as equal."""
    return 0.0 if abs(difference) < _ROUNDING else difference


def _row(
    quantity: str, task_set: str | None, unit: str, ours: list[float], theirs: list[float], gap: Difference
) -> dict[str, Any]:
    better = gap.probability_better
    if better is not None and quantity in LOWER_IS_BETTER:
        better = 1 - better
    return {
        "quantity": quantity,
        "task_set": task_set,
        "value": sum(ours) / len(ours),
        "other_value": sum(theirs) / len(theirs),
        **gap._asdict(),
        "difference": _rounded(gap.difference),
        "probability_better": better,
        "n": len(ours),
        "other_n": len(theirs),
        "unit": unit,
    }


def _verdict(row: Mapping[str, Any]) -> str:
    difference = row["difference"]
    if difference is None:
        return "unknown"
    if difference == 0 and (row["unit"] == "sessions" or row["low"] is None):
        return "tie"
    if row["p_holm"] is None or min(row["n"], row["other_n"]) < 2:
        return "unknown"
    if row["p_holm"] >= SIGNIFICANCE:
        return "not distinguishable"
    is_ours = (difference > 0) != is_lower_better(row["quantity"])
    return f"{row['agent_id'] if is_ours else row['other_agent_id']} better"
