"""How commands print: one JSON array for machines on stdout, tables for people, progress and diagnostics on stderr."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping

import polars as pl
import polars.selectors as cs
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from agent_eval.formats.plain_text import escaped_json, sanitize
from agent_eval.formats.timestamps import as_text


class SafeConsole(Console):
    """A console that no text can steer: control characters of whatever is printed come out as U+FFFD."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Segments with plain text; those by which rich itself moves the cursor stay."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=sanitize(segment.text))


def consoles() -> tuple[Console, Console]:
    """(stdout, stderr). Colours are off when piped; a pipe gets as many columns as COLUMNS says, else 160."""
    out, err = SafeConsole(highlight=False), SafeConsole(stderr=True, highlight=False)
    for console in (out, err):
        if not console.is_terminal and not os.environ.get("COLUMNS", "").isdecimal():
            console.width = 160
    return out, err


_NUMBER = r"^[+-]?\d+(\.\d+)?(/\d+)?$"
_FORMULA = r"^\s*[=+\-@＝＋－＠]|^[\x00-\x1f\x7f]"
"""What a spreadsheet program may run: a text that begins with one of these signs, also after spaces."""
_NEXT_CELL = r"([;\t\r\n]\s*)([=+\-@＝＋－＠])"
"""The same where a program parts cells at semicolons or tabs, or lines within a text."""


def print_csv(rows: pl.DataFrame) -> None:
    """Rows as CSV on stdout; the texts of a list are joined by '; '. A text that could start a formula gets a `'` in front."""
    flat = rows.with_columns(
        cs.by_dtype(pl.List(pl.String)).list.join("; "),
        cs.enum().cast(pl.String),
        *(
            pl.Series(name, map(as_text, rows[name]), dtype=pl.String)
            for name in rows.select(cs.datetime()).columns
        ),
    )
    text = cs.string()
    starts_formula = text.str.contains(_FORMULA) & ~text.str.contains(_NUMBER)
    safe = flat.with_columns(
        pl.when(starts_formula)
        .then("'" + text)
        .otherwise(text)
        .str.replace_all(_NEXT_CELL, "$1'$2")
        .name.keep()
    )
    print(sanitize(safe.write_csv()), end="")  # noqa: T201


def print_json(rows: pl.DataFrame | Iterable[Mapping[str, object]]) -> None:
    """One array of rows on stdout; unknown values are null."""
    records = (
        rows.with_columns(cs.float().fill_nan(None)).to_dicts()
        if isinstance(rows, pl.DataFrame)
        else list(rows)
    )
    text = json.dumps(records, ensure_ascii=False, indent=1, default=as_text, allow_nan=False)
    sys.stdout.write(f"{escaped_json(text)}\n")  # whole or not at all
