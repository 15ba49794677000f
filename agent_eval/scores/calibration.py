"""Compare each judge with people on the parts that both judged, and build table judge_calibration.

Functions take and return frames. `statistics.agreement` computes the figures and their intervals, with conversations as
clusters.
"""

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Literal

import polars as pl

from agent_eval.metrics.metric_set import may_be_failure
from agent_eval.scores.statistics import agreement
from agent_eval.scores.statistics.agreement import Answer, IntervalEstimate, Level, Pairs
from agent_eval.scores.statistics.corrected_rate import (
    FEWEST_AGENTS,
    TOO_FEW_DRAWN,
    Accuracy,
    accuracy,
    accuracy_for_others,
)
from agent_eval.scores.statistics.unpaired import RULE
from agent_eval.tables import table
from agent_eval.tables.judging import HUMAN as HUMAN
from agent_eval.tables.judging import is_imported, is_imported_judge

NO_FAILURE, FAILURE = "no failure", "failure"
PEOPLE, OUTCOMES, ANNOTATIONS = "people", "declared outcomes", "annotations"
_TABLE = table("judge_calibration")
_PART = ["methodology_version", "agent_id", "conversation_id", "turn_index", "criterion", "metric"]
_ANSWER = ["rating_1to5", "value", "label"]
_CITED = ["message_index", "speaker"]
SAMPLING = pl.Schema(
    {
        **dict.fromkeys(
            ("methodology_version", "agent_id", "conversation_id", "criterion", "metric", "rater"), pl.String
        ),
        "turn_index": pl.Int64,
        "weight": pl.Float64,
        **dict.fromkeys(("stratum", "label_rubric"), pl.String),
    }
)
"""Columns that describe how labels were sampled: the part and rater, the weight, the stratum and the rubric seen."""
_STALE = "stale: people labelled under another rubric"
_FEW = f"{TOO_FEW_DRAWN}, and fewer than {FEWEST_AGENTS} other agents have drawn labels of each kind in five conversations"
_MOST_CELLS = 400  # of a confusion matrix
Kind = Literal["label", "rating", "binary", "value"]
_LEVELS: Mapping[Kind, Level] = {
    "label": "nominal",
    "binary": "nominal",
    "rating": "ordinal",
    "value": "interval",
}


def judge_calibration(
    judgments: pl.DataFrame,
    sampling: pl.DataFrame | None = None,
    outcomes: pl.DataFrame | None = None,
    annotated: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Return table judge_calibration: one row per version, metric, judge and rubric with at least one human label.

    With `outcomes`, there is also a row for each judge that was asked beside declared outcomes (column `reference`);
    with `annotated`, one for each judge that cites messages of conversations whose source names the message.

    A pair is an answer of the judge and an answer of a person about the same part; a part with two raters has two pairs
    with each judge. Rows with judge `human` compare raters with each other. The defined figures depend on the kind of
    answers:

    - sensitivity and specificity: two values (1 is positive) or failure labels (a failure is positive);
    - mean bias: ratings, two values or other numbers;
    - weighted kappa: ratings or other numbers, but not two values;
    - raw agreement, kappa and confusion: ratings, labels or two values;
    - accuracy of the cited message and of its speaker: any answers, where the person cites a message.

    Args:
        judgments: All answers about parts that people judged; other rows are ignored. The columns are those of
            turn_judgments (key, rubric_hash, status and the answer; `turn_index` is null for conversations), criterion,
            and reply_length (characters in the turn's reply, null above turn level). For rubric ratings, `metric` holds
            the target; for U1–U6, `conversation_id` holds the session.
        sampling: The columns SAMPLING: how the parts on people's rating sheets were sampled, and the rubric that the
            raters saw. Its weights are applied to the figures; a label outside the sample has weight 1, and several
            raters of a part share its weight. A row is stale if people saw a different rubric than the judge.
        outcomes: Answers of judges and rules about goal completion where the outcome is declared, with the columns of
            `judgments`; the rule's answers are the outcomes.
        annotated: Answers of judges where the source of a conversation cites a message for the same metric, with the
            columns of `judgments`; the answers by ANNOTATIONS are the annotations. Only messages are compared.
    """
    key = ["methodology_version", "metric", "judge", "rubric_hash"]
    rows = [
        dict(zip(key, name, strict=True)) | {"reference": PEOPLE} | _figures(group)
        for name, group in _pairs(judgments, sampling)
    ]
    if outcomes is not None:
        rows += [
            dict(zip(key, name, strict=True)) | _figures(group) | {"reference": OUTCOMES, "n_raters": 0}
            for name, group in _pairs(outcomes, None, RULE)
            if name[2] not in (HUMAN, RULE)
        ]
    for name, group in _pairs(annotated, None, ANNOTATIONS) if annotated is not None else ():
        if name[2] not in (HUMAN, ANNOTATIONS):
            n = {"n": group.height, "n_conversations": group.n_unique(["agent_id", "conversation_id"])}
            figures = {"reference": ANNOTATIONS, "n_raters": 0, "is_stale": False, **n, **_of_steps(group)}
            rows.append(dict(zip(key, name, strict=True)) | figures)
    return _TABLE.conform(_TABLE.frame(rows))


def judge_accuracies(
    judgments: pl.DataFrame, sampling: pl.DataFrame | None = None
) -> dict[tuple[str, str, str, str | None], Accuracy | str]:
    """Return sensitivity and specificity for agents without labels, or the reason why they are unknown.

    They are by version, metric, judge and rubric (see `accuracy_for_others`), for metrics with failure labels or two
    values, without people and judges of other tools. Only labels that sheets drew count, because people choose others
    after they have seen the judge's answer. The arguments are those of `judge_calibration`.
    """
    by_judge: dict[tuple[str, str, str, str | None], Accuracy | str] = {}
    for (version, metric, judge, rubric), pairs in _pairs(judgments, sampling):
        _, kind, is_stale = _compared(pairs)
        if judge == HUMAN or is_imported(judge) or kind not in ("label", "binary"):
            continue
        labels_by_agent = pairs.drop_nulls("weight").partition_by("agent_id", maintain_order=True)
        of_agents = [accuracy(*_two_values(_compared(labels)[0], kind)) for labels in labels_by_agent]
        pooled = accuracy_for_others([one for one in of_agents if one is not None])
        reason = _STALE if is_stale else _FEW
        by_judge[version, metric, judge, rubric] = reason if is_stale or pooled is None else pooled
    return by_judge


def _pairs(
    judgments: pl.DataFrame, sampling: pl.DataFrame | None, reference: str = HUMAN
) -> Iterator[tuple[tuple[Any, ...], pl.DataFrame]]:
    """Yield each version, metric, judge and rubric with its pairs of a judge's and a person's answer.

    With `reference`, the answers of another judge take the place of people's.
    """
    lacking = [pl.lit(None).alias(name) for name in _CITED if name not in judgments.columns]
    scored = judgments.filter(pl.col("status").cast(pl.String) == "scored").with_columns(lacking)
    scored = scored.select(*_PART, "judge", "judge_model", "rubric_hash", "reply_length", *_ANSWER, *_CITED)
    people = scored.filter(judge=reference).rename({"judge_model": "rater"})
    people = people.drop("judge", "rubric_hash", "reply_length")
    people = people.join(_last(sampling), on=[*_PART, "rater"], how="left", nulls_equal=True)
    pairs = scored.join(people, on=_PART, how="inner", suffix="_human", nulls_equal=True).filter(
        (pl.col("judge") != HUMAN) | (pl.col("judge_model") < pl.col("rater"))
    )
    key = ["methodology_version", "metric", "judge", "rubric_hash"]
    yield from pairs.sort(*key, *_PART, "judge_model", "rater").group_by(key, maintain_order=True)


def compared_with_people() -> pl.Expr:
    """Return whether a row of judge_calibration compares a judge with people, not with declared outcomes."""
    return pl.col("reference").cast(pl.String).fill_null(PEOPLE) == PEOPLE


def with_earlier(current_rows: pl.DataFrame, earlier: pl.DataFrame, judgments: pl.DataFrame) -> pl.DataFrame:
    """Return the current rows and, marked as stale, earlier rows of labelled metrics for which no judge has a new row.

    After a rubric, prompt or model changes, the earlier figures remain visible until a judge has answered the labelled
    parts again. Rows of other tools' judges and of people are not kept.

    Args:
        current_rows: The newly computed table judge_calibration.
        earlier: The stored table judge_calibration.
        judgments: As for `judge_calibration`.
    """
    key = ["methodology_version", "metric"]
    is_judge = ~pl.col("judge").is_in([HUMAN, "rule"]) & ~is_imported_judge()
    found_of_people = current_rows.filter(is_judge, compared_with_people())
    earlier_rows = earlier.filter(is_judge, compared_with_people()).join(
        judgments.filter(judge=HUMAN), on=key, how="semi"
    )
    earlier_rows = earlier_rows.join(found_of_people, on=key, how="anti")
    return _TABLE.conform(pl.concat([current_rows, earlier_rows.with_columns(is_stale=pl.lit(value=True))]))


def _last(sampling: pl.DataFrame | None) -> pl.DataFrame:
    sampling_rows = SAMPLING.to_frame() if sampling is None else sampling.select(list(SAMPLING))
    return sampling_rows.unique([*_PART, "rater"], keep="last", maintain_order=True)


def _compared(pairs: pl.DataFrame) -> tuple[Pairs, Kind, bool]:
    """Return both sides' answers with their sampling, the kind of answers, and whether people saw another rubric."""
    rows = pairs.to_dicts()
    judge, human = [_answer(row, "") for row in rows], [_answer(row, "_human") for row in rows]
    clusters = [(row["agent_id"], row["conversation_id"]) for row in rows]
    other_rubric = pairs["label_rubric"].ne(pairs["rubric_hash"]) & (pairs["judge"] != HUMAN)
    return (
        Pairs(judge, human, clusters, *_sampled(pairs)),
        _kind(judge, human, pairs),
        bool(other_rubric.any()),
    )


def _figures(pairs: pl.DataFrame) -> dict[str, Any]:
    rows = pairs.to_dicts()
    both, kind, is_stale = _compared(pairs)
    judge, human, clusters, weights = both.judge, both.human, [*both.clusters], both.weights
    figures: dict[str, Any] = {
        "is_stale": is_stale,
        "n_weighted": pairs["weight"].count(),
        "n": len(rows),
        "n_conversations": len({*clusters}),
        "n_raters": len(
            {*pairs["rater"]} | ({*pairs["judge_model"]} if rows[0]["judge"] == HUMAN else set())
        ),
    }
    estimates: dict[str, IntervalEstimate] = {"alpha": _alpha(rows, judge, human, clusters, weights, kind)}
    if kind != "value":
        estimates |= {"raw_agreement": agreement.raw_agreement(both), "kappa": agreement.cohen_kappa(both)}
        cells = agreement.confusion(both)
        if len(cells) <= _MOST_CELLS:
            counts = [{"judge": j, "human": h, "n": n} for (j, h), (n, _) in sorted(cells.items(), key=str)]
            figures["confusion"] = json.dumps(counts, ensure_ascii=False)
    if kind != "label":
        estimates |= {"mean_bias": agreement.mean_bias(both)}
    if kind in ("rating", "value"):
        estimates |= {"weighted_kappa": agreement.quadratic_kappa(both)}
    figures |= _of_steps(pairs)
    if kind == "binary" or (kind == "label" and may_be_failure(rows[0]["metric"])):
        estimates |= _of_two_values(both, kind)
        figures["positive"] = FAILURE if kind == "label" else "1"
    if kind != "label" and (has_length := pairs["reply_length"].is_not_null()).all() and has_length.len():
        lengths = pairs["reply_length"].cast(pl.Float64).to_list()
        for name, side in (("length_correlation", judge), ("length_correlation_human", human)):
            estimates[name] = agreement.rank_correlation(Pairs(side, lengths, clusters, weights, both.strata))
    return figures | _columns(estimates)


def _columns(estimates: Mapping[str, IntervalEstimate]) -> dict[str, float | None]:
    columns: dict[str, float | None] = {}
    for name, estimate in estimates.items():
        columns |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return columns


def _of_steps(pairs: pl.DataFrame) -> dict[str, Any]:
    """Return how often the judge cites the message that the reference cites, and a message of the same speaker."""
    cited = pairs.filter(pl.col("message_index_human").is_not_null())
    if cited.is_empty():
        return {}
    clusters = list(cited.select("agent_id", "conversation_id").iter_rows())
    estimates: dict[str, IntervalEstimate] = {}
    for name, column in (("step_accuracy", "message_index"), ("speaker_accuracy", "speaker")):
        judge, reference = (
            cited.select(pl.col(c).cast(pl.String).fill_null("")).to_series().to_list()
            for c in (column, f"{column}_human")
        )
        estimates[name] = agreement.raw_agreement(Pairs(judge, reference, clusters, *_sampled(cited)))
    return {"n_steps": cited.height, **_columns(estimates)}


def _sampled(pairs: pl.DataFrame) -> tuple[list[float] | None, list[str] | None]:
    """Return the weights and strata of the pairs; weights are None if no pair has one.

    Strata are returned only if every pair has one. Each stratum then keeps its share of the weight in the intervals.
    """
    if pairs["weight"].null_count() == pairs.height:
        return None, None
    n_raters = pl.len().over([*_PART, "judge_model"])
    weights = pairs.select(pl.col("weight").fill_null(1.0) / n_raters).to_series().to_list()
    return weights, None if pairs["stratum"].null_count() else pairs["stratum"].to_list()


def _of_two_values(pairs: Pairs, kind: Kind) -> dict[str, IntervalEstimate]:
    pairs, positive = _two_values(pairs, kind)
    return {
        "base_rate": agreement.base_rate(pairs, positive),
        "sensitivity": agreement.sensitivity(pairs, positive),
        "specificity": agreement.specificity(pairs, positive),
    }


def _two_values(pairs: Pairs, kind: Kind) -> tuple[Pairs, Answer]:
    """Return the pairs with binary answers, and the positive answer; labels become 'failure' or 'no failure'."""
    if kind != "label":
        return pairs, 1.0
    judge, human = ([FAILURE if a != NO_FAILURE else a for a in side] for side in (pairs.judge, pairs.human))
    return Pairs(judge, human, pairs.clusters, pairs.weights, pairs.strata), FAILURE


def _alpha(
    rows: Sequence[Mapping[str, Any]],
    judge: Sequence[Answer],
    human: Sequence[Answer],
    clusters: Sequence[Hashable],
    weights: Sequence[float] | None,
    kind: Kind,
) -> IntervalEstimate:
    """Return alpha for the judge and all people who rated its parts, or for people alone if the judge is `human`."""
    units: dict[tuple[Any, ...], dict[str, Answer]] = {}
    of_unit: dict[tuple[Any, ...], Hashable] = {}
    weight: dict[tuple[Any, ...], float] = {}
    for row, one, other, cluster, share in zip(
        rows, judge, human, clusters, weights or [1.0] * len(rows), strict=True
    ):
        part = tuple(row[name] for name in _PART)
        own = f"rater {row['judge_model']}" if row["judge"] == HUMAN else "judge"
        units.setdefault(part, {}).update({own: one, f"rater {row['rater']}": other})
        of_unit[part] = cluster
        weight[part] = share if weights is None else weight.get(part, 0.0) + share
    return agreement.krippendorff_alpha(
        list(units.values()),
        _LEVELS[kind],
        [of_unit[part] for part in units],
        [weight[part] for part in units],
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
