"""Frames as markdown tables, with every cell made inert."""

import polars as pl

_ESCAPED = str.maketrans(
    {c: f"\\{c}" for c in "\\`*_{}[]()#+!|~$"}
    | {"<": "&lt;", ">": "&gt;", "&": "&amp;", "\n": " ", "\r": " "}
)


def inert(text: str, limit: int = 120) -> str:
    """Text that markdown and HTML leave alone, cut to `limit` characters."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return cut.translate(_ESCAPED)


def markdown_table(frame: pl.DataFrame) -> str:
    """A frame as a markdown table; no rows: 'no rows'."""
    if frame.is_empty():
        return "no rows"
    head = "| " + " | ".join(inert(name) for name in frame.columns) + " |"
    rule = "|" + " --- |" * frame.width
    rows = ("| " + " | ".join(_cell(value) for value in row) + " |" for row in frame.iter_rows())
    return "\n".join([head, rule, *rows])


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return inert(", ".join(map(str, value)))
    return inert(str(value))
