"""Compute how often each error cluster occurs, per agent and version."""

import polars as pl

from agent_eval.clusters.failures import impartial_judgments, labels
from agent_eval.tables import table
from agent_eval.tables.vocabularies import SEVERITY

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
    counts = failures.group_by(_CLUSTER).agg(
        pl.len().cast(pl.Int64).alias("n_failures"),
        turns.n_unique().cast(pl.Int64).alias("n_turns"),
        pl.col("conversation_id").n_unique().cast(pl.Int64).alias("n_conversations"),
        turns.unique().sort().head(N_EXAMPLES).alias("examples"),
    )
    reference = pl.format("{}#{}", *(pl.element().struct.field(name) for name in _TURN))
    rows = (
        counts.join(_rates(failures, turn_judgments), on=_CLUSTER, how="left")
        .join(registry.select("cluster_id", *_DESCRIBED), on="cluster_id", how="left")
        .join(compared.select(*_CLUSTER, "trend"), on=_CLUSTER, how="left")
        .join(_same_as(failures, registry), on=_CLUSTER, how="left")
        .with_columns(
            pl.col("examples").list.eval(reference), pl.lit(taxonomy, dtype=pl.String).alias("taxonomy")
        )
    )
    target = table("error_clusters")
    return target.selected(rows).sort(_CLUSTER)


def _same_as(failures: pl.DataFrame, registry: pl.DataFrame) -> pl.DataFrame:
    """Return `same_as` for each cluster whose findings all have a more severe label too, in another cluster of the agent."""
    finding = [*_PAIR, "finding_id"]
    finding_ids = failures.select(
        *_CLUSTER, pl.coalesce("finding_id", "failure_id").alias("finding_id")
    ).unique()
    number = finding_ids.group_by(_CLUSTER).agg(n_found=pl.len())
    shared = finding_ids.filter(pl.len().over(finding) > 1)
    rank = registry.select("cluster_id", rank=pl.col("severity").cast(SEVERITY).to_physical().cast(pl.Int64))
    ranked = number.join(rank, on="cluster_id", how="left")
    before = shared.join(ranked, on=_CLUSTER).rename(
        {"cluster_id": "same_as", "rank": "rank_of", "n_found": "n_of"}
    )
    is_before = pl.any_horizontal(
        pl.col("rank_of") > pl.col("rank"),
        (pl.col("rank_of") == pl.col("rank")) & (pl.col("n_of") > pl.col("n_found")),
        (pl.col("rank_of") == pl.col("rank"))
        & (pl.col("n_of") == pl.col("n_found"))
        & (pl.col("same_as") < pl.col("cluster_id")),
    )
    return (
        shared.join(ranked, on=_CLUSTER)
        .join(before, on=finding)
        .filter(is_before)
        .group_by(*_CLUSTER, "same_as", "n_found", "rank_of", "n_of")
        .agg(n_common=pl.len())
        .filter(pl.col("n_common") == pl.col("n_found"))
        .sort("rank_of", "n_of", "same_as", descending=[True, True, False])
        .unique(list(_CLUSTER), keep="first", maintain_order=True)
        .select(*_CLUSTER, "same_as")
    )


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
