"""Render frames as Markdown tables with escaped cells."""

import re
from collections.abc import Mapping

import polars as pl

from agent_eval.formats.plain_text import sanitize

PAGES = ("/assets/", "/runs/", "/report/")
_ESCAPED = str.maketrans(
    {c: f"\\{c}" for c in "\\`*_{}[]()#+!|~$"}
    | {"<": "&lt;", ">": "&gt;", "&": "&amp;", "\n": " ", "\r": " "}
)


_ADDRESS = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)|(?<=@)", re.IGNORECASE)
"""Places in an address or an e-mail address where a word joiner keeps the UI from making it a link."""


def escape(text: str, limit: int | None = None) -> str:
    """Escape a text for Markdown and HTML, and cut it to `limit` characters if a limit is given.

    Addresses do not become links: the UI links every address in a text, also if it is escaped, so an invisible word
    joiner (U+2060) is inserted.
    """
    cut = text if limit is None or len(text) <= limit else text[: limit - 1] + "…"
    return _ADDRESS.sub("\u2060", sanitize(cut.translate(_ESCAPED)))


def markdown_table(
    frame: pl.DataFrame, *, limit: int | None = None, links: Mapping[str, str] | None = None
) -> str:
    """Return a frame as a Markdown table with cells of at most `limit` characters; 'no rows' if it is empty.

    `links` maps a column to a second column with the addresses of its cells. The second column is not shown. Only
    http(s) addresses and pages of the UI become links. The addresses must not come from untrusted text.
    """
    if frame.is_empty():
        return "no rows"
    links = links or {}
    columns = [name for name in frame.columns if name not in links.values()]
    head = "| " + " | ".join(escape(name) for name in columns) + " |"
    rule = "|" + " --- |" * len(columns)
    rows = (
        "| "
        + " | ".join(_linked(_cell(row[c], limit), row[links[c]] if c in links else None) for c in columns)
        + " |"
        for row in frame.iter_rows(named=True)
    )
    return "\n".join([head, rule, *rows])


def link(text: str, address: str | None, limit: int | None = None) -> str:
    """Return a text with a link to a trusted address, or the text alone if the address is None."""
    return _linked(escape(text, limit), address)


def _linked(text: str, address: str | None) -> str:
    is_ours = address is not None and address.startswith(("https://", "http://", *PAGES))
    return f"[{text}](<{address}>)" if is_ours else text


def _cell(value: object, limit: int | None) -> str:
    return escape(_text(value), limit)


def _text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)
