"""Correct pass@1 with the labels of people that rating sheets drew."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from agent_eval.formats.plain_text import count_of
from agent_eval.scores.labelled_parts import corrected_rates_of, goal_parts, labels_said, success_parts
from agent_eval.scores.reliability.trials import GOAL_METRIC, GROUP, TRIAL, TrialTables
from agent_eval.scores.statistics.unpaired import RULE
from agent_eval.tables.judging import HUMAN, deciding_answers

_RATE = ("pass_at_k", "pass_hat_k")
_CORRECTED = ("unbiased", "plug_in")  # estimators whose rows with k = 1 labels correct


def with_labels(rows: pl.DataFrame, outcomes: pl.DataFrame, tables: TrialTables) -> pl.DataFrame:
    """Return the rows of `reliability` with pass@1 corrected by drawn labels of goal completion.

    The rows with k = 1 of the estimators unbiased and plug_in are corrected, and `pass_at_1` of every row. pass^k for
    k of 2 or more, and posteriors, are those of the judge alone, unless people labelled every trial: then their labels
    decided the trials, and so every row. `labels` says it in words, and how many trials people decided without a draw.
    The worst case counts the unknown trials as failed and the best case as passed, with the failures that ended in an
    error of unknown cause, as shares of the planned trials.

    Args:
        rows: The rows, with their counts and estimates.
        outcomes: From `trial_outcomes`, with a task.
        tables: The tables that decided the trials.
    """
    goals = goal_parts(tables.conversation_judgments)
    if goals.is_empty():
        return rows
    family = pl.when(pl.col("task_family").is_not_null().all().over(GROUP)).then("task_family")
    places = outcomes.select(*TRIAL, "task_set", "session_id", "task", cluster=pl.coalesce(family, "task"))
    parts = success_parts(outcomes, goals).join(places, on=list(TRIAL))
    rates = corrected_rates_of(parts, GROUP, "task")
    by_people = pl.col("weight").is_null() & (pl.col("judge") == HUMAN)
    counts = parts.group_by(GROUP).agg(n_own=by_people.sum(), has_unchecked=pl.col("human").has_nulls())
    of_row = (
        rows.join(rates.drop("n_own"), on=list(GROUP), how="left", maintain_order="left")
        .join(counts, on=list(GROUP), how="left", maintain_order="left")
        .join(
            _decided_by_people(tables.conversation_judgments), on=GROUP[:2], how="left", maintain_order="left"
        )
    )
    is_group = pl.col("value").is_not_null()
    is_row = is_group & (pl.col("k") == 1) & pl.col("estimator").is_in(_CORRECTED)
    is_census = is_group & pl.col("is_census")
    worst = pl.col("value") * pl.col("n_known") / pl.col("n_planned")
    n_open = pl.col("n_planned") - pl.col("n_known") + pl.col("n_unexplained_errors")
    best = pl.min_horizontal(worst + n_open / pl.col("n_planned"), 1.0)
    estimate = {
        "": pl.col("value"),
        "_low": pl.col("low"),
        "_high": pl.col("high"),
        "_worst": worst,
        "_best": best,
    }
    return of_row.with_columns(
        *(
            pl.when(is_row).then(of).otherwise(f"{name}{end}").alias(f"{name}{end}")
            for name in _RATE
            for end, of in estimate.items()
        ),
        *(
            pl.when(is_group).then(estimate[end]).otherwise(f"pass_at_1{end}").alias(f"pass_at_1{end}")
            for end in ("", "_worst", "_best")
        ),
        labels=pl.Series([_labels(row) for row in of_row.iter_rows(named=True)], dtype=pl.String),
        pass_at_1_of_judge=pl.when(is_group).then("of_judge"),
        n_labels_drawn=pl.when(is_row | is_census).then("n_drawn"),
        interval=pl.when(is_row)
        .then(pl.format("{}; corrected by {} labels of people", "interval", "n_drawn"))
        .when(is_census)
        .then(pl.format("{}; decided by {} labels of people", "interval", "n_drawn"))
        .when(is_group)
        .then(pl.format("{}; of the judge alone, which labels do not correct", "interval"))
        .otherwise("interval"),
    ).drop(*rates.columns[len(GROUP) :], *counts.columns[len(GROUP) :], "is_census", strict=False)


def _labels(row: Mapping[str, Any]) -> str | None:
    """Return what labels do to a row, which has the columns of `Corrected`, the counts of parts, and what decides it."""
    is_group, alone = row["value"] is not None, row["of_judge"]
    is_row = is_group and row["k"] == 1 and row["estimator"] in _CORRECTED
    if is_group and row["is_census"] and not is_row:
        return f"decided by {count_of(row['n_drawn'], 'label')} of people"
    effect = labels_said(
        row["n_drawn"] if is_row else None,
        row["n_own"],
        is_corrected=is_row,
        has_unchecked=bool(row["has_unchecked"]),
        judge_alone="" if alone is None else f"pass@1 {alone:.3f}",
    )
    return "; ".join(["of the judge alone"] * (is_group and not is_row) + [effect] * bool(effect)) or None


def _decided_by_people(conversation_judgments: pl.DataFrame) -> pl.DataFrame:
    """Return whether no goal of an agent rests on its judge (column is_census), per version and agent."""
    goals = deciding_answers(conversation_judgments.filter(metric=GOAL_METRIC))
    is_known = (pl.col("status").cast(pl.String) != "scored") | pl.col("judge").is_in([HUMAN, RULE])
    return goals.group_by(GROUP[:2]).agg(is_census=is_known.all())
