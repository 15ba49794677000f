"""Compute how often each error cluster occurs, per agent and version."""

import polars as pl

from agent_eval.clusters.failures import impartial_judgments, labels
from agent_eval.tables import table

_PAIR = ("methodology_version", "agent_id")
_CLUSTER = (*_PAIR, "cluster_id")
_TURN = ("conversation_id", "turn_index")
_DESCRIBED = (
    *("label", "tool", "title", "root_cause", "severity", "first_seen", "last_seen"),
    *("category", "category_by"),
)
N_EXAMPLES = 3


def error_clusters(
    failures: pl.DataFrame,
    turn_judgments: pl.DataFrame,
    registry: pl.DataFrame,
    trends: pl.DataFrame | None = None,
    taxonomy: str | None = None,
) -> pl.DataFrame:
    """Return table `error_clusters`: one row per version, agent and cluster with failures, sorted.

    A turn is eligible if a person or model scored it for a metric that gave one of the cluster's labels, whether
    or not the judgment is effective. Rules do not count, because a rule reports only failures. The rate is the
    number of eligible turns with such a failure per 100 eligible turns; failures that only a rule reported are
    included in `n_turns` but not in the rate. Without an eligible turn, the rate and the number of eligible turns
    are null.

    Args:
        failures: Table `failures`, with clusters.
        turn_judgments: The judgments that the failures come from.
        registry: Table `error_registry`, with label, title and severity of each cluster.
        trends: Table `error_trends` against the agents' previous runs; the trend is null if a row is missing.
        taxonomy: Title and hash of the taxonomy of the registry's categories.

    Raises:
        TableMismatchError: If a failure's cluster is not in the registry.
    """
    turns = pl.struct(_TURN)
    compared = table("error_trends").empty() if trends is None else trends
    counted = failures.group_by(_CLUSTER).agg(
        pl.len().cast(pl.Int64).alias("n_failures"),
        turns.n_unique().cast(pl.Int64).alias("n_turns"),
        pl.col("conversation_id").n_unique().cast(pl.Int64).alias("n_conversations"),
        turns.unique().sort().head(N_EXAMPLES).alias("examples"),
    )
    reference = pl.format("{}#{}", *(pl.element().struct.field(name) for name in _TURN))
    rows = (
        counted.join(_rates(failures, turn_judgments), on=_CLUSTER, how="left")
        .join(registry.select("cluster_id", *_DESCRIBED), on="cluster_id", how="left")
        .join(compared.select(*_CLUSTER, "trend"), on=_CLUSTER, how="left")
        .with_columns(
            pl.col("examples").list.eval(reference), pl.lit(taxonomy, dtype=pl.String).alias("taxonomy")
        )
    )
    target = table("error_clusters")
    return target.selected(rows).sort(_CLUSTER)


def _rates(failures: pl.DataFrame, turn_judgments: pl.DataFrame) -> pl.DataFrame:
    """Return `n_turns_eligible` and `rate_per_100_turns` for each cluster with eligible turns."""
    clusters = _metrics(failures, turn_judgments)
    eligible = _eligible(clusters, turn_judgments)
    n_turns = pl.len().cast(pl.Int64)
    counts = eligible.group_by(*_PAIR, "metrics").agg(n_turns.alias("n_turns_eligible"))
    failing = (
        failures.select(*_CLUSTER, *_TURN)
        .unique()
        .join(clusters, on=_CLUSTER)
        .join(eligible, on=[*_PAIR, "metrics", *_TURN], how="semi")
        .group_by(_CLUSTER)
        .agg(n_turns.alias("n_turns_failing"))
    )
    rows = clusters.join(counts, on=[*_PAIR, "metrics"]).join(failing, on=_CLUSTER, how="left")
    rate = pl.col("n_turns_failing").fill_null(0) / pl.col("n_turns_eligible") * 100
    return rows.select(*_CLUSTER, "n_turns_eligible", rate.alias("rate_per_100_turns"))


def _metrics(failures: pl.DataFrame, turn_judgments: pl.DataFrame) -> pl.DataFrame:
    """Return `metrics` for each cluster: the sorted metrics that gave one of its labels."""
    by_label = labels(turn_judgments).select("label", "metric").unique()
    return (
        failures.select(*_CLUSTER, "label")
        .unique()
        .join(by_label, on="label")
        .group_by(_CLUSTER)
        .agg(pl.col("metric").unique().sort().alias("metrics"))
    )


def _eligible(clusters: pl.DataFrame, turn_judgments: pl.DataFrame) -> pl.DataFrame:
    """Return the distinct eligible turns for each set of metrics."""
    scored = impartial_judgments(turn_judgments).select(*_PAIR, *_TURN, "metric")
    return (
        clusters.select(*_PAIR, "metrics")
        .unique()
        .with_columns(pl.col("metrics").alias("metric"))
        .explode("metric")
        .join(scored, on=[*_PAIR, "metric"])
        .select(*_PAIR, "metrics", *_TURN)
        .unique()
    )
