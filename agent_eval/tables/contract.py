"""What a table declares about itself, and the check of a frame against it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, cast

import polars as pl

from agent_eval.errors import StorageError
from agent_eval.formats.timestamps import as_text, parse_timestamp
from agent_eval.tables.frames import F_co

DTypes = pl.DataType | type[pl.DataType]

TIME = pl.Datetime("us", "UTC")
"""The type of every point in time; the store has TIMESTAMPTZ."""


class TableMismatchError(StorageError):
    """A frame does not keep the contract of its table."""

    def __init__(self, table: str, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(
            f"Rows for table {table!r} do not match its contract: {'; '.join(self.problems)}. "
            f"The contract is in agent_eval/tables; nothing was written."
        )


@dataclass(frozen=True)
class Column:
    """One column: its polars type, what it means (with scale or unit), and whether it may be null.

    The type of a closed vocabulary is `pl.Enum`, that of a point in time `TIME`. `rank_of` names the column of an
    ordered vocabulary whose words this one counts, from 1; `Table` computes it.
    """

    name: str
    dtype: DTypes
    meaning: str
    nullable: bool = True
    rank_of: str | None = None


@dataclass(frozen=True)
class Table(Generic[F_co]):
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

    def empty(self) -> F_co:
        """No rows, the right columns."""
        return cast("F_co", pl.DataFrame(schema=self.schema))

    def frame(self, rows: Iterable[dict[str, Any]]) -> F_co:
        """Return rows of this table from dicts; a column that a dict leaves out is null there.

        Times may be given as ISO 8601 texts.

        Raises:
            TableMismatchError: If a text is not a word of its column's vocabulary, or not a time.
        """
        columns: dict[str, list[Any]] = {name: [] for name in self.schema}
        for row in rows:
            for name, values in columns.items():
                values.append(row.get(name))
        given = [_series(name, columns[name], dtype) for name, dtype in self.schema.items()]
        return cast("F_co", self.typed(pl.DataFrame(given)))

    def typed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the frame with this table's types for vocabularies, times and ranks; other columns stay as they are.

        Texts become words of a vocabulary, and times in UTC (a time without an offset is read as UTC).

        Raises:
            TableMismatchError: If a text is not a word of its column's vocabulary, or not a time.
        """
        frame, problems = self._typed(frame)
        if problems:
            raise TableMismatchError(self.name, problems)
        return frame

    def selected(self, frame: pl.DataFrame) -> F_co:
        """Return `conform` of the frame without columns that this table does not declare."""
        return self.conform(frame.select(name for name in frame.columns if name in self.schema))

    def _typed(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
        problems, found = list[str](), list[pl.Series]()
        for name, dtype in self.schema.items():
            is_other = name in frame.columns and frame.schema[name] != dtype
            if is_other and (isinstance(dtype, pl.Enum) or dtype == TIME):
                series, problem = _in_type(frame[name], dtype)
                found.append(series)
                problems += [problem] if problem else []
        frame = frame.with_columns(found)
        for column in self.columns:
            if column.rank_of and isinstance(frame.schema.get(column.rank_of), pl.Enum):
                rank = pl.col(column.rank_of).to_physical().cast(pl.Int64) + 1
                frame = frame.with_columns(rank.alias(column.name))
        return frame, problems

    def conform(self, frame: pl.DataFrame) -> F_co:
        """The frame with this table's columns in this table's order, and in its types.

        Null-typed columns, texts of a vocabulary and ISO 8601 times get their type.

        Raises:
            TableMismatchError: If a column is missing, extra, of another type, null where it may not be, holds a
                word outside its vocabulary or what is not a time, or if two rows share a key.
        """
        frame, wrong = self._typed(frame)
        problems = [f"column {n!r} is missing" for n in self.schema if n not in frame.columns]
        problems += [f"column {n!r} is not declared" for n in frame.columns if n not in self.schema]
        if problems or wrong:
            raise TableMismatchError(self.name, [*problems, *wrong])
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
        return cast("F_co", frame)


def _series(name: str, values: Sequence[Any], dtype: DTypes) -> pl.Series:
    """The values as they were given: words of a vocabulary as texts, and times too where one is a text."""
    if dtype == TIME and any(isinstance(value, str) for value in values):
        return pl.Series(name, list(map(as_text, values)), dtype=pl.String)
    return pl.Series(name, values, dtype=pl.String if isinstance(dtype, pl.Enum) else dtype)


def _in_type(values: pl.Series, dtype: pl.DataType | type[pl.DataType]) -> tuple[pl.Series, str | None]:
    """The values in the type of a vocabulary or of times, and what is wrong with the first that has none."""
    if values.dtype == pl.Null:
        return values.cast(dtype), None
    if isinstance(dtype, pl.Enum) and values.dtype in (pl.String, pl.Enum, pl.Categorical):
        cast = values.cast(pl.String).cast(dtype, strict=False)
        allowed = ", ".join(map(repr, dtype.categories))
    elif values.dtype == pl.String:
        cast = pl.Series(values.name, list(map(_time, values)), dtype=TIME)
        allowed = "ISO 8601 times such as '2026-04-20T10:00:00Z'"
    else:
        return values, None  # another type altogether: `conform` names it
    wrong = values.filter(cast.is_null() & values.is_not_null())
    problem = f"column {values.name!r} holds {wrong[0]!r}, allowed are {allowed}" if len(wrong) else None
    return cast, problem


def _time(text: str | None) -> Any:
    try:
        return None if text is None else parse_timestamp(text)
    except ValueError:
        return None
