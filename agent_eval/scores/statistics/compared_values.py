"""Compute the compared values of two agents: per session, per task and per conversation."""

from collections.abc import Sequence

import polars as pl

from agent_eval.scores.composite.board_facts import NOT_SAMPLED
from agent_eval.scores.reliability.trials import GOAL_METRIC, TRIAL
from agent_eval.scores.statistics.unpaired import RULE
from agent_eval.scores.tools.correctness import UTILISATION_METRIC
from agent_eval.tables.judging import enters_means

PASS_AT_1 = "pass@1"
DECLARED = (GOAL_METRIC, UTILISATION_METRIC)
"""Metrics that a rule can answer with either value, from declared data; other rules decide only some answers."""
RATES = (PASS_AT_1, GOAL_METRIC)
"""Quantities that are shares of trials; if a trial is unknown, they have a worst and a best case."""


def session_values(
    composite_scores: pl.DataFrame, universal_scores: pl.DataFrame, domain_scores: pl.DataFrame
) -> pl.DataFrame:
    """Return each agent's session values for `compare`: composite (after its penalty), universal and domain.

    If an agent's penalty is unknown, 'raw composite' is used instead of 'composite'. `judge_error` is the standard error of
    `composite.judge_error`, 0 where composite_scores lacks it.
    """
    rows: list[tuple[str, str, list[float], float | None, float]] = []
    for row in composite_scores.iter_rows(named=True):
        penalty = row["repeatability_penalty"]
        values = [v - (penalty or 0.0) for v in _known(row["session_scores"])]
        name = "raw composite" if penalty is None else "composite"
        error = row.get("judge_error_0to100") or 0.0
        rows.append((row["agent_id"], name, values, row["point_0to100"], error))
    for quantity, scores, point in (
        ("universal", universal_scores, 100 / 30),
        ("domain", domain_scores, 100 / 75),
    ):
        values_of = scores.select("agent_id", f"session_{quantity}").iter_rows()
        rows += [(agent_id, quantity, _known(values), point, 0.0) for agent_id, values in values_of]
    return pl.DataFrame(
        rows,
        schema={
            "agent_id": pl.String,
            "quantity": pl.String,
            "values": pl.List(pl.Float64),
            "point": pl.Float64,
            "judge_error": pl.Float64,
        },
        orient="row",
    )


def task_values(
    outcomes: pl.DataFrame,
    conversations: pl.DataFrame,
    turn_judgments: pl.DataFrame,
    conversation_judgments: pl.DataFrame,
    *,
    unasked: Sequence[str],
    repeats_outcome: bool = False,
) -> pl.DataFrame:
    """Return the mean of each quantity over a task's trials, for one version.

    The quantities are pass@1 (share of correct trials), cost_usd, and every effective, scored rating or 0–1
    metric of conversations and of turns (averaged over the conversation first). A trial does not count for a
    quantity that is unknown in it; conversations without a task are ignored. Goal completion is omitted if it
    equals the declared outcome or decided the trial, because it would repeat pass@1. For the quantities in
    RATES, trials are counted, and `worst` and `best` count the unknown trials as failed and as passed; `best` also counts
    the failures that ended in an error of unknown cause as passed.

    Args:
        outcomes: From `trial_outcomes`.
        conversations: Table conversations, for the costs.
        turn_judgments: Ratings and values of turns.
        conversation_judgments: Ratings and values of conversations.
        repeats_outcome: Keep goal completion even if it repeats the outcome; for comparisons without pass@1.
        unasked: As in `conversation_metrics`.

    Returns:
        One row per agent, task set, task and quantity, sorted, with `value` (null if only worst and best are
        known), `worst`, `best`, `n_known`, `n_harness_errors`, `n_unknown`, `n_unexplained_errors` and `family`.
    """
    if "task_family" not in outcomes.columns:
        outcomes = outcomes.with_columns(task_family=pl.lit(None, dtype=pl.String))
    if "is_harness_error" not in outcomes.columns:
        outcomes = outcomes.with_columns(is_harness_error=pl.lit(value=False))
    if "is_unexplained_error" not in outcomes.columns:
        outcomes = outcomes.with_columns(is_unexplained_error=pl.lit(value=False))
    trials = outcomes.filter(pl.col("task").str.starts_with("task:"))
    costs = trials.join(
        conversations.select("agent_id", "conversation_id", value="cost_usd"),
        on=["agent_id", "conversation_id"],
    ).with_columns(quantity=pl.lit("cost_usd"))
    correct = trials.with_columns(quantity=pl.lit(PASS_AT_1), value=pl.col("is_correct").cast(pl.Float64))
    key = ["agent_id", "task_set", "task", "quantity"]
    columns = [*key, "value", "is_harness_error", "is_unexplained_error", "task_family"]
    judgments, of_goal = conversation_judgments, trials
    if not repeats_outcome:
        repeated = _repeated(trials, judgments)
        judgments = judgments.join(repeated, on=[*TRIAL, "metric"], how="anti")
        of_goal = trials.join(repeated, on=list(TRIAL), how="anti")
    metrics = known_metrics(conversation_metrics(turn_judgments, judgments, unasked))
    measured = trials.join(metrics.filter(pl.col("quantity") != GOAL_METRIC), on=list(TRIAL))
    judged_goals = metrics.filter(pl.col("quantity") == GOAL_METRIC)
    goals = of_goal.join(judged_goals, on=list(TRIAL), how="left").with_columns(quantity=pl.lit(GOAL_METRIC))
    every = [correct, costs, measured, *([] if judged_goals.is_empty() else [goals])]
    is_rate, value, broken = pl.col("quantity").is_in(RATES), pl.col("value"), pl.col("is_harness_error")
    n_open, unexplained = value.null_count(), pl.col("is_unexplained_error").fill_null(False)
    return (
        pl.concat([part.select(columns) for part in every])
        .filter(is_rate | value.is_not_null())
        .sort(columns)  # sorted because float sums depend on the order of addition
        .group_by(key, maintain_order=True)
        .agg(
            value.mean(),
            worst=value.sum() / pl.len(),
            best=(value.sum() + n_open + (1 - value.filter(unexplained)).sum()) / pl.len(),
            n_known=value.count().cast(pl.Int64),
            n_harness_errors=(value.is_null() & broken).sum().cast(pl.Int64),
            n_unknown=(value.is_null() & ~broken).sum().cast(pl.Int64),
            n_unexplained_errors=unexplained.sum().cast(pl.Int64),
            family=pl.col("task_family").drop_nulls().first(),
        )
        .sort(key)
    )


def says_goal(conversation_judgments: pl.DataFrame) -> bool:
    """Return whether any conversation has a known goal completion."""
    counts = (pl.col("metric") == GOAL_METRIC) & pl.col("is_effective") & (pl.col("status") == "scored")
    return not conversation_judgments.filter(counts).is_empty()


def _repeated(trials: pl.DataFrame, conversation_judgments: pl.DataFrame) -> pl.DataFrame:
    """Return the conversations whose goal completion repeats the trial's outcome, with the metric's name."""
    goals = conversation_judgments.filter(
        pl.col("metric") == GOAL_METRIC, enters_means(conversation_judgments)
    )
    is_same = (pl.col("source") == GOAL_METRIC) | (
        (pl.col("source") == "outcome") & (pl.col("judge") == RULE)
    )
    return (
        goals.join(trials.select(*TRIAL, "source"), on=list(TRIAL)).filter(is_same).select(*TRIAL, "metric")
    )


def conversation_metrics(
    turn_judgments: pl.DataFrame, conversation_judgments: pl.DataFrame, unasked: Sequence[str]
) -> pl.DataFrame:
    """Return each metric's mean per conversation over effective, scored answers, for `known_metrics`.

    Args:
        turn_judgments: Ratings and values of turns.
        conversation_judgments: Ratings and values of conversations.
        unasked: Beginnings of the reasons of answers that are missing because no model was asked.

    Returns:
        One row per conversation and metric with an answer or an open question: `quantity`, `value`, `value_asked`
        (the mean without the answers of rules) and `is_open` (whether a question about the metric is open).
    """
    columns = ["judge", "status", "unscored_reason", "rating_1to5", "value"]
    key = [*TRIAL, "metric"]
    rows = pl.concat(
        frame.filter(enters_means(frame)).select(*key, *columns)
        for frame in (turn_judgments, conversation_judgments)
    )
    answer = pl.coalesce(pl.col("rating_1to5").cast(pl.Float64), "value")
    reason = pl.col("unscored_reason").fill_null("")
    is_open = pl.any_horizontal(pl.lit(value=False), *(reason.str.starts_with(start) for start in unasked))
    rows = rows.select(
        *key,
        "judge",
        value=pl.when(pl.col("status") == "scored").then(answer),
        is_open=(is_open | is_left_out()) & ~pl.col("metric").is_in(DECLARED),
    ).filter(pl.col("value").is_not_null() | pl.col("is_open"))
    means = (
        rows.drop_nulls("value")
        .sort(*key, "value")  # sorted because float sums depend on the order of addition
        .group_by(key, maintain_order=True)
        .agg(
            pl.col("value").mean() + 0.0,  # 0.0 in place of -0.0
            value_asked=pl.col("value").filter(pl.col("judge") != RULE).mean() + 0.0,
        )
    )
    every = rows.lazy().group_by(key).agg(pl.col("is_open").any()).collect()
    return (
        every.join(means, on=key, how="left")
        .sort(key)
        .select(*TRIAL, pl.col("metric").alias("quantity"), "value", "value_asked", "is_open")
    )


def is_left_out() -> pl.Expr:
    """Return whether no model is asked about the conversation of a judgment, because it is not in the judged sample.

    The answers of rules in such a conversation do not count: rules look at all conversations, so there would be more of
    them than of the answers beside which they count.
    """
    return (pl.col("unscored_reason") == NOT_SAMPLED).fill_null(value=False).any().over(TRIAL)


def known_metrics(metrics: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of `conversation_metrics` with a known mean (columns `quantity` and `value`).

    A rule decides only some questions of a metric, e.g. that a missing reply is rated 1. While other questions about
    the metric are open because no model was asked, its answers say nothing about a mean: they do not count in a
    conversation with an open question, and nowhere if no person or model answered any question of the agent. Goal
    completion and the use of results are declared with either value, so they always count.
    """
    pair = ["methodology_version", "agent_id", "quantity"]
    is_by_rules = pl.col("is_open").any().over(pair) & (pl.col("value_asked").count().over(pair) == 0)
    value = pl.when("is_open").then("value_asked").otherwise("value")
    return metrics.with_columns(value=pl.when(~is_by_rules).then(value)).drop_nulls("value")


def _known(values: Sequence[float | None] | None) -> list[float]:
    """Return the values, or an empty list if any is missing."""
    numbers = [v for v in values or [] if v is not None]
    return numbers if len(numbers) == len(values or []) else []
