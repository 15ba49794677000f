"""Prepare the summary of logs: the quantities of an agent, and the table of agents without slots."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from agent_eval.report.board import STALE, UNCHECKED, calibration
from agent_eval.report.charts import IntervalMark, span
from agent_eval.report.html.tables import Row
from agent_eval.report.names import Paths
from agent_eval.report.quality import (
    HEADINGS,
    answers_of,
    headline,
    headline_interval,
    interval_of,
    log_judges,
    name_of,
    read_rows,
    value_of,
)


@dataclass(frozen=True)
class Badge:
    """Represent a disclosure as a short text; `tone` is good, bad, warn, plain or unknown."""

    text: str
    tone: str


@dataclass(frozen=True)
class SummaryRow:
    """Represent one quantity of table quality_summary for display."""

    name: str
    mean: str
    span: IntervalMark | None
    interval: str
    answers: str
    row: Row


@dataclass(frozen=True)
class LogRow:
    """Represent one agent without slots; `values` contains the mean and the interval of each main figure."""

    name: str
    href: str
    values: Sequence[SummaryRow]
    badges: tuple[Badge, ...]
    row: Row


def summary_rows(summary: pl.DataFrame) -> tuple[SummaryRow, ...]:
    """Return the rows of table quality_summary for one agent and version, in the order of `reading_order`."""
    return tuple(_read(row) for row in read_rows(summary.to_dicts()))


def log_rows(logs: pl.DataFrame, paths: Paths) -> tuple[LogRow, ...]:
    """Return the rows of table log_leaderboard for one version, in the same order."""
    return tuple(
        LogRow(
            name=row["name"] or row["agent_id"],
            href=f"{paths.agent(row['agent_id'], row['methodology_version'])}#summary",
            values=tuple(
                replace(_read(figure), name=name, interval=headline_interval(figure))
                for column, name in HEADINGS.items()
                for figure in (headline(row, column),)
            ),
            badges=tuple(badge(text) for text in (calibration(row),) if text),
            row=row | {"judges": log_judges(row)},
        )
        for row in logs.to_dicts()
    )


def badge(text: str) -> Badge:
    """Return the badge for a text of `report.board.badges`, with its tone."""
    return Badge(text, _tone(text))


def _tone(text: str) -> str:
    if text.endswith("?") or text.endswith(UNCHECKED):
        return "unknown"
    if "FAILED" in text:
        return "bad"
    if text == "disputed" or text.startswith(STALE):
        return "warn"
    if text.startswith("judge"):
        return "plain"
    return "warn" if "not tested" in text else "good" if "passed" in text or "tested" in text else "plain"


def _read(row: Mapping[str, Any]) -> SummaryRow:
    mean_span = None
    if row["mean"] is not None and row["scale_high"] is not None:
        bottom, top = row["scale_low"], row["scale_high"]
        mean, low, high = (None if row[end] is None else row[end] - bottom for end in ("mean", "low", "high"))
        mean_span = span(mean, low, high, scale=top - bottom)
    is_counted = "n_scored" in row and "n_conversations" in row
    return SummaryRow(
        name=name_of(row),
        mean=value_of(row),
        span=mean_span,
        interval=interval_of(row),
        answers=answers_of(row) if is_counted else "",
        row=dict(row),
    )
