"""Format the summary of an agent's conversations for the terminal, the Dagster UI and the report."""

from collections.abc import Iterable, Mapping
from typing import Any

from agent_eval.metrics.metric_set import best_answer
from agent_eval.scores.labelled_parts import labels_said
from agent_eval.scores.reliability.trials import GOAL_METRIC
from agent_eval.scores.statistics.quality import COST, HEADLINES, by_rule
from agent_eval.scores.statistics.unpaired import FAILURE_RATE, RULE, SUCCESS_RATE
from agent_eval.tables.judging import HUMAN

_NO_JUDGES = {HUMAN, RULE, "outcome"}  # what decides a part without a judge
NO_LABELS = "no labels of people"
DIRECTION = "Higher is better, except for failures and cost."
HEADINGS = {
    "success_rate": "success",
    "helpfulness_1to5": "helpful (1–5, 5 = best)",
    "behavior_failure_rate": "behavior failures",
    "tool_failure_rate": "tool failures",
    "cost_usd_per_conversation": "cost each",
}
"""Column of table log_leaderboard → heading. Failures are shares of judged turns; costs are per conversation."""


def value_of(row: Mapping[str, Any], end: str = "mean") -> str:
    """Return the mean or a bound of a row of quality_summary as text with its unit.

    A mean that only rules decided in part is unknown: the text says how many answers there are. Otherwise an unknown
    value is '–'.
    """
    value = row[end]
    if value is None:
        return (row.get("by_rule") if end == "mean" else None) or "–"
    if row["scale_high"] is None:
        return f"${value:.4f}"
    return f"{100 * value:.1f} %" if is_rate(row) else f"{value:.2f}"


def headline(row: Mapping[str, Any], column: str) -> dict[str, Any]:
    """Return a main figure of log_leaderboard in the layout of quality_summary: quantity, scale, mean, low, high."""
    ends = {"mean": row[column], "low": row[f"{column}_low"], "high": row[f"{column}_high"]}
    ends |= {
        name: row.get(f"{column}_{end}")
        for name, end in (
            ("mean_of_judge", "of_judge"),
            ("n_labels_drawn", "labels_drawn"),
            ("n_labels_own", "labels_own"),
        )
    }
    low, high = (1.0, 5.0) if column.endswith("1to5") else (0.0, None if HEADLINES[column] == COST else 1.0)
    scale = {"scale_low": low, "scale_high": high}
    if column == "success_rate":
        ends["n_scored"] = row.get("n_conversations")
    by_rule = row.get(f"{column.partition('_')[0]}_by_rule")
    return {
        "quantity": HEADLINES[column],
        **scale,
        "n_clusters": 1,
        "clustered_by": "cluster",
        "by_rule": by_rule,
    } | ends


_NO_INTERVAL = {
    "session": "none: only one session",
    "task or conversation": "none: only one task or conversation",
}


def is_rate(row: Mapping[str, Any]) -> bool:
    """Return whether the mean of a row is a share, i.e. neither a rating nor a cost."""
    return (row["scale_low"], row["scale_high"]) == (0, 1)


def interval_of(row: Mapping[str, Any]) -> str:
    """Return the 95 % interval of a row of quality_summary as text, or why it is missing."""
    if row["mean"] is None:
        return "–"
    if row["low"] is None:
        return _NO_INTERVAL.get(row["clustered_by"], "none: only one session, task or conversation")
    return f"{value_of(row, 'low')} to {value_of(row, 'high')}"


def headline_interval(row: Mapping[str, Any]) -> str:
    """Return the interval of a main figure, with what people's labels do to it."""
    return f"{interval_of(row)}; {labels}" if (labels := labels_text(row)) else interval_of(row)


def labels_text(row: Mapping[str, Any]) -> str:
    """Return what people's labels do to a mean of quality_summary; without labels, that the judge is not checked."""
    is_by_judge = bool({*(row.get("judges") or ())} - _NO_JUDGES)
    labels = labels_said(
        row.get("n_labels_drawn"),
        row.get("n_labels_own"),
        is_corrected=row.get("mean_of_judge") is not None,
        has_unchecked=("judges" not in row or is_by_judge) and row.get("n_scored") != row.get("n_labels_own"),
        judge_alone=value_of(row, "mean_of_judge") if row.get("mean_of_judge") is not None else "",
    )
    return labels or (NO_LABELS if is_by_judge and row["mean"] is not None else "")


def name_of(row: Mapping[str, Any]) -> str:
    """Return the name of the quantity, e.g. 'helpfulness (1 to 5, 5 = best)' or 'turns with agent behavior'."""
    name = str(row["quantity"])
    if row["scale_high"] is None:
        return "cost per conversation"
    if name.startswith(FAILURE_RATE):
        return f"turns with {name.removeprefix(FAILURE_RATE).replace('_', ' ')}"
    words, low, high = name.replace("_", " "), row["scale_low"], row["scale_high"]
    if is_rate(row):
        return words
    best = (
        f", 5 = {best_answer(name)}" if (low, high) == (1, 5) else ""
    )  # other scales are those of custom metrics
    return f"{words} ({low:g} to {high:g}{best})"


def answers_of(row: Mapping[str, Any]) -> str:
    """Return the numbers of scored and missing answers of a row and its labels, e.g. '120, 4 unscored (3.2 %)'."""
    labels = labels_text(row)
    return f"{_counts(row)}; {labels}" if labels else _counts(row)


def _counts(row: Mapping[str, Any]) -> str:
    if row["quantity"] in (COST, SUCCESS_RATE):
        known_text, lacking = f"{row['n_scored']:,} known", f"{row['n_unscored']:,} unknown"
        return f"{known_text}, {lacking}" if row["n_unscored"] else known_text
    if not row["n_scored"] and not row["n_unscored"]:
        return f"no judge asked ({row['n_unasked']:,})"
    if row["n_unasked"] and row.get("judges") == [RULE] and (decided := by_rule(row)):
        return decided
    count_texts = [f"{row['n_scored']:,}"]
    if row["n_unscored"]:
        count_texts.append(f"{row['n_unscored']:,} unscored ({100 * row['unscored_share']:.1f} %)")
    if row["n_unasked"]:
        count_texts.append(f"{row['n_unasked']:,} not asked")
    return ", ".join(count_texts)


def read_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of quality_summary of one agent in reading order, with `by`: who gave the figures shown.

    People gave a figure that their labels decide in part or correct; labels that are too few to correct it did not. If
    goal completion decides the success rate, its judges did.
    """
    ordered = sorted((dict(row) for row in rows), key=reading_order)
    by_quantity = {row["quantity"]: _deciding(row) for row in ordered}
    goal_judges = by_quantity.get(GOAL_METRIC, [])
    for row in ordered:
        by = by_quantity[row["quantity"]]
        if row["quantity"] == SUCCESS_RATE:
            names = {"outcome": ["declared outcome"], GOAL_METRIC: goal_judges or [GOAL_METRIC]}
            by = list(dict.fromkeys(name for source in by for name in names.get(source, [source])))
        row["by"] = ", ".join(by) or "–"
    return ordered


def log_judges(row: Mapping[str, Any]) -> list[str]:
    """Return the judges that gave the main figures of a row of log_leaderboard."""
    is_by_people = any(
        row[f"{c}_labels_own"] or row[f"{c}_of_judge"] is not None for c in HEADINGS if f"{c}_of_judge" in row
    )
    return [judge for judge in row["judges"] or () if judge != HUMAN or is_by_people]


def _deciding(row: Mapping[str, Any]) -> list[str]:
    is_by_people = bool(row.get("n_labels_own")) or row.get("mean_of_judge") is not None
    others = [judge for judge in row["judges"] if judge != HUMAN]
    return [HUMAN, *others] if is_by_people and row["quantity"] != SUCCESS_RATE else others


def reading_order(row: Mapping[str, Any]) -> tuple[int, str]:
    """Return the sort key: success first, then ratings and values, failures, cost; missing values last."""
    name = str(row["quantity"])
    kind = 0 if name == SUCCESS_RATE else 3 if name == COST else 2 if name.startswith(FAILURE_RATE) else 1
    return (kind if row["mean"] is not None else 9), name
