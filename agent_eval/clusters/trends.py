"""Error trends: an agent's clusters beside its baseline's, within one version.

Versions are never compared with each other: they ask the same turns.
"""

import polars as pl

from agent_eval.tables import table

_PAIR = ("methodology_version", "agent_id")
_BASELINE_PAIR = ("methodology_version", "baseline_agent_id")
_CLUSTER = (*_PAIR, "cluster_id")
_COUNTS = ("n_turns", "rate_per_100_turns")
_DESCRIPTION = ("label", "title", "severity")


def error_trends(error_clusters: pl.DataFrame, agents: pl.DataFrame, judged: pl.DataFrame) -> pl.DataFrame:
    """Clusters of an agent or its `baseline`: new (only here), gone (only there), or seen in both.

    Counts only: no interval and no significance is claimed, so 'new' may be chance, and so may 'gone'.
    A rate is 0 for a cluster not seen only where that side is known to have been judged by somebody other
    than a rule: `judged` says so, or it has a cluster with eligible turns. Where it is not, its rate is
    null and the trend 'unknown': an agent that nobody judged has not mended anything.

    Args:
        error_clusters: Table `error_clusters`, all agents.
        agents: Table `agents`; without a `baseline` an agent has no rows.
        judged: As `clusters.judged_turns` gives it: versions and agents with turns judged for failures.
            It tells an agent without failures from one that was not judged.

    Returns:
        Table `error_trends`, sorted.
    """
    known = _known(error_clusters, judged)
    of_baseline = known.rename({"agent_id": "baseline_agent_id", "is_judged": "baseline_is_judged"})
    rows = (
        _side_by_side(error_clusters, _pairs(agents))
        .join(known, on=_PAIR, how="left")
        .join(of_baseline, on=_BASELINE_PAIR, how="left")
        .join(_descriptions(error_clusters), on="cluster_id")
        # each of these sees the counts before they are filled: a null n_turns is a cluster not seen
        .with_columns(
            _trend().alias("trend"),
            *(_rate(prefix) for prefix in ("", "baseline_")),
            pl.col("n_turns", "baseline_n_turns").fill_null(0),
        )
    )
    target = table("error_trends")
    return target.conform(rows.select(list(target.schema))).sort(_CLUSTER)


def _pairs(agents: pl.DataFrame) -> pl.DataFrame:
    """Agents with the other agent that is their baseline."""
    has_baseline = pl.col("baseline").is_not_null() & (pl.col("baseline") != pl.col("agent_id"))
    return agents.filter(has_baseline).select("agent_id", pl.col("baseline").alias("baseline_agent_id"))


def _side_by_side(error_clusters: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """One row per version, agent and cluster of either side, with the counts of both; null where not seen."""
    side = error_clusters.select(*_CLUSTER, *_COUNTS)
    mine = pairs.join(side, on="agent_id")
    theirs = pairs.join(
        side.rename({name: f"baseline_{name}" for name in ("agent_id", *_COUNTS)}), on="baseline_agent_id"
    )
    return mine.join(theirs, on=[*_CLUSTER, "baseline_agent_id"], how="full", coalesce=True)


def _descriptions(error_clusters: pl.DataFrame) -> pl.DataFrame:
    """Label, title and severity of each cluster, the same whichever agent has it."""
    described = error_clusters.sort(_CLUSTER).unique("cluster_id", keep="first", maintain_order=True)
    return described.select("cluster_id", *_DESCRIPTION)


def _known(error_clusters: pl.DataFrame, judged: pl.DataFrame) -> pl.DataFrame:
    """The versions and agents known to have been judged for failures, not by rules alone."""
    is_judged = pl.col("n_turns_eligible") > 0
    pairs = pl.concat([frame.filter(is_judged).select(_PAIR) for frame in (error_clusters, judged)])
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


def _rate(prefix: str) -> pl.Expr:
    """One side's rate: 0 where it was judged and the cluster not seen; unknown stays null."""
    name = f"{prefix}rate_per_100_turns"
    is_zero = pl.col(f"{prefix}n_turns").is_null() & pl.col(f"{prefix}is_judged")
    return pl.when(is_zero).then(0.0).otherwise(pl.col(name)).alias(name)
