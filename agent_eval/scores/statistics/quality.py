"""Summarise an agent's conversations of any tasks: success, metrics, failures and cost, with intervals.

The summary is intended for logs, which have neither common tasks nor slots. Values are means over
conversations, with sessions as clusters. Agents are not ranked.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from agent_eval.scores.labelled_parts import corrected
from agent_eval.scores.reliability.trials import GOAL_METRIC, TRIAL
from agent_eval.scores.statistics.clustered import clustered_interval
from agent_eval.scores.statistics.unpaired import FAILURE_RATE, RULE, SUCCESS_RATE, clusters
from agent_eval.tables import table
from agent_eval.tables.judging import HUMAN, enters_means

COST = "cost_usd"
HEADLINES = {
    "success_rate": SUCCESS_RATE,
    "helpfulness_1to5": "helpfulness",
    "behavior_failure_rate": f"{FAILURE_RATE}agent_behavior_failure",
    "tool_failure_rate": f"{FAILURE_RATE}tool_call_behavior_failure",
    "cost_usd_per_conversation": COST,
}
"""The quantity of each column of table log_leaderboard."""
_LABELS = (("mean_of_judge", "of_judge"), ("n_labels_drawn", "labels_drawn"), ("n_labels_own", "labels_own"))
_PAIR = ["methodology_version", "agent_id"]
_QUANTITY = [*_PAIR, "quantity"]
_COUNTS = ("n_scored", "n_unscored", "n_unasked")
_CONVERSATION = ["agent_id", "conversation_id"]
_SEVERITIES = ("critical", "high", "medium", "low")


class MetricFacts(NamedTuple):
    """Hold facts about the metrics that judges answer.

    Args:
        scales: The lowest and highest answer of each metric with ratings or values.
        failures: The metrics whose labels are failures.
        unanswered: Prefixes of the reasons of missing answers that only another judge model can give.
    """

    scales: Mapping[str, tuple[float, float]]
    failures: Sequence[str]
    unanswered: Sequence[str]


def quality_summary(
    values: pl.DataFrame,
    outcomes: pl.DataFrame,
    conversations: pl.DataFrame,
    answers: pl.DataFrame,
    facts: MetricFacts,
    parts: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Summarise the known values of each agent's conversations.

    Args:
        values: From `conversation_values`.
        outcomes: From `trial_outcomes`.
        conversations: Costs in US dollars.
        answers: From `answer_counts`. If the judgments were counted in parts, the counts of all parts.
        facts: Facts about the metrics; a metric without an entry in `scales` has the scale 0–1.
        parts: From `placed_parts`, for the metrics with labels that sheets drew.

    Returns:
        Table quality_summary, sorted: one row per agent, version and quantity with a known or missing answer.
        The mean is taken over conversations, as in `compare`, and is null if no value is known. Its interval is
        null with fewer than two clusters. With drawn labels in at least five conversations it is the corrected mean.
    """
    labelled = {} if parts is None else parts.partition_by(_QUANTITY, as_dict=True)
    costs = outcomes.join(conversations.select(*_CONVERSATION, value=COST), on=_CONVERSATION).select(
        *_PAIR,
        "session_id",
        unit=pl.coalesce("task", "conversation_id"),
        quantity=pl.lit(COST),
        value="value",
    )
    every = pl.concat([values, costs.drop_nulls("value").select(values.columns)])
    rows_of_quantity = every.partition_by(_QUANTITY, as_dict=True)
    counts = pl.concat(
        [
            _counted(outcomes, pl.lit(SUCCESS_RATE), "is_correct", pl.col("source")),
            _counted(costs, pl.col("quantity"), "value", pl.lit(None, pl.String)),
            _added(answers),
        ]
    )
    rows = []
    for row in counts.filter(pl.sum_horizontal(_COUNTS) > 0).iter_rows(named=True):
        key = tuple(row[name] for name in _QUANTITY)
        of = rows_of_quantity.get(key)
        if (
            of is None and row["quantity"] == GOAL_METRIC
        ):  # goal completion decided the success rate, so both are the same value
            key = (*(row[name] for name in _PAIR), SUCCESS_RATE)
            success = rows_of_quantity.get(key)
            of = success if success is not None and success.height == row["n_scored"] else None
        bounds = (0.0, None) if row["quantity"] == COST else facts.scales.get(row["quantity"], (0.0, 1.0))
        mean = _mean(of, bounds, row["n_scored"])
        rows.append(row | _shares(row) | mean | _corrected(labelled.get(key), bounds, mean))
    _count_own_labels(rows)
    return table("quality_summary").frame(rows).sort(_QUANTITY)


def _count_own_labels(rows: Sequence[dict[str, Any]]) -> None:
    """Count the labels of goal completion for the success rate, if goal completion alone decides it."""
    goals = {tuple(row[name] for name in _PAIR): row for row in rows if row["quantity"] == GOAL_METRIC}
    for row in rows:
        if row["quantity"] == SUCCESS_RATE and row["judges"] == [GOAL_METRIC]:
            row["n_labels_own"] = goals[tuple(row[name] for name in _PAIR)]["n_labels_own"]


def _counted(rows: pl.DataFrame, quantity: pl.Expr, value_column: str, judge: pl.Expr) -> pl.DataFrame:
    """Count the conversations with and without a value of a quantity that does not need a judge."""
    return (
        rows.with_columns(quantity=quantity, judge=judge)
        .group_by(_QUANTITY)
        .agg(
            n_scored=pl.col(value_column).count().cast(pl.Int64),
            n_unscored=pl.col(value_column).null_count().cast(pl.Int64),
            n_unasked=pl.lit(0, pl.Int64),
            judges=pl.col("judge").drop_nulls().unique().sort(),
            n_labels_own=pl.lit(0, pl.Int64),
        )
        .filter(pl.col("n_scored") > 0)
    )


def _added(answers: pl.DataFrame) -> pl.DataFrame:
    """Add the counts of several parts."""
    judges = pl.col("judges").explode(empty_as_null=False).unique().sort()
    return answers.group_by(_QUANTITY).agg(pl.col(_COUNTS).sum(), judges, pl.col("n_labels_own").sum())


def answer_counts(
    turn_judgments: pl.DataFrame, conversation_judgments: pl.DataFrame, facts: MetricFacts
) -> pl.DataFrame:
    """Count the answers of each metric, the lost ones, and the missing ones that only a model could have given.

    Args:
        turn_judgments: Answers about turns.
        conversation_judgments: Answers about whole conversations.
        facts: Facts about the metrics.

    Returns:
        One row per version, agent and quantity: `n_scored`, `n_unscored`, `n_unasked` and the `judges`.
    """
    is_failure = pl.col("metric").is_in(list(facts.failures))
    whole = conversation_judgments.with_columns(turn_index=pl.lit(None, pl.Int64))
    columns = [*TRIAL, "turn_index", "metric", "judge", "status", "unscored_reason"]
    rows = pl.concat(
        frame.select(*columns, is_counted=enters_means(frame)) for frame in (turn_judgments, whole)
    ).filter(is_failure | pl.col("metric").is_in(list(facts.scales)))
    # a rule labels only failing turns, so its labels do not give a share of all turns
    counts = (pl.col("status") == "scored") & (
        pl.when(is_failure).then(pl.col("judge") != RULE).otherwise("is_counted")
    )
    reason = pl.col("unscored_reason").fill_null("")
    unanswered = pl.any_horizontal(reason.str.starts_with(start) for start in facts.unanswered)
    of_rule = is_failure & (pl.col("status") == "scored") & (pl.col("judge") == RULE)
    quantity = pl.when(is_failure).then(FAILURE_RATE + pl.col("metric")).otherwise("metric")
    answers = rows.lazy().select(  # much faster than to aggregate a frame
        *TRIAL,
        "turn_index",
        "judge",
        quantity=quantity,
        scored=counts,
        lost=pl.col("status").is_in(["unscored", "disputed"]),
        unasked=unanswered | of_rule,
        by_people=counts & pl.col("is_counted") & (pl.col("judge") == HUMAN),
    )
    judges = answers.filter("scored").group_by(_QUANTITY).agg(judges=pl.col("judge").unique().sort())
    lost = ~pl.col("scored") & pl.col("lost")
    return (
        answers.group_by(*TRIAL, "turn_index", "quantity")
        .agg(pl.col("scored", "lost", "unasked", "by_people").any())
        .group_by(_QUANTITY)
        .agg(
            n_scored=pl.col("scored").sum().cast(pl.Int64),
            n_unscored=lost.sum().cast(pl.Int64),
            n_unasked=(~pl.col("scored") & ~lost & pl.col("unasked")).sum().cast(pl.Int64),
            n_labels_own=pl.col("by_people").sum().cast(pl.Int64),
        )
        .join(judges, on=_QUANTITY, how="left")
        .with_columns(pl.col("judges").fill_null([]))
        .collect()
    )


def _shares(row: Mapping[str, Any]) -> dict[str, float | None]:
    n_applicable = row["n_scored"] + row["n_unscored"]
    return {"unscored_share": row["n_unscored"] / n_applicable if n_applicable else None}


def _mean(values: pl.DataFrame | None, bounds: tuple[float, float | None], n_answers: int) -> dict[str, Any]:
    """Return the mean of a quantity of one agent, with its interval."""
    low, high = bounds
    scale = {"scale_low": low, "scale_high": high}
    if values is None:
        return {**scale, "n_conversations": 0, "n_clusters": 0}
    numbers, groups = values["value"].to_list(), clusters(values)
    point = min(1.0, len(numbers) / n_answers) if n_answers else 1.0
    interval = clustered_interval(numbers, groups, bounds=bounds, point=point)
    return {
        **scale,
        "mean": math.fsum(numbers) / len(numbers),
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "n_conversations": len(numbers),
        "n_clusters": len(set(groups)),
        "clustered_by": "session" if values["session_id"].n_unique() > 1 else "task or conversation",
    }


def _corrected(
    parts: pl.DataFrame | None, bounds: tuple[float, float | None], mean: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the number of drawn labels and the mean that they correct; too few correct none."""
    low, high = bounds
    if parts is None or high is None or not mean["n_conversations"]:
        return {}
    correction = corrected(parts, "conversation_id", (low, high))
    if correction is None:
        n_drawn = parts.drop_nulls(["human", "weight"]).height
        return {"n_labels_drawn": n_drawn or None}
    estimate = correction[0]
    return {
        "mean": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "mean_of_judge": estimate.of_judge,
        "n_labels_drawn": estimate.n_drawn,
    }


def by_rule(row: Mapping[str, Any]) -> str | None:
    """Return how many turns or conversations rules decided if a row has no mean, e.g. '1 of 100 turns, by rule'."""
    n_all = row["n_scored"] + row["n_unscored"] + row["n_unasked"]
    if row["mean"] is not None or not row["n_scored"]:
        return None
    return f"{row['n_scored']:,} of {n_all:,} {'turn' if n_all == 1 else 'turns'}, by rule"


def log_leaderboard(
    summary: pl.DataFrame, error_clusters: pl.DataFrame, transcripts: pl.DataFrame, agents: pl.DataFrame
) -> pl.DataFrame:
    """List the agents whose conversations fill no slot, with their headline figures.

    The agents' conversations attempt different tasks. The rows are therefore not ranked and are sorted by id.

    Args:
        summary: Table quality_summary.
        error_clusters: Table error_clusters.
        transcripts: Table transcripts, with admission, slots and tests of the conversations.
        agents: Table agents, with the display names.

    Returns:
        Table log_leaderboard: one row per version and agent that has admitted conversations, none of which has
        a slot or a required test.
    """
    fills = pl.col("slot").is_not_null() | (pl.col("tests").list.len() > 0).fill_null(value=False)
    logs = (
        transcripts.filter("is_admitted")
        .group_by(_PAIR)
        .agg(
            n_conversations=pl.len().cast(pl.Int64),
            n_sessions=pl.col("session_id").n_unique().cast(pl.Int64),
            fills=fills.any(),
        )
        .filter(~pl.col("fills"))
    )
    rated = summary.filter(pl.col("quantity") == HEADLINES["helpfulness_1to5"], pl.col("mean").is_null())
    notes = [
        {**{name: row[name] for name in _PAIR}, "helpfulness_by_rule": by_rule(row)}
        for row in rated.to_dicts()
    ]
    schema = {**dict.fromkeys(_PAIR, pl.String), "helpfulness_by_rule": pl.String}
    logs = logs.join(pl.DataFrame(notes, schema=schema), on=_PAIR, how="left")
    for column, quantity in HEADLINES.items():
        of = summary.filter(pl.col("quantity") == quantity).select(
            *_PAIR, pl.col("mean").alias(column), *(pl.col(end).alias(f"{column}_{end}") for end in ("low", "high")),
            *(
                pl.col(name).alias(f"{column}_{end}")
                for name, end in _LABELS
                if quantity != COST
            ),
        )  # fmt: skip
        logs = logs.join(of, on=_PAIR, how="left")
    # success and cost are part of the transcripts; all other quantities need judges
    judged_quantities = summary.filter(~pl.col("quantity").is_in([SUCCESS_RATE, COST]))
    answers = judged_quantities.group_by(_PAIR).agg(
        *(pl.col(name).sum() for name in _COUNTS),
        judges=pl.col("judges").explode(empty_as_null=False).unique().sort(),
    )
    rows = (
        logs.join(answers, on=_PAIR, how="left")
        .join(top_errors(error_clusters, 1), on=_PAIR, how="left")
        .join(agents.select("agent_id", "name"), on="agent_id", how="left")
        .with_columns(pl.col(_COUNTS).fill_null(0), pl.col("judges").fill_null([]))
        .rename({"cluster_id": "top_cluster_id", "title": "top_error", "rate_per_100_turns": "top_error_rate_per_100_turns"})
    )  # fmt: skip
    target = table("log_leaderboard")
    return target.frame(rows.to_dicts()).sort(target.key)


def top_errors(error_clusters: pl.DataFrame, n: int) -> pl.DataFrame:
    """Return the first `n` clusters of each agent and version, sorted by severity and then by number of turns.

    Clusters with all their findings in another one are omitted.
    """
    order = pl.col("severity").replace_strict({name: i for i, name in enumerate(_SEVERITIES)}, default=9)
    return (
        error_clusters.filter(pl.col("same_as").is_null())
        .sort(order, -pl.col("n_turns"), "cluster_id", maintain_order=True)
        .group_by(_PAIR, maintain_order=True)
        .head(n)
    )
