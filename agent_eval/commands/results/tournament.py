"""Implement `agent-eval tournament`: rank agents by pairwise verdicts, either recorded or from a judge model."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.text import Text

from agent_eval.commands.estimate import no_judge
from agent_eval.commands.terminal.output import print_json
from agent_eval.commands.terminal.tables import FittingTable, signed
from agent_eval.errors import NotFoundError
from agent_eval.formats.plain_text import count_of, sanitize_line
from agent_eval.judge.inputs.pairwise_verdicts import read_pairwise
from agent_eval.judge.llm.panel import Panel
from agent_eval.judge.llm.progress import Watch
from agent_eval.judge.pairwise import compare_pairs, comparisons
from agent_eval.project import Project
from agent_eval.project.ingest import ingest
from agent_eval.scores.statistics.tournament import Tournament, tournament


def show_tournament(
    project: Project, out: Console, err: Console, *, folder: Path | None, agents: Sequence[str], as_json: bool
) -> int:
    """Print the standings, the win matrix, cycles and position bias; if `as_json` is true, only the standings.

    Returns:
        0 if all lines were read; 1 if a line was rejected.

    Raises:
        NotFoundError: If there are no verdicts between the given agents.
    """
    source = folder or project.home.data / "pairwise"
    verdicts, refusals = read_pairwise(source)
    for refusal in refusals:
        err.print(sanitize_line(f"Rejected: {refusal.file}:{refusal.line}: {refusal.reason}"), markup=False)
    if agents:
        verdicts = verdicts.filter(pl.col(side).is_in(list(agents)) for side in ("first", "second"))
    if verdicts.is_empty():
        of = f" between {', '.join(agents)}" if agents else ""
        raise NotFoundError(
            f"No pairwise verdicts{of} in {source}/*.jsonl. Write one JSON object per line, with task, first, second (agent "
            'ids), winner ("first", "second", "tie" or null) and judge. Judge each pair of answers in both orders.'
        )
    _show(out, err, verdicts, as_json=as_json)
    return 1 if refusals else 0


def ask_tournament(
    project: Project, out: Console, err: Console, *, agents: Sequence[str], watch: Watch, as_json: bool
) -> int:
    """Ask the configured judge models to compare all pairs of agents on their common tasks, and print the results.

    Answers are stored as they arrive, and each question is sent only once. The caps in the settings apply.

    Returns:
        0 if all comparisons have a verdict; 1 if some comparisons have no verdict; 2 if no comparison has a verdict.

    Raises:
        NotFoundError: If no two agents have a task in common, or if an agent is unknown.
        JudgeError: If a cap in dollars is set and a model's price is unknown.
    """
    judge = project.judges.own
    if judge is None:
        raise no_judge()
    agent_ids = project.some_agents(agents)
    tables = ingest(project, agent_ids)
    pairs = comparisons(tables["conversations"], tables["turns"])
    if not pairs:
        raise NotFoundError(
            f"No two of the agents {', '.join(agent_ids) or '(none yet)'} have a task in common. Agents share a task if "
            "their conversations have the same task_id in the same task set."
        )
    panel = Panel(judge, project.judges.runtime, project.judges.view_limits)
    names = project.blinded_terms(agent_ids)
    try:
        verdicts = compare_pairs(pairs, panel, project.judges.answers.find, names=names, watch=watch)
    finally:
        project.record_spending(run_id=project.origin.run)
    budget = project.judges.runtime.budget
    cost = "cost unknown" if budget.known_cost_usd is None else f"${budget.cost_usd:.4f}"
    err.print(f"{count_of(len(pairs), 'comparison')}; {budget.n_calls:,} judge calls, {cost}.", markup=False)
    if verdicts.lost:
        why = sanitize_line(f"{verdicts.lost[0].reason}: {verdicts.lost[0].detail}")
        err.print(f"{len(verdicts.lost):,} comparisons have no verdict ({why}).", markup=False)
    if verdicts.verdicts["winner"].null_count() == verdicts.verdicts.height:
        return 2
    _show(out, err, verdicts.verdicts, as_json=as_json)
    return 1 if verdicts.lost else 0


def _show(out: Console, err: Console, verdicts: pl.DataFrame, *, as_json: bool) -> None:
    result = tournament(verdicts)
    if as_json:
        print_json(result.standings)
    else:
        _print(out, result, verdicts)
    for line in _notes(result):
        (err if as_json else out).print(line, markup=False)


def _print(out: Console, result: Tournament, verdicts: pl.DataFrame) -> None:
    judges = ", ".join(sorted(verdicts["judge"].unique().to_list()))
    grid = FittingTable(
        sanitize_line(f"Tournament · judged by {judges}"),
        ("rank", "agent", "strength", "95 %", "wins", "losses", "ties"),
        numbers=("rank", "strength", "wins", "losses", "ties"),
    )
    for row in result.standings.iter_rows(named=True):
        rank, low, high = row["rank"], row["rank_low"], row["rank_high"]
        rank_text = f"{rank}" if low == high else f"{rank} ({low}–{high})"
        grid.add_row(
            rank_text, Text(row["agent_id"]), signed(f"{row['strength']:+.2f}"), signed(f"{row['low']:+.2f} to {row['high']:+.2f}"),
            str(row["wins"]), str(row["losses"]), str(row["ties"]),
        )  # fmt: skip
    out.print(grid)
    agents = result.standings["agent_id"].to_list()
    matrix = FittingTable("Wins of the row over the column (ties)", ("agent", *agents), numbers=agents)
    cells = {
        (a, b): f"{w} ({t})"
        for a, b, w, t in result.wins.select("agent_id", "other_agent_id", "wins", "ties").iter_rows()
    }
    for a in agents:
        matrix.add_row(Text(a), *("–" if a == b else cells[a, b] for b in agents))
    out.print(matrix)


def _notes(result: Tournament) -> list[str]:
    notes = [str(result.position_bias)]
    notes += [
        f"Intransitive: {' beats '.join((*cycle, cycle[0]))}. No ranking shows all of these results."
        for cycle in result.cycles
    ]
    if not result.standings["wins"].sum():
        notes.append(
            "No pair was decided the same way in both orders, so it is unknown which agent is better."
        )
    if result.n_one_way:
        notes.append(f"{result.n_one_way} verdicts were given in one order only and do not count.")
    if result.n_unscored:
        notes.append(f"{result.n_unscored} verdicts could not be read; their pairs do not count.")
    return notes
