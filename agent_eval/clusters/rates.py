"""Compute the sums per run of an agent that trends are based on.

Turns of a conversation depend on each other, so the spread of a rate is computed between conversations. The sums
of squares over conversations are stored, so that a run can be compared even after it was superseded and its
judgments were deleted.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations

import polars as pl

from agent_eval.clusters.cluster_registry import targets
from agent_eval.clusters.failures import FAILURE_METRICS, impartial_judgments
from agent_eval.clusters.trend_units import with_unit
from agent_eval.metrics.metric_set import DEFAULT
from agent_eval.tables import table

PAIR = ("methodology_version", "agent_id")
_RUN = (*PAIR, "benchmark_id")
_TURN = ("conversation_id", "turn_index")
_METRICS_OF_LABEL = {
    label: metric.name for metric in DEFAULT.turn if metric.is_failure for label in metric.all_labels
}
BOTH = "+".join(FAILURE_METRICS)
FAILURE_SETS = pl.DataFrame(
    [
        ("+".join(chosen), metric)
        for n in range(1, len(FAILURE_METRICS) + 1)
        for chosen in combinations(FAILURE_METRICS, n)
        for metric in chosen
    ],
    schema=["metrics", "metric"],
    orient="row",
)


def runs(transcripts: pl.DataFrame, sessions: pl.DataFrame) -> pl.DataFrame:
    """Return `benchmark_id`, `run_date` (of the latest session), `unit` and `unit_name` of each conversation."""
    dates = sessions.group_by("agent_id", "benchmark_id").agg(pl.col("session_date").max().alias("run_date"))
    admitted = with_unit(transcripts.filter("is_admitted")).select(
        *_RUN, "conversation_id", "unit", "unit_name"
    )
    return admitted.join(dates, on=["agent_id", "benchmark_id"], how="left")


def of_valid_runs(stored: pl.DataFrame, sessions: pl.DataFrame) -> pl.DataFrame:
    """Return the stored counts of runs that still have a session without an `invalid_reason`.

    A superseded run has its sessions; a run that was removed, or lost to the harness, is not evidence any more.

    Args:
        stored: The stored table `error_rates` or `issue_runs`.
        sessions: Table `sessions` of the same agents.
    """
    valid = sessions.filter(pl.col("invalid_reason").is_null()).select("agent_id", "benchmark_id")
    return stored.join(valid, on=["agent_id", "benchmark_id"], how="semi")


def error_rates(
    failures: pl.DataFrame,
    turn_judgments: pl.DataFrame,
    runs: pl.DataFrame,
    registry: pl.DataFrame,
    earlier: pl.DataFrame,
) -> pl.DataFrame:
    """Return table `error_rates`: the sums of the current runs, and the stored sums of earlier runs.

    Args:
        failures: Table `failures`, with clusters.
        turn_judgments: The judgments that the failures come from.
        runs: As returned by `runs`.
        registry: Table `error_registry`.
        earlier: The stored table `error_rates` for these versions and agents.
    """
    eligible = _eligible(turn_judgments, runs)
    lengths = eligible.group_by(*_RUN, "run_date", "metrics", "conversation_id", "unit", "unit_name").agg(
        n_eligible=pl.len().cast(pl.Int64)
    )
    now = pl.concat([_totals(lengths), _of_clusters(failures, runs, eligible, lengths, metrics_of(registry))])
    older = earlier.join(now, on=_RUN, how="anti").with_columns(pl.lit(value=False).alias("is_current"))
    target = table("error_rates")
    return target.conform(pl.concat([now, older])).sort(target.key)


def metrics_of(registry: pl.DataFrame) -> pl.DataFrame:
    """Return the metrics (joined with '+') that can report each cluster, including the clusters merged into it."""
    redirects = targets(registry)
    metric_names: dict[str, set[str]] = {}
    for name, label in registry.select("cluster_id", "label").iter_rows():
        metric_names.setdefault(redirects[name], set()).update(_METRICS_OF_LABEL.get(label, BOTH).split("+"))
    rows = [(name, _named(metrics)) for name, metrics in sorted(metric_names.items())]
    return pl.DataFrame(rows, schema={"cluster_id": pl.String, "metrics": pl.String}, orient="row")


def _named(metrics: Iterable[str]) -> str:
    distinct_metrics = set(metrics)
    return "+".join(metric for metric in FAILURE_METRICS if metric in distinct_metrics)


def _eligible(turn_judgments: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Return each turn that a person or model scored, once per set of metrics, with its run."""
    scored = impartial_judgments(turn_judgments).select(*PAIR, *_TURN, "metric").unique()
    return (
        scored.join(FAILURE_SETS, on="metric")
        .select(*PAIR, *_TURN, "metrics")
        .unique()
        .join(runs, on=[*PAIR, "conversation_id"])
    )


def _totals(lengths: pl.DataFrame) -> pl.DataFrame:
    n, key = pl.col("n_eligible"), [*_RUN, "metrics"]
    totals = lengths.group_by(*key, "run_date").agg(
        pl.len().cast(pl.Int64).alias("n_conversations"),
        n.sum().alias("n_turns"),
        (n * n).sum().alias("sum_squares"),
        pl.col("unit").first(),
    )
    return _current(totals.join(_by_unit(lengths, key, n), on=key))


def _by_unit(rows: pl.DataFrame, key: Sequence[str], n: pl.Expr) -> pl.DataFrame:
    """Return the names of the units and their numbers of turns, as two lists per key."""
    per_unit = rows.group_by(*key, "unit_name").agg(unit_turns=n.sum()).sort("unit_name")
    return per_unit.group_by(key, maintain_order=True).agg(pl.col("unit_name").alias("units"), "unit_turns")


def _of_clusters(
    failures: pl.DataFrame,
    runs: pl.DataFrame,
    eligible: pl.DataFrame,
    lengths: pl.DataFrame,
    metrics: pl.DataFrame,
) -> pl.DataFrame:
    """Return one row per cluster found in a run, with sums of 0 if only rules reported the cluster."""
    turns = (
        failures.select(*PAIR, "cluster_id", *_TURN)
        .unique()
        .join(runs, on=[*PAIR, "conversation_id"])
        .join(metrics, on="cluster_id")
    )
    conversation = [*_RUN, "metrics", "conversation_id"]
    key = [*_RUN, "cluster_id"]
    per_conversation = (
        turns.join(eligible.select(*conversation, "turn_index"), on=[*conversation, "turn_index"], how="semi")
        .group_by(*conversation, "cluster_id")
        .agg(n=pl.len().cast(pl.Int64))
        .join(lengths.drop("run_date"), on=conversation)
    )
    cluster_sums = (
        per_conversation.group_by(key)
        .agg(
            pl.col("n").sum().alias("n_turns"),
            (pl.col("n") ** 2).sum().alias("sum_squares"),
            (pl.col("n") * pl.col("n_eligible")).sum().alias("sum_products"),
            pl.col("unit").first(),
        )
        .join(_by_unit(per_conversation, key, pl.col("n")), on=key)
    )
    every = turns.select(*_RUN, "run_date", "metrics", "cluster_id").unique()
    sums = ("n_turns", "sum_squares", "sum_products")
    return _current(
        every.join(cluster_sums, on=[*_RUN, "cluster_id"], how="left").with_columns(pl.col(sums).fill_null(0))
    )


def _current(rows: pl.DataFrame) -> pl.DataFrame:
    schema = table("error_rates").schema
    filled = rows.with_columns(pl.lit(value=True).alias("is_current")).with_columns(
        pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in schema.items()
        if name not in {*rows.columns, "is_current"}
    )
    return filled.select(pl.col(name).cast(dtype) for name, dtype in schema.items())
