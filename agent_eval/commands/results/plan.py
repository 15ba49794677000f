"""Implement `agent-eval compare --plan`: show the detectable difference, and the data needed for a given difference."""

import math
from collections.abc import Mapping
from typing import Any

import polars as pl
from rich.console import Console
from rich.text import Text

from agent_eval.commands.results.compare import Compared, compared, detectable, number
from agent_eval.commands.terminal.output import print_json
from agent_eval.commands.terminal.tables import FittingTable
from agent_eval.errors import InputError
from agent_eval.formats.plain_text import sanitize_line
from agent_eval.project import Project
from agent_eval.scores.statistics.compare import LOWER_IS_BETTER
from agent_eval.scores.statistics.plan import plan_one, plan_two

_HEADS = ("quantity", "over", "has", "trials", "detectable", "wanted", "needs", "or trials", "note")


def plan(
    project: Project,
    out: Console,
    *,
    version: str,
    agent: str,
    other: str | None,
    points: float,
    as_json: bool,
) -> None:
    """Print the plan for one agent, or for the comparison of two agents.

    Raises:
        InputError: If the requested difference is not above 0 and at most 100.
        NotFoundError: If an agent has no rows.
        InvalidValueError: If both ids are equal.
    """
    if not 0 < points <= 100:
        raise InputError(f"--difference {points:g}: expected a number above 0 and at most 100.")
    figures = compared(project, version, agent, other)
    counts = _counts(figures)
    mine = counts.filter(agent_id=agent).drop("agent_id")
    if other is None or figures.rows is None:
        rows = plan_one(agent, figures.sessions, mine, figures.conversations, points, figures.scales)
    else:
        theirs = counts.filter(agent_id=other).rename({"n": "other_n", "c": "other_c"})
        rows = plan_two(figures.rows, mine.join(theirs, on=["task_set", "task"]), points, figures.scales)
    if as_json:
        print_json(rows)
        return
    if rows.is_empty():
        out.print(
            "No data to plan with: there are no scores, tasks or judged conversations. Run `agent-eval run` first."
        )
        return
    out.print(_table(rows, f"{agent} and {other}" if other else agent, version, points))
    design = (
        "the two agents"
        if other
        else "this agent and another one with the same amount of data and the same spread, on the same tasks"
    )
    out.print(
        sanitize_line(
            f"Detectable: the true difference between {design} that is detected with 80 % power at a two-sided level of 5 %. "
            f"Wanted: {points:g} % of each scale. Needs: units of each agent at the current spread, "
            "which is only a rough estimate if there are few units."
        ),
        markup=False,
    )


def _counts(figures: Compared) -> pl.DataFrame:
    """Return the numbers of known and correct trials of each task."""
    known_outcomes = figures.outcomes.drop_nulls(["task", "is_correct"])
    return known_outcomes.group_by("agent_id", "task_set", "task").agg(
        n=pl.len().cast(pl.Int64), c=pl.col("is_correct").sum().cast(pl.Int64)
    ).sort("agent_id", "task_set", "task")  # fmt: skip


def _table(rows: pl.DataFrame, name: str, version: str, points: float) -> FittingTable:
    words = {"quantity", "over", "note"}
    grid = FittingTable(
        sanitize_line(f"Plan · {name} · methodology {version}"),
        _HEADS,
        numbers=[h for h in _HEADS if h not in words],
    )
    for row in rows.iter_rows(named=True):
        unit = row["unit"] if row["task_set"] is None else f"tasks of {row['task_set']}"
        grid.add_row(
            Text(sanitize_line(row["quantity"])), Text(sanitize_line(unit)), str(row["n"]), number(row["trials"]),
            detectable(row["smallest_detectable"], _width(row, points)), number(row["wanted"]), _count(row["n_needed"]), _count(row["trials_needed"]),
            Text(sanitize_line(row["reason"] or "")),
        )  # fmt: skip
    return grid


def _width(row: Mapping[str, Any], points: float) -> float:
    """Return the width of the quantity's scale, which is infinite for amounts.

    `points` is the requested difference on a scale of 100, and `wanted` the same difference on the quantity's scale.
    """
    return math.inf if row["quantity"] in LOWER_IS_BETTER else row["wanted"] / points * 100


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
