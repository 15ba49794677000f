"""Define the protocols for reading and counting rows of tables, and helpers for frames."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import polars as pl

Row = dict[str, Any]
"""One row of a stored table, by column."""


class Reader(Protocol):
    """Read the rows of a stored table in key order: all rows, or those that match a row of `keys` on its columns."""

    def __call__(
        self, name: str, keys: pl.DataFrame | None = None, *, columns: Sequence[str] | None = None
    ) -> pl.DataFrame: ...


class Counter(Protocol):
    """Count the rows of a stored table, as `Store.counts` does."""

    def __call__(
        self,
        name: str,
        keys: pl.DataFrame | None = None,
        *,
        columns: Sequence[str],
        extent: str | None = None,
    ) -> pl.DataFrame: ...


def by_key(frame: pl.DataFrame, *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Group the rows of a frame by the columns `names`; each group keeps the order of the frame."""
    groups = frame.partition_by(names, as_dict=True, maintain_order=True)
    return {key: group.to_dicts() for key, group in groups.items()}


def chunks(frame: pl.DataFrame, n_rows: int) -> Iterator[pl.DataFrame]:
    """Split a frame into pieces of at most `n_rows` rows."""
    return (frame.slice(start, n_rows) for start in range(0, frame.height, n_rows))


def merged_versions(frame: pl.DataFrame) -> pl.DataFrame:
    """Merge equal rows of several methodology versions into one row; column `versions` lists the versions.

    Costs of judgments are omitted. An answer that several versions share is paid once, so its recorded cost differs
    by version.
    """
    kept_columns = frame.drop("cost_usd", "n_tokens_in", "n_tokens_out", "n_tokens_cached", strict=False)
    lists = [name for name, dtype in kept_columns.schema.items() if isinstance(dtype, pl.List)]
    flat = kept_columns.with_columns(pl.col(name).list.join("\x1f").alias(name) for name in lists)
    rest = [name for name in flat.columns if name != "methodology_version"]
    grouped = flat.group_by(rest, maintain_order=True).agg(versions=pl.col("methodology_version").unique())
    return grouped.with_columns(_split(name) for name in lists)


def _split(name: str) -> pl.Expr:
    parts = (
        pl.when(pl.col(name) == "")
        .then(pl.lit([], pl.List(pl.String)))
        .otherwise(pl.col(name).str.split("\x1f"))
    )
    return parts.alias(name)


def only(rows: Mapping[tuple[Any, ...], list[Row]], *key: object) -> list[Row]:
    """Return the rows of one key; an empty list if the key does not exist."""
    return rows.get(key, [])
