"""Correct agents' rates for the errors of the judge, with human labels of other agents.

Functions take and return frames; `statistics.corrected_rate` contains the formulas. Scores and ranks are not corrected.
"""

from collections.abc import Mapping
from typing import Any

import polars as pl

from agent_eval.scores.statistics.clustered import FEWEST_CLUSTERS, clustered_mean
from agent_eval.scores.statistics.corrected_rate import (
    Accuracy,
    corrected_rate,
)

CORRECTED = ("corrected", "corrected_low", "corrected_high")
BY = "corrected_by"
OWN_LABELS, ACCURACY = "labels of these conversations", "sensitivity and specificity"
REFUSED = "correction_refused"
SCHEMA = pl.Schema(
    {
        **dict.fromkeys(("methodology_version", "agent_id", "quantity", "judge"), pl.String),
        **dict.fromkeys(("judge_rate", *CORRECTED), pl.Float64),
        **dict.fromkeys((BY, REFUSED), pl.String),
    }
)
_QUANTITY = ["methodology_version", "agent_id", "quantity"]
JudgedMetric = tuple[str, str, str, str | None]
"""The version, metric, judge and rubric hash."""


def corrected_rates(answers: pl.DataFrame, accuracies: Mapping[JudgedMetric, Accuracy | str]) -> pl.DataFrame:
    """Return the corrected rate of each quantity, or the reason why it has none (`correction_refused`).

    `judge_rate`, `corrected` and its interval are shares from 0 to 1. They are means over units, and a unit's value is
    the mean of its answers. The judge's own answers count even if a person decided otherwise. The correction uses the
    judge's sensitivity and specificity on other agents; labels of the agent itself correct its means where they are
    computed (`labelled_parts`).

    Args:
        answers: One row per answer of a judge, for all quantities whose judge was compared with people. The columns are
            _QUANTITY, metric, judge, rubric_hash, unit (the mean is taken over units), cluster (clusters are
            independent) and value (0 or 1).
        accuracies: Sensitivity and specificity of each judge on other agents, or the reason why they are unknown.
    """
    rows: list[dict[str, Any]] = []
    for key, quantity_answers in answers.group_by(_QUANTITY, maintain_order=True):
        row: dict[str, Any] = dict(zip(_QUANTITY, key, strict=True))
        judges = quantity_answers.select("methodology_version", "metric", "judge", "rubric_hash").unique()
        if judges.height > 1:
            names = ", ".join(sorted(set(judges["judge"])))
            rows.append(row | {REFUSED: f"its answers are by several judges or rubrics ({names})"})
            continue
        judged_metric: JudgedMetric = judges.row(0)
        units = quantity_answers.group_by("cluster", "unit", maintain_order=True).agg(pl.col("value").mean())
        mean = clustered_mean(units["value"].to_list(), units["cluster"].to_list())
        judge_accuracy = accuracies.get(judged_metric, "people labelled nothing of it")
        row |= {"judge": judged_metric[2], "judge_rate": units["value"].mean()}
        if mean is None or mean.n_clusters < FEWEST_CLUSTERS:
            few = f"the rate rests on fewer than {FEWEST_CLUSTERS} sessions, or tasks or conversations of a single one"
            rows.append(row | {REFUSED: few})
        elif isinstance(judge_accuracy, str):
            rows.append(row | {REFUSED: judge_accuracy})
        else:
            corrected = corrected_rate(min(max(mean.mean, 0.0), 1.0), mean.error**2, judge_accuracy)
            *cells, refused, _ = corrected
            by = None if refused else ACCURACY
            rows.append(row | dict(zip(CORRECTED, cells, strict=True)) | {REFUSED: refused, BY: by})
    return pl.DataFrame(rows, schema=SCHEMA)
