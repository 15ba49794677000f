"""The summary of logs in the report: the quantities of an agent, and the agents without slots side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from agent_eval.report.charts import IntervalMark, span
from agent_eval.report.html.tables import Row
from agent_eval.report.names import Paths
from agent_eval.report.quality import (
    HEADINGS,
    answers_of,
    headline,
    interval_of,
    name_of,
    reading_order,
    value_of,
)


@dataclass(frozen=True)
class SummaryRow:
    """One quantity as it is read."""

    name: str
    mean: str
    span: IntervalMark | None
    interval: str
    answers: str
    row: Row


@dataclass(frozen=True)
class LogRow:
    """One agent without slots as it is read; `values`: a mean and its interval for each headline."""

    name: str
    href: str
    values: Sequence[SummaryRow]
    row: Row


def summary_rows(summary: pl.DataFrame) -> tuple[SummaryRow, ...]:
    """Return the rows of table quality_summary of one agent and version, in reading order."""
    return tuple(_read(row) for row in sorted(summary.to_dicts(), key=reading_order))


def log_rows(logs: pl.DataFrame, paths: Paths) -> tuple[LogRow, ...]:
    """Return the rows of table log_leaderboard of one version, by agent id."""
    return tuple(
        LogRow(
            name=row["name"] or row["agent_id"],
            href=f"{paths.agent(row['agent_id'], row['methodology_version'])}#summary",
            values=tuple(
                replace(_read(headline(row, column)), name=name) for column, name in HEADINGS.items()
            ),
            row=row,
        )
        for row in logs.to_dicts()
    )


def _read(row: Mapping[str, Any]) -> SummaryRow:
    drawn = None
    if row["mean"] is not None and row["scale_high"] is not None:
        bottom, top = row["scale_low"], row["scale_high"]
        mean, low, high = (None if row[end] is None else row[end] - bottom for end in ("mean", "low", "high"))
        drawn = span(mean, low, high, scale=top - bottom)
    is_counted = "n_scored" in row and "n_conversations" in row
    return SummaryRow(
        name=name_of(row),
        mean=value_of(row),
        span=drawn,
        interval=interval_of(row),
        answers=answers_of(row) if is_counted else "",
        row=dict(row),
    )
