"""Correct the rates of agents for the errors of the judge that gave them, where people labelled enough.

Frames in, frames out; `statistics.corrected_rate` has the formula. Scores and ranks are not corrected.
"""

from collections.abc import Mapping
from typing import Any

import polars as pl

from agent_eval.scores.statistics.clustered import FEWEST_CLUSTERS, clustered_mean
from agent_eval.scores.statistics.corrected_rate import Accuracy, corrected_rate

CORRECTED = ("corrected", "corrected_low", "corrected_high")
REFUSED = "correction_refused"
SCHEMA = pl.Schema(
    {
        **dict.fromkeys(("methodology_version", "agent_id", "quantity", "judge"), pl.String),
        **dict.fromkeys(("judge_rate", *CORRECTED), pl.Float64),
        REFUSED: pl.String,
    }
)
_QUANTITY = ["methodology_version", "agent_id", "quantity"]
JudgedMetric = tuple[str, str, str, str | None]
"""Version, metric, judge and rubric hash."""


def corrected_rates(answers: pl.DataFrame, accuracies: Mapping[JudgedMetric, Accuracy | str]) -> pl.DataFrame:
    """Return the corrected rate of each quantity, or why there is none (`correction_refused`).

    `judge_rate`, `corrected` and its interval are shares, 0–1: means over units, of each the mean of its answers. The
    judge's own answers count, also where a person decided otherwise.

    Args:
        answers: One row per answer of a judge: _QUANTITY, metric, judge, rubric_hash, unit (what the mean is over),
            cluster (what is independent) and value (0 or 1); all quantities whose judge was compared with people.
        accuracies: Sensitivity and specificity, or the reason why they are not known.
    """
    rows: list[dict[str, Any]] = []
    for key, found in answers.group_by(_QUANTITY, maintain_order=True):
        row: dict[str, Any] = dict(zip(_QUANTITY, key, strict=True))
        judges = found.select("methodology_version", "metric", "judge", "rubric_hash").unique()
        if judges.height > 1:
            names = ", ".join(sorted(set(judges["judge"])))
            rows.append(row | {REFUSED: f"its answers are by several judges or rubrics ({names})"})
            continue
        judged: JudgedMetric = judges.row(0)
        units = found.group_by("cluster", "unit", maintain_order=True).agg(pl.col("value").mean())
        mean = clustered_mean(units["value"].to_list(), units["cluster"].to_list())
        known = accuracies.get(judged, "people labelled nothing of it")
        row |= {"judge": judged[2], "judge_rate": units["value"].mean()}
        if mean is None or mean.n_clusters < FEWEST_CLUSTERS:
            few = f"the rate rests on fewer than {FEWEST_CLUSTERS} sessions, or tasks or conversations of a single one"
            rows.append(row | {REFUSED: few})
        elif isinstance(known, str):
            rows.append(row | {REFUSED: known})
        else:
            value, low, high, refused = corrected_rate(min(max(mean.mean, 0.0), 1.0), mean.error**2, known)
            limits = dict(zip(CORRECTED, (value, low, high), strict=True))
            rows.append(row | limits | {REFUSED: refused})
    return pl.DataFrame(rows, schema=SCHEMA)
