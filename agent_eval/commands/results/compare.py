"""Implement `agent-eval compare A B`: compare two agents under one version, with significance tests."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl
from rich.console import Console
from rich.text import Text

from agent_eval.commands.results.reliability import pairs_of, trial_tables
from agent_eval.commands.terminal.output import print_json
from agent_eval.commands.terminal.tables import FittingTable, signed
from agent_eval.errors import InvalidValueError
from agent_eval.formats.plain_text import sanitize_line
from agent_eval.judge.sampling import UNASKED
from agent_eval.metrics.metric_set import directed
from agent_eval.project import Project
from agent_eval.project.calibration import with_judge_error
from agent_eval.project.quality import labelled_parts_of, scales, values_of_conversations
from agent_eval.report.conclusions import comparison
from agent_eval.report.quality import DIRECTION
from agent_eval.scores.labelled_parts import labels_said
from agent_eval.scores.reliability.refused import refused_records
from agent_eval.scores.reliability.shortfall import shortfall
from agent_eval.scores.reliability.trials import GOAL_METRIC, trial_outcomes
from agent_eval.scores.statistics import compare as comparing
from agent_eval.scores.statistics.plan import Scales, plan_two, scale_width
from agent_eval.scores.statistics.unpaired import CONVERSATIONS, SUCCESS_RATE
from agent_eval.tables import table

_NUMBERS = {"detectable", "A", "B", "A − B", "p", "p (Holm)", "P(A better)"}


class Compared(NamedTuple):
    """Hold the stored values of one or two agents and, for two agents, the comparison."""

    outcomes: pl.DataFrame  # from `trial_outcomes`
    sessions: pl.DataFrame  # from `session_values`
    conversations: pl.DataFrame  # from `conversation_values`
    rows: pl.DataFrame | None  # from `compare`; None for one agent
    says_goal: bool
    scales: Scales  # of the metrics


def compared(project: Project, version: str, agent: str, other: str | None) -> Compared:
    """Return the values and the comparison of two agents, or the values of one agent if `other` is None.

    Raises:
        NotFoundError: If an agent has no rows.
        InvalidValueError: If both ids are equal.
    """
    project.registry.get(version)
    if agent == other:
        raise InvalidValueError(f"Agent {agent!r} is compared with itself. Choose two different agents.")
    pairs = pairs_of(project, version, [name for name in (agent, other) if name is not None])

    def stored(name: str) -> pl.DataFrame:
        return project.store.read(table(name), pairs)

    tables = trial_tables(project, pairs)
    outcomes = trial_outcomes(tables, answer_threshold=project.settings.answer_threshold)
    sessions = comparing.session_values(
        with_judge_error(project, stored("composite_scores")),
        stored("universal_scores"),
        stored("domain_scores"),
    )
    conversations = values_of_conversations(project, tables, outcomes)
    rows = None
    if other is not None:
        tasks = comparing.task_values(
            outcomes,
            tables.conversations,
            tables.turn_judgments,
            tables.conversation_judgments,
            unasked=UNASKED,
        )
        errors = table("import_errors").empty() if tables.import_errors is None else tables.import_errors
        rows = comparing.compare(
            agent, other, sessions, tasks, refused_records(errors, tables.transcripts),
            thresholds=project.settings.gates.rules(agent, version).threshold_metrics,
            interval=project.settings.interval, conversations=conversations,
            parts=labelled_parts_of(project, tables, outcomes), scales=scales(project),
        )  # fmt: skip
    says_goal = comparing.says_goal(tables.conversation_judgments)
    return Compared(outcomes, sessions, conversations, rows, says_goal, scales(project))


def compare(
    project: Project,
    out: Console,
    *,
    version: str,
    agent: str,
    other: str,
    as_json: bool,
    notes: bool = False,
) -> None:
    """Print the comparison of two agents, computed from stored rows: the main verdict, then the table.

    If `notes` is true, notes on unknown trials and on the tests follow.

    Raises:
        NotFoundError: If an agent has no rows.
        InvalidValueError: If both ids are equal.
    """
    figures = compared(project, version, agent, other)
    rows = pl.DataFrame(schema=comparing.SCHEMA) if figures.rows is None else figures.rows
    if as_json:
        print_json(rows)
        return
    if rows.is_empty():
        out.print(
            "Nothing to compare: the agents have no score, task or judged conversation in common. Run `agent-eval run` first."
        )
        return
    main_first = main_row_first(rows)
    print_comparison(out, main_first, version, figures.scales)
    if not notes:
        out.print("How to read this, and what is unknown: --notes", markup=False, style="dim")
        return
    for line in (*_notes(rows), *_of_one_session(rows, figures.conversations), *_tested(rows)):
        out.print(sanitize_line(line), markup=False)
    if GOAL_METRIC not in set(rows["quantity"]) and figures.says_goal:
        for same in {SUCCESS_RATE, comparing.PASS_AT_1} & set(rows["quantity"]):
            out.print(
                f"{GOAL_METRIC} repeats the outcome that {same} compares, so it is not tested separately.",
                markup=False,
            )


def main_row_first(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of `compare` with the primary quantity first, and the success rate before other ones."""
    return rows.sort(
        pl.col("role") != comparing.PRIMARY, pl.col("quantity") != SUCCESS_RATE, maintain_order=True
    )


def conclusion(rows: pl.DataFrame, known_scales: Scales) -> str:
    """Return the verdict of the first row in one sentence."""
    main = rows.row(0, named=True)
    return comparison(main, _needed(rows.head(1), known_scales), _width(main, known_scales))


def _needed(main: pl.DataFrame, scales: Scales) -> int | None:
    """Return how many units of each agent would show the observed difference; None if it is shown or cannot be."""
    row = main.row(0, named=True)
    width = _width(row, scales)
    if row["verdict"] != "not distinguishable" or not row["difference"] or not math.isfinite(width):
        return None
    none = pl.DataFrame(
        schema={"task_set": pl.String, "n": pl.Int64, "c": pl.Int64, "other_n": pl.Int64, "other_c": pl.Int64}
    )
    needed = plan_two(main, none, abs(row["difference"]) / width * 100, scales)["n_needed"].item()
    return None if needed is None or needed <= max(row["n"], row["other_n"]) else needed


def _tested(rows: pl.DataFrame) -> list[str]:
    """Return notes on the statistical tests that were applied, and on the tests that were corrected together."""
    primary = (
        rows.filter(role=comparing.PRIMARY).row(0, named=True) if comparing.PRIMARY in rows["role"] else None
    )
    family = rows.filter(pl.col("role") == comparing.SECONDARY, pl.col("p_value").is_not_null())
    names = [
        row["quantity"] if row["task_set"] is None else f"{row['quantity']} on {row['task_set']}"
        for row in family.iter_rows(named=True)
    ]
    unpaired = (
        ["No common tasks: conversations are compared by their means, clustered by session, or by task if there is a single session."]
        if CONVERSATIONS in rows["unit"] else []
    )  # fmt: skip
    return [
        *unpaired,
        DIRECTION,
        "p: Welch's t over sessions, sign flips (t beyond 16) over common tasks. Verdicts are at 5 %.",
        "Primary: none (no composite, pass@1 or metric with a threshold has two units or more)."
        if primary is None
        else f"Primary: {primary['quantity']}, chosen by a fixed rule independent of the data; its p is not corrected.",
        f"Secondary, corrected together with Holm's method ({len(names)} tests): {', '.join(names) or 'none'}.",
        "Detectable: the true difference that these data detect with 80 % power at a two-sided level of 5 %, uncorrected; "
        "\"> 1\" if even the width of the whole scale would not be detected.",
    ]  # fmt: skip


def _notes(rows: pl.DataFrame) -> list[str]:
    """Return notes on shares with unknown trials and on unknown verdicts."""
    notes = []
    for row in rows.iter_rows(named=True):
        of = f"{row['quantity']}, {row['agent_id']} − {row['other_agent_id']}"
        for side, name in (("", "agent_id"), ("other_", "other_agent_id")):
            if lacking := shortfall({key: row[f"{side}{key}"] for key in comparing.COUNTS}):
                bounds = f"{row[f'{side}value_worst']:.3f} to {row[f'{side}value_best']:.3f}"
                notes.append(f"{row['quantity']} of {row[name]}: {lacking}; worst to best case {bounds}.")
        for side, name in (("", "agent_id"), ("other_", "other_agent_id")):
            alone = row[f"{side}value_of_judge"]
            labels = labels_said(
                *(row[f"{side}n_labels_{kind}"] for kind in ("drawn", "own")),
                is_corrected=alone is not None,
                has_unchecked=row[f"{side}n_unchecked"] != 0,
                judge_alone="" if alone is None else number(alone),
            )
            notes += [f"{row['quantity']} of {row[name]}: {labels}."] if labels else []
        if row["reason"] and not row["verdict"].endswith(" better"):  # otherwise covered by `_of_one_session`
            notes.append(f"{of}: {row['reason']}.")
    return notes


def _of_one_session(rows: pl.DataFrame, conversations: pl.DataFrame) -> list[str]:
    """Return a warning if conversations are compared and all conversations of an agent come from one session."""
    if CONVERSATIONS not in rows["unit"]:
        return []
    sessions = conversations.group_by("agent_id").agg(n=pl.col("session_id").n_unique()).sort("agent_id")
    single = sessions.filter(n=1)["agent_id"].to_list()
    return [
        f"{' and '.join(single)}: a single session. The variation between sessions is unknown and not included, so the intervals and "
        "p values are too small if sessions differ."
    ] if single else []  # fmt: skip


def print_comparison(out: Console, rows: pl.DataFrame, version: str, scales: Scales) -> None:
    """Print the verdict of the first row of `compare`, then all rows as a table."""
    out.print(conclusion(rows, scales), markup=False)
    out.print(_table(rows, version, scales))


def _table(rows: pl.DataFrame, version: str, scales: Scales) -> FittingTable:
    agent, other = rows["agent_id"][0], rows["other_agent_id"][0]
    title = f"A = {agent} · B = {other} · methodology {version}"
    heads = (
        "quantity",
        "A",
        "B",
        "A − B",
        "95 %",
        "detectable",
        "p",
        "p (Holm)",
        "P(A better)",
        "over",
        "verdict",
    )
    grid = FittingTable(title, heads, numbers=_NUMBERS)
    for row in rows.iter_rows(named=True):
        n, other_n, unit = row["n"], row["other_n"], row["unit"]
        over = f"{n} common tasks of {row['task_set']}" if unit == "tasks" else f"{n} and {other_n} {unit}"
        bounds = "none" if row["low"] is None else signed(f"{row['low']:.3g} to {row['high']:.3g}")
        grid.add_row(
            Text(sanitize_line(_named(row))), number(row["value"]), number(row["other_value"]), number(row["difference"]), bounds,
            detectable(row["smallest_detectable"], _width(row, scales)), number(row["p_value"]), number(row["p_holm"]), number(row["probability_better"]), Text(sanitize_line(over)), Text(row["verdict"]),
        )  # fmt: skip
    return grid


def _named(row: dict[str, str]) -> str:
    name = directed(row["quantity"])
    return f"{name} (primary)" if row["role"] == comparing.PRIMARY else name


def detectable(shows: float | None, width: float) -> str:
    """Return the smallest detectable difference as text, or "> width" if it exceeds the width of the scale.

    In the latter case, the data cannot show any difference.
    """
    return f"> {width:g}" if shows is not None and shows > width else number(shows)


def _width(row: Mapping[str, Any], scales: Scales) -> float:
    """Return the width of the quantity's scale, which is infinite for amounts."""
    largest = max(row["value"] or 0.0, row["other_value"] or 0.0)
    is_amount = row["quantity"] in comparing.LOWER_IS_BETTER
    return math.inf if is_amount else scale_width(row["quantity"], largest, scales)


def number(value: float | None) -> str:
    """Return a number as text with three significant digits; None becomes a dash."""
    return "–" if value is None else signed(f"{value:.3g}")
