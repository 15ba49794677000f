"""Derive a severity (low < medium < high < critical) from the failure label."""

import polars as pl

from agent_eval.metrics.base import DEFAULT_SEVERITY
from agent_eval.metrics.metric_set import DEFAULT
from agent_eval.tables.vocabularies import SEVERITY


def severity_of(label: str) -> str:
    """Return the severity that a built-in metric defines for the label, or medium if no metric has the label."""
    return DEFAULT.severities.get(label, DEFAULT_SEVERITY)


def at_least(error_clusters: pl.DataFrame, level: str) -> pl.DataFrame:
    """Return the clusters of at least this severity, in descending order of severity and then of turns.

    Raises:
        polars.exceptions.InvalidOperationError: If `level` is not a severity.
    """
    ordered = pl.col("severity").cast(SEVERITY)
    return (
        error_clusters.filter(ordered >= pl.lit(level, dtype=SEVERITY))
        .sort(ordered, "n_turns", "cluster_id", descending=[True, True, False])
        .select(error_clusters.columns)
    )


def highest(*severities: pl.Expr) -> pl.Expr:
    """Return the highest of several severities, ignoring nulls."""
    return pl.max_horizontal(s.cast(SEVERITY).to_physical() for s in severities).replace_strict(
        dict(enumerate(SEVERITY.categories)), default=None, return_dtype=SEVERITY
    )
