"""The findings that a reader should see first: the most severe clusters, each with a quote that shows it."""

import polars as pl

from agent_eval.tables.vocabularies import SEVERITY

_CLUSTER = ["methodology_version", "agent_id", "cluster_id"]
SCHEMA = {
    **dict.fromkeys((*_CLUSTER, "severity", "title"), pl.String),
    "n_turns": pl.Int64,
    "rate_per_100_turns": pl.Float64,
    "quote": pl.String,
    "conversation_id": pl.String,
    "turn_index": pl.Int64,
}


def worst_findings(
    error_clusters: pl.DataFrame, failures: pl.DataFrame, turn_judgments: pl.DataFrame, n: int
) -> pl.DataFrame:
    """Return the `n` first clusters of all agents: the most severe, of these the ones of most turns, one per cluster.

    Args:
        error_clusters: Table error_clusters.
        failures: Table failures: quotes.
        turn_judgments: Says which quotes were found in the transcript; such a quote is preferred.
        n: How many.

    Returns:
        One row per cluster in this order, with the columns of `SCHEMA`: its agent with most turns, and a quote with its
        turn; null without one.
    """
    order = [pl.col("severity").cast(SEVERITY), pl.col("n_turns")]
    worst = (
        error_clusters.sort(*order, "agent_id", descending=[True, True, False])
        .unique("cluster_id", keep="first", maintain_order=True)
        .head(n)
    )
    turn = ["methodology_version", "agent_id", "conversation_id", "turn_index"]
    found = turn_judgments.filter("is_effective", "evidence_verified").select(
        *turn, pl.col("evidence").alias("quote"), is_found=True
    )
    quotes = (
        failures.join(worst.select(_CLUSTER), on=_CLUSTER, how="semi")
        .join(found.unique(), on=[*turn, "quote"], how="left")
        .sort(pl.col("is_found").fill_null(value=False), pl.col("quote").is_not_null(), descending=True, maintain_order=True)
        .unique(_CLUSTER, keep="first", maintain_order=True)
        .select(*_CLUSTER, "quote", "conversation_id", "turn_index")
    )  # fmt: skip
    return worst.join(quotes, on=_CLUSTER, how="left", maintain_order="left").select(list(SCHEMA))
