"""Show what the partitions of an asset contain: figures and a preview in its events, and a page on request.

An event of Dagster is stored for every partition of every run, so it has a row count, a few figures and, for a few
tables, a preview of at most `PREVIEW_BYTES`. Plots, tables and lineage are on a page that is rendered from the store when
somebody opens it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import polars as pl

from agent_eval.formats.spill import Rows, frames_of, in_memory
from agent_eval.report.asset_pages import ingest, judging, quality, scoring
from agent_eval.report.asset_pages.clusters import clusters_page, severities_plot, trends_plot
from agent_eval.report.board import calibration, cost
from agent_eval.report.conclusions import score_rows
from agent_eval.report.links import with_pages
from agent_eval.report.markdown import markdown_table
from agent_eval.scores.composite.leaderboard import in_reading_order
from agent_eval.scores.statistics.distribution_free import IntervalMethod
from agent_eval.tables import Table, table


@dataclass(frozen=True)
class Section:
    """Represent one section of an asset's page: `shown` renders the `summary` of the partition's rows as Markdown."""

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


PREVIEW_BYTES = 2_000
PREVIEWED = (
    "composite_scores", "log_leaderboard", "reliability_leaderboard", "error_clusters", "failures", "turn_judgments",
    "conversation_judgments",
)  # fmt: skip
"""The tables with a preview in their events, which is there without the server of the pages."""
_LONG_TEXTS = frozenset({
    "messages", "result", "arguments", "goal", "profile", "knowledge", "tools", "expected", "interventions", "metadata",
    "injected_error", "text_sketch", "rationale", "evidence", "cause", "should_have", "further_causes",
    "further_should_have",
})  # fmt: skip
"""Columns that no plot or table of a page needs; only its preview shows them."""


@dataclass(frozen=True)
class PartitionFigures:
    """Hold what an event says of one partition: the number of rows, the figures by name, and a preview ('' if none)."""

    partition: tuple[str, ...]
    n_rows: int
    figures: Mapping[str, float | str]
    preview: str = ""


def partition_figures(name: str, rows: Rows, partitions: pl.DataFrame) -> Iterator[PartitionFigures]:
    """Yield the figures of each partition.

    Args:
        name: The table.
        rows: The new rows of these partitions. Those in temporary files are read part by part.
        partitions: The partitions of a run, one row per key.
    """
    by, contract = partitions.columns, table(name)
    figures = _parted(_figures(name, rows, by), by)
    stored = _stored(contract, rows, by)
    for key in partitions.iter_rows():
        n_rows, first = stored.get(key) or (0, contract.empty())
        known_figures = figures[key].drop(by).row(0, named=True) if key in figures else {}
        yield PartitionFigures(
            key,
            n_rows,
            {figure: _rounded(value) for figure, value in known_figures.items() if value is not None},
            _short_preview(contract, first) if name in PREVIEWED else "",
        )


def asset_page(name: str, rows: pl.DataFrame, first: pl.DataFrame, interval: IntervalMethod = "auto") -> str:
    """Return the plots and tables of one partition as Markdown, with a preview of its rows.

    Args:
        name: The table.
        rows: The rows of the partition, with the columns `page_columns`.
        first: The first of these rows (`first_rows`), with all columns.
        interval: The method for the confidence intervals of composites on the project's boards.
    """
    sections = _sections(name, interval) if rows.height else ()
    section_texts = [f"## {s.title}\n\n{s.shown(s.summary(rows))}" for s in sections]
    return "\n\n".join([*section_texts, f"## First rows\n\n{preview(table(name), first)}"])


def page_columns(name: str) -> list[str]:
    """Return the columns by which the page of a table is drawn: all, except long texts."""
    texts = (pl.String, pl.List(pl.String))
    return [c for c, dtype in table(name).schema.items() if c not in _LONG_TEXTS or dtype not in texts]


def _figures(name: str, rows: Rows, by: list[str]) -> pl.DataFrame:
    if name in _JUDGED:
        return judging.figures_of(rows, by)
    if name == "leaderboard":
        return in_memory(lambda part: _scores(part, by), rows)
    return in_memory(lambda part: part.group_by(by).agg(FIGURES.get(name, ())), rows)


def _scores(board: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Return for each board its first ranked agents with their scores and what a conversation costs."""
    boards = []
    for key, rows in _parted(board, by).items():
        ranked = in_reading_order(rows).filter(pl.col("rank").is_not_null())
        scores = [
            f"{row['template']}: {row['rank']} {name} {score}, {cost(row['cost_usd_per_conversation'])}"
            for row, (name, score, _) in zip(ranked.to_dicts(), score_rows(ranked), strict=True)
        ]
        more = [f"{len(scores) - MOST_ON_BOARD} more"] if len(scores) > MOST_ON_BOARD else []
        board_text = " · ".join([*scores[:MOST_ON_BOARD], *more]) or "no agent is ranked"
        boards.append([*key, board_text])
    return pl.DataFrame(boards, schema=[*by, "scores"], orient="row")


def _stored(contract: Table, rows: Rows, by: list[str]) -> dict[tuple[str, ...], tuple[int, pl.DataFrame]]:
    """Return the number of rows of each partition, and the rows of its preview if the table has one."""
    stored: dict[tuple[str, ...], tuple[int, pl.DataFrame]] = {}
    for part in frames_of(rows, None if contract.name in PREVIEWED else by):
        for key, own in _parted(part if contract.name in PREVIEWED else part.select(by), by).items():
            n_rows, first = stored.get(key, (0, own.clear()))
            if contract.name in PREVIEWED:
                first = first_rows(contract, pl.concat([first, first_rows(contract, own)]))
            stored[key] = n_rows + own.height, first
    return stored


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
    return _as_table(contract, _in_words(first_rows(contract, rows)))


def _as_table(contract: Table, first: pl.DataFrame, limit: int = 120) -> str:
    columns = [
        c for c in first.columns if c not in contract.partition and first[c].null_count() < first.height
    ]
    if "conversation_id" not in columns or "agent_id" not in first.columns:
        return markdown_table(first.select(columns), limit=limit)
    linked = with_pages(first).select(*columns, "page")
    return markdown_table(linked, limit=limit, links={"conversation_id": "page"})


def _short_preview(contract: Table, rows: pl.DataFrame) -> str:
    """Return a preview of at most `PREVIEW_BYTES`: with shorter cells, then fewer rows, then without its last columns."""
    first = _in_words(first_rows(contract, rows))
    for n_rows, limit in ((N_ROWS, 120), (3, 60), *([(1, 40)] * first.width)):
        text = _as_table(contract, first.head(n_rows), limit)
        if len(text.encode()) <= PREVIEW_BYTES:
            return text
        if n_rows == 1:
            first = first[:, :-1]
    return ""
