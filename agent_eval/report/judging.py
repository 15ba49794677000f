"""Judgments as the Dagster UI shows them: how much was judged, what it cost, how the ratings are spread."""

import base64

import polars as pl

from agent_eval.report.markdown import markdown_table

_FREE = ("human", "rule", "recorded", "none")
_COLOURS = ("#b3261e", "#d97706", "#c9a400", "#7cb342", "#2e7d32")  # 1..5


def coverage(judgments: pl.DataFrame) -> pl.DataFrame:
    """How far judge models got: one row per version, agent and metric that a model was asked about.

    Args:
        judgments: Table turn_judgments or conversation_judgments.
    """
    asked = judgments.filter(~pl.col("judge").is_in(_FREE), pl.col("status").is_in(["scored", "unscored"]))
    is_scored, has_quote = pl.col("status") == "scored", pl.col("evidence_verified").is_not_null()
    return (
        asked.group_by("methodology_version", "agent_id", "metric", "judge")
        .agg(
            n_asked=pl.len(),
            n_scored=is_scored.sum(),
            n_quotes=has_quote.sum(),
            n_quotes_found=(pl.col("evidence_verified") & has_quote).sum(),
            cost_usd=_known_sum("cost_usd"),
            n_tokens_in=pl.col("n_tokens_in").sum(),
            n_tokens_cached=pl.col("n_tokens_cached").sum(),
        )
        .sort("methodology_version", "agent_id", "metric", "judge")
    )


def judging_page(judgments: pl.DataFrame) -> dict[str, str]:
    """Markdown for the asset page: coverage and cost per agent and metric, and a plot of the effective ratings."""
    page = {"coverage": markdown_table(coverage(judgments))}
    if "rating_1to5" in judgments.columns and judgments["rating_1to5"].count():
        svg = _spread(judgments.filter("is_effective", pl.col("rating_1to5").is_not_null()))
        encoded = base64.b64encode(svg.encode()).decode()
        page["ratings"] = f"![Ratings 1 to 5 by metric](data:image/svg+xml;base64,{encoded})"
    return page


def _known_sum(column: str) -> pl.Expr:
    """The sum, null when any part is unknown."""
    return pl.when(pl.col(column).null_count() == 0).then(pl.col(column).sum())


def _spread(rated: pl.DataFrame) -> str:
    """One bar per metric, parted by the shares of the ratings 1 to 5. Names are from our own tables of metrics."""
    counts = rated.group_by("metric", "rating_1to5").len().sort("metric", "rating_1to5")
    lines: list[str] = []
    metrics = counts["metric"].unique(maintain_order=True).to_list()
    for i, metric in enumerate(metrics):
        y, x = 24 * i + 8, 180.0
        mine = counts.filter(metric=metric)
        total = int(mine["len"].sum())
        lines.append(f'<text x="170" y="{y + 13}" text-anchor="end">{metric}</text>')
        for rating, n in mine.select("rating_1to5", "len").iter_rows():
            width = 400 * n / total
            lines.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="18" fill="{_COLOURS[rating - 1]}">'
                f"<title>{rating}: {n}</title></rect>"
            )
            x += width
        lines.append(f'<text x="590" y="{y + 13}">n = {total}</text>')
    style = 'font-family="system-ui, sans-serif" font-size="12" fill="#333"'
    height = 24 * len(metrics) + 16
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="700" height="{height}" {style}>{"".join(lines)}</svg>'
