"""Render the pages of quality_summary and log_leaderboard in the Dagster UI."""

from typing import Any

import polars as pl

from agent_eval.metrics.metric_set import directed
from agent_eval.report.links import partition_page
from agent_eval.report.markdown import markdown_table
from agent_eval.report.quality import (
    DIRECTION,
    HEADINGS,
    answers_of,
    headline,
    interval_of,
    labels_text,
    name_of,
    read_rows,
    reading_order,
    value_of,
)
from agent_eval.report.svg import BLUE, RED, IntervalBar, spans
from agent_eval.scores.statistics.quality import HEADLINES
from agent_eval.scores.statistics.unpaired import FAILURE_RATE

MOST_ERRORS = 10  # maximum number of error clusters on the page


def summary_plot(summary: pl.DataFrame) -> str:
    """Draw every known mean with its interval, as a percentage of its scale; costs are omitted."""
    known_means = summary.filter(pl.col("mean").is_not_null(), pl.col("scale_high").is_not_null())
    rows = sorted(known_means.to_dicts(), key=reading_order)
    if not rows:
        return "no known values yet"
    return spans(
        f"Means with 95 % intervals, in percent of the scale. {DIRECTION}", [_bar(row) for row in rows]
    )


def _bar(row: dict[str, Any]) -> IntervalBar:
    bottom, top = row["scale_low"], row["scale_high"]

    def share(value: float | None) -> float | None:
        return None if value is None else 100 * (value - bottom) / (top - bottom)

    colour = RED if str(row["quantity"]).startswith(FAILURE_RATE) else BLUE
    name = directed(str(row["quantity"])).replace("_", " ") if row["scale_high"] == 5 else name_of(row)
    return IntervalBar(name, share(row["mean"]), share(row["low"]), share(row["high"]), value_of(row), colour)  # fmt: skip


def summary_table(summary: pl.DataFrame) -> str:
    """Return a table with one line per quantity: mean, interval, numbers of conversations and answers, and judges."""
    lines = [
        {
            "quantity": name_of(row),
            "mean": value_of(row),
            "95 % interval": interval_of(row),
            "conversations": row["n_conversations"],
            "answers": answers_of(row),
            "by": row["by"],
        }
        for row in read_rows(summary.to_dicts())
    ]
    return markdown_table(pl.DataFrame(lines), limit=80)


def logs_table(board: pl.DataFrame) -> str:
    """Return a table with one line of main figures per agent, unranked; the name links to the agent's summary."""
    rates = [name for name in HEADLINES if name.endswith("rate")]
    figures = board.select(
        pl.coalesce("name", "agent_id").alias("agent"),
        pl.col("n_conversations").alias("conversations"),
        *((100 * pl.col(name)).round(1).alias(f"{name.replace('_', ' ')} %") for name in rates),
        pl.col("helpfulness_1to5").round(2).alias("helpfulness (1 to 5, 5 = best)"),
        pl.col("cost_usd_per_conversation").round(4).alias("US dollars per conversation"),
        pl.col("top_error").alias("most severe error"),
        "judges",
        pl.Series("labels of people", [_labels(row) for row in board.iter_rows(named=True)], dtype=pl.String),
        pl.Series(
            "_page",
            [
                partition_page("quality_summary", agent, version)
                for agent, version in board.select("agent_id", "methodology_version").iter_rows()
            ],
            dtype=pl.String,
        ),
    )
    return markdown_table(figures, limit=80, links={"agent": "_page"})


def _labels(row: dict[str, Any]) -> str:
    """Return what labels do to the main figures of a row of log_leaderboard, e.g. 'success: corrected by 9 labels of people'."""
    figures = ((name, labels_text(headline(row, column))) for column, name in HEADINGS.items())
    return "; ".join(f"{name}: {labels}" for name, labels in figures if labels)
