"""Render frames as Markdown tables with escaped cells."""

from collections.abc import Mapping

import polars as pl

from agent_eval.formats.plain_text import sanitize

PAGES = ("/assets/", "/runs/", "/report/")
_ESCAPED = str.maketrans(
    {c: f"\\{c}" for c in "\\`*_{}[]()#+!|~$"}
    | {"<": "&lt;", ">": "&gt;", "&": "&amp;", "\n": " ", "\r": " "}
)


def escape(text: str, limit: int | None = None) -> str:
    """Return text that markdown and HTML leave alone, cut to `limit` characters if there is one."""
    cut = text if limit is None or len(text) <= limit else text[: limit - 1] + "…"
    return sanitize(cut.translate(_ESCAPED))


def markdown_table(
    frame: pl.DataFrame, *, limit: int | None = None, links: Mapping[str, str] | None = None
) -> str:
    """Return a frame as a markdown table, cells cut to `limit` characters; no rows: 'no rows'.

    `links`: column → column of our own with the address that its cells link to; the latter is not shown. Only addresses
    of http(s) and of pages of the UI become links.
    """
    if frame.is_empty():
        return "no rows"
    links = links or {}
    shown = [name for name in frame.columns if name not in links.values()]
    head = "| " + " | ".join(escape(name) for name in shown) + " |"
    rule = "|" + " --- |" * len(shown)
    rows = (
        "| "
        + " | ".join(_linked(_cell(row[c], limit), row[links[c]] if c in links else None) for c in shown)
        + " |"
        for row in frame.iter_rows(named=True)
    )
    return "\n".join([head, rule, *rows])


def link(text: str, address: str | None, limit: int | None = None) -> str:
    """Return text that links to an address of our own; the text alone where there is none."""
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
