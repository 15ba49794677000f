"""Render judgments for the Dagster UI: coverage, cost, distributions of ratings and failures."""

from collections.abc import Sequence

import polars as pl

from agent_eval.formats.spill import Rows, in_memory
from agent_eval.metrics.metric_set import directed
from agent_eval.report.calibration import (
    CELL,
    LEFT,
    TOP,
    confusion,
    figures,
    kappa_of,
    name_of,
    why_no_figures,
)
from agent_eval.report.markdown import escape, markdown_table
from agent_eval.report.svg import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    RATING_COLOURS,
    RED,
    Bar,
    BarPart,
    IntervalBar,
    bars,
    matrix,
    spans,
)
from agent_eval.tables.judging import HUMAN, enters_means, is_imported_judge

_FREE = ("human", "rule", "recorded", "none")
_PAIR = ["methodology_version", "agent_id"]
_ANSWERS = {
    "scored": (GREEN, "scored"),
    "unscored": (RED, "unscored: the judge failed"),
    "invalid": (AMBER, "invalid"),
    "disputed": (AMBER, "disputed: people differ"),
    "not_applicable": (GREY, "not applicable"),
}


def _known_sum(column: str) -> pl.Expr:
    """Return the sum of a column, or null if any of its values is null."""
    return pl.when(pl.col(column).null_count() == 0).then(pl.col(column).sum())


_COUNTED = ("judge", "status", "prompt_hash", "n_tokens_in", "n_tokens_out", "cost_usd")
_IS_BY_PEOPLE = pl.col("judge") == HUMAN
_IS_MODEL = ~pl.col("judge").is_in(_FREE) & ~is_imported_judge()
_PAID = _IS_MODEL & pl.col("status").is_in(["scored", "unscored"])


def figures_of(judgments: Rows, by: Sequence[str]) -> pl.DataFrame:
    """Return the figures of each partition: prompts answered by models, tokens, US dollars and unscored judgments.

    The cost is null if no model was paid, or if the cost of an answer is unknown.

    Args:
        judgments: Table turn_judgments, conversation_judgments or rubric_ratings.
        by: The partition columns.
    """

    def counted(part: pl.DataFrame) -> pl.DataFrame:
        return part.group_by(by).agg(
            pl.col("prompt_hash").filter(_PAID).hash().unique().alias("prompts"),
            pl.col("n_tokens_in", "n_tokens_out").filter(_PAID).sum(),
            pl.col("cost_usd").sum(),
            _PAID.any().alias("is_paid"),
            (_PAID & pl.col("cost_usd").is_null()).any().alias("is_unpriced"),
            (pl.col("status") == "unscored").sum().alias("n_unscored"),
        )

    is_priced = pl.col("is_paid").any() & ~pl.col("is_unpriced").any()
    return (
        in_memory(counted, judgments, [*by, *_COUNTED])
        .group_by(by)
        .agg(
            pl.col("prompts").explode(empty_as_null=False).n_unique().alias("n_prompts_answered"),
            pl.col("n_tokens_in", "n_tokens_out").sum(),
            pl.when(is_priced).then(pl.col("cost_usd").sum()),
            pl.col("n_unscored").sum(),
        )
    )


def coverage(judgments: pl.DataFrame) -> pl.DataFrame:
    """Count the answers of judge models: one row per version, agent, metric and judge.

    Args:
        judgments: Table turn_judgments or conversation_judgments.
    """
    model_answers = judgments.filter(_IS_MODEL, pl.col("status").is_in(["scored", "unscored"]))
    is_scored, has_quote = pl.col("status") == "scored", pl.col("evidence_verified").is_not_null()
    return (
        model_answers.group_by("methodology_version", "agent_id", "metric", "judge")
        .agg(
            n_asked=pl.len(),
            n_scored=is_scored.sum(),
            n_in_part=(is_scored & (pl.col("seen_share").fill_null(1.0) < 1)).sum(),
            n_quotes=has_quote.sum(),
            n_quotes_found=(pl.col("evidence_verified") & has_quote).sum(),
            cost_usd=_known_sum("cost_usd"),
            n_tokens_in=pl.col("n_tokens_in").sum(),
            n_tokens_cached=pl.col("n_tokens_cached").sum(),
        )
        .sort("methodology_version", "agent_id", "metric", "judge")
    )


def coverage_table(answer_counts: pl.DataFrame) -> str:
    """Return a table of questions, answers and costs of judge models: one line per metric, and a total."""
    total = answer_counts.select(
        pl.lit("all").alias("metric"),
        pl.lit("").alias("judge"),
        pl.col("n_asked", "n_scored", "n_in_part", "n_quotes", "n_quotes_found").sum(),
        _known_sum("cost_usd"),
        pl.col("n_tokens_in", "n_tokens_cached").sum(),
    )
    return markdown_table(pl.concat([answer_counts.drop(_PAIR), total], how="vertical_relaxed"))


def rating_counts(judgments: pl.DataFrame) -> pl.DataFrame:
    """Return the number of judgments that count, per version, agent, metric, instrument (judge or people) and rating.

    Judgments of judges count if they enter means; those of people if they are effective.
    """
    counts = pl.when(_IS_BY_PEOPLE).then("is_effective").otherwise(enters_means(judgments))
    rated = judgments.filter(counts, pl.col("rating_1to5").is_not_null())
    key = [*_PAIR, pl.col("metric").alias("row"), _IS_BY_PEOPLE.alias("is_by_people"), "rating_1to5"]
    return rated.group_by(key).len().sort(pl.all())


def rubric_counts(rubric_ratings: pl.DataFrame) -> pl.DataFrame:
    """Return counts of ratings per version, agent, target, criterion and rating, or by status without a rating."""
    ratings = rubric_ratings.filter(pl.col("is_effective") | (pl.col("status") != "scored"))
    return (
        ratings.group_by(*_PAIR, pl.col("target").alias("row"), "criterion", "rating_1to5", "status", "judge")
        .len()
        .with_columns(is_by_people=_IS_BY_PEOPLE.fill_null(value=False))
        .sort(*_PAIR, "row", "criterion", "rating_1to5", "status", "judge", nulls_last=True)
    )


def ratings_plot(counts_of_ratings: pl.DataFrame) -> str:
    """Draw one bar per metric or target and instrument, divided by the shares of the ratings 1 to 5; missing ones are grey.

    Ratings by people have bars of their own, because a mean of people and judges is the mean of neither.
    """
    parts: dict[tuple[str, bool], dict[int | None, int]] = {}
    for row, is_by_people, rating, n in counts_of_ratings.select(
        "row", "is_by_people", "rating_1to5", "len"
    ).iter_rows():
        of_row = parts.setdefault((row, is_by_people), {})
        of_row[rating] = of_row.get(rating, 0) + n
    rating_bars = [
        Bar(
            f"{directed(row)}, by people" if is_by_people else directed(row),
            tuple(
                _rating_part(rating, n / sum(counts.values()))
                for rating, n in sorted(counts.items(), key=_order)
            ),
            _mean(counts),
        )
        for (row, is_by_people), counts in parts.items()
    ]
    return bars("Shares of the ratings 1 to 5; 5 is best", rating_bars, largest=1)


def grid_table(counts_of_ratings: pl.DataFrame) -> str:
    """Return a table of targets and criteria with ratings and judges, or the status of missing ratings."""
    rating = pl.coalesce(pl.col("rating_1to5").cast(pl.String), pl.col("status"))
    table_rows = (
        counts_of_ratings.group_by("row", "criterion", maintain_order=True)
        .agg(
            pl.format("{} × {}", rating, "len").str.join(", ").alias("ratings"),
            pl.col("judge").unique().sort().str.join(" + ").alias("judge"),
        )
        .rename({"row": "target"})
    )
    return markdown_table(table_rows, limit=80)


def answers(judgments: pl.DataFrame) -> pl.DataFrame:
    """Count judgments per version, agent, metric and status: effective judgments and those without a value."""
    judgments_by_status = judgments.filter(pl.col("is_effective") | (pl.col("status") != "scored"))
    return judgments_by_status.group_by(*_PAIR, "metric", "status").len().sort(*_PAIR, "metric", "status")


def answers_plot(answer_counts: pl.DataFrame) -> str:
    """Draw one bar per metric: the numbers of judgments by status."""
    parts: dict[str, dict[str, int]] = {}
    for metric, status, n in answer_counts.select("metric", "status", "len").iter_rows():
        parts.setdefault(metric, {})[status] = n
    rows = [
        Bar(
            metric,
            tuple(BarPart(counts[s], *look) for s, look in _ANSWERS.items() if s in counts),
            f"{counts.get('scored', 0)} of {sum(counts.values())} scored",
        )
        for metric, counts in parts.items()
    ]
    return bars("Judgments by metric and status", rows)


def failure_counts(failures: pl.DataFrame) -> pl.DataFrame:
    """Count failures per version, agent, label and party at fault, most frequent label first."""
    per_label = pl.len().over(*_PAIR, "label").alias("of_label")
    return (
        failures.with_columns(per_label)
        .group_by(*_PAIR, "label", "of_label", "fault_author")
        .len()
        .sort(
            *_PAIR,
            "of_label",
            "label",
            "fault_author",
            descending=[False, False, True, False, False],
            nulls_last=True,
        )
    )


def failures_plot(label_counts: pl.DataFrame) -> str:
    """Draw one bar per failure label, divided by the party at fault."""
    looks = {"agent": (RED, "agent"), "environment": (BLUE, "environment"), None: (GREY, "unknown")}
    parts: dict[str, list[BarPart]] = {}
    for label, author, n in label_counts.select("label", "fault_author", "len").iter_rows():
        parts.setdefault(label, []).append(BarPart(n, *looks[author]))
    rows = [
        Bar(label, tuple(segments), f"{sum(p.size for p in segments):g}") for label, segments in parts.items()
    ]
    return bars("Failures by label and party at fault", rows)


def _rating_part(rating: int | None, share: float) -> BarPart:
    return (
        BarPart(share, GREY, "none")
        if rating is None
        else BarPart(share, RATING_COLOURS[rating - 1], str(rating))
    )


def _order(rating_and_count: tuple[int | None, int]) -> int:
    return rating_and_count[0] or 6


def _mean(counts: dict[int | None, int]) -> str:
    n_of_rating = {rating: n for rating, n in counts.items() if rating is not None}
    n = sum(n_of_rating.values())
    return f"mean {sum(r * c for r, c in n_of_rating.items()) / n:.2f}, n = {n}" if n else "no rating"


def calibration_plot(calibration: pl.DataFrame) -> str:
    """Draw the kappa of each judge with people, per metric, with its interval; negative values are drawn at 0."""
    bars_of = []
    for row in calibration.iter_rows(named=True):
        kappa = kappa_of(row)
        words = why_no_figures(row) if kappa[0] is None else f"{kappa[0]:.2f} on {row['n']}"
        value, low, high = (None if end is None else max(end, 0.0) for end in kappa)
        bars_of.append(IntervalBar(name_of(row), value, low, high, words, GREY if row["is_stale"] else BLUE))
    if not bars_of:
        return "no answers of judges and people to compare"
    return spans("Kappa of judges and people with 95 % intervals", bars_of, scale=1)


def calibration_figures(calibration: pl.DataFrame) -> str:
    """Return the figures and the confusion matrix of each row: answers of the judge in rows, of people in columns."""
    parts = []
    for row in calibration.iter_rows(named=True):
        lines = [{"figure": name, "value (95 %)": value} for name, value in figures(row)]
        grid = confusion(row["confusion"])
        parts += [
            f"**{escape(name_of(row))}**, n = {row['n']}",
            markdown_table(pl.DataFrame(lines)) if lines else why_no_figures(row),
        ]
        if grid is not None:
            rows, columns = ([answer for _, answer in side] for side in (grid.rows, grid.columns))
            cells = [
                ((c.y - TOP) // CELL, (c.x - LEFT) // CELL, GREEN if c.is_equal else RED, str(c.n))
                for c in grid.cells
            ]
            parts.append(matrix("Confusion: judge in rows, people in columns", rows, columns, cells))
    return "\n\n".join(parts)
