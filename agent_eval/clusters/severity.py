"""Severity: low < medium < high < critical, by rule from the failure label."""

import polars as pl

from agent_eval.metrics.base import DEFAULT_SEVERITY
from agent_eval.metrics.metric_set import DEFAULT
from agent_eval.tables.vocabularies import SEVERITY


def severity_of(label: str) -> str:
    """The rule's severity of a failure label: what its metric says, medium where no built-in metric has it."""
    return DEFAULT.severities.get(label, DEFAULT_SEVERITY)


def at_least(error_clusters: pl.DataFrame, level: str) -> pl.DataFrame:
    """The clusters of that severity and above: what a severity gate fails on. Gravest first, then most turns.

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
    """The gravest of several severities; nulls do not count."""
    return pl.max_horizontal(s.cast(SEVERITY).to_physical() for s in severities).replace_strict(
        dict(enumerate(SEVERITY.categories)), default=None, return_dtype=SEVERITY
    )
