"""`agent-eval reliability`: pass@k and pass^k per agent and task set."""

from collections.abc import Sequence

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent_eval.commands.output import print_json
from agent_eval.commands.run import UnknownAgentError, known_agents
from agent_eval.errors import AgentEvalError
from agent_eval.project import Project
from agent_eval.tables import table


class TooFewTrialsError(AgentEvalError):
    """k attempts were asked for where no task has that many trials."""

    def __init__(self, k: int, largest: int) -> None:
        super().__init__(
            f"k = {k}: no task has that many trials of known outcome; the largest n is {largest}. Ask for k ≤ {largest}."
        )


def reliability(
    project: Project, out: Console, *, version: str, agents: Sequence[str], ks: Sequence[int], as_json: bool
) -> None:
    """Print stored reliability rows of one version.

    Raises:
        UnknownAgentError: If an agent has no rows.
        TooFewTrialsError: If a wanted k exceeds every task's number of trials.
    """
    project.registry.get(version)
    known = known_agents(project)
    for agent in agents:
        if agent not in known:
            raise UnknownAgentError(agent, known)
    rows = project.store.read(table("reliability"), pl.DataFrame({"methodology_version": [version]}))
    rows = rows.filter(pl.col("agent_id").is_in(list(agents or known)))
    if ks and not rows.is_empty():
        largest = max(rows["k"])
        for k in ks:
            if k < 1 or k > largest:
                raise TooFewTrialsError(k, largest)
        rows = rows.filter(pl.col("k").is_in(list(ks)))
    print_json(rows) if as_json else out.print(_table(rows, version))


def _table(rows: pl.DataFrame, version: str) -> Table | str:
    if rows.is_empty():
        return "No trials with a known outcome. Import transcripts that carry one, or have goals judged, then agent-eval run."
    grid = Table(title=f"Reliability · methodology {version}", title_justify="left", header_style="bold")
    for name in (
        "agent",
        "task set",
        "k",
        "pass@k",
        "pass^k",
        "tasks",
        "trials",
        "excluded",
        "correct by",
        "assessment",
    ):
        grid.add_column(
            name,
            justify="right" if name in {"k", "pass@k", "pass^k", "tasks", "trials", "excluded"} else "left",
        )
    for row in rows.iter_rows(named=True):
        grid.add_row(
            Text(row["agent_id"]), Text(row["task_set"]), str(row["k"]), _probability(row["pass_at_k"]), _probability(row["pass_hat_k"]),
            str(row["n_tasks"]), str(row["n_trials"]), str(row["n_tasks_excluded"]), row["correctness_source"] or "–", row["assessment"] or "–",
        )  # fmt: skip
    return grid


def _probability(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
