"""What a table declares about itself, and the check of a frame against it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from agent_eval.errors import AgentEvalError

DTypes = pl.DataType | type[pl.DataType]


class TableMismatchError(AgentEvalError):
    """A frame does not keep the contract of its table."""

    def __init__(self, table: str, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(
            f"Rows for table {table!r} do not match its contract: {'; '.join(self.problems)}. "
            f"The contract is in agent_eval/tables; nothing was written."
        )


@dataclass(frozen=True)
class Column:
    """One column: its polars type, what it means (with scale or unit), and whether it may be null."""

    name: str
    dtype: DTypes
    meaning: str
    nullable: bool = True


@dataclass(frozen=True)
class Table:
    """One stored table.

    `partition` names the columns that say which partition a row belongs to: a write replaces the rows
    of its partitions and no others; to the table of an asset that names none, rows are only added.
    `key` identifies a row; two rows with equal keys are refused.
    """

    name: str
    grain: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    partition: tuple[str, ...] = ()
    schema: pl.Schema = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", pl.Schema({c.name: c.dtype for c in self.columns}))

    def empty(self) -> pl.DataFrame:
        """No rows, the right columns."""
        return pl.DataFrame(schema=self.schema)

    def frame(self, rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
        """Rows of this table from dicts; a column that a dict leaves out is null there."""
        columns: dict[str, list[Any]] = {name: [] for name in self.schema}
        for row in rows:
            for name, values in columns.items():
                values.append(row.get(name))
        return pl.DataFrame(columns, schema=self.schema)

    def conform(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The frame with this table's columns in this table's order; null-typed columns get their type.

        Raises:
            TableMismatchError: If a column is missing, extra, of another type, null where it may not be,
                or if two rows share a key.
        """
        problems = [f"column {n!r} is missing" for n in self.schema if n not in frame.columns]
        problems += [f"column {n!r} is not declared" for n in frame.columns if n not in self.schema]
        if problems:
            raise TableMismatchError(self.name, problems)
        typeless = [n for n, dtype in frame.schema.items() if dtype == pl.Null]
        frame = frame.select(list(self.schema)).with_columns(pl.col(n).cast(self.schema[n]) for n in typeless)
        problems = [
            f"column {n!r} is {frame.schema[n]}, expected {dtype}"
            for n, dtype in self.schema.items()
            if frame.schema[n] != dtype
        ]
        problems += [
            f"column {c.name!r} holds {n} nulls"
            for c in self.columns
            if not c.nullable and (n := frame[c.name].null_count())
        ]
        if self.key and (n := int(frame.select(self.key).is_duplicated().sum())):
            problems.append(f"{n} rows share a key ({', '.join(self.key)})")
        if problems:
            raise TableMismatchError(self.name, problems)
        return frame
