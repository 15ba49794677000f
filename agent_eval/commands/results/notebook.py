"""NotebookAnswer in notebooks: a project whose results open with one sentence and a chart, before their rows."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

import polars as pl

from agent_eval.clusters.worst import failures_to_quote, worst_clusters, worst_findings
from agent_eval.commands.results.compare import compared, conclusion, main_row_first
from agent_eval.commands.results.reliability import pairs_of
from agent_eval.errors import ArgumentError
from agent_eval.formats.plain_text import one_line
from agent_eval.project import Project
from agent_eval.project.report import reader
from agent_eval.report.asset_pages.clusters import most_severe_first, severities_plot
from agent_eval.report.board import composite
from agent_eval.report.clusters import with_own_words
from agent_eval.report.conclusions import leader, open_failures, successes, worst_finding
from agent_eval.report.svg import IntervalBar, spans
from agent_eval.scores.composite.leaderboard import in_reading_order
from agent_eval.scores.statistics.compare import SCHEMA
from agent_eval.scores.statistics.unpaired import SUCCESS_RATE
from agent_eval.tables import table

_OF_PROJECT = ("home", "metrics", "registry", "settings", "table")  # shown beside the results


@dataclass(frozen=True, repr=False)
class NotebookAnswer:
    """Hold a result with its conclusion; a notebook shows the sentence, the chart and the rows."""

    says: str
    rows: pl.DataFrame
    chart: str = ""  # a picture as Markdown, or empty

    def __repr__(self) -> str:
        """Return the sentence and the rows as text."""
        return f"{self.says}\n{self.rows}"

    def _repr_html_(self) -> str:
        picture = re.fullmatch(
            r"!\[([^\]]*)\]\((data:image/svg\+xml;base64,[A-Za-z0-9+/=]+)\)", self.chart.strip()
        )
        image = f'<p><img alt="{escape(picture[1])}" src="{picture[2]}"></p>' if picture else ""
        return f"<p>{escape(self.says)}</p>{image}{self.rows._repr_html_()}"


@dataclass(frozen=True, repr=False)
class NotebookProject(Project):
    """A project with its results as answers; `table` reads any stored table."""

    def __repr__(self) -> str:
        """Return three lines: the root, what is known there, and what to call."""
        root, summary_line, _ = super().__repr__().split("\n")
        calls = ".leaderboard(), .summary(), .errors(), .compare(A, B), .table(NAME); agent_eval.run_project(project) updates them"
        return f"{root}\n{summary_line}\n{calls}"

    def __dir__(self) -> Iterable[str]:
        """Return the names that are offered for completion."""
        own = (name for name in vars(NotebookProject) if not name.startswith("_"))
        return sorted({*own, *_OF_PROJECT})

    def leaderboard(self, methodology: str | None = None) -> NotebookAnswer:
        """Return who leads, and the rows of table leaderboard under one version (default: the current one).

        Raises:
            NotFoundError: If the version does not exist.
        """
        of_version = pl.DataFrame({"methodology_version": [self._version(methodology)]})
        board = in_reading_order(self.store.read(table("leaderboard"), of_version))
        logs = self.store.read(table("log_leaderboard"), of_version)
        bars = [
            IntervalBar(
                row["name"] or row["agent_id"],
                row["composite_score"],
                row["low"],
                row["high"],
                composite(row),
            )
            for row in board.to_dicts()
        ]
        return NotebookAnswer(leader(board, logs), board, spans("Composite, 0 to 100", bars) if bars else "")

    def summary(self, *agents: str, methodology: str | None = None) -> NotebookAnswer:
        """Return the success of agents (default: all), and their rows of table quality_summary.

        Raises:
            NotFoundError: If an agent does not exist, or if the version does not exist.
        """
        rows = self.store.read(table("quality_summary"), self._pairs(agents, methodology))
        percent = pl.col("mean", "low", "high") * 100
        of_success = rows.filter(quantity=SUCCESS_RATE).with_columns(percent)
        bars = [
            IntervalBar(row["agent_id"], row["mean"], row["low"], row["high"])
            for row in of_success.to_dicts()
        ]
        return NotebookAnswer(successes(rows), rows, spans("Success, percent", bars) if bars else "")

    def errors(self, *agents: str, methodology: str | None = None) -> NotebookAnswer:
        """Return the worst finding of agents (default: all), and their error clusters, most severe first.

        Raises:
            NotFoundError: If an agent does not exist, or if the version does not exist.
        """
        pairs = self._pairs(agents, methodology)
        rows = most_severe_first(self.store.read(table("error_clusters"), pairs), "n_turns")
        rows = with_own_words(reader(self), rows)
        worst = worst_clusters(rows, 1)
        failures = failures_to_quote(
            self.store.read(table("failures"), worst.select(*pairs.columns, "cluster_id"))
        )
        turns = failures.select(*pairs.columns, "conversation_id", "turn_index").unique()
        judgments = self.store.read(table("turn_judgments"), turns)
        findings = worst_findings(worst, failures, judgments).to_dicts()
        n_open = open_failures(self.store.read(table("quality_summary"), pairs))
        return NotebookAnswer(
            worst_finding(findings[0] if findings else None, n_open, has_judge=self.judges.own is not None),
            rows,
            severities_plot(rows) if rows.height else "",
        )

    def compare(self, agent: str, other: str, *, methodology: str | None = None) -> NotebookAnswer:
        """Return the main verdict on two agents, and the rows of `agent_eval.compare_agents`, the main one first.

        Raises:
            NotFoundError: If an agent does not exist.
            InvalidValueError: If both ids are equal.
            NotFoundError: If the version does not exist.
        """
        comparison = compared(self, self._version(methodology), *self._named((agent, other)))
        rows = pl.DataFrame(schema=SCHEMA) if comparison.rows is None else main_row_first(comparison.rows)
        if rows.is_empty():
            return NotebookAnswer(
                f"Nothing to compare: {one_line(agent)} and {one_line(other)} have nothing in common.", rows
            )
        return NotebookAnswer(conclusion(rows, comparison.scales), rows)

    def _version(self, methodology: str | None) -> str:
        return self.registry.get(methodology).version if methodology else self.registry.current.version

    def _pairs(self, agents: tuple[str, ...], methodology: str | None) -> pl.DataFrame:
        return pairs_of(self, self._version(methodology), self._named(agents))

    @staticmethod
    def _named(agents: tuple[str, ...]) -> tuple[str, ...]:
        for agent in agents:
            if not isinstance(agent, str):
                raise ArgumentError("agent", agent, "the id of an agent")
        return agents
