"""Compare each judge with people on the parts that both judged: table judge_calibration.

Frames in, frames out. The figures and their intervals are those of `statistics.agreement`; conversations are the
clusters.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import polars as pl

from agent_eval.scores.statistics import agreement
from agent_eval.scores.statistics.agreement import Answer, IntervalEstimate, Level, Pairs
from agent_eval.tables import table

HUMAN = "human"
NO_FAILURE, FAILURE = "no failure", "failure"
_TABLE = table("judge_calibration")
_PART = ["methodology_version", "agent_id", "conversation_id", "turn_index", "metric"]
_ANSWER = ["rating_1to5", "value", "label"]
_MOST_CELLS = 400  # of a confusion
Kind = Literal["label", "rating", "binary", "value"]
_LEVELS: Mapping[Kind, Level] = {
    "label": "nominal",
    "binary": "nominal",
    "rating": "ordinal",
    "value": "interval",
}


def judge_calibration(judgments: pl.DataFrame) -> pl.DataFrame:
    """Return table judge_calibration: one row per version, metric, judge and rubric with a label by a person.

    A pair is an answer of the judge and one of a person about the same part; a part with two raters has two pairs with
    each judge. Rows of judge `human` compare raters with each other. Which figures are defined depends on the answers:
    sensitivity and specificity need two values (positive: 1) or failure labels (positive: a failure), mean bias and
    weighted kappa numbers, raw agreement, kappa and confusion ratings, labels or two values.

    Args:
        judgments: Columns of turn_judgments (`turn_index` null for conversations): the key, rubric_hash, status and the
            answer; all answers about parts that people judged. Others are ignored.
    """
    scored = judgments.filter(pl.col("status").cast(pl.String) == "scored").select(
        *_PART, "judge", "judge_model", "rubric_hash", *_ANSWER
    )
    people = scored.filter(judge=HUMAN).rename({"judge_model": "rater"}).drop("judge", "rubric_hash")
    pairs = scored.join(people, on=_PART, how="inner", suffix="_human", nulls_equal=True).filter(
        (pl.col("judge") != HUMAN) | (pl.col("judge_model") < pl.col("rater"))
    )
    key = ["methodology_version", "metric", "judge", "rubric_hash"]
    rows = [
        dict(zip(key, name, strict=True)) | _figures(group)
        for name, group in pairs.sort(*key, *_PART, "judge_model", "rater").group_by(key, maintain_order=True)
    ]
    return _TABLE.conform(_TABLE.frame(rows))


def _figures(pairs: pl.DataFrame) -> dict[str, Any]:
    rows = pairs.to_dicts()
    judge, human = [_answer(row, "") for row in rows], [_answer(row, "_human") for row in rows]
    kind = _kind(judge, human, pairs)
    clusters = [(row["agent_id"], row["conversation_id"]) for row in rows]
    both = Pairs(judge, human, clusters)
    found: dict[str, Any] = {
        "n": len(rows),
        "n_conversations": len({*clusters}),
        "n_raters": len(
            {*pairs["rater"]} | ({*pairs["judge_model"]} if rows[0]["judge"] == HUMAN else set())
        ),
    }
    estimates: dict[str, IntervalEstimate] = {"alpha": _alpha(rows, judge, human, clusters, kind)}
    if kind != "value":
        estimates |= {"raw_agreement": agreement.raw_agreement(both), "kappa": agreement.cohen_kappa(both)}
        cells = agreement.confusion(both)
        if len(cells) <= _MOST_CELLS:
            counts = [{"judge": j, "human": h, "n": n} for (j, h), (n, _) in sorted(cells.items(), key=str)]
            found["confusion"] = json.dumps(counts, ensure_ascii=False)
    if kind != "label":
        estimates |= {"mean_bias": agreement.mean_bias(both)}
    if kind in ("rating", "value"):
        estimates |= {"weighted_kappa": agreement.quadratic_kappa(both)}
    if kind in ("label", "binary"):
        estimates |= _of_two_values(both, kind)
        found["positive"] = FAILURE if kind == "label" else "1"
    for name, estimate in estimates.items():
        found |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return found


def _of_two_values(pairs: Pairs, kind: Kind) -> dict[str, IntervalEstimate]:
    if kind == "label":
        judge, human = (
            [FAILURE if a != NO_FAILURE else a for a in side] for side in (pairs.judge, pairs.human)
        )
        pairs = Pairs(judge, human, pairs.clusters)
    positive: Answer = FAILURE if kind == "label" else 1.0
    return {
        "base_rate": agreement.base_rate(pairs, positive),
        "sensitivity": agreement.sensitivity(pairs, positive),
        "specificity": agreement.specificity(pairs, positive),
    }


def _alpha(
    rows: Sequence[Mapping[str, Any]],
    judge: Sequence[Answer],
    human: Sequence[Answer],
    clusters: Sequence[tuple[str, str]],
    kind: Kind,
) -> IntervalEstimate:
    """Return alpha of the judge and all people who rated its parts; of people alone in rows of judge `human`."""
    units: dict[tuple[Any, ...], dict[str, Answer]] = {}
    of_unit: dict[tuple[Any, ...], tuple[str, str]] = {}
    for row, one, other, cluster in zip(rows, judge, human, clusters, strict=True):
        part = tuple(row[name] for name in _PART)
        own = f"rater {row['judge_model']}" if row["judge"] == HUMAN else "judge"
        units.setdefault(part, {}).update({own: one, f"rater {row['rater']}": other})
        of_unit[part] = cluster
    return agreement.krippendorff_alpha(
        list(units.values()), _LEVELS[kind], [of_unit[part] for part in units]
    )


def _answer(row: Mapping[str, Any], side: str) -> Answer:
    if row[f"label{side}"] is not None:
        return str(row[f"label{side}"])
    number = row[f"rating_1to5{side}"]
    return float(row[f"value{side}"] if number is None else number)


def _kind(judge: Sequence[Answer], human: Sequence[Answer], pairs: pl.DataFrame) -> Kind:
    answers = {*judge, *human}
    if any(isinstance(answer, str) for answer in answers):
        return "label"
    if pairs["rating_1to5"].null_count() + pairs["rating_1to5_human"].null_count() == 0:
        return "rating"
    return "binary" if answers <= {0.0, 1.0} else "value"
