"""Severity: low < medium < high < critical, by rule from the failure label."""

import polars as pl

from agent_eval.metrics.base import DEFAULT_SEVERITY, SEVERITIES
from agent_eval.metrics.metric_set import DEFAULT

ORDERED = pl.Enum(SEVERITIES)


def severity_of(label: str) -> str:
    """The rule's severity of a failure label: what its metric says, medium where no built-in metric has it."""
    return DEFAULT.severities.get(label, DEFAULT_SEVERITY)


def at_least(error_clusters: pl.DataFrame, level: str) -> pl.DataFrame:
    """The clusters of that severity and above: what a severity gate fails on. Gravest first, then most turns.

    Raises:
        polars.exceptions.InvalidOperationError: If `level` is none of `SEVERITIES`.
    """
    ordered = pl.col("severity").cast(ORDERED)
    return (
        error_clusters.filter(ordered >= pl.lit(level, dtype=ORDERED))
        .sort(ordered, "n_turns", "cluster_id", descending=[True, True, False])
        .select(error_clusters.columns)
    )


def highest(*severities: pl.Expr) -> pl.Expr:
    """The gravest of several severities; nulls do not count."""
    rank = {level: i for i, level in enumerate(SEVERITIES)}
    ranks = (s.replace_strict(rank, default=None, return_dtype=pl.Int8) for s in severities)
    return pl.max_horizontal(*ranks).replace_strict(
        dict(enumerate(SEVERITIES)), default=None, return_dtype=pl.String
    )
