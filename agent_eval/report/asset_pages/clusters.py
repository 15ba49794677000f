"""Render error clusters, most severe first, with rates, trends and examples."""

import polars as pl

from agent_eval.formats.plain_text import count_of
from agent_eval.report.markdown import markdown_table
from agent_eval.report.svg import AMBER, BLUE, GREEN, GREY, RED, Bar, BarPart, bars
from agent_eval.tables.vocabularies import SEVERITY

LONGEST = 160  # maximum number of characters in a table cell
MOST = 50  # maximum number of clusters on an asset's page


_SEVERITIES = {"critical": "#7f0000", "high": RED, "medium": AMBER, "low": "#c9a400"}
_TRENDS = {
    "new": AMBER,
    "regressed": RED,
    "unchanged": GREY,
    "improved": GREEN,
    "gone": BLUE,
    "unknown": "#cfcfcf",
}


def most_severe_first(rows: pl.DataFrame, *then: str) -> pl.DataFrame:
    """Sort rows by severity, most severe first, then by the named columns, largest first, then by cluster id."""
    severity = pl.col("severity").cast(SEVERITY)
    return rows.sort(
        severity, *then, "cluster_id", descending=[True, *[True for _ in then], False], nulls_last=True
    )


_FOUND = "found by the run of"
"""Heading of first_seen, which is the day of a run and not that of a conversation."""


def _found(day: pl.Expr) -> pl.Expr:
    return day.alias(_FOUND)


def clusters_page(error_clusters: pl.DataFrame) -> str:
    """Return a Markdown table of the fifty most severe clusters of one agent."""
    rate = pl.col("rate_per_100_turns").round(1).alias("per 100 turns")
    return _page(
        error_clusters,
        rate,
        _found(pl.col("first_seen")),
        "trend",
        "examples",
        pl.col("root_cause").alias("root cause"),
    )


def severities_plot(error_clusters: pl.DataFrame) -> str:
    """Draw one bar per severity, most severe first, with the numbers of failures and clusters."""
    counts: dict[str, list[int]] = {}
    for severity, n in error_clusters.select("severity", "n_failures").iter_rows():
        counts.setdefault(severity, []).append(n)
    rows = [
        Bar(
            name,
            (BarPart(sum(counts[name]), colour, name),),
            f"{sum(counts[name])} in {count_of(len(counts[name]), 'cluster')}",
        )
        for name, colour in _SEVERITIES.items()
        if name in counts
    ]
    return bars("Failures by severity", rows)


def trends_plot(error_trends: pl.DataFrame) -> str:
    """Draw one bar per agent: the number of its clusters by trend since the baseline."""
    counts = error_trends.group_by("agent_id", "trend").len().sort("agent_id", "trend")
    parts: dict[str, dict[str, int]] = {}
    for agent, trend, n in counts.iter_rows():
        parts.setdefault(agent, {})[trend] = n
    rows = [
        Bar(
            agent,
            tuple(BarPart(n_of_trend[t], colour, t) for t, colour in _TRENDS.items() if t in n_of_trend),
            f"{count_of(sum(n_of_trend.values()), 'cluster')}",
        )
        for agent, n_of_trend in parts.items()
    ]
    return bars("Error clusters by trend", rows)


def trends_page(error_clusters: pl.DataFrame, error_trends: pl.DataFrame) -> str:
    """Return a Markdown table of the fifty most severe clusters of a version: counts, agents, trends, examples."""
    changes = error_trends.group_by("cluster_id").agg(
        pl.format("{}: {}", "agent_id", change()).sort_by("agent_id").str.join("; ").alias("trend")
    )
    cluster_rows = (
        error_clusters.filter(pl.col("same_as").is_null())
        .sort("agent_id")
        .group_by("cluster_id", maintain_order=True)
        .agg(
            pl.first("severity", "title"),
            pl.sum("n_failures", "n_turns"),
            _found(pl.min("first_seen")),
            pl.col("agent_id").alias("agents"),
            pl.format("{} {}", "agent_id", pl.col("examples").list.first()).head(3).alias("examples"),
        )
        .join(changes, on="cluster_id", how="left")
    )
    return _page(cluster_rows, "agents", _FOUND, "trend", "examples")


def change() -> pl.Expr:
    """Return the trend and both rates per 100 turns as text, e.g. 'improved 6.0 → 3.1, q 0.002'.

    New and resolved clusters whose difference is not significant are marked '(may be chance)'.
    """
    rates = [
        pl.col(f"{p}rate_per_100_turns").round(1).cast(pl.String).fill_null("?") for p in ("baseline_", "")
    ]
    is_other = pl.col("baseline_agent_id") != pl.col("agent_id")
    rates[0] = pl.when(is_other).then(pl.format("{} ({})", rates[0], "baseline_agent_id")).otherwise(rates[0])
    q_value = pl.col("q_value").round(3).cast(pl.String)
    is_shown = pl.col("trend").is_in(["new", "gone"]) & ~pl.col("is_significant").fill_null(value=False)
    doubt = pl.when(is_shown).then(pl.lit(" (may be chance)")).otherwise(pl.lit(""))
    change_text = pl.format("{} {} → {}, q {}{}", "trend", *rates, q_value, doubt)
    return pl.coalesce(change_text, pl.format("{} {} → {}", "trend", *rates))


def _page(clusters: pl.DataFrame, *columns: str | pl.Expr) -> str:
    """Return a table of the fifty most severe clusters: the columns that all pages share, then `columns`."""
    described = {"title": "cluster", "cluster_id": "id", "n_failures": "failures", "n_turns": "turns"}
    descriptions = (pl.col(name).alias(page_table) for name, page_table in described.items())
    ordered = most_severe_first(clusters, "n_turns").head(MOST).select("severity", *descriptions, *columns)
    title = markdown_table(ordered, limit=LONGEST)
    return title if clusters.height <= MOST else f"{title}\n\n{MOST} of {clusters.height} clusters"
