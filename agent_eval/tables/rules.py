"""Check the scales, parent rows and partitions of rows.

A rating off its scale comes from a judge or a file and is marked as `invalid`. Any other violation is a defect of this
package, and the rows must not be stored.
"""

from collections.abc import Mapping

import polars as pl

from agent_eval.tables.contract import Table
from agent_eval.tables.schema import DECLARED

SCALES = {"_1to5": (1, 5), "_0to100": (0, 100)}
"""Scales by the suffix of the column name."""

PARENTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    name: (each.parent[0], each.parent[1:]) for name, each in DECLARED.items() if each.parent
}
"""The parent table of each table, with the columns that link rows to it; a row with a null in one has no parent row."""

_STANDS_ALONE = {"composite_scores": (pl.col("n_conversations") == 0).fill_null(False)}
"""Rows that need no parent row: if all records of an agent were refused, the agent has only a row of composites."""

_REASONS = ("unscored_reason", "reason")


def off_scale(table: Table, frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with a number outside the scale that its column name states; NaN is outside every scale."""
    bad = [
        ~pl.col(name).is_between(low, high)
        for name in table.schema
        for suffix, (low, high) in SCALES.items()
        if name.endswith(suffix)
    ]
    return frame.filter(pl.any_horizontal(bad)) if bad else frame.clear()


def orphans(table: Table, frame: pl.DataFrame, others: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Return the rows without a parent row in `others` (frames by table name); none if the parent is not given."""
    parent, columns = PARENTS.get(table.name, ("", ()))
    if parent not in others:
        return frame.clear()
    belonging = frame.drop_nulls(list(columns)).filter(~_STANDS_ALONE.get(table.name, pl.lit(value=False)))
    return belonging.join(others[parent], on=list(columns), how="anti")


def strays(frame: pl.DataFrame, partitions: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that do not belong to the given partitions, such as rows of another agent or version."""
    return frame.join(partitions, on=partitions.columns, how="anti")


def quarantined(table: Table, frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the frame with off-scale ratings marked as invalid, and the original rows of these ratings.

    An invalid rating becomes null, its status becomes `invalid`, and the reason contains the original value. Tables
    without a rating or a status are not changed.
    """
    reason = next((name for name in _REASONS if name in table.schema), None)
    if reason is None or not {"rating_1to5", "status"} <= set(table.schema):
        return frame, frame.clear()
    low, high = SCALES["_1to5"]
    is_bad = (~pl.col("rating_1to5").is_between(low, high)).fill_null(value=False)
    off_scale_reason = pl.format(f"rating_1to5 was {{}}, allowed are {low} to {high}", "rating_1to5")
    cleaned = frame.with_columns(
        pl.when(is_bad).then(None).otherwise("rating_1to5").alias("rating_1to5"),
        pl.when(is_bad).then(pl.lit("invalid")).otherwise("status").alias("status"),
        pl.when(is_bad).then(off_scale_reason).otherwise(reason).alias(reason),
    )
    return cleaned, frame.filter(is_bad)
