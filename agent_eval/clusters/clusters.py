"""Error clusters: how often each lasting kind of failure occurs, per agent and version."""

import polars as pl

from agent_eval.clusters.failures import failure_judgments, labels
from agent_eval.tables import table

_PAIR = ("methodology_version", "agent_id")
_TURN = ("conversation_id", "turn_index")
N_EXAMPLES = 3


def error_clusters(
    failures: pl.DataFrame, turn_judgments: pl.DataFrame, registry: pl.DataFrame
) -> pl.DataFrame:
    """One row per version, agent and cluster with failures; sorted.

    A turn is eligible when a metric that gave one of the cluster's labels was scored on it; a turn that
    the judge lost is in neither count.

    Args:
        failures: Table `failures`, with clusters.
        turn_judgments: The judgments that the failures come from.
        registry: Table `error_registry`: label, title and severity of each cluster.

    Raises:
        TableMismatchError: If a failure's cluster is not in the registry, or its label in no judgment.
    """
    cluster = [*_PAIR, "cluster_id"]
    turns = pl.struct(_TURN)
    counted = failures.group_by(cluster).agg(
        pl.len().cast(pl.Int64).alias("n_failures"),
        turns.n_unique().cast(pl.Int64).alias("n_turns"),
        pl.col("conversation_id").n_unique().cast(pl.Int64).alias("n_conversations"),
        turns.unique().sort().head(N_EXAMPLES).alias("examples"),
    )
    reference = pl.format("{}#{}", *(pl.element().struct.field(name) for name in _TURN))
    rows = (
        counted.join(_eligible(failures, turn_judgments), on=cluster, how="left")
        .join(registry.select("cluster_id", "label", "title", "severity"), on="cluster_id", how="left")
        .with_columns(
            pl.col("examples").list.eval(reference),
            (pl.col("n_turns") / pl.col("n_turns_eligible") * 100).alias("rate_per_100_turns"),
            pl.lit(None, dtype=pl.String).alias("trend"),
        )
    )
    target = table("error_clusters")
    return target.conform(rows.select(list(target.schema))).sort(cluster)


def judged_turns(turn_judgments: pl.DataFrame) -> pl.DataFrame:
    """One row per version, agent and failure metric: `n_turns_eligible`, the turns on which it was scored."""
    turns = pl.struct(_TURN).n_unique().cast(pl.Int64)
    return (
        failure_judgments(turn_judgments)
        .group_by(*_PAIR, "metric")
        .agg(turns.alias("n_turns_eligible"))
        .sort(*_PAIR, "metric")
    )


def _eligible(failures: pl.DataFrame, turn_judgments: pl.DataFrame) -> pl.DataFrame:
    """Turns on which a cluster could have been seen; clusters of the same metrics are counted once."""
    metrics = labels(turn_judgments).select("label", "metric").unique()
    clusters = (
        failures.select(*_PAIR, "cluster_id", "label")
        .unique()
        .join(metrics, on="label")
        .group_by(*_PAIR, "cluster_id")
        .agg(pl.col("metric").unique().sort().alias("metrics"))
    )
    scored = failure_judgments(turn_judgments).select(*_PAIR, *_TURN, "metric")
    families = clusters.select(*_PAIR, "metrics").unique()
    counts = (
        families.with_columns(pl.col("metrics").alias("metric"))
        .explode("metric")
        .join(scored, on=[*_PAIR, "metric"])
        .group_by(*_PAIR, "metrics")
        .agg(pl.struct(_TURN).n_unique().cast(pl.Int64).alias("n_turns_eligible"))
    )
    return clusters.join(counts, on=[*_PAIR, "metrics"]).drop("metrics")
