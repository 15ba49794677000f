"""Implement `agent-eval judge audit`: repeat a sample of questions to judge models, or compare judgments with other tools."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.text import Text

from agent_eval.commands.terminal.output import print_json
from agent_eval.commands.terminal.tables import FittingTable, signed
from agent_eval.formats.plain_text import sanitize_line
from agent_eval.judge.inputs.foreign_judgments import agreement, kept_policy, read_foreign
from agent_eval.metrics.builtin.policy_adherence import POLICY_ADHERENCE
from agent_eval.project import Project
from agent_eval.project.audits import audit_judges
from agent_eval.tables import table


def audit(project: Project, out: Console, err: Console, *, as_json: bool) -> int:
    """Run an audit and print the drift.

    Return 0 if all answers arrived, 1 if some answers are missing, and 2 if none could be requested.

    Raises:
        JudgeError: If a cap in dollars is set and a model's price is unknown.
    """
    with project.store.exclusive_section("run"):
        done = audit_judges(project, run_id="audit")
    if as_json:
        print_json(done.drift)
    elif done.skipped is None:
        _print(out, "Judge drift", done.drift)
    if done.skipped is not None:
        err.print(f"Nothing was audited: {done.skipped}.", markup=False, soft_wrap=True)
        return 2
    if done.n_lost:
        err.print(f"{done.n_lost:,} answers are missing: {done.why_lost}.", markup=False, soft_wrap=True)
    return 1 if done.n_lost else 0


def compare_foreign(
    project: Project, out: Console, err: Console, paths: Sequence[Path], *, as_json: bool
) -> int:
    """Print the agreement between the stored judgments of `policy_adherence` and those of another tool.

    No judge is called and no data is stored.

    Returns:
        0 if all entries were read; 1 if an entry was rejected; 2 if no conversation was judged by both.
    """
    foreign, refusals = read_foreign(paths)
    for refusal in refusals:
        err.print(sanitize_line(f"Rejected: {refusal.file}:{refusal.line}: {refusal.reason}"), markup=False)
    rows = project.store.read(
        table("turn_judgments"),
        pl.DataFrame({"metric": [POLICY_ADHERENCE.name], "is_effective": [True]}),
        columns=["conversation_id", "status", "value"],
    )
    kappas = agreement(foreign, kept_policy(rows))
    if as_json:
        print_json(kappas)
    else:
        _print(
            out, f"Agreement of {POLICY_ADHERENCE.name} with judges of another tool, by conversation", kappas
        )
    if not kappas["n"].sum():
        err.print(
            "No conversation was judged by both. Import the conversations that were judged, run with a judge model, and "
            "see that the ids are the same.",
            markup=False,
        )
        return 2
    return 1 if refusals else 0


def _print(out: Console, title: str, rows: pl.DataFrame) -> None:
    grid = FittingTable(title, rows.columns)
    for row in rows.iter_rows():
        grid.add_row(*(Text(sanitize_line(_cell(value))) for value in row))
    out.print(grid)


def _cell(value: object) -> str:
    return "–" if value is None else signed(f"{value:.3g}") if isinstance(value, float) else str(value)
