"""Print results to stdout, as tables, CSV or one JSON array, and progress and diagnostics to stderr."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping

import polars as pl
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from agent_eval.formats.plain_text import escaped_json, sanitize
from agent_eval.formats.timestamps import as_text
from agent_eval.report.downloads import csv_text, json_text


class SafeConsole(Console):
    """Print to the terminal with control characters replaced by U+FFFD."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield segments with sanitised text; Rich's control segments are unchanged."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=sanitize(segment.text))


def consoles() -> tuple[Console, Console]:
    """Return consoles for stdout and stderr.

    If the output is not a terminal, colours are disabled and the width is COLUMNS or 160.
    """
    out = SafeConsole(highlight=False, emoji=False)
    err = SafeConsole(stderr=True, highlight=False, emoji=False)
    for console in (out, err):
        if not console.is_terminal and not os.environ.get("COLUMNS", "").isdecimal():
            console.width = 160
    return out, err


def print_csv(rows: pl.DataFrame) -> None:
    """Print rows as CSV to stdout (see `csv_text`)."""
    print(csv_text(rows), end="")  # noqa: T201


def print_json(rows: pl.DataFrame | Iterable[Mapping[str, object]]) -> None:
    """Print rows as one JSON array to stdout; unknown values are null."""
    if isinstance(rows, pl.DataFrame):
        sys.stdout.write(json_text(rows))
        return
    text = json.dumps(list(rows), ensure_ascii=False, indent=1, default=as_text, allow_nan=False)
    sys.stdout.write(f"{escaped_json(text)}\n")  # written in one call, so never partially
