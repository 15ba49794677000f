"""Implement `agent-eval gate`: print the gate results and set the exit code.

Results are printed as a table, JSON, GitHub annotations or JUnit XML.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.text import Text

from agent_eval.commands.results.leaderboard import edited_notes
from agent_eval.commands.terminal.output import print_json
from agent_eval.commands.terminal.tables import FittingTable
from agent_eval.formats.plain_text import one_line
from agent_eval.gates import GateFinding, GateSpec, exit_code
from agent_eval.project import Project
from agent_eval.project.gates import gate_results, gate_versions
from agent_eval.report.ci import annotations, inert_in_actions, junit
from agent_eval.report.conclusions import gates_counts, passing
from agent_eval.report.markdown import markdown_table
from agent_eval.settings import read_gates
from agent_eval.tables import table

NOTHING_RUN = "No gate was evaluated, because nothing has been run yet."
_STYLES = {"passed": "green", "failed": "red", "unknown": "yellow"}


def gate_rows(
    project: Project, version: str, agents: Sequence[str] = (), spec: GateSpec | None = None
) -> pl.DataFrame:
    """Compute the `gate_results` table of the given agents (default: all) under one version from stored rows.

    If the version was edited after it was frozen, or if a frozen version cannot be read, every agent gets an additional
    gate with the result unknown and the reason.

    Raises:
        NotFoundError: If an agent has no rows.
        GateRulesError: If a gate refers to something that does not exist.
    """
    project.registry.get(version)
    agent_ids = project.some_agents(agents)
    keys = pl.DataFrame({"agent_id": agent_ids}, schema={"agent_id": pl.String}).with_columns(
        methodology_version=pl.lit(version)
    )
    rows = gate_results(project, keys, spec)
    return pl.concat([rows, _edited(project, version, rows)]).sort("agent_id", maintain_order=True)


def stored_gate_rows(project: Project, version: str) -> pl.DataFrame:
    """Return the `gate_results` table of all agents under one version; rows that are out of date are recomputed.

    Raises:
        GateRulesError: If a gate refers to something that does not exist.
    """
    of_version = pl.DataFrame({"methodology_version": [version]})
    rows = project.store.read(table("gate_results"), of_version)
    current = gate_versions(project, [version])[version]
    if rows["gate_spec"].eq(current).all() and not project.registry.edited():
        return rows
    return gate_rows(project, version)


def _edited(project: Project, version: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Return one unknown gate per agent in `rows` if the version was edited after it was frozen, else no rows."""
    if not (notes := list(edited_notes(project.registry, version))):
        return rows.clear()
    finding = GateFinding("status", "unknown", " ".join(notes), subject=f"methodology {version}")
    of_agents = rows.unique("agent_id", maintain_order=True).select(
        "methodology_version", "agent_id", "gate_spec"
    )
    return table("gate_results").frame(row | vars(finding) for row in of_agents.to_dicts())


def gate(
    project: Project,
    out: Console,
    *,
    version: str,
    agents: Sequence[str],
    as_json: bool,
    config: Path | None = None,
    github: bool = False,
    junit_file: Path | None = None,
    is_whole: bool = False,
    markdown: bool = False,
) -> int:
    """Print the gates that failed or are unknown, and return the exit code.

    If GITHUB_STEP_SUMMARY is set, the same is appended to that file as Markdown.

    The exit code is 1 if a gate failed, 2 if no gate failed but one is unknown or none was evaluated, and 0 otherwise.

    Args:
        project: The project.
        out: Console for the table.
        version: The methodology version.
        agents: The agents to include; empty: all agents.
        as_json: Print the rows as JSON instead of the table; annotations are then printed to stderr.
        config: A file with gates that replace those of agent_eval.toml.
        github: Also print annotations for GitHub Actions.
        junit_file: File to which the gates are also written as JUnit XML.
        is_whole: Also print the gates that passed.
        markdown: Print Markdown, e.g. for a comment on a pull request.

    Raises:
        SettingsError: If the file cannot be read.
        GateRulesError: If a gate refers to something that does not exist, or a limit cannot be reached.
    """
    rows = gate_rows(project, version, agents, None if config is None else read_gates(config))
    if junit_file is not None:
        junit_file.write_bytes(junit(rows, version))
    if job_summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        _append(Path(job_summary), gate_markdown(rows, version, is_whole=is_whole))
    sanitise = inert_in_actions if github else str
    if as_json:
        print_json(rows)
    elif markdown:
        sys.stdout.write(gate_markdown(rows, version, is_whole=is_whole))
    elif rows.is_empty():
        out.print(NOTHING_RUN)
    else:
        out.print(sanitise(verdict(rows)), markup=False)
        if (listed := _listed(rows, is_whole=is_whole)).height:
            out.print(gate_table(listed, version, sanitise=sanitise))
    for line in annotations(rows, version) if github else ():
        (sys.stderr if as_json else sys.stdout).write(f"{line}\n")
    return exit_code(rows)


def _append(job_summary: Path, text: str) -> None:
    """Append a text to the job summary; if that fails, say so on stderr, because the gates still decide."""
    try:
        with job_summary.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        sys.stderr.write(
            one_line(f"GITHUB_STEP_SUMMARY {job_summary} cannot be written: {error.strerror}.") + "\n"
        )


def verdict(rows: pl.DataFrame) -> str:
    """Return whether the gates let the agents pass, and the counts, e.g. 'FAILED. Gates: 8 failed, 41 passed.'."""
    results = {name: rows.filter(result=name).height for name in _STYLES}
    word = "FAILED" if results["failed"] else "UNKNOWN" if results["unknown"] else "PASSED"
    passing_sentence = passing(rows)
    return f"{word}. {gates_counts(rows)}{'; ' if passing_sentence else ''}{passing_sentence}."


def _listed(rows: pl.DataFrame, *, is_whole: bool) -> pl.DataFrame:
    """Return the gates to list: failed ones first, then unknown ones and, if `is_whole`, those that passed."""
    order = pl.col("result").cast(pl.String).replace_strict({"failed": 0, "unknown": 1, "passed": 2})
    return (rows if is_whole else rows.filter(pl.col("result") != "passed")).sort(order, maintain_order=True)


def gate_markdown(rows: pl.DataFrame, version: str, *, is_whole: bool = False) -> str:
    """Return what the command prints as Markdown, with inert text."""
    if rows.is_empty():
        return f"{NOTHING_RUN}\n"
    listed = _listed(rows, is_whole=is_whole)
    texts = pl.DataFrame(
        [(row["agent_id"], row["result"], _gate(row), row["evidence"]) for row in listed.to_dicts()],
        schema=dict.fromkeys(("agent", "result", "gate", "evidence"), pl.String),
        orient="row",
    )
    head = f"**{verdict(rows)}** Methodology {version}.\n"
    return f"{head}\n{markdown_table(texts)}\n" if listed.height else head


def _gate(row: Mapping[str, str | None]) -> str:
    return ": ".join(part for part in (row["gate"], row["subject"]) if part)


def gate_table(rows: pl.DataFrame, version: str, *, sanitise: Callable[[str], str] = str) -> FittingTable:
    """Return the gates as a table for the terminal; the function `sanitise` sanitises untrusted text."""
    grid = FittingTable(f"Gates · methodology {version}", ("agent", "gate", "result", "evidence"))
    for row in rows.iter_rows(named=True):
        grid.add_row(
            Text(row["agent_id"]),
            Text(sanitise(_gate(row))),
            Text(row["result"], style=_STYLES[row["result"]]),
            Text(sanitise(row["evidence"])),
        )
    return grid
