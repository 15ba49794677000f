"""Reliability: does the agent do it again? pass@k and pass^k over independent trials of a task.

A trial is one admitted conversation; its session, task and number say which run it was, and sessions
are pooled. What a trial's tools are worth is computed in `scores.tools`; an interval is not given here.
"""

import math
from collections.abc import Sequence
from typing import Literal, get_args

import polars as pl
from pydantic import TypeAdapter

from agent_eval.errors import AgentEvalError
from agent_eval.tables import table
from agent_eval.transcripts.models import Expected

Estimator = Literal["unbiased", "plug_in"]

LARGEST_DEFAULT_K = 8
_ROW = ("methodology_version", "agent_id", "conversation_id")
_GROUP = ("methodology_version", "agent_id", "task_set")
_EXPECTED = TypeAdapter(tuple[Expected, ...])
_SOURCES = ("goal_completion", "interactions", "outcome")
_TOLERANCE = 1e-9  # means of exact shares may miss a bound by the last bit


class TrialCountError(AgentEvalError, ValueError):
    """Numbers that cannot be trials, successes and attempts."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"{problem}. Allowed: integers with n ≥ 1 trials, 0 ≤ c ≤ n of them correct, k ≥ 1 attempts, "
            "and k ≤ n for estimator 'unbiased'."
        )


class UnknownEstimatorError(AgentEvalError, ValueError):
    """No estimator of that name."""

    def __init__(self, estimator: object) -> None:
        super().__init__(f"Estimator {estimator!r} is unknown. Allowed: {', '.join(get_args(Estimator))}.")


def pass_at_k(n: int, c: int, k: int, *, estimator: Estimator = "unbiased") -> float:
    """Probability that at least one of k attempts is correct, from c correct of n trials of one task.

    unbiased: 1 − C(n−c, k)/C(n, k). plug_in: 1 − (1 − c/n)^k, also for k > n. Exact but for the last rounding.

    Raises:
        TrialCountError: If n < 1, c is not in 0..n, k < 1, one is no integer, or k > n when unbiased.
    """
    _check(n, c, k, estimator)
    ways = _ways(n, k, estimator)
    return (ways - _ways(n - c, k, estimator)) / ways


def pass_hat_k(n: int, c: int, k: int, *, estimator: Estimator = "unbiased") -> float:
    """Probability that all of k attempts are correct, from c correct of n trials of one task.

    unbiased: C(c, k)/C(n, k). plug_in: (c/n)^k, also for k > n. Exact but for the last rounding.

    Raises:
        TrialCountError: As for `pass_at_k`.
    """
    _check(n, c, k, estimator)
    return _ways(c, k, estimator) / _ways(n, k, estimator)


def reliability(
    transcripts: pl.DataFrame,
    conversations: pl.DataFrame,
    tool_correctness: pl.DataFrame,
    conversation_judgments: pl.DataFrame,
    *,
    ks: Sequence[int] | None = None,
) -> pl.DataFrame:
    """Unbiased pass@k and pass^k, the mean over tasks, without intervals.

    A task with fewer than k trials of known outcome is excluded and counted. An agent without any known
    outcome keeps its row for k = 1, with null estimates.

    Args:
        transcripts: Only admitted conversations count; without `task_set` they form the set 'default'.
        conversations: Declared outcomes and expected answers.
        tool_correctness: See `trial_outcomes`.
        conversation_judgments: See `trial_outcomes`.
        ks: The k to report for every task set; default 1 to the largest number of known trials of any
            of its tasks, at most 8.

    Returns:
        Table `reliability`: one row per version, agent, task set and k, sorted.

    Raises:
        TrialCountError: If a k is no integer ≥ 1.
    """
    _check_attempts(ks or ())
    outcomes = trial_outcomes(transcripts, conversations, tool_correctness, conversation_judgments)
    if outcomes.is_empty():
        return table("reliability").empty()
    tasks = outcomes.group_by(*_GROUP, "task").agg(
        n=pl.col("is_correct").count(),
        c=pl.col("is_correct").sum(),
        n_unknown=pl.col("is_correct").null_count(),
        **{source: (pl.col("source") == source).any() for source in _SOURCES},
    )
    asked = _asked(tasks, ks)
    found = _estimates(asked, tasks)
    rows = asked.join(found, on=[*_GROUP, "k"], how="left").with_columns(
        pl.col("n_tasks", "n_trials", "n_successes").fill_null(0),
    )
    rows = rows.with_columns(
        estimator=pl.lit("unbiased"),
        n_tasks_excluded=pl.col("n_tasks_in_set") - pl.col("n_tasks"),
        assessment=assessment(),
    )
    return _as_table("reliability", rows).sort(*_GROUP, "k")


def trial_outcomes(
    transcripts: pl.DataFrame,
    conversations: pl.DataFrame,
    tool_correctness: pl.DataFrame,
    conversation_judgments: pl.DataFrame,
) -> pl.DataFrame:
    """Whether each trial was correct, and by which source.

    The first of these that is known: the declared outcome; every interaction with expected tools scored
    and all of them correct, where no expected answer is left to judge; goal completion.
    Conversations that repeat a trial number within a session and task count each: recorded numbers are
    not reliable enough to drop a run for one.

    Returns:
        One row per version and admitted conversation: `task_set`, `task` (a conversation without a task
        is its own), `is_correct` and `source`, both null when unknown.
    """
    admitted = transcripts.filter("is_admitted").select(
        *_ROW,
        pl.col("task_set").fill_null("default"),
        pl.coalesce("task:" + pl.col("task_id"), "conversation:" + pl.col("conversation_id")).alias("task"),
    )
    conversation = ["agent_id", "conversation_id"]
    answered_by_tools = _interactions(tool_correctness).join(
        _expecting_answers(conversations), on=conversation, how="anti"
    )
    known = (
        admitted.join(conversations.select(*conversation, "outcome_correct"), on=conversation, how="left")
        .join(answered_by_tools, on=_ROW, how="left")
        .join(_goals(conversation_judgments), on=_ROW, how="left")
    )
    outcome, interactions, goal = (
        pl.col(name) for name in ("outcome_correct", "interactions_correct", "goal_reached")
    )
    return known.select(
        *_ROW,
        "task_set",
        "task",
        is_correct=pl.coalesce(outcome, interactions, goal),
        source=pl.when(outcome.is_not_null())
        .then(pl.lit("outcome"))
        .when(interactions.is_not_null())
        .then(pl.lit("interactions"))
        .when(goal.is_not_null())
        .then(pl.lit("goal_completion")),
    )


def largest_n(outcomes: pl.DataFrame) -> int:
    """The most trials of known outcome that any task has, from `trial_outcomes`; 0 when none is known."""
    known = outcomes.filter(pl.col("is_correct").is_not_null())
    return max(known.group_by(*_GROUP, "task").len()["len"], default=0)


def reliability_leaderboard(reliability: pl.DataFrame) -> pl.DataFrame:
    """Agents ranked by pass^k within version, task set, k and estimator: 1, 2, 2, 4.

    Equal to twelve decimals is a tie; without an estimate there is no rank, and the row comes last.
    """
    board = ["methodology_version", "task_set", "k", "estimator"]
    rank = pl.col("pass_hat_k").round(12).rank(method="min", descending=True).over(board)
    ranked = _as_table("reliability_leaderboard", reliability.with_columns(rank=rank))
    return ranked.sort(*board, "rank", "agent_id", nulls_last=True)


def assessment() -> pl.Expr:
    """What pass@k and pass^k of one k say in words; null without an estimate, 'single run' for k = 1."""
    at, hat = pl.col("pass_at_k"), pl.col("pass_hat_k")
    high = at > 0.95 + _TOLERANCE
    return (
        pl.when(at.is_null())
        .then(pl.lit(None, dtype=pl.String))
        .when(pl.col("k") == 1)
        .then(pl.lit("single run"))
        .when(high & (hat > 0.70 + _TOLERANCE))
        .then(pl.lit("reliable"))
        .when(high & (hat < 0.50 - _TOLERANCE))
        .then(pl.lit("inconsistent"))
        .when(at < 0.70 - _TOLERANCE)
        .then(pl.lit("needs improvement"))
        .otherwise(pl.lit("moderate"))
    )


def _check(n: int, c: int, k: int, estimator: Estimator) -> None:
    if estimator not in get_args(Estimator):
        raise UnknownEstimatorError(estimator)
    for name, value in (("n", n), ("c", c), ("k", k)):
        _check_integer(name, value)
    if n < 1:
        raise TrialCountError(f"n is {n}: without a trial there is nothing to estimate")
    if not 0 <= c <= n:
        raise TrialCountError(f"c is {c}, but n is {n}")
    if k < 1:
        raise TrialCountError(f"k is {k}")
    if k > n and estimator == "unbiased":
        raise TrialCountError(f"k is {k}, but n is only {n}: run more trials, or ask for 'plug_in'")


def _check_integer(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TrialCountError(f"{name} is {value!r}, which is no integer")


def _check_attempts(ks: Sequence[int]) -> None:
    for k in ks:
        _check_integer("k", k)
        if k < 1:
            raise TrialCountError(f"k is {k}")


def _ways(trials: int, k: int, estimator: Estimator) -> int:
    """Ways to draw k of these trials: without putting back when unbiased, with it for the plug-in."""
    return math.comb(trials, k) if estimator == "unbiased" else trials**k


def _asked(tasks: pl.DataFrame, ks: Sequence[int] | None) -> pl.DataFrame:
    """One row per group and k, with what does not depend on k."""
    groups = tasks.group_by(*_GROUP).agg(
        pl.len().alias("n_tasks_in_set"),
        pl.col("n_unknown").sum().alias("n_trials_unknown"),
        pl.col("n").max().cast(pl.Int64).clip(1, LARGEST_DEFAULT_K).alias("largest"),
    )
    if ks is not None:
        wanted = pl.DataFrame({"k": sorted(set(ks))}, schema={"k": pl.Int64})
        return groups.drop("largest").join(wanted, how="cross")
    every = pl.int_ranges(1, pl.col("largest") + 1).alias("k")
    return groups.with_columns(every).drop("largest").explode("k")


def _estimates(asked: pl.DataFrame, tasks: pl.DataFrame) -> pl.DataFrame:
    """Means over the tasks with at least k trials; tasks with equal counts are computed once."""
    alike = tasks.group_by(*_GROUP, "n", "c").agg(
        pl.len().cast(pl.Int64).alias("n_alike"), *(pl.col(source).any() for source in _SOURCES)
    )
    pairs = asked.select(*_GROUP, "k").join(alike, on=_GROUP).filter(pl.col("n") >= pl.col("k"))
    counts = pairs.select("n", "c", "k").unique()
    values = counts.with_columns(
        pl.Series("at", [pass_at_k(*row) for row in counts.iter_rows()], dtype=pl.Float64),
        pl.Series("hat", [pass_hat_k(*row) for row in counts.iter_rows()], dtype=pl.Float64),
    )
    # sums of floats depend on their order: sorted rows make them the same in every run
    ordered = pairs.join(values, on=["n", "c", "k"]).sort(*_GROUP, "k", "n", "c")
    alike_n = pl.col("n_alike")
    sources = pl.concat_str(
        [pl.when(pl.col(source).any()).then(pl.lit(source)) for source in _SOURCES],
        separator=" + ",
        ignore_nulls=True,
    )
    return ordered.group_by(*_GROUP, "k", maintain_order=True).agg(
        alike_n.sum().alias("n_tasks"),
        (pl.col("n") * alike_n).sum().alias("n_trials"),
        (pl.col("c") * alike_n).sum().alias("n_successes"),
        ((pl.col("at") * alike_n).sum() / alike_n.sum()).alias("pass_at_k"),
        ((pl.col("hat") * alike_n).sum() / alike_n.sum()).alias("pass_hat_k"),
        sources.alias("correctness_source"),
    )


def _interactions(tool_correctness: pl.DataFrame) -> pl.DataFrame:
    """One row per conversation whose interactions with tools are all scored: are all correct?"""
    relevant = tool_correctness.filter(pl.col("status") != "not_applicable")
    scored = (pl.col("status") == "scored") & pl.col("is_correct").is_not_null()
    return (
        relevant.group_by(_ROW)
        .agg(scored.all().alias("all_scored"), pl.col("is_correct").all().alias("interactions_correct"))
        .filter("all_scored")
        .drop("all_scored")
    )


def _expecting_answers(conversations: pl.DataFrame) -> pl.DataFrame:
    """The conversations whose ground truth holds an answer."""
    texts = conversations.filter(pl.col("expected").str.contains('"answer"', literal=True))
    has_answer = [
        any(entry.answer is not None for entry in _EXPECTED.validate_json(text)) for text in texts["expected"]
    ]
    return texts.filter(pl.Series(has_answer, dtype=pl.Boolean)).select("agent_id", "conversation_id")


def _goals(conversation_judgments: pl.DataFrame) -> pl.DataFrame:
    """One row per conversation whose goal completion is scored."""
    counts = (pl.col("metric") == "goal_completion") & (pl.col("status") == "scored")
    return (
        conversation_judgments.filter(counts & pl.col("is_effective") & pl.col("value").is_not_null())
        .group_by(_ROW)
        .agg((pl.col("value") == 1).all().alias("goal_reached"))
    )


def _as_table(name: str, rows: pl.DataFrame) -> pl.DataFrame:
    """The columns of a table from rows that hold at least those that may not be null."""
    target = table(name)
    absent = [column for column in target.schema if column not in rows.columns]
    typed = rows.with_columns(pl.lit(None).alias(column) for column in absent)
    return target.conform(typed.select(pl.col(c).cast(dtype) for c, dtype in target.schema.items()))
