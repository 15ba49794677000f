"""`agent-eval gate`: red or green for CI."""

from collections.abc import Sequence

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent_eval.commands.output import print_json
from agent_eval.project import Project
from agent_eval.scores.gates import exit_code, gates
from agent_eval.tables import table

_STYLES = {"passed": "green", "failed": "red", "unknown": "yellow"}


def gate_rows(project: Project, version: str, agents: Sequence[str] = ()) -> pl.DataFrame:
    """Every gate of every agent under one version: result and evidence.

    Raises:
        UnknownAgentError: If an agent has no rows.
    """
    project.registry.get(version)
    wanted = project.some_agents(agents)
    keys = pl.DataFrame({"agent_id": wanted}, schema={"agent_id": pl.String}).with_columns(
        methodology_version=pl.lit(version)
    )
    inputs = {
        name: project.store.read(table(name), keys)
        for name in ("composite_scores", "turn_judgments", "conversation_judgments", "transcripts")
    }
    return gates(**inputs, pairs=keys, max_unscored_share=project.settings.max_unscored_share)


def gate(project: Project, out: Console, *, version: str, agents: Sequence[str], as_json: bool) -> int:
    """Print the gates; returns 1 if any failed, else 2 if any is unknown or none was evaluated, else 0."""
    rows = gate_rows(project, version, agents)
    print_json(rows) if as_json else out.print(gate_table(rows, version))
    return exit_code(rows)


def gate_table(rows: pl.DataFrame, version: str) -> Table | str:
    """The gates for people."""
    if rows.is_empty():
        return "No gate was evaluated: nothing has been run yet."
    grid = Table(title=f"Gates · methodology {version}", title_justify="left", header_style="bold")
    for name in ("agent", "gate", "result", "evidence"):
        grid.add_column(name, overflow="fold")
    for row in rows.iter_rows(named=True):
        grid.add_row(
            Text(row["agent_id"]),
            row["gate"],
            Text(row["result"], style=_STYLES[row["result"]]),
            Text(row["evidence"]),
        )
    return grid
