"""Compare two agents without common tasks by the means of their conversations' values.

Sessions are the clusters, because conversations of a session may depend on each other. For an agent with a
single session, the clusters are its task families, or its tasks if no families are declared; a conversation
without a task is a separate cluster. The interval of such an agent does not include the differences between
sessions, which are unknown.
"""

from collections.abc import Sequence
from typing import Any

import polars as pl

from agent_eval.scores.reliability.trials import GOAL_METRIC, TRIAL
from agent_eval.scores.statistics.clustered import clustered_difference, clustered_mean, has_two_clusters
from agent_eval.tables.judging import enters_means

SUCCESS_RATE = "success rate"
FAILURE_RATE = "failure rate: "
"""Prefix of a failure metric's name in the name of its failure rate; lower is better."""
CONVERSATIONS = "conversations"
DOMINATED = "nearly all conversations of {} are in one session or task"
ONE_SESSION = (
    "this holds for these conversations: single session of {}, and how much sessions differ is not known"
)
RULE = "rule"
"""Name of the judge of answers that are decided without a model."""
SCHEMA = {
    "methodology_version": pl.String,
    "agent_id": pl.String,
    "session_id": pl.String,
    "unit": pl.String,
    "quantity": pl.String,
    "value": pl.Float64,
}


def conversation_values(
    outcomes: pl.DataFrame,
    metrics: pl.DataFrame,
    turn_judgments: pl.DataFrame,
    failure_metrics: Sequence[str],
    no_failure: str,
) -> pl.DataFrame:
    """Return the known values of each conversation, independent of its task.

    Args:
        outcomes: From `trial_outcomes`, including conversations without a task.
        metrics: The mean of each metric in each conversation (columns `quantity` and `value`).
        turn_judgments: Table turn_judgments, for the failure labels.
        failure_metrics: The metrics whose labels are failures.
        no_failure: The label that is not a failure.

    Returns:
        One row per conversation and quantity, with the session and a `unit`, which is the family, the task or
        the conversation itself. The quantities are the success rate (0 or 1), the mean of every metric, and, for
        each failure metric, the share of turns with a failure. This share counts only turns that a judge other
        than a rule labelled, because a rule labels only failing turns. Goal completion is included only if the
        success is unknown, because both describe the same outcome.
    """
    family = [name for name in ("task_family",) if name in outcomes.columns]
    sessions = outcomes.select(*TRIAL, "session_id", unit=pl.coalesce(*family, "task", "conversation_id"))
    outcomes_with_result = outcomes.drop_nulls("is_correct").select(TRIAL)
    goals = metrics.filter(quantity=GOAL_METRIC).join(outcomes_with_result, on=list(TRIAL), how="anti")
    successes = outcomes.drop_nulls("is_correct").select(
        *TRIAL, quantity=pl.lit(SUCCESS_RATE), value=pl.col("is_correct").cast(pl.Float64)
    )
    labelled = turn_judgments.filter(
        pl.col("metric").is_in(list(failure_metrics)),
        pl.col("label").is_not_null(),
        pl.col("status") == "scored",
    )
    turn = [*TRIAL, "turn_index", "metric"]
    eligible = labelled.filter(pl.col("judge") != RULE)
    labelled = labelled.filter(enters_means(labelled)).join(eligible, on=turn, how="semi")
    failures = labelled.group_by(*TRIAL, "metric", maintain_order=True).agg(
        value=(pl.col("label") != no_failure).cast(pl.Float64).mean()
    )
    parts = [
        successes,
        metrics.filter(pl.col("quantity") != GOAL_METRIC).select(*TRIAL, "quantity", "value"),
        goals.select(*TRIAL, "quantity", "value"),
        failures.select(*TRIAL, pl.concat_str(pl.lit(FAILURE_RATE), "metric").alias("quantity"), "value"),
    ]
    return (
        pl.concat(parts)
        .join(sessions, on=list(TRIAL))
        .select(list(SCHEMA))
        .sort("quantity", "agent_id", "session_id", "value", "unit", "methodology_version")
    )


def clusters(values: pl.DataFrame) -> list[str]:
    """Return the cluster of each conversation of one agent: its session, or its unit if there is only one session."""
    return values["session_id" if values["session_id"].n_unique() > 1 else "unit"].to_list()


def unpaired_rows(agent: str, other: str, values: pl.DataFrame) -> list[dict[str, Any]]:
    """Return one row per quantity that is known in at least two clusters of each agent's conversations."""
    rows: list[dict[str, Any]] = []
    for (quantity,), quantity_rows in values.group_by("quantity", maintain_order=True):
        sides = []
        for name in (agent, other):
            of = quantity_rows.filter(agent_id=name)
            sides.append((of["value"].to_list(), clustered_mean(of["value"].to_list(), clusters(of))))
        (ours, a), (theirs, b) = sides
        if a is None or b is None:
            continue
        dominated = [
            name for name, side in zip((agent, other), (a, b), strict=True) if not has_two_clusters(side)
        ]
        rows.append(
            {
                "quantity": quantity,
                "task_set": None,
                "value": a.mean,
                "other_value": b.mean,
                **clustered_difference(a, b)._asdict(),
                "n": len(ours),
                "other_n": len(theirs),
                "n_clusters": a.n_clusters,
                "other_n_clusters": b.n_clusters,
                "n_effective": a.freedom + 1,
                "other_n_effective": b.freedom + 1,
                "unit": CONVERSATIONS,
                "single": [
                    name
                    for name in (agent, other)
                    if quantity_rows.filter(agent_id=name)["session_id"].n_unique() == 1
                ],
                "reason": DOMINATED.format(" and ".join(dominated)) if dominated else None,
            }
        )
    return rows
