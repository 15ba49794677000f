"""Rank agents with common tasks by pass^k, and assess their reliability in words."""

import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import polars as pl

from agent_eval.scores.reliability.worst_and_best import ENDS, TOLERANCE
from agent_eval.tables import table
from agent_eval.tables.frames import Reliability

NOT_RATED = "between (not rated)"  # the assessment if no other one applies
_TaskGroups = dict[str, tuple[int, int | None]]


def reliability_leaderboard(reliability: Reliability) -> pl.DataFrame:
    """Rank agents by pass^k within version, task set, k and estimator, as 1, 2, 2, 4.

    Only agents with common tasks are ranked together. Agents whose estimates cover the task that most agents
    cover form group 1; group 2 is formed from the remaining agents in the same way, and so on. An agent that
    shares no task with another one has no group and no rank, unless it is the only agent with an estimate. If
    the tasks of a row are unknown, as in stores of an earlier release, all agents of its board form one group.
    Values that agree to twelve decimals are ties. Without an estimate, the rank is null and the row comes last.
    If the worst or best case could change a rank, the rank is null, `rank_low` to `rank_high` are the possible
    ranks, and `reason` explains why.
    """
    board = ["methodology_version", "task_set", "k", "estimator"]
    grouped = _with_task_groups(reliability, board)
    is_alone = pl.col("pass_hat_k").count().over(board) == 1
    has_rank = pl.col("pass_hat_k").is_not_null() & (pl.col("task_group").is_not_null() | is_alone)
    ranked = _with_ranks(grouped.with_columns(_has_rank=has_rank), [*board, "task_group"])
    return as_table("reliability_leaderboard", ranked).sort(
        *board, "rank", "task_group", "agent_id", nulls_last=True
    )


def _with_task_groups(reliability: pl.DataFrame, board: Sequence[str]) -> pl.DataFrame:
    """Add `task_group` and `n_common_tasks`, the number of tasks that all agents of the group cover."""
    memory: dict[tuple[tuple[str, tuple[str, ...] | None], ...], _TaskGroups] = {}
    group_rows = []
    for key, rows in reliability.group_by(board, maintain_order=True):
        lists = rows.select("agent_id", "tasks").iter_rows()
        covered = {agent: None if tasks is None else tuple(tasks) for agent, tasks in lists}
        memo = tuple(sorted(covered.items()))  # rows of several k and estimators often cover the same tasks
        if memo not in memory:
            memory[memo] = task_groups(covered)
        group_rows += [(*key, agent, *memory[memo].get(agent, (None, None))) for agent in covered]
    schema = {name: reliability.schema[name] for name in [*board, "agent_id"]}
    groups = pl.DataFrame(
        group_rows, schema=schema | {"task_group": pl.Int64(), "n_common_tasks": pl.Int64()}, orient="row"
    )
    return reliability.join(groups, on=[*board, "agent_id"], how="left", maintain_order="left")


def task_groups(covered: Mapping[str, Collection[str] | None]) -> _TaskGroups:
    """Return each agent's group, numbered from 1, and the number of tasks that all agents of the group cover.

    All agents of a group cover the task that most of the remaining agents cover. If several tasks are covered
    equally often, the first agent by name determines the task. Agents that share no task with a remaining agent
    have no group. If any agent's tasks are unknown, all agents form one group.
    """
    if None in covered.values():
        return dict.fromkeys(covered, (1, None))
    left = {agent: set(covered[agent] or ()) for agent in sorted(covered)}
    group_of_agent: _TaskGroups = {}
    for number in itertools.count(1):
        counts = Counter(task for tasks in left.values() for task in tasks)
        most = max(counts.values(), default=0)
        if most < 2:
            return group_of_agent
        candidates = {task for task, n in counts.items() if n == most}
        first = next(tasks & candidates for tasks in left.values() if tasks & candidates)
        members = [agent for agent, tasks in left.items() if min(first) in tasks]
        common = set.intersection(*(left.pop(agent) for agent in members))
        group_of_agent |= dict.fromkeys(members, (number, len(common)))
    raise AssertionError("unreachable")


def _with_ranks(grouped: pl.DataFrame, board: Sequence[str]) -> pl.DataFrame:
    """Add the possible ranks from worst to best case; if there are several, the rank is null, with the reason."""
    worst, best = (pl.col(f"pass_hat_k_{end}").fill_null(pl.col("pass_hat_k")).round(12) for end in ENDS)
    rows = grouped.with_row_index("_row").with_columns(_worst=worst, _best=best)
    rows_with_rank = rows.filter("_has_rank").select("_row", "_worst", "_best", *board)
    others = rows_with_rank.select("_worst", "_best", *board)
    pairs = rows_with_rank.join(others, on=list(board), suffix="_other", nulls_equal=True)
    ranges = pairs.group_by("_row").agg(
        rank_low=1 + (pl.col("_worst_other") > pl.col("_best")).sum().cast(pl.Int64),
        rank_high=1
        + (pl.col("_best_other") > pl.col("_worst")).sum().cast(pl.Int64)
        - (pl.col("_best") > pl.col("_worst")).first().cast(pl.Int64),  # the row itself
    )
    turned = pl.col("rank_low") < pl.col("rank_high")
    why = pl.format(
        "rank is unknown: trials that are not known allow ranks {} to {}", "rank_low", "rank_high"
    )
    return (
        rows.join(ranges, on="_row", how="left")
        .with_columns(
            rank=pl.when(~turned).then("rank_low"),
            reason=pl.concat_str(
                "reason", pl.when(turned.fill_null(False)).then(why), separator="; ", ignore_nulls=True
            ).replace("", None),
        )
        .drop("_row", "_worst", "_best", "_has_rank")
    )


def assessed() -> dict[str, pl.Expr]:
    """Return expressions for the columns `assessment` and `reason`.

    If the worst and best case would be assessed differently, the assessment is unknown, with the reason. Without an
    estimate, the reason says why there is none. Otherwise, the reason is null.
    """
    word = assessment()
    worst, best = (assessment(pl.col(f"pass_at_k_{end}"), pl.col(f"pass_hat_k_{end}")) for end in ENDS)
    turned = (word.is_not_null() & ((worst != word) | (best != word))).fill_null(False)
    n_open = pl.col("n_planned") - pl.col("n_known")
    why = pl.format(
        "assessment is unknown: {} of {} trials are not known{}; {} at worst, {} at best",
        n_open, "n_planned", _ended_in_errors(), worst.fill_null("no estimate"), best.fill_null("no estimate"),
    )  # fmt: skip
    return {
        "assessment": pl.when(turned).then(pl.lit("unknown")).otherwise(word),
        "reason": pl.when(turned).then(why).when(pl.col("pass_hat_k").is_null()).then("interval"),
    }


def _ended_in_errors() -> pl.Expr:
    """Return text such as ', 3 ended in an error of unknown cause'; empty if there are none."""
    n = pl.col("n_unexplained_errors")
    return pl.when(n > 0).then(pl.format(", {} ended in an error of unknown cause", n)).otherwise(pl.lit(""))


def assessment(at: pl.Expr | None = None, hat: pl.Expr | None = None) -> pl.Expr:
    """Return an expression that assesses pass@k and pass^k in words; null without an estimate."""
    at = pl.col("pass_at_k") if at is None else at
    hat = pl.col("pass_hat_k") if hat is None else hat
    high = at > 0.95 + TOLERANCE
    return (
        pl.when(at.is_null())
        .then(pl.lit(None, dtype=pl.String))
        .when(pl.col("k") == 1)
        .then(pl.lit("single run"))
        .when(high & (hat > 0.70 + TOLERANCE))
        .then(pl.lit("reliable"))
        .when(high & (hat < 0.50 - TOLERANCE))
        .then(pl.lit("inconsistent"))
        .when(at < 0.70 - TOLERANCE)
        .then(pl.lit("needs improvement"))
        .otherwise(pl.lit(NOT_RATED))
    )


def as_table(name: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Convert rows to the columns of a table; missing nullable columns are filled with null."""
    target = table(name)
    absent = [column for column in target.schema if column not in rows.columns]
    typed = rows.with_columns(pl.lit(None).alias(column) for column in absent)
    return target.conform(typed.select(pl.col(c).cast(dtype) for c, dtype in target.schema.items()))
