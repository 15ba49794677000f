"""Error trends: an agent's clusters beside its baseline's, within one version.

Versions are never compared with each other: they ask the same turns.
"""

import polars as pl

from agent_eval.tables import table

_CLUSTER = ("methodology_version", "agent_id", "cluster_id")
_COUNTS = ("n_turns", "rate_per_100_turns")


def error_trends(
    error_clusters: pl.DataFrame, agents: pl.DataFrame, judged: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Clusters of an agent or its `baseline`: new (only here), gone (only there), or seen in both.

    Counts only: no interval and no significance is claimed, so 'new' may be chance, and so may 'gone'.
    A rate is 0 only where the other side is known to have been judged: it has clusters under this
    version, or `judged` says so. Where it is not, its rate is null and the trend 'unknown':
    an agent that nobody judged has not mended anything.

    Args:
        error_clusters: Table `error_clusters`, all agents.
        agents: Table `agents`; without a `baseline` an agent has no rows.
        judged: As `clusters.judged_turns` gives it: versions and agents with turns judged for failures.
            It tells an agent without failures from one that was not judged.

    Returns:
        Table `error_trends`, sorted.
    """
    pairs = agents.filter(
        pl.col("baseline").is_not_null() & (pl.col("baseline") != pl.col("agent_id"))
    ).select("agent_id", pl.col("baseline").alias("baseline_agent_id"))
    side = error_clusters.select(*_CLUSTER, "label", "title", "severity", *_COUNTS)
    described = side.sort(_CLUSTER).unique("cluster_id", keep="first", maintain_order=True)
    described = described.select("cluster_id", "label", "title", "severity")
    mine = pairs.join(side.select(*_CLUSTER, *_COUNTS), on="agent_id")
    theirs = pairs.join(
        side.select(
            "methodology_version",
            pl.col("agent_id").alias("baseline_agent_id"),
            "cluster_id",
            *(pl.col(name).alias(f"baseline_{name}") for name in _COUNTS),
        ),
        on="baseline_agent_id",
    )
    both = mine.join(
        theirs,
        on=["methodology_version", "agent_id", "baseline_agent_id", "cluster_id"],
        how="full",
        coalesce=True,
    )
    known = _known(error_clusters, judged)
    rows = (
        both.join(known, on=["methodology_version", "agent_id"], how="left")
        .join(
            known.rename({"agent_id": "baseline_agent_id", "is_judged": "baseline_is_judged"}),
            on=["methodology_version", "baseline_agent_id"],
            how="left",
        )
        .join(described, on="cluster_id")
        .with_columns(_trend().alias("trend"))
        .with_columns(
            *(_or_zero(prefix, f"{prefix}is_judged") for prefix in ("", "baseline_")),
            pl.col("n_turns", "baseline_n_turns").fill_null(0),
        )
    )
    target = table("error_trends")
    return target.conform(rows.select(list(target.schema))).sort(_CLUSTER)


def _known(error_clusters: pl.DataFrame, judged: pl.DataFrame | None) -> pl.DataFrame:
    """The pairs that are known to have been judged for failures."""
    pair = ["methodology_version", "agent_id"]
    pairs = error_clusters.select(pair)
    if judged is not None:
        pairs = pl.concat([pairs, judged.filter(pl.col("n_turns_eligible") > 0).select(pair)])
    return pairs.unique().with_columns(pl.lit(True).alias("is_judged"))


def _trend() -> pl.Expr:
    here, there = pl.col("n_turns").is_not_null(), pl.col("baseline_n_turns").is_not_null()
    return (
        pl.when(here & there)
        .then(pl.lit("seen in both"))
        .when(here & pl.col("baseline_is_judged"))
        .then(pl.lit("new"))
        .when(there & pl.col("is_judged"))
        .then(pl.lit("gone"))
        .otherwise(pl.lit("unknown"))
    )


def _or_zero(prefix: str, is_judged: str) -> pl.Expr:
    rate = pl.col(f"{prefix}rate_per_100_turns")
    return (
        pl.when(rate.is_null() & pl.col(is_judged)).then(0.0).otherwise(rate).alias(rate.meta.output_name())
    )
