"""What the page of each asset shows beside its rows: a few summaries and plots of every partition.

A summary is counted once for a whole range of partitions; what is drawn is then small, and drawn per partition.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from agent_eval.report import ingest, judging, scoring
from agent_eval.report.clusters import clusters_page, severities_plot, trends_plot
from agent_eval.report.markdown import markdown_table
from agent_eval.tables import Table, table

PREVIEW = 5  # rows


@dataclass(frozen=True)
class Section:
    """One entry of an asset's page.

    `summary`: rows of a whole range → fewer rows, which keep the columns of the partition.
    `shown`: the summary of one partition → markdown.
    """

    title: str
    summary: Callable[[pl.DataFrame], pl.DataFrame]
    shown: Callable[[pl.DataFrame], str]


def _as_is(rows: pl.DataFrame) -> pl.DataFrame:
    return rows


SECTIONS: Mapping[str, tuple[Section, ...]] = {
    "agents": (Section("agent", _as_is, ingest.agent_table),),
    "sessions": (Section("sessions", _as_is, ingest.sessions_table),),
    "conversations": (
        Section("outcomes", ingest.outcomes, ingest.outcomes_plot),
        Section("counts", ingest.outcomes, ingest.counts_table),
    ),
    "turns": (Section("turns", ingest.turn_counts, ingest.counts_table),),
    "tool_calls": (Section("tools", ingest.tool_counts, ingest.tools_plot),),
    "import_errors": (Section("refused", _as_is, ingest.refused_table),),
    "transcripts": (
        Section("slots", ingest.admitted, ingest.slots_plot),
        Section("reasons", ingest.admitted, ingest.reasons_table),
    ),
    "turn_judgments": (
        Section("coverage", judging.coverage, judging.coverage_table),
        Section("ratings", judging.rating_counts, judging.ratings_plot),
        Section("answers", judging.answers, judging.answers_plot),
    ),
    "conversation_judgments": (
        Section("coverage", judging.coverage, judging.coverage_table),
        Section("answers", judging.answers, judging.answers_plot),
    ),
    "rubric_ratings": (
        Section("ratings", judging.rubric_counts, judging.ratings_plot),
        Section("grid", judging.rubric_counts, judging.grid_table),
    ),
    "tool_correctness": (Section("aspects", scoring.aspects, scoring.aspects_plot),),
    "assertion_results": (Section("results", scoring.results_by("kind"), scoring.results_plot),),
    "failures": (Section("labels", judging.failure_counts, judging.failures_plot),),
    "error_clusters": (
        Section("severity", _as_is, severities_plot),
        Section("clusters", _as_is, clusters_page),
    ),
    "universal_scores": (
        Section("radar", _as_is, scoring.universal_plot),
        Section("sessions", _as_is, scoring.universal_table),
    ),
    "domain_scores": (
        Section("scenarios", _as_is, scoring.domain_plot),
        Section("criteria", _as_is, scoring.criteria_table),
    ),
    "composite_scores": (
        Section("score", _as_is, scoring.composite_plot),
        Section("missing", _as_is, scoring.missing_table),
    ),
    "reliability": (Section("pass_hat_k", _as_is, scoring.reliability_plot),),
    "reliability_leaderboard": (Section("pass_hat_k", _as_is, scoring.reliability_ranks),),
    "pairwise_comparisons": (Section("matrix", _as_is, scoring.pairs_matrix),),
    "error_trends": (Section("trends", _as_is, trends_plot),),
    "gate_results": (Section("gates", scoring.results_by("gate"), scoring.results_plot),),
}
"""Table → what its asset's page shows; a table without an entry has its preview."""


def asset_pages(
    name: str, rows: pl.DataFrame, partitions: pl.DataFrame
) -> Iterator[tuple[tuple[str, ...], int, dict[str, str]]]:
    """For each partition: its key's columns, how many rows it has, and markdown by title, the preview last.

    Args:
        name: The table.
        rows: Its new rows, of any of these partitions.
        partitions: The partitions of a run, one row per key.
    """
    by = partitions.columns
    sections = [(s, _parted(s.summary(rows), by)) for s in SECTIONS.get(name, ())]
    stored = _parted(rows, by)
    for key in partitions.iter_rows():
        own = stored.get(key)
        page = {s.title: s.shown(summaries[key]) for s, summaries in sections if key in summaries}
        page["preview"] = _preview(table(name), rows.clear() if own is None else own)
        yield key, 0 if own is None else own.height, page


def _parted(rows: pl.DataFrame, by: list[str]) -> dict[tuple[str, ...], pl.DataFrame]:
    parts: dict[tuple[str, ...], pl.DataFrame] = rows.partition_by(by, as_dict=True, maintain_order=True)
    return parts


def _preview(contract: Table, rows: pl.DataFrame) -> str:
    """The first rows; what is empty in all of them, and the partition's own columns, are left out."""
    first = rows.head(PREVIEW)
    told = [c for c in first.columns if c not in contract.partition and first[c].null_count() < first.height]
    return markdown_table(first.select(told), limit=120)
