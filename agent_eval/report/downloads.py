"""Convert rows of a table to CSV and JSON text, for downloads of the report and for commands."""

import json

import polars as pl
import polars.selectors as cs

from agent_eval.formats.plain_text import escaped_json, sanitize
from agent_eval.formats.timestamps import as_text
from agent_eval.tables.contract import DATES, NAMES

_NUMBER = r"^[+-]?\d+(\.\d+)?(/\d+)?$"
_FORMULA = r"^\s*[=+\-@＝＋－＠]|^[\x00-\x1f\x7f]"
"""Match text that a spreadsheet program may interpret as a formula: it starts with one of these characters."""
_NEXT_CELL = r"([;\t\r\n]\s*)([=+\-@＝＋－＠])"
"""Match a formula after a semicolon, tab or line end, where some programs start a new cell."""


def csv_text(rows: pl.DataFrame) -> str:
    """Return rows as CSV.

    The items of a list of texts or dates are joined by '; '. A text that could be interpreted as a formula is
    prefixed with `'`.
    """
    flat = rows.with_columns(
        cs.by_dtype(NAMES, DATES).cast(NAMES).list.join("; "),
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
    return sanitize(safe.write_csv())


def json_text(rows: pl.DataFrame) -> str:
    """Return rows as one JSON array; unknown values are null."""
    records = rows.with_columns(cs.float().fill_nan(None)).to_dicts()
    text = json.dumps(records, ensure_ascii=False, indent=1, default=as_text, allow_nan=False)
    return f"{escaped_json(text)}\n"
