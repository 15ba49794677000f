"""Evaluate the regression gate, which compares an agent with a baseline.

Without a margin, the gate fails if the agent is significantly worse. With a margin, it passes only if the data rule
out a loss larger than the margin (see `gates.margin`).
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction

import polars as pl

from agent_eval.formats.plain_text import count_of
from agent_eval.gates.finding import GateFinding, listed
from agent_eval.gates.margin import margin_finding, scale_of, unseen_loss
from agent_eval.judge.sampling import UNASKED
from agent_eval.metrics.base import NO_FAILURE
from agent_eval.scores.labelled_parts import labelled_metrics, parts_of, placed_parts
from agent_eval.scores.reliability.refused import refused_records
from agent_eval.scores.reliability.trials import ANSWER_THRESHOLD, GOAL_METRIC, TrialTables, trial_outcomes
from agent_eval.scores.statistics.compare import (
    LOWER_IS_BETTER,
    PASS_AT_1,
    PRIMARY,
    compare,
    says_goal,
    session_values,
    task_values,
)
from agent_eval.scores.statistics.compared_values import conversation_metrics, known_metrics

INPUTS = (
    "composite_scores",
    "universal_scores",
    "domain_scores",
    "transcripts",
    "conversations",
    "tool_correctness",
    "turn_judgments",
    "conversation_judgments",
    "import_errors",
)
"""Names of the tables that a comparison reads for each of the two pairs."""
_OTHER = "baseline"


def regression_finding(
    name: str,
    ours: Mapping[str, pl.DataFrame],
    theirs: Mapping[str, pl.DataFrame],
    *,
    quantities: Sequence[str] = (),
    not_comparable: Mapping[str, str] | None = None,
    answer_threshold: float = ANSWER_THRESHOLD,
    margin: Fraction | None = None,
    thresholds: Sequence[str] = (),
    scales: Mapping[str, tuple[float, float]] | None = None,
) -> GateFinding:
    """Return the finding on whether a pair is worse than its baseline in any quantity that both have.

    Without a margin, the gate fails if the pair is significantly worse: the primary quantity is tested at 5 %, the
    others with Holm's correction. With a margin, the data must rule out a loss larger than the margin in the
    primary quantity (or in each of `quantities`); the other quantities fail as without a margin.

    Args:
        name: Display name of the baseline.
        ours: The tables of `INPUTS` for the agent's pair.
        theirs: The tables of `INPUTS` for the baseline's pair.
        quantities: The quantities to compare; if empty, all except the cost.
        not_comparable: Reasons why scores have different meanings for the two pairs, by score.
        answer_threshold: Minimum `answer_correctness` that counts as a correct answer.
        margin: Allowed loss in percent of the width of a quantity's scale.
        thresholds: The metrics that have a threshold in the gate rules.
        scales: The ends of the scale of each metric; by default 0–1.
    """
    why_not = dict(not_comparable or {})
    sides = {"agent": ours, _OTHER: theirs}
    both_sides = [{key: _as(side, frame) for key, frame in frames.items()} for side, frames in sides.items()]
    frames = {key: pl.concat([part[key] for part in both_sides]) for key in INPUTS}
    rows, tasks = _compared(frames, quantities, why_not, answer_threshold, thresholds, scales)
    # a verdict that unknown trials could change matters only if they could make the agent worse
    is_turned = pl.col("reason").is_not_null() & pl.col("verdict_worst").is_not_null()
    could_be_worse = pl.any_horizontal(
        (pl.col(f"verdict_{end}") == f"{_OTHER} better").fill_null(False) for end in ("worst", "best")
    )
    turned = rows.filter(is_turned, could_be_worse)
    decided = rows.filter((pl.col("verdict") != "unknown") | (is_turned & ~could_be_worse))
    if decided.is_empty() and turned.is_empty():
        reasons = dict.fromkeys((*why_not.values(), *_reasons(rows.drop_nulls("reason")))) or [
            "no score over two sessions and no two tasks in common"
        ]
        return GateFinding("regression", "unknown", f"not comparable with {name}: {'; '.join(reasons)}", name)
    guarded = decided.clear() if margin is None else _guarded(decided, quantities)
    worse = decided.filter(pl.col("verdict") == f"{_OTHER} better").join(
        guarded, on=["quantity", "task_set"], how="anti", nulls_equal=True
    )
    undecided = pl.concat([_untested(rows.filter(~is_turned), quantities), turned])
    if worse.is_empty() and not undecided.is_empty():
        return GateFinding("regression", "unknown", f"against {name}: {listed(_reasons(undecided))}", name)
    tested = set(decided["quantity"])
    is_repeated = GOAL_METRIC not in set(tasks["quantity"]) and says_goal(frames["conversation_judgments"])
    if PASS_AT_1 in tested and is_repeated:
        tested.add(GOAL_METRIC)  # tested as pass@1, which is the same outcome
    if worse.is_empty() and (lacking := [q for q in quantities if q not in tested]):
        causes = {why_not.get(quantity, "not known for both") for quantity in lacking}
        reason = f"{', '.join(lacking)} not comparable with {name}: {'; '.join(sorted(causes))}"
        return GateFinding("regression", "unknown", reason, name)
    widths = {q: scale_of(q, frames) for q in decided["quantity"].unique()}
    if margin is not None and not guarded.is_empty():
        return margin_finding(
            name, guarded, widths, margin, worse=list(map(_told, worse.iter_rows(named=True)))
        )
    if not worse.is_empty():
        evidence = f"worse than {name}: {listed(map(_told, worse.iter_rows(named=True)))}"
        return GateFinding("regression", "failed", evidence, name)
    hidden = unseen_loss(_guarded(decided, quantities), widths) if margin is None else ""
    evidence = f"not significantly worse than {name} in any of {decided.height} comparisons{hidden}"
    return GateFinding("regression", "passed", evidence, name)


def _compared(
    frames: Mapping[str, pl.DataFrame],
    quantities: Sequence[str],
    why_not: Mapping[str, str],
    answer_threshold: float,
    thresholds: Sequence[str],
    metric_scales: Mapping[str, tuple[float, float]] | None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the comparison of the agent with the baseline, and the values per task that it is computed from."""
    is_compared = (
        pl.col("quantity").is_in(list(quantities))
        if quantities
        else ~pl.col("quantity").is_in(list(LOWER_IS_BETTER))
    )
    sessions = session_values(frames["composite_scores"], frames["universal_scores"], frames["domain_scores"])
    # the two methodology versions may differ, because measured quantities do not depend on the version
    trial_tables = TrialTables.of(frames)
    outcomes = trial_outcomes(trial_tables, answer_threshold=answer_threshold)
    judgments = (trial_tables.turn_judgments, trial_tables.conversation_judgments)
    parts = parts_of(*judgments, labelled_metrics(*judgments), (), NO_FAILURE)
    tasks = task_values(
        outcomes,
        frames["conversations"],
        frames["turn_judgments"],
        frames["conversation_judgments"],
        unasked=UNASKED,
        repeats_outcome=bool(quantities) and PASS_AT_1 not in quantities,
    )
    rows = compare(
        "agent",
        _OTHER,
        sessions.filter(is_compared, ~pl.col("quantity").is_in(list(why_not))),
        tasks.filter(is_compared),
        refused_records(frames["import_errors"], frames["transcripts"]),
        thresholds=thresholds,
        interval="t",  # keeps losses that unseen sessions could explain: the gate must not pass them
        parts=placed_parts(parts, outcomes, known_metrics(conversation_metrics(*judgments, UNASKED))),
        scales=metric_scales,
    )
    return rows, tasks


def _guarded(rows: pl.DataFrame, quantities: Sequence[str]) -> pl.DataFrame:
    """Return the rows that the margin applies to: all if quantities are named, else the primary ones if any."""
    if quantities:
        return rows
    primary = rows.filter(role=PRIMARY)
    return rows if primary.is_empty() else primary


def _reasons(rows: pl.DataFrame) -> list[str]:
    return [f"{quantity}: {reason}" for quantity, reason in rows.select("quantity", "reason").iter_rows()]


def _untested(rows: pl.DataFrame, quantities: Sequence[str]) -> pl.DataFrame:
    """Return the rows that the gate depends on but that could not be tested.

    These are the rows of the named quantities, or of the primary quantity if none is named.
    """
    unknown = rows.filter(pl.col("n") > 1, pl.col("reason").is_not_null(), verdict="unknown")
    return unknown if quantities else unknown.filter(role=PRIMARY)


def _as(side: str, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(agent_id=pl.lit(side)) if "agent_id" in frame.columns else frame


def _told(row: Mapping[str, object]) -> str:
    over = (
        f"{row['n']} common tasks of {row['task_set']}"
        if row["unit"] == "tasks"
        else f"{row['n']} and {count_of(row['other_n'], 'session')}"
    )
    bounds = "" if row["low"] is None else f", 95 % {row['low']:.3g} to {row['high']:.3g}"
    return f"{row['quantity']} {row['value']:.3g} against {row['other_value']:.3g} ({row['difference']:+.3g}{bounds}, p {row['p_holm']:.2g}, over {over})"
