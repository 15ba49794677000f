"""The audit: where a model, asked for each metric alone, answers otherwise than asked for all in one call."""

from dataclasses import replace

import polars as pl

from agent_eval.judge.cached import answers_of
from agent_eval.judge.protocol import Scored
from agent_eval.judge.spec import JudgeSpec


def disagreements(cache: pl.DataFrame, spec: JudgeSpec) -> pl.DataFrame:
    """One row per model and metric that was answered in both modes.

    Columns: judge, metric, n_both, n_equal (same rating, value or main label), mean_difference (per_metric minus
    one_call; null for labels).

    Args:
        cache: Table judge_cache.
        spec: The judge; its mode does not matter.
    """
    metric_of = dict(cache.select("question_key", "metric").iter_rows())
    rows = [
        {
            "judge": model,
            "metric": metric_of[key],
            "is_equal": _answer(alone[key]) == _answer(together[key]),
            "difference": _difference(alone[key], together[key]),
        }
        for model in spec.models
        for alone, together in [
            (
                answers_of(cache, model, replace(spec, mode="per_metric").parameters),
                answers_of(cache, model, replace(spec, mode="one_call").parameters),
            )
        ]
        for key in sorted(alone.keys() & together.keys())
    ]
    schema = {"judge": pl.String, "metric": pl.String, "is_equal": pl.Boolean, "difference": pl.Float64}
    return (
        pl.DataFrame(rows, schema=schema)
        .group_by("judge", "metric")
        .agg(n_both=pl.len(), n_equal=pl.col("is_equal").sum(), mean_difference=pl.col("difference").mean())
        .sort("judge", "metric")
    )


def _answer(answer: Scored) -> object:
    return answer.label if answer.label is not None else _number(answer)


def _number(answer: Scored) -> float | None:
    return answer.rating_1to5 if answer.rating_1to5 is not None else answer.value


def _difference(one: Scored, other: Scored) -> float | None:
    first, second = _number(one), _number(other)
    return None if first is None or second is None else first - second
