"""Count, per run of an agent, the conversations that were looked at for a failure and those that had it, by task.

The counts of superseded runs are kept, so that an issue can be followed after their judgments were removed.
"""

import polars as pl

from agent_eval.clusters.failures import impartial_judgments, with_run_key
from agent_eval.clusters.rates import FAILURE_SETS, PAIR, metrics_of
from agent_eval.tables import table

ALL = "all"
"""The basis of failures that only rules reported: rules look at every conversation, and always find the same."""
_RUN = (*PAIR, "benchmark_id")
_CONVERSATION = (*PAIR, "conversation_id")


def issue_runs(
    failures: pl.DataFrame,
    turn_judgments: pl.DataFrame,
    transcripts: pl.DataFrame,
    sessions: pl.DataFrame,
    registry: pl.DataFrame,
    earlier: pl.DataFrame,
) -> pl.DataFrame:
    """Return table `issue_runs`: the counts of the current runs, and the stored ones of earlier runs.

    Args:
        failures: Table `failures`, with clusters.
        turn_judgments: The judgments that the failures come from.
        transcripts: Table `transcripts` of the same agents.
        sessions: Table `sessions` of the same agents.
        registry: Table `error_registry`.
        earlier: The stored table `issue_runs` for these versions and agents.
    """
    admitted = transcripts.filter("is_admitted", pl.col("n_turns") > 0)
    keyed = with_run_key(admitted.select(*_RUN, "conversation_id", "task_id"), admitted, sessions)
    keyed = keyed.with_columns(pl.col("run_key").max().over(_RUN))
    places = keyed.select(
        *_CONVERSATION, "benchmark_id", "run_key", pl.col("task_id").fill_null("").alias("task")
    )
    judged_metrics = impartial_judgments(turn_judgments).select(*_CONVERSATION, "metric").unique()
    looked = pl.concat(
        [
            judged_metrics.join(FAILURE_SETS, on="metric").select(*_CONVERSATION, basis="metrics").unique(),
            places.select(*_CONVERSATION, basis=pl.lit(ALL)),
        ]
    ).join(places, on=list(_CONVERSATION))
    basis = metrics_of(registry).rename({"metrics": "basis"})
    with_issue = failures.select(*_CONVERSATION, "cluster_id").unique().join(basis, on="cluster_id")
    issues_by_basis = pl.concat([with_issue, with_issue.with_columns(basis=pl.lit(ALL))])
    sightings = issues_by_basis.join(looked, on=[*_CONVERSATION, "basis"])
    missing = pl.lit(None, dtype=pl.String).alias("cluster_id")
    columns = (*_RUN, "run_key", "basis", "cluster_id")
    rows = pl.concat([part.select(*columns, "task") for part in (looked.with_columns(missing), sightings)])
    by_task = rows.group_by(*columns, "task").agg(n=pl.len().cast(pl.Int64)).sort("task")
    now = by_task.group_by(columns, maintain_order=True).agg(tasks="task", n_conversations="n")
    older = earlier.join(now, on=list(_RUN), how="anti")
    target = table("issue_runs")
    return target.conform(
        pl.concat([now.select(list(target.schema)), older.select(list(target.schema))])
    ).sort(target.key)
