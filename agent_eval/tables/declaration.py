"""Read declarations of tables, one line a column, as in `tables.txt`.

    group answered | what a provider reports with its answer
        response_model text | Provider's name of the model that answered; null if unknown

    table turns | one row per turn
        key agent_id turn_index
        partition agent_id
        reads agent_sessions
        parent conversations agent_id conversation_id
        with agent_id answered
        turn_index int! | 0-based index of the turn

A line with ` | ` declares a column: its name; its type, which is a word of `TYPES` or `list[…]` of one, with `!` if it is
never null; further fields of `Column`, such as `rank_of=severity`; and its meaning with unit. `with` inserts groups,
or single columns of groups. `reads` names the inputs of the table's asset. `parent` names the table that the rows
belong to, and the columns that link them. A line that begins with `#` is a comment.
"""

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from agent_eval.errors import ConfigurationError
from agent_eval.tables import vocabularies
from agent_eval.tables.contract import DATE, TIME, Column, DTypes, Table

TYPES: Mapping[str, DTypes] = {
    "text": pl.String,
    "int": pl.Int64,
    "float": pl.Float64,
    "float32": pl.Float32,
    "bool": pl.Boolean,
    "time": TIME,
    "date": DATE,
    **{name: words for name, words in vars(vocabularies).items() if isinstance(words, pl.Enum)},
}
_DIRECTIVES = ("key", "partition", "reads", "parent", "with")


class _LineError(Exception):
    """Raised when a line is invalid; `read_declarations` adds the file and the line number."""


@dataclass
class Declaration:
    """Hold what a text declares about one group or table; only tables have a key and what follows it."""

    line: int
    is_table: bool
    name: str
    meaning: str
    columns: dict[str, Column] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    partition: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    parent: tuple[str, ...] = ()

    def add(self, columns: Iterable[Column]) -> None:
        """Add columns, whose names must be new."""
        for column in columns:
            if column.name in self.columns:
                raise _LineError(f"{self.name!r} has column {column.name!r} already. Delete one of the two.")
            self.columns[column.name] = column

    def table(self) -> Table[Any]:
        """Return the declared table."""
        return Table(self.name, self.meaning, self.key, tuple(self.columns.values()), self.partition)


def read_declarations(text: str, file: str) -> dict[str, Declaration]:
    """Return the declared groups and tables by name, in the order of the text.

    Raises:
        ConfigurationError: If a line is invalid, if a name occurs twice, or if a table names a column that it does
            not have.
    """
    declared: dict[str, Declaration] = {}
    number = 0
    try:
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("#"):
                _read_line(line, number, declared)
        for each in declared.values():
            number = each.line
            _check(each, declared)
    except _LineError as error:
        raise ConfigurationError(f"{file}, line {number}: {error}") from None
    return declared


def _read_line(line: str, number: int, declared: dict[str, Declaration]) -> None:
    head, bar, meaning = (part.strip() for part in line.partition(" | "))
    words = head.split()
    if not line.startswith(" "):
        if len(words) != 2 or words[0] not in ("group", "table") or not meaning:
            raise _LineError(
                f"{line!r} begins no group or table. Write `table NAME | GRAIN`; indent columns."
            )
        if words[1] in declared:
            raise _LineError(f"{words[1]!r} is declared already. Choose another name.")
        declared[words[1]] = Declaration(number, words[0] == "table", words[1], meaning)
        return
    if not declared:
        raise _LineError("There is no group or table above. Write `table NAME | GRAIN` first.")
    block = next(reversed(declared.values()))
    if bar:
        block.add([_column(words, meaning)])
    elif _one_of(words[0], _DIRECTIVES, "directive; a column needs ` | ` and a meaning") == "with":
        block.add(column for name in words[1:] for column in _shared(name, declared))
    elif not block.is_table or getattr(block, words[0]):
        raise _LineError(f"`{words[0]}` occurs once in a table, and in no group. Delete this line.")
    else:
        setattr(block, words[0], tuple(words[1:]))


def _column(words: list[str], meaning: str) -> Column:
    if len(words) < 2 or not meaning:
        raise _LineError("a column needs a name, a type and a meaning. Write `NAME TYPE | MEANING`.")
    name, kind, *flags = words
    item = kind.removesuffix("!")
    is_list = item.startswith("list[") and item.endswith("]")
    dtype = TYPES[_one_of(item[5:-1] if is_list else item, TYPES, "type")]
    fields: dict[str, Any] = {}
    for flag in flags:
        key, _, value = flag.partition("=")
        if key != "rank_of" and flag != "is_content=false":
            raise _LineError(f"{flag!r} is not a field. Allowed: rank_of=COLUMN, is_content=false.")
        fields[key] = value if key == "rank_of" else False
    return Column(name, pl.List(dtype) if is_list else dtype, meaning, not kind.endswith("!"), **fields)


def _shared(name: str, declared: Mapping[str, Declaration]) -> Iterable[Column]:
    """Return the columns of the group with this name, or the column with this name in a group."""
    groups = {block.name: block for block in declared.values() if not block.is_table}
    if name in groups:
        return groups[name].columns.values()
    columns = {block.columns[name] for block in groups.values() if name in block.columns}
    if len(columns) > 1:
        raise _LineError(f"several groups declare different columns {name!r}. Declare the column here.")
    if not columns:
        names = [*groups, *(column for block in groups.values() for column in block.columns)]
        _one_of(name, names, "group above, or column of one")
    return columns


def _check(block: Declaration, declared: Mapping[str, Declaration]) -> None:
    """Reject a table without columns or key, and names of columns or tables that do not exist."""
    tables = {name: each.columns for name, each in declared.items() if each.is_table}
    names = {*block.key, *block.partition, *block.parent[1:]}
    for name in sorted(names | {c.rank_of for c in block.columns.values() if c.rank_of}):
        _one_of(name, block.columns, f"column of {block.name!r}")
    for column in block.columns.values():
        if column.rank_of and not isinstance(block.columns[column.rank_of].dtype, pl.Enum):
            raise _LineError(
                f"{column.name!r} ranks {column.rank_of!r}, which has no vocabulary. Give it one."
            )
    late = next(
        (t for t in tables if t in block.reads and declared[t].reads and declared[t].line > block.line), None
    )
    if late:
        raise _LineError(f"{block.name!r} reads {late!r}, which is declared below. Move it above this table.")
    if any(block.name in each.columns for each in declared.values() if not (each.is_table or block.is_table)):
        raise _LineError(f"a group has a column {block.name!r}. Give this group another name.")
    for parent in block.parent[:1]:
        for name in block.parent[1:]:
            _one_of(name, tables[_one_of(parent, tables, "table")], f"column of {parent!r}")
    if not block.columns or (block.is_table and not block.key):
        raise _LineError(f"{block.name!r} has no columns or no key. Add them below this line.")


def _one_of(word: str, allowed: Collection[str], kind: str) -> str:
    """Return the word if it is allowed."""
    if word in allowed:
        return word
    names = sorted(set(allowed))
    near = difflib.get_close_matches(word, names, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Allowed: {', '.join(names)}."
    raise _LineError(f"{word!r} is not a {kind}. {hint}")
