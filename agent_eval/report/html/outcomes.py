"""Show the outcome of a conversation: the declared one, else whether people or a judge found its goal reached."""

import polars as pl

from agent_eval.scores.reliability.trials import GOAL_METRIC

KEY = ["agent_id", "conversation_id"]
GOALS = ("methodology_version", *KEY, "metric", "status", "judge", "value", "is_effective")
"""The columns of table conversation_judgments that decide outcomes."""


def decided(conversations: pl.DataFrame, judgments: pl.DataFrame) -> pl.DataFrame:
    """Return the conversations with `outcome_correct` as decided, and `decided_by`, which is null if it was declared.

    Args:
        conversations: Rows of table conversations.
        judgments: Rows of table conversation_judgments under one version, with the columns `GOALS`.
    """
    goals = judgments.filter("is_effective", metric=GOAL_METRIC, status="scored").unique(KEY, keep="first")
    answers = goals.select(*KEY, _value="value", decided_by="judge")
    is_open = pl.col("outcome_correct").is_null()
    if "outcome_class" in conversations.columns:
        is_open &= (pl.col("outcome_class") != "harness_error").fill_null(value=True)
    return (
        conversations.join(answers, on=KEY, how="left", maintain_order="left")
        .with_columns(
            decided_by=pl.when(is_open).then("decided_by"),
            outcome_correct=pl.when(is_open).then(pl.col("_value") == 1).otherwise("outcome_correct"),
        )
        .drop("_value")
    )


def decided_alike(conversations: pl.DataFrame, judgments: pl.DataFrame) -> pl.DataFrame:
    """Return the conversations as `decided` does, where the judgments under all versions agree; others are not decided.

    Args:
        conversations: Rows of table conversations.
        judgments: Rows of table conversation_judgments under all versions, with the columns `GOALS`.
    """
    goals = judgments.filter("is_effective", metric=GOAL_METRIC)
    agreed = goals.group_by(KEY).agg(pl.col("value").n_unique()).filter(pl.col("value") == 1)
    return decided(conversations, goals.join(agreed, on=KEY, how="semi"))
