"""`agent-eval reliability`: pass@k and pass^k per agent and task set."""

from collections.abc import Sequence

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent_eval.commands.output import print_json
from agent_eval.errors import AgentEvalError
from agent_eval.project import Project
from agent_eval.scores import reliability as trials
from agent_eval.tables import table


class TooFewTrialsError(AgentEvalError):
    """k attempts were asked for where no task has that many trials."""

    def __init__(self, k: int, largest: int) -> None:
        imports = "Import transcripts that carry an outcome, or have goals judged, then agent-eval run."
        super().__init__(
            f"k = {k}: no task has that many trials of known outcome; the largest n is {largest}. "
            + (f"Ask for k ≤ {largest}." if largest else imports)
        )


def reliability(
    project: Project, out: Console, *, version: str, agents: Sequence[str], ks: Sequence[int], as_json: bool
) -> None:
    """Print reliability rows of one version: those stored, or for `ks` computed from the stored trials.

    An agent without a task of k trials has a row without estimates for that k.

    Raises:
        UnknownAgentError: If an agent has no rows.
        TrialCountError: If a wanted k is less than 1.
        TooFewTrialsError: If a wanted k exceeds every task's number of trials.
    """
    project.registry.get(version)
    wanted = pl.DataFrame({"agent_id": project.some_agents(agents)}, schema={"agent_id": pl.String})
    pairs = wanted.with_columns(pl.lit(version).alias("methodology_version"))
    rows = _computed(project, pairs, ks) if ks else project.store.read(table("reliability"), pairs)
    print_json(rows) if as_json else out.print(_table(rows, version))


def _computed(project: Project, pairs: pl.DataFrame, ks: Sequence[int]) -> pl.DataFrame:
    """Table `reliability` for these k: what is stored ends at a default."""

    def stored(name: str, keys: pl.DataFrame = pairs) -> pl.DataFrame:
        return project.store.read(table(name), keys)

    inputs = (
        stored("transcripts"),
        stored("conversations", pairs.select("agent_id")),
        stored("tool_correctness"),
        stored("conversation_judgments"),
    )
    rows = trials.reliability(*inputs, ks=ks)
    largest = trials.largest_n(trials.trial_outcomes(*inputs))
    if not rows.is_empty() and max(ks) > largest:
        raise TooFewTrialsError(max(ks), largest)
    return rows


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
