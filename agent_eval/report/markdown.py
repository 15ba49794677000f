"""Frames as markdown tables, with every cell made inert."""

import polars as pl

from agent_eval.formats.plain_text import plain

_ESCAPED = str.maketrans(
    {c: f"\\{c}" for c in "\\`*_{}[]()#+!|~$"}
    | {"<": "&lt;", ">": "&gt;", "&": "&amp;", "\n": " ", "\r": " "}
)


def inert(text: str, limit: int | None = None) -> str:
    """Text that markdown and HTML leave alone, cut to `limit` characters if there is one."""
    cut = text if limit is None or len(text) <= limit else text[: limit - 1] + "…"
    return plain(cut.translate(_ESCAPED))


def markdown_table(frame: pl.DataFrame, *, limit: int | None = None, links: str | None = None) -> str:
    """A frame as a markdown table, cells cut to `limit` characters; no rows: 'no rows'.

    `links`: a column of our own whose texts are addresses: those of http(s) and of pages of the UI become links.
    """
    if frame.is_empty():
        return "no rows"
    head = "| " + " | ".join(inert(name) for name in frame.columns) + " |"
    rule = "|" + " --- |" * frame.width
    linked = frame.columns.index(links) if links else -1
    rows = (
        "| " + " | ".join(_link(v) if i == linked else _cell(v, limit) for i, v in enumerate(row)) + " |"
        for row in frame.iter_rows()
    )
    return "\n".join([head, rule, *rows])


def _link(address: str) -> str:
    return (
        f"[open](<{address}>)" if address.startswith(("https://", "http://", "/assets/")) else inert(address)
    )


def _cell(value: object, limit: int | None) -> str:
    return inert(_text(value), limit)


def _text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)
