"""Compose the page of each asset from summaries and plots of its partitions.

A summary is computed once for a whole range of partitions. Plots and tables are then rendered from the small
summaries, one partition at a time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import polars as pl

from agent_eval.formats.spill import Rows, frames_of, in_memory
from agent_eval.report.asset_pages import ingest, judging, quality, scoring
from agent_eval.report.asset_pages.clusters import clusters_page, severities_plot, trends_plot
from agent_eval.report.board import calibration
from agent_eval.report.conclusions import leader, score_rows
from agent_eval.report.links import with_pages
from agent_eval.report.markdown import markdown_table
from agent_eval.scores.composite.leaderboard import in_reading_order
from agent_eval.scores.statistics.distribution_free import IntervalMethod
from agent_eval.tables import Table, table


@dataclass(frozen=True)
class Section:
    """Represent one section of an asset's page.

    `summary` aggregates the rows of a whole range and keeps the partition columns. If the rows can be in temporary
    files, the summary consists of counts that `judging.added` can add up. `shown` renders the summary of one
    partition as Markdown.
    """

    title: str
    summary: Callable[[pl.DataFrame], pl.DataFrame]
    shown: Callable[[pl.DataFrame], str]


def _as_is(rows: pl.DataFrame) -> pl.DataFrame:
    return rows


SECTIONS: Mapping[str, tuple[Section, ...]] = {
    "agents": (Section("Agent", _as_is, ingest.agent_table),),
    "sessions": (Section("Sessions", _as_is, ingest.sessions_table),),
    "conversations": (
        Section("Outcomes", ingest.outcomes, ingest.outcomes_plot),
        Section("Counts", ingest.outcomes, ingest.counts_table),
    ),
    "turns": (Section("Turns", ingest.turn_counts, ingest.counts_table),),
    "tool_calls": (Section("Tools", ingest.tool_counts, ingest.tools_plot),),
    "import_errors": (Section("Refused records", _as_is, ingest.refused_table),),
    "transcripts": (
        Section("Conversations that count", ingest.admitted, ingest.slots_plot),
        Section("Conversations that do not count", ingest.admitted, ingest.reasons_table),
    ),
    "turn_judgments": (
        Section("Answers of judge models", judging.coverage, judging.coverage_table),
        Section("Ratings", judging.rating_counts, judging.ratings_plot),
        Section("Status of judgments", judging.answers, judging.answers_plot),
    ),
    "conversation_judgments": (
        Section("Answers of judge models", judging.coverage, judging.coverage_table),
        Section("Status of judgments", judging.answers, judging.answers_plot),
    ),
    "rubric_ratings": (
        Section("Ratings", judging.rubric_counts, judging.ratings_plot),
        Section("By criterion", judging.rubric_counts, judging.grid_table),
    ),
    "judge_calibration": (
        Section("Kappa", _as_is, judging.calibration_plot),
        Section("Figures and confusion", _as_is, judging.calibration_figures),
    ),
    "tool_correctness": (Section("Aspects", scoring.aspects, scoring.aspects_plot),),
    "assertion_results": (Section("Results", scoring.results_by("kind"), scoring.results_plot),),
    "failures": (Section("Labels", judging.failure_counts, judging.failures_plot),),
    "error_clusters": (
        Section("Severity", _as_is, severities_plot),
        Section("Clusters", _as_is, clusters_page),
    ),
    "universal_scores": (
        Section("U1 to U6", _as_is, scoring.universal_plot),
        Section("By session", _as_is, scoring.universal_table),
    ),
    "domain_scores": (
        Section("D1 to D5", _as_is, scoring.domain_plot),
        Section("Criteria and sessions", _as_is, scoring.criteria_table),
    ),
    "composite_scores": (
        Section("Score", _as_is, scoring.composite_plot),
        Section("Missing parts and warnings", _as_is, scoring.missing_table),
    ),
    "reliability": (Section("pass^k", _as_is, scoring.reliability_plot),),
    "quality_summary": (
        Section("Means", _as_is, quality.summary_plot),
        Section("Means and numbers of answers", _as_is, quality.summary_table),
    ),
    "log_leaderboard": (Section("Logs", _as_is, quality.logs_table),),
    "reliability_leaderboard": (Section("pass^k", _as_is, scoring.reliability_ranks),),
    "pairwise_comparisons": (Section("Pairs of agents", _as_is, scoring.pairs_matrix),),
    "error_trends": (Section("Trends", _as_is, trends_plot),),
    "gate_results": (Section("Gates", scoring.results_by("gate"), scoring.results_plot),),
}
"""Table → the sections of its asset's page; the page of any other table has only a preview."""


FIGURES: Mapping[str, tuple[pl.Expr, ...]] = {
    "conversations": (pl.col("outcome_correct").mean().alias("share_correct"),),
    "transcripts": (pl.col("is_admitted").sum().alias("n_admitted"),),
    "tool_correctness": (pl.col("overall").mean().alias("mean_overall"),),
    "universal_scores": (pl.col("universal_0to100").first(),),
    "domain_scores": (pl.col("domain_0to100").first(),),
    "composite_scores": (pl.col("composite_score").first(), pl.col("status").first()),
    "gate_results": tuple(
        (pl.col("result") == r).sum().alias(f"n_{r}") for r in ("passed", "failed", "unknown")
    ),
}
"""Table → the figures of each partition. The UI shows them without a click and plots numbers over time.

Unknown figures are omitted. The figures of tables of judgments are those of `judging.figures_of`.
"""
MOST_ON_BOARD = 10  # maximum number of agents that the first figure of a board names
_JUDGED = ("turn_judgments", "conversation_judgments", "rubric_ratings")


@dataclass(frozen=True)
class Page:
    """Hold the page of one partition: the number of rows, the figures by name, and the Markdown texts by title."""

    partition: tuple[str, ...]
    n_rows: int
    figures: Mapping[str, float | str]
    texts: Mapping[str, str]


def asset_pages(
    name: str, rows: Rows, partitions: pl.DataFrame, interval: IntervalMethod = "auto"
) -> Iterator[Page]:
    """Yield one page per partition, with a preview of the rows.

    All plots and tables are in one text, because each text takes a click to open.

    Args:
        name: The table.
        rows: The new rows of these partitions. Those in temporary files are read part by part.
        partitions: The partitions of a run, one row per key.
        interval: The method for the confidence intervals of composites on the project's boards.
    """
    by, contract = partitions.columns, table(name)
    sections = [(s, _parted(_summary(s, rows), by)) for s in _sections(name, interval)]
    figures = _parted(_figures(name, rows, by), by)
    stored = _stored(contract, rows, by)
    for key in partitions.iter_rows():
        n_rows, first = stored.get(key, (0, contract.empty()))
        drawn = [
            f"**{s.title}**\n\n{s.shown(summaries[key])}" for s, summaries in sections if key in summaries
        ]
        known_figures = figures[key].drop(by).row(0, named=True) if key in figures else {}
        yield Page(
            key,
            n_rows,
            {figure: _rounded(value) for figure, value in known_figures.items() if value is not None},
            ({"page": "\n\n".join(drawn)} if drawn else {}) | {"preview": preview(contract, first)},
        )


def _summary(section: Section, rows: Rows) -> pl.DataFrame:
    if isinstance(rows, pl.DataFrame):
        return section.summary(rows)
    return judging.added(in_memory(section.summary, rows))


def _figures(name: str, rows: Rows, by: list[str]) -> pl.DataFrame:
    if name in _JUDGED:
        return judging.figures_of(rows, by)
    if name == "leaderboard":
        return in_memory(lambda part: _answers(part, by), rows)
    return in_memory(lambda part: part.group_by(by).agg(FIGURES.get(name, ())), rows)


def _answers(board: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Return for each board who leads, and its first ranked agents with their scores."""
    answers = []
    for key, rows in _parted(board, by).items():
        ranked = in_reading_order(rows).filter(pl.col("rank").is_not_null())
        scores = [
            f"{template}: {rank} {name} {score}"
            for template, rank, (name, score, _) in zip(
                ranked["template"], ranked["rank"], score_rows(ranked), strict=True
            )
        ]
        more = [f"{len(scores) - MOST_ON_BOARD} more"] if len(scores) > MOST_ON_BOARD else []
        says = leader(in_reading_order(rows), table("log_leaderboard").empty())
        board_text = " · ".join([*scores[:MOST_ON_BOARD], *more]) or "no agent is ranked"
        answers.append([*key, says, board_text])
    return pl.DataFrame(answers, schema=[*by, "answer", "scores"], orient="row")


def _stored(contract: Table, rows: Rows, by: list[str]) -> dict[tuple[str, ...], tuple[int, pl.DataFrame]]:
    """Return the number of rows of each partition, and the rows of its preview."""
    found: dict[tuple[str, ...], tuple[int, pl.DataFrame]] = {}
    for part in frames_of(rows):
        for key, own in _parted(part, by).items():
            n_rows, first = found.get(key, (0, own.clear()))
            more = first_rows(contract, own)
            found[key] = n_rows + own.height, first_rows(contract, pl.concat([first, more]))
    return found


def _sections(name: str, interval: IntervalMethod) -> Sequence[Section]:
    if name != "composite_scores":
        return SECTIONS.get(name, ())
    first, *others = SECTIONS[name]
    return (replace(first, shown=partial(scoring.composite_plot, interval=interval)), *others)


def _rounded(value: float | str) -> float | str:
    return round(value, 4) if isinstance(value, float) else value


def _parted(rows: pl.DataFrame, by: list[str]) -> dict[tuple[str, ...], pl.DataFrame]:
    parts: dict[tuple[str, ...], pl.DataFrame] = rows.partition_by(by, as_dict=True, maintain_order=True)
    return parts


N_ROWS = 5
_SEVERITY = pl.col("severity").replace_strict(
    {"critical": 0, "high": 1, "medium": 2, "low": 3}, default=4, return_dtype=pl.Int8
)


def _first(column: str, *values: str) -> pl.Expr:
    """Return a sort key that puts rows with these values of a column first, in this order."""
    return (
        pl.col(column)
        .cast(pl.String)
        .replace_strict(
            {value: i for i, value in enumerate(values)}, default=len(values), return_dtype=pl.Int8
        )
    )


_LOST_FIRST = (
    _first("status", "unscored", "invalid", "disputed", "missing", "scored"),
    pl.col("rating_1to5"),
)
_NOT_KEPT_FIRST = (_first("result", "failed", "unknown"),)

ORDER: Mapping[str, tuple[pl.Expr, ...]] = {
    "sessions": (-pl.col("session_date").to_physical(),),
    "conversations": (
        _first("outcome_class", "harness_error", "unexplained_error", "agent_error", "failed", "unknown"),
    ),
    "turns": (pl.col("agent_message").is_not_null(), -pl.col("latency_ms")),
    "tool_calls": (~pl.col("is_error").fill_null(value=False),),
    "expected_calls": (pl.col("is_matched").fill_null(value=True),),
    "transcripts": (pl.col("is_admitted"),),
    "turn_judgments": _LOST_FIRST,
    "conversation_judgments": _LOST_FIRST,
    "rubric_ratings": _LOST_FIRST,
    "tool_correctness": (pl.col("overall"),),
    "assertion_results": _NOT_KEPT_FIRST,
    "error_clusters": (_SEVERITY, -pl.col("n_turns")),
    "error_rates": (-pl.col("n_turns"),),
    "error_issues": (_first("status", "came back", "open", "fixed"), pl.col("rank")),
    "error_trends": (_first("trend", "regressed", "new", "unknown", "unchanged", "improved", "gone"),),
    "reliability": (pl.col("pass_hat_k"),),
    "gate_results": _NOT_KEPT_FIRST,
    "board_changes": (-pl.col("changed_at").to_physical(),),
    "pairwise_comparisons": (_first("verdict", "worse", "better", "unknown"),),
}
"""Table → the sort keys of its preview, in ascending order; the rows of any other table are not sorted."""


def first_rows(contract: Table, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the first rows of the table in its `ORDER`, and by key among equal rows."""
    order = ORDER.get(contract.name)
    if order and rows.height > 1:
        rows = rows.sort(*order, *contract.key, nulls_last=True)
    return rows.head(N_ROWS)


def _in_words(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with one column on the judges' agreement with people in place of its figures."""
    figures = [name for name in rows.columns if "calibrat" in name]
    if "calibration" not in figures:
        return rows
    agreement = pl.Series("agreement", [calibration(row) for row in rows.iter_rows(named=True)], pl.String)
    return rows.drop(figures).with_columns(agreement)


def preview(contract: Table, rows: pl.DataFrame) -> str:
    """Return the first rows of the table in its `ORDER`, as a Markdown table.

    The partition columns and columns that are null in all of these rows are omitted. If a row belongs to a
    conversation, its conversation id links to the report.
    """
    first = _in_words(first_rows(contract, rows))
    shown = [c for c in first.columns if c not in contract.partition and first[c].null_count() < first.height]
    if "conversation_id" not in shown or "agent_id" not in first.columns:
        return markdown_table(first.select(shown), limit=120)
    linked = with_pages(first).select(*shown, "page")
    return markdown_table(linked, limit=120, links={"conversation_id": "page"})
