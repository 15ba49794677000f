"""Implement `agent-eval summary`: summarise the conversations of each agent and the worst errors."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from rich.console import Console
from rich.text import Text

from agent_eval.clusters.worst import CLUSTER, failures_to_quote, worst_clusters, worst_findings
from agent_eval.commands.results.reliability import pairs_of
from agent_eval.commands.terminal.output import print_json
from agent_eval.commands.terminal.tables import FittingTable
from agent_eval.formats.plain_text import count_of, one_line, sanitize_line
from agent_eval.project import Project
from agent_eval.project.calibration import corrections
from agent_eval.project.report import reader
from agent_eval.report.board import UNCHECKED, calibration
from agent_eval.report.calibration import outcome_checks
from agent_eval.report.clusters import with_own_words
from agent_eval.report.conclusions import successes
from agent_eval.report.quality import (
    DIRECTION,
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
from agent_eval.scores.corrected_rates import REFUSED
from agent_eval.scores.reliability.trials import GOAL_METRIC
from agent_eval.scores.statistics.quality import top_errors
from agent_eval.scores.statistics.unpaired import SUCCESS_RATE
from agent_eval.tables import table

TOP = 5  # number of error clusters shown per agent
FINDINGS = 3  # number of findings printed at the end of a run
LONGEST_QUOTE = 240  # characters
NO_TRANSCRIPTS = (
    "This project has no transcripts yet. Next: agent-eval import auto PATH… --agent ID, or agent-eval init . --sample to "
    "look at the sample first."
)
ESTIMATED = (
    "corrected: the judge's rate, corrected with its sensitivity and specificity on other agents; the interval includes the "
    "uncertainty of both."
)
_HEADS = ("quantity", "mean", "95 % interval", "conversations", "answers", "by")


def summary(
    project: Project, out: Console, *, version: str, agents: Sequence[str], as_json: bool, notes: bool = False
) -> None:
    """Print the summary of each agent from stored rows; JSON rows are those of the `quality_summary` table.

    The success rates come first. If `notes` is true, the reasons of rates that are not corrected, and how to read the
    figures, are printed too.

    Raises:
        NotFoundError: If an agent has no rows.
    """
    project.registry.get(version)
    pairs = pairs_of(project, version, agents)
    if pairs.is_empty() and not as_json:
        out.print(NO_TRANSCRIPTS, markup=False)
        return
    rows = _with_corrections(project, pairs)
    if as_json:
        print_json(rows)
        return
    out.print(successes(rows), markup=False)
    errors = top_errors(project.store.read(table("error_clusters"), pairs), TOP)
    errors = with_own_words(reader(project), errors)
    for agent in pairs["agent_id"]:
        of_agent = rows.filter(agent_id=agent)
        if of_agent.is_empty():
            out.print(f"{agent}: there is no summary yet. Run `agent-eval run`.", markup=False)
            continue
        out.print(_table(f"{agent} · methodology {version}", of_agent))
        for line in refused_corrections(of_agent.select("quantity", REFUSED)) if notes else ():
            out.print(Text(line, style="dim"))
        print_errors(out, errors.filter(agent_id=agent))
    versions = pairs.select("methodology_version").unique()
    for line in outcome_checks(project.store.read(table("judge_calibration"), versions)):
        out.print(sanitize_line(line), markup=False)
    note_texts = [ESTIMATED] if rows["corrected"].count() else []
    note_texts += [
        f"{DIRECTION} mean: over conversations. Interval: over new sessions, or over tasks or conversations if there is a single session."
    ]
    if rows.filter(pl.col("n_unasked") > 0, pl.col("n_scored") == 0).height:
        note_texts.append("no judge called: only a judge model can answer; agent-eval run --judge MODEL.")
    out.print(Text(" ".join(note_texts) if notes else "How to read this: --notes", style="dim"))


def _with_corrections(project: Project, pairs: pl.DataFrame) -> pl.DataFrame:
    """Return the `quality_summary` table with the columns of `corrected_rates` where no own label corrects the mean.

    The success rate is corrected in the same way as goal completion if goal completion alone decides it.
    """
    rows = project.store.read(table("quality_summary"), pairs)
    correction_rows = corrections(project, pairs).drop("judge")
    by_goal = pl.col("judges").list.join(",") == GOAL_METRIC
    is_success = (pl.col("quantity") == SUCCESS_RATE) & by_goal
    of = pl.when(is_success).then(pl.lit(GOAL_METRIC)).otherwise("quantity")
    placed = rows.with_columns(_of=pl.when(pl.col("mean_of_judge").is_null()).then(of))
    key = ["methodology_version", "agent_id"]
    joined = placed.join(
        correction_rows.rename({"quantity": "_of"}), on=[*key, "_of"], how="left", maintain_order="left"
    )
    return joined.drop("_of")


def corrected_text(row: Mapping[str, Any]) -> str:
    """Return a corrected rate with its interval in percent, or '–'."""
    if row["corrected"] is None:
        return "–"
    low, high = 100 * row["corrected_low"], 100 * row["corrected_high"]
    return f"{100 * row['corrected']:.1f} % ({low:.1f} to {high:.1f})"


def refused_corrections(rows: pl.DataFrame) -> list[str]:
    """Return a sentence for each rate (first column) that is not corrected by human labels, with the reason."""
    return [
        sanitize_line(f"{name} is not corrected for the judge's errors: {reason}.")
        for name, reason in rows.rows()
        if reason is not None
    ]


def _table(title: str, rows: pl.DataFrame) -> FittingTable:
    is_corrected = "corrected" in rows.columns and rows["corrected"].count() > 0
    heads = (*_HEADS[:3], "corrected", *_HEADS[3:]) if is_corrected else _HEADS
    grid = FittingTable(title, heads, numbers=("mean", "conversations"))
    for row in read_rows(rows.to_dicts()):
        corrected = [corrected_text(row)] if is_corrected else []
        grid.add_row(
            Text(sanitize_line(name_of(row))), value_of(row), interval_of(row), *corrected, f"{row['n_conversations']:,}",
            answers_of(row), Text(sanitize_line(row["by"])),
        )  # fmt: skip
    return grid


def print_errors(out: Console, clusters: pl.DataFrame) -> None:
    """Print one line per error cluster with its severity, name, rate and trend."""
    if clusters.is_empty():
        return
    grid = FittingTable("Most severe errors", ("severity", "error", "turns", "per 100", "trend"), numbers=("turns", "per 100"))  # fmt: skip
    for row in clusters.iter_rows(named=True):
        rate = row["rate_per_100_turns"]
        grid.add_row(
            row["severity"], Text(one_line(str(row["title"]))), str(row["n_turns"]),
            "–" if rate is None else f"{rate:.1f}", row["trend"] or "–",
        )  # fmt: skip
    out.print(grid)


def logs_table(version: str, rows: pl.DataFrame) -> FittingTable:
    """Return the `log_leaderboard` table as a terminal table, by agent id and without ranks."""
    grid = FittingTable(
        f"Logs · methodology {version} · not ranked · {DIRECTION}",
        ("agent", "conversations", *HEADINGS.values(), "unscored answers", "by"),
        numbers=("conversations", "unscored answers"),
    )
    for row in rows.iter_rows(named=True):
        figures = [headline(row, column) for column in HEADINGS]
        values = [value_of(f) + ("" if f["low"] is None else f"\n{headline_interval(f)}") for f in figures]
        grid.add_row(
            Text(sanitize_line(row["name"] or row["agent_id"])), f"{row['n_conversations']:,}", *values,
            f"{row['n_unscored']:,} of {row['n_scored'] + row['n_unscored']:,}", Text(sanitize_line(_by(row))),
        )  # fmt: skip
    return grid


def _by(row: dict[str, object]) -> str:
    """Return the judges of an agent's logs and, if people labelled some of them, the agreement with people."""
    standing = calibration(row)
    names = ", ".join(log_judges(row)) or "–"
    return names if standing is None or standing.endswith(UNCHECKED) else f"{names}\n{standing}"


def findings_of(project: Project, version: str, agents: Sequence[str]) -> pl.DataFrame:
    """Return the three worst findings over all agents, each with a quote (see `worst_findings`)."""
    pairs = pairs_of(project, version, agents)
    clusters = worst_clusters(project.store.read(table("error_clusters"), pairs), FINDINGS)
    clusters = with_own_words(reader(project), clusters)
    failures = failures_to_quote(project.store.read(table("failures"), clusters.select(CLUSTER)))
    conversations = failures.select("methodology_version", "agent_id", "conversation_id").unique()
    return worst_findings(clusters, failures, project.store.read(table("turn_judgments"), conversations))


def print_findings(out: Console, findings: pl.DataFrame) -> None:
    """Print the findings, each with its quote and its location."""
    if findings.height:
        out.print(Text("Worst findings", style="bold"))
    for i, row in enumerate(findings.iter_rows(named=True), start=1):
        per_100 = row["rate_per_100_turns"]
        rate = "" if per_100 is None else f", {per_100:.1f} per 100 judged turns"
        turns = count_of(row["n_turns"], "turn")
        out.print(
            Text(f"{i}. {row['severity']}: {one_line(str(row['title']))} ({row['agent_id']}, {turns}{rate})")
        )
        if row["quote"]:
            where = f"{row['conversation_id']}#{row['turn_index']}"
            out.print(Text(f"   “{_cut(row['quote'])}” in {one_line(where)}", style="dim"))


def _cut(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= LONGEST_QUOTE else f"{line[: LONGEST_QUOTE - 1]}…"
