"""Print the result of `agent-eval run`: rejected records, the board and the gates."""

import polars as pl
from rich.console import Console

from agent_eval.commands.gate import gate_rows, stored_gate_rows
from agent_eval.commands.results.leaderboard import (
    board_of,
    logs_of,
    print_board,
    print_short_board,
    with_standing,
)
from agent_eval.commands.results.reliability import pairs_of
from agent_eval.commands.results.summary import NO_TRANSCRIPTS, findings_of, print_findings
from agent_eval.commands.run import RunReport
from agent_eval.commands.terminal.output import print_json
from agent_eval.formats.plain_text import count_of, one_line
from agent_eval.judge.audits.sampling import disagreements
from agent_eval.project import Project
from agent_eval.report.conclusions import leader, next_steps, open_failures, unknown, worst_finding
from agent_eval.tables import table

SHOWN = 20


def print_run(
    project: Project,
    out: Console,
    err: Console,
    report: RunReport,
    *,
    version: str,
    as_json: bool,
    is_whole: bool = False,
) -> None:
    """Print rejected records, warnings and counts to stderr, and the conclusions and a short board to stdout.

    If `is_whole` is true, the whole board, its reasons and the worst findings follow instead of the short board. If
    `as_json` is true, the rows of the board are printed as JSON and nothing else.
    """
    for warning in report.warnings:
        err.print(one_line(f"Note: {warning}"), markup=False, soft_wrap=True)
    for refusal in report.refusals[:SHOWN]:
        err.print(
            one_line(f"Rejected: {refusal.file}:{refusal.line}: {refusal.reason}"),
            markup=False,
            soft_wrap=True,
        )
    if (more := len(report.refusals) - SHOWN) > 0:
        err.print(f"… and {more} more.")
    if report.n_computed:
        headline = f"{count_of(report.n_computed, 'agent × version pair')} brought up to date"
    elif report.is_ingested:
        headline = "Files were read again; nothing that is computed from them changed"
    else:
        headline = "Nothing was stale"
    err.print(f"{headline}.", markup=False)
    if report.n_gated:
        err.print(
            f"Re-evaluated the gates of {count_of(report.n_gated, 'more agent/version pair')} because the gate configuration changed.",
            markup=False,
        )
    if (judge := project.judges.own) is not None and judge.mode == "per_metric":
        _print_audit(err, disagreements(project.store.read(table("judge_cache")), judge))
    board = board_of(project, version)
    if report.spent and (as_json or not err.is_terminal):
        err.print(f"{report.spent}.", markup=False)
    if as_json:
        print_json(with_standing(board, project.registry))
        return
    if not project.known_agents():
        out.print(NO_TRANSCRIPTS, markup=False)
        return
    logs = logs_of(project, version)
    gates = gate_rows(project, version) if report.agents else stored_gate_rows(project, version)
    findings = findings_of(project, version, report.agents)
    worst = next(findings.iter_rows(named=True), None)
    agent = worst["agent_id"] if worst else (report.agents or project.known_agents())[0]
    n_unasked = int(logs["n_unasked"].sum()) if project.judges.own is None else 0
    summaries = project.store.read(table("quality_summary"), pairs_of(project, version, report.agents))
    n_open = open_failures(summaries) if worst is None else 0
    for line in (
        leader(board, logs),
        worst_finding(worst, n_open, has_judge=project.judges.own is not None),
        unknown(
            board.join(logs, on="agent_id", how="anti"),
            gates,
            report.n_unscored,
            len(report.refusals),
            report.n_replaced,
        ),
        f"Spent: {report.spent or 'nothing; no judge model was called'}.",
        next_steps(agent, n_unasked),
    ):
        out.print(one_line(line), markup=False, soft_wrap=not out.is_terminal)
    if is_whole:
        print_board(out, board, project.registry.get(version), project.registry, logs=logs)
        print_findings(out, findings)
    else:
        print_short_board(out, board, project.registry.get(version), project.registry, logs)


def _print_audit(err: Console, audit_rows: pl.DataFrame) -> None:
    """Print how often separate calls per metric and one call for all metrics gave different answers."""
    if audit_rows.is_empty():
        err.print("No question was answered in both modes yet; also run with judge_mode one_call.")
    for judge, metric, n_both, n_equal, mean in audit_rows.iter_rows():
        off = "" if mean is None else f", per metric {mean:+.2f} on average"
        err.print(f"Audit of {judge}: {metric}: {n_equal} of {n_both} equal{off}.", markup=False)
