"""Select the findings to show first: the most severe clusters, with quotes as evidence."""

import polars as pl

from agent_eval.tables.vocabularies import SEVERITY

CLUSTER = ["methodology_version", "agent_id", "cluster_id"]
SCHEMA = {
    **dict.fromkeys((*CLUSTER, "severity", "title"), pl.String),
    "n_turns": pl.Int64,
    "rate_per_100_turns": pl.Float64,
    "quote": pl.String,
    "conversation_id": pl.String,
    "turn_index": pl.Int64,
}


N_QUOTES = 100
"""Number of failures of a cluster to search for a quote, because a cluster can have a hundred thousand."""


def worst_clusters(error_clusters: pl.DataFrame, n: int) -> pl.DataFrame:
    """Return the first `n` rows of error_clusters by severity and then by number of turns, one per cluster.

    Clusters with all their findings in another one are omitted. Equal ones are in the order of agents and cluster ids,
    whatever the order of the rows.
    """
    order = [pl.col("severity").cast(SEVERITY), pl.col("n_turns")]
    return (
        error_clusters.filter(pl.col("same_as").is_null())
        .sort(*order, "agent_id", "cluster_id", descending=[True, True, False, False])
        .unique("cluster_id", keep="first", maintain_order=True)
        .head(n)
    )


def failures_to_quote(failures: pl.DataFrame, most: int | None = N_QUOTES) -> pl.DataFrame:
    """Return the first failures of each cluster, with quoted failures first; all of them if `most` is None."""
    with_quotes_first = failures.sort(
        pl.col("quote").is_null(), "conversation_id", "turn_index", "failure_id"
    )
    return (
        with_quotes_first
        if most is None
        else with_quotes_first.group_by(CLUSTER, maintain_order=True).head(most)
    )


def worst_findings(
    clusters: pl.DataFrame, failures: pl.DataFrame, turn_judgments: pl.DataFrame
) -> pl.DataFrame:
    """Return clusters with one quote each as evidence.

    Args:
        clusters: Rows of table error_clusters, from `worst_clusters`.
        failures: Rows of table failures of these clusters, for the quotes.
        turn_judgments: Judgments of the turns of these failures, which determine whether a quote was found in the
            transcript; such quotes are preferred.

    Returns:
        One row per cluster in the given order, with the columns of `SCHEMA`: the cluster's agent with the most
        turns, and a quote with its turn, or null without a quote.
    """
    turn = ["methodology_version", "agent_id", "conversation_id", "turn_index"]
    quoted_turns = turn_judgments.filter("is_effective", "evidence_verified").select(
        *turn, pl.col("evidence").alias("quote"), is_found=True
    )
    quotes = (
        failures.join(clusters.select(CLUSTER), on=CLUSTER, how="semi")
        .join(quoted_turns.unique(), on=[*turn, "quote"], how="left")
        .sort(
            pl.col("is_found").fill_null(value=False), pl.col("quote").is_not_null(), "conversation_id", "turn_index", "quote",
            descending=[True, True, False, False, False], nulls_last=True,
        )
        .unique(CLUSTER, keep="first", maintain_order=True)
        .select(*CLUSTER, "quote", "conversation_id", "turn_index")
    )  # fmt: skip
    return clusters.join(quotes, on=CLUSTER, how="left", maintain_order="left").select(list(SCHEMA))
