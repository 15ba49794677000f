"""Implement `agent-eval labels`: import labels from people and from other tools, and write rating sheets."""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.text import Text

from agent_eval.commands.terminal.output import print_json
from agent_eval.commands.terminal.tables import FittingTable
from agent_eval.formats.atomic_files import locked, write_atomically
from agent_eval.formats.plain_text import count_of, one_line, sanitize_line
from agent_eval.formats.refusals import Refusal
from agent_eval.judge.inputs.human_ratings import COLUMNS, OPTIONAL, targets_of
from agent_eval.judge.inputs.label_agreement import label_agreement
from agent_eval.judge.inputs.labels import Label, rating_rows, read_labels
from agent_eval.project import Project
from agent_eval.tables import table

SHOWN = 20
_NUMBER = re.compile(r"import-(\d{4,})-")
_SHEET = re.compile(r"sheet-(\d{4,})\b")


def import_labels(
    project: Project,
    out: Console,
    err: Console,
    paths: Sequence[Path],
    *,
    agent_id: str | None,
    metric: str | None,
    as_json: bool,
) -> int:
    """Store the labels from files in data/ratings, and print the agreement of judges with people or outcomes.

    Returns:
        0 if all labels were imported; 1 if a label was rejected or could not be read; 2 if no label could be read or
        stored.

    Raises:
        NotFoundError: If the agent is unknown.
    """
    targets = targets_of(project.metrics)
    if agent_id is not None:
        project.some_agents([agent_id])
    agent_of = _agents(project, agent_id)
    labels: list[Label] = []
    refusals: list[Refusal] = []
    lines: list[str] = []
    for path in paths:
        file_labels, refused = read_labels(path, targets, metric)
        rows, unplaced = rating_rows(file_labels, targets, agent_of)
        labels += file_labels
        refusals += [*refused, *unplaced]
        if rows.height:
            lines.append(f"{count_of(rows.height, 'label')} of {path.name} {_stored(project, path, rows)}")
    for refusal in refusals[:SHOWN]:
        where = f"{refusal.file}:{refusal.line}"
        err.print(one_line(f"{where}: {refusal.reason}"), markup=False, soft_wrap=True)
    if (more := len(refusals) - SHOWN) > 0:
        err.print(f"… and {more:,} more.")
    agreement = label_agreement(labels, targets)
    if as_json:
        print_json(agreement)
    elif agreement.height:
        _print(out, agreement)
    for line in lines:
        err.print(one_line(f"{line}. Next: agent-eval run"), markup=False, soft_wrap=True)
    is_compared = bool(agreement["n"].sum())
    if not lines and not is_compared:
        err.print("No labels were read.")
        return 2
    return 1 if refusals else 0


def write_sheets(
    project: Project,
    out: Console,
    err: Console,
    *,
    version: str | None,
    n: int,
    metrics: Sequence[str],
    agents: Sequence[str],
    raters: Sequence[str],
    folder: Path | None,
) -> int:
    """Write a rating sheet as HTML and CSV for each rater, and print the paths.

    If no raters are named, one sheet is written.

    Returns:
        0 if sheets were written; 2 if there is nothing to label.

    Raises:
        NotFoundError: If a metric is unknown, or if an agent is unknown, or if the version is not published.
    """
    from agent_eval.project.sheets import rating_sheets  # loads HTML templates, so only imported when needed

    registry = project.registry
    methodology = registry.current if version is None else registry.get(version)
    for name in metrics:
        project.metrics.get(name)
    sheets = rating_sheets(project, methodology.version, n, metrics=metrics, agents=agents, raters=raters)
    if not any(sheet.items for sheet in sheets):
        summary = "Nothing to label: people have labelled all parts, or nothing has been run yet. Next: agent-eval run"
        err.print(summary, markup=False)
        return 2
    target = folder or project.home.data / "sheets"
    target.mkdir(parents=True, exist_ok=True)
    with locked(target):
        number = (
            max((int(m[1]) for file in target.iterdir() if (m := _SHEET.match(file.name))), default=0) + 1
        )
        for i, sheet in enumerate(sheets, start=1):
            slug = _slug(sheet.rater)
            is_taken = slug in map(_slug, raters[: i - 1])
            ending = "-".join(part for part in ("", slug, str(i) if is_taken else "") if part)
            path = target / f"sheet-{number:04d}{ending and '-' + ending}.html"
            write_atomically(path, sheet.html)
            write_atomically(path.with_suffix(".csv"), sheet.csv)
            counts = Counter(item.metric for item in sheet.items)
            summary = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
            out.print(
                one_line(f"{path}: {count_of(len(sheet.items), 'part')}: {summary}"),
                markup=False,
                soft_wrap=True,
            )
    if n_lacking := sheets[0].n_lacking:
        err.print(
            f"For two labels on each answer of the judge, per metric and agent, draw {count_of(n_lacking, 'more part')} (--n), or "
            "name fewer metrics or agents.",
            markup=False,
        )
    err.print("Open the HTML file in a browser. Next: agent-eval labels import FILE", markup=False)
    return 0


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9_-]+", "-", name.casefold()).strip("-")[:60]


def _agents(project: Project, agent_id: str | None) -> Callable[[Label], str]:
    """Return a function that finds a label's agent: from its line, else `agent_id`, else from its conversation."""
    agent_ids = set(project.some_agents(()))
    stored = project.store.read(table("conversations"), columns=["agent_id", "conversation_id"])
    agents: dict[str, set[str]] = {}
    for agent, conversation in stored.iter_rows():
        agents.setdefault(conversation, set()).add(agent)

    def agent_of(label: Label) -> str:
        if own := label.cells.get("agent_id"):
            if own in agent_ids:
                return own
            raise ValueError(f"agent {own!r:.80} is unknown; import its transcripts first")
        if agent_id is not None:
            return agent_id
        name = label.cells.get("conversation_id") or ""
        candidates = sorted(agents.get(name, ()))
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            raise ValueError(
                f"conversation {name!r:.80} is one of {', '.join(candidates)}; specify one with --agent"
            )
        raise ValueError(
            f"conversation {name!r:.80} is unknown; import it and run `agent-eval run` first, or specify its agent "
            "with --agent"
        )

    return agent_of


def _stored(project: Project, path: Path, rows: pl.DataFrame) -> str:
    """Write the rows to a new file in data/ratings unless an earlier import wrote the same rows.

    Return a description of the result for the printed line.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow((*COLUMNS, *OPTIONAL))
    writer.writerows(rows.iter_rows())
    folder = project.home.ratings
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        earlier = sorted(folder.glob("import-*.csv"))
        for file in earlier:
            if file.read_bytes() == stream.getvalue().encode():
                return f"are already in {file.name}"
        last = max((int(m[1]) for file in earlier if (m := _NUMBER.match(file.name))), default=0)
        new = folder / f"import-{last + 1:04d}-{_slug(path.name.split('.')[0]) or 'labels'}.csv"
        write_atomically(new, stream.getvalue())
    return f"{'was' if rows.height == 1 else 'were'} written to {new.name}"


def _print(out: Console, rows: pl.DataFrame) -> None:
    grid = FittingTable("Agreement of judges with the labels in these files", rows.columns)
    for row in rows.iter_rows(named=True):
        lacking = "1 label: too few" if row["n"] == 1 else "–"
        grid.add_row(*(Text(sanitize_line(_cell(value, lacking))) for value in row.values()))
    out.print(grid)


def _cell(value: object, lacking: str) -> str:
    return lacking if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
