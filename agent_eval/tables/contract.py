"""Define the declaration of a table, and check frames against it."""

import difflib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Generic, cast

import polars as pl

from agent_eval.errors import NotFoundError, StorageError
from agent_eval.formats.timestamps import as_text, parse_timestamp
from agent_eval.tables.frames import F_co

DTypes = pl.DataType | type[pl.DataType]

TIME = pl.Datetime("us", "UTC")
"""The type of every point in time, which is stored as TIMESTAMPTZ."""
DATE = pl.Date
"""The type of every date without a time of day, which is stored as DATE."""
DATES = pl.List(DATE)
NAMES = pl.List(pl.String)
_ROWS_AT_ONCE = 1_000  # dicts that are held at once
_TEXT_OF = {
    TIME: "ISO 8601 times such as '2026-04-20T10:00:00Z'",
    DATE: "ISO 8601 dates such as '2026-04-20'",
    DATES: "lists of ISO 8601 dates such as '2026-04-20'",
}


class UnknownTableError(NotFoundError, KeyError):
    """Raised when no stored table has the given name.

    Fix: Use a name of docs/reference/tables.md.
    """

    def __init__(self, name: str, tables: Iterable[str]) -> None:
        table_names = sorted(tables)
        near = difflib.get_close_matches(name, table_names, n=1)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        super().__init__(f"There is no table {name!r}.{meant} Tables: {', '.join(table_names)}.")

    def __str__(self) -> str:
        return str(self.args[0])


class TableMismatchError(StorageError):
    """Raised when rows do not match the contract of their table.

    Fix: Correct the rows, as docs/reference/tables.md describes them.
    """

    def __init__(self, table: str, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(
            f"Rows for table {table!r} do not match its contract: {'; '.join(self.problems)}. "
            "docs/reference/tables.md describes the table; nothing was written."
        )


@dataclass(frozen=True)
class Column:
    """Declare a column: its polars type, its meaning with scale or unit, and whether it can be null.

    Columns with a closed vocabulary have type `pl.Enum`, points in time `TIME`, and dates `DATE`. If `rank_of` names a
    column with an ordered vocabulary, `Table` computes this column as the rank of that column's word, from 1.
    `is_content` is False for what only describes how a row was made, e.g. the time and the cost of an answer: a change
    of it does not make stale what is computed from the table (`project.fingerprints`).
    """

    name: str
    dtype: DTypes
    meaning: str
    nullable: bool = True
    rank_of: str | None = None
    is_content: bool = True


@dataclass(frozen=True)
class Table(Generic[F_co]):
    """Declare a stored table.

    `partition` names the columns that determine a row's partition. A write replaces all rows of the written
    partitions; to a table without partition columns, rows are only added. `key` names the columns that identify
    a row; rows with equal keys are rejected.
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
        """Return an empty frame with the columns of the table."""
        return cast("F_co", pl.DataFrame(schema=self.schema))

    def frame(self, rows: Iterable[Mapping[str, Any]]) -> F_co:
        """Return rows of this table from dicts; a missing key becomes null.

        Times and dates can be ISO 8601 texts. Keys that the table does not declare are ignored, so that rows of a join
        can be passed; a key that looks like a misspelt column is an error.

        Raises:
            TableMismatchError: If a value does not have the type of its column, e.g. a word outside the vocabulary or a
                text that is not a date, or if a key resembles a declared column that no row has.
        """
        columns: dict[str, list[Any]] = {name: [] for name in self.schema}
        undeclared, remaining = set[str](), iter(rows)
        while part := list(itertools.islice(remaining, _ROWS_AT_ONCE)):
            names = set[str]().union(*part)
            undeclared |= names - columns.keys()
            for name, values in columns.items():
                values += [row.get(name) for row in part] if name in names else [None] * len(part)
        series, problems = list[pl.Series](), _misspelt(undeclared, columns) if undeclared else []
        for name, dtype in self.schema.items():
            try:
                series.append(_series(name, columns[name], dtype))
            except _ValueError as error:
                problems.append(str(error))
        if problems:
            raise TableMismatchError(self.name, problems)
        return cast("F_co", self.typed(pl.DataFrame(series)))

    def typed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Convert columns with vocabularies, times, dates and ranks to this table's types; keep all others.

        Texts are converted to vocabulary words, dates, and times in UTC; a time without an offset is taken as UTC.

        Raises:
            TableMismatchError: If a text is not valid for the vocabulary, time or date type of its column.
        """
        frame, problems = self._typed(frame)
        if problems:
            raise TableMismatchError(self.name, problems)
        return frame

    def selected(self, frame: pl.DataFrame) -> F_co:
        """Drop columns that this table does not declare, and conform the frame to the table."""
        return self.conform(frame.select(name for name in frame.columns if name in self.schema))

    def _typed(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
        problems, converted = list[str](), list[pl.Series]()
        schema = frame.schema  # computed at each access
        for name, dtype in self.schema.items():
            is_other = name in schema and schema[name] != dtype
            if is_other and (isinstance(dtype, pl.Enum) or dtype in _TEXT_OF):
                series, problem = _in_type(frame[name], dtype)
                converted.append(series)
                problems += [problem] if problem else []
        if converted:
            frame = frame.with_columns(converted)
        for column in self.columns:
            if column.rank_of and isinstance(frame.schema.get(column.rank_of), pl.Enum):
                rank = pl.col(column.rank_of).to_physical().cast(pl.Int64) + 1
                frame = frame.with_columns(rank.alias(column.name))
        return frame, problems

    def conform(self, frame: pl.DataFrame) -> F_co:
        """Return the frame with the columns, column order and types of this table.

        Null-typed columns, vocabulary words, and ISO 8601 times and dates are converted to their types.

        Raises:
            TableMismatchError: If a column is missing, is not declared or has another type; if a value is not valid for
                its column, such as a null, a word outside the vocabulary or an invalid date; or if two rows have the
                same key.
        """
        frame, wrong = self._typed(frame)
        problems = [f"column {n!r} is missing" for n in self.schema if n not in frame.columns]
        problems += [f"column {n!r} is not declared" for n in frame.columns if n not in self.schema]
        if problems or wrong:
            raise TableMismatchError(self.name, [*problems, *wrong])
        schema = frame.schema
        frame = frame.select(
            pl.col(n).cast(dtype) if schema[n] == pl.Null else pl.col(n) for n, dtype in self.schema.items()
        )
        schema = frame.schema
        problems = [
            f"column {n!r} is {schema[n]}, expected {dtype}"
            for n, dtype in self.schema.items()
            if schema[n] != dtype
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


def _misspelt(undeclared: Iterable[str], columns: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return a problem for each undeclared key that resembles a column without values."""
    empty = [name for name, values in columns.items() if all(value is None for value in values)]
    near = ((name, difflib.get_close_matches(name, empty, n=1, cutoff=0.85)) for name in sorted(undeclared))
    return [f"column {name!r} is not declared; did you mean {close[0]!r}?" for name, close in near if close]


class _ValueError(Exception):
    """Raised when a value does not have the type of its column."""

    def __init__(self, name: str, value: object, allowed: str) -> None:
        super().__init__(f"column {name!r} holds {_shown(value)}, allowed are {allowed}")


_KINDS: dict[DTypes, tuple[tuple[type, ...], str]] = {
    pl.String: ((str,), "texts"),
    pl.Int64: ((int,), "integers"),
    pl.Float64: ((float, int), "numbers"),
    pl.Boolean: ((bool,), "true and false"),
    TIME: ((str, date), _TEXT_OF[TIME]),
    DATE: ((str, date), _TEXT_OF[DATE]),
    pl.Float32: ((float, int), "numbers"),
}
"""The accepted Python types of each column type, with a description."""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _series(name: str, values: Sequence[Any], dtype: DTypes) -> pl.Series:
    """Return the values of a column as a series.

    Vocabulary words remain texts, and so do times and dates if any of them is a text.

    Raises:
        _ValueError: If a value does not have the type of the column.
    """
    item = cast("DTypes", dtype.inner) if isinstance(dtype, pl.List) else dtype
    kinds, allowed = _KINDS[pl.String if isinstance(item, pl.Enum) else item]
    if isinstance(item, pl.Enum):
        allowed, dtype = _words_of(item), pl.String
    if isinstance(dtype, pl.List):
        allowed = _TEXT_OF.get(dtype, f"lists of {allowed}")
        wrong = _of_other_type(values, (list, tuple), dtype)
        wrong = wrong or _of_other_type([each for listed in values for each in listed or ()], kinds, item)
    else:
        wrong = _of_other_type(values, kinds, item)
    if wrong:
        raise _ValueError(name, wrong[0], allowed)
    if dtype in (TIME, DATE) and str in map(type, values):
        values, dtype = list(map(as_text, values)), pl.String
    elif dtype == DATES and any(isinstance(day, str) for days in values for day in days or ()):
        values, dtype = [days and list(map(as_text, days)) for days in values], pl.List(pl.String)
    try:
        return pl.Series(name, values, dtype=dtype)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        raise _ValueError(name, _first_refused(values, dtype), allowed) from None


def _of_other_type(values: Sequence[Any], kinds: tuple[type, ...], dtype: DTypes) -> list[Any]:
    """Return a list with the first value that is not of the column's Python types; empty if all values are."""
    others = {
        kind
        for kind in set(map(type, values)) - {type(None)}
        if not issubclass(kind, kinds)
        or (dtype == DATE and issubclass(kind, datetime))  # a datetime is a date
    }
    return [next(value for value in values if type(value) in others)] if others else []


def _first_refused(values: Sequence[Any], dtype: DTypes) -> object:
    """Return the first value that polars rejects for the type."""
    for value in values:
        try:
            pl.Series([value], dtype=dtype)
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
            return value
    return None


def _words_of(vocabulary: pl.Enum) -> str:
    return ", ".join(map(repr, vocabulary.categories))


def _in_type(values: pl.Series, dtype: DTypes) -> tuple[pl.Series, str | None]:
    """Return the values as words, times or dates, and a description of the first invalid value."""
    if values.dtype == pl.Null:
        return values.cast(dtype), None
    if isinstance(dtype, pl.Enum) and values.dtype in (pl.String, pl.Enum, pl.Categorical):
        cast = values.cast(pl.String).cast(dtype, strict=False)
        allowed = _words_of(dtype)
    elif values.dtype == (pl.List(pl.String) if dtype == DATES else pl.String):
        cast = pl.Series(values.name, list(map(_READERS[dtype], values)), dtype=dtype)
        allowed = _TEXT_OF[dtype]
    else:
        return values, None  # any other type is reported by `conform`
    wrong = values.filter(cast.is_null() & values.is_not_null()).to_list()
    return cast, str(_ValueError(values.name, wrong[0], allowed)) if wrong else None


def _time(text: str | None) -> datetime | None:
    try:
        return None if text is None else parse_timestamp(text)
    except ValueError:
        return None


def _day(text: str | None) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        return None


def _days(texts: Iterable[str | None] | None) -> list[date | None] | None:
    days = None if texts is None else [(text, _day(text)) for text in texts]
    is_wrong = days is None or any(text is not None and day is None for text, day in days)
    return None if is_wrong or days is None else [day for _, day in days]


_READERS: dict[DTypes, Callable[[Any], object]] = {TIME: _time, DATE: _day, DATES: _days}
