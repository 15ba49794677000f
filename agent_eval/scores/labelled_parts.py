"""Correct the means of judges' answers with the labels of people that rating sheets drew.

A part is a turn or a conversation under one metric. Where a sheet drew a part, the judge's answer enters the mean and
the label corrects it (`corrected_mean`). Answers of rules, and labels that no sheet drew, decide their own
part only. Functions take and return frames.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import polars as pl

from agent_eval.formats.plain_text import count_of
from agent_eval.scores.reliability.trials import GOAL_METRIC, TRIAL
from agent_eval.scores.statistics.unpaired import FAILURE_RATE, RULE, SUCCESS_RATE
from agent_eval.tables.judging import HUMAN, enters_means

PARTS = pl.Schema(
    {
        **dict.fromkeys((*TRIAL, "quantity", "judge"), pl.String),
        "turn_index": pl.Int64,
        **dict.fromkeys(("value", "human", "weight", "judged"), pl.Float64),
    }
)
"""Columns of parts: the answer that enters the mean, people's answer, how many parts the label represents, and the
answer without people's labels.

`human` is null for a part that only the judge answered. `weight` is null for a part that a rule decided, or that people
decided without a draw; `human` then repeats the answer. `judged` is null where only people answered.
"""
_DIGITS = 12  # beyond them are errors of rounding
_STEP = 1.0  # between ratings, and between the two values of a rate; other numbers may differ by less
PAIR = ["methodology_version", "agent_id"]
_PART = [*TRIAL, "turn_index", "metric"]


class Corrected(NamedTuple):
    """Hold a mean that drawn labels correct, with its interval, and what it rests on."""

    value: float
    low: float | None
    high: float | None
    of_judge: float | None  # the mean of the answers without people's labels, null if there is none
    n_drawn: int  # labels that sheets drew
    n_own: int  # parts that rules decided, or people without a draw


def labels_said(
    n_drawn: int | None,
    n_own: int | None,
    *,
    is_corrected: bool,
    has_unchecked: bool = True,
    judge_alone: str = "",
) -> str:
    """Return what people's labels do to a value, e.g. 'corrected by 20 labels of people'; empty without labels.

    Args:
        n_drawn: Labels that sheets drew.
        n_own: Parts that people decided without a draw.
        is_corrected: Whether the drawn labels correct the value; else they are too few.
        has_unchecked: Whether any part of the value is the answer of a judge without a label.
        judge_alone: The value of the judge alone, if it is not shown elsewhere.
    """
    sentences = []
    if n_drawn and is_corrected:
        alone = f", judge alone {judge_alone}" if judge_alone else ""
        sentences = [f"corrected by {count_of(n_drawn, 'label')} of people{alone}"]
    elif n_drawn:
        sentences = [f"{count_of(n_drawn, 'drawn label')} of people, too few to correct the judge"]
    if n_own:
        rest = ", the rest not checked" if has_unchecked and not is_corrected else ""
        sentences.append(f"{count_of(n_own, 'part')} decided by people{rest}")
    return "; ".join(sentences)


def labelled_metrics(*judgments: pl.DataFrame) -> list[str]:
    """Return the metrics that people answered, sorted."""
    return sorted({m for frame in judgments for m in frame.filter(judge=HUMAN)["metric"]})


def parts_of(
    turn_judgments: pl.DataFrame,
    conversation_judgments: pl.DataFrame,
    metrics: Collection[str],
    failures: Collection[str],
    no_failure: str,
) -> pl.DataFrame:
    """Return the answers of these metrics that enter means, with people's labels (columns PARTS), one row per part.

    The label of a part with several raters is the one that counts. If they dispute it, it is the mean of the labels that
    sheets drew: without them, a label that somebody chose would remove one that was drawn. A failure is 1 and its absence
    0; turns in which only a rule looked for a failure are omitted, because rules label only failing turns.

    Args:
        turn_judgments: Answers about turns.
        conversation_judgments: Answers about whole conversations.
        metrics: The metrics, e.g. those of `labelled_metrics`.
        failures: The metrics whose labels are failures.
        no_failure: The label that is not a failure.
    """
    if not metrics:
        return PARTS.to_frame()
    columns = [*TRIAL, "metric", "judge", "status", "rating_1to5", "value", "label", "is_effective", "is_counted", "label_weight"]  # fmt: skip
    whole = conversation_judgments.select(*columns, turn_index=pl.lit(None, pl.Int64))
    is_failure = pl.col("metric").is_in(list(failures))
    failed = (pl.col("label") != no_failure).cast(pl.Float64)
    rows = (
        pl.concat([turn_judgments.select(whole.columns), whole])
        .filter(pl.col("metric").is_in(list(metrics)), pl.col("status").cast(pl.String) == "scored")
        .with_columns(
            answer=pl.when(is_failure)
            .then(failed)
            .otherwise(pl.coalesce(pl.col("rating_1to5").cast(pl.Float64), "value")),
            quantity=pl.when(is_failure).then(FAILURE_RATE + pl.col("metric")).otherwise("metric"),
        )
        .drop_nulls("answer")
    )
    labels = (
        rows.filter(pl.col("label_weight").is_not_null())
        .group_by(_PART)
        .agg(
            human=pl.coalesce(pl.col("answer").filter("is_effective").first(), pl.col("answer").mean()),
            weight=pl.col("label_weight").mean(),
        )
    )
    of_judge = (
        rows.filter(pl.col("judge") != HUMAN)
        .sort(pl.col("judge") == RULE, "judge")
        .unique(_PART, keep="first", maintain_order=True)
        .select(*_PART, judged="answer")
    )
    looked_at = rows.filter(pl.col("judge") != RULE).select(_PART).unique()
    is_decided = pl.col("judge").is_in([HUMAN, RULE])
    return (
        rows.filter(enters_means(rows))
        .join(labels, on=_PART, how="left", nulls_equal=True)
        .join(of_judge, on=_PART, how="left", nulls_equal=True)
        .join(looked_at.with_columns(is_looked_at=True), on=_PART, how="left", nulls_equal=True)
        .filter(~is_failure | pl.col("is_looked_at").fill_null(value=False))
        .with_columns(
            value="answer",
            human=pl.when(is_decided).then("answer").otherwise("human"),
            weight=pl.when(~is_decided).then("weight"),
        )
        .select(list(PARTS))
        .sort(list(PARTS))
    )


def success_parts(outcomes: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """Return the known outcomes of trials as parts of the success rate.

    Labels of goal completion correct the outcomes that goal completion decides; declared outcomes are known. The result
    is empty for an agent some of whose outcomes are decided by interactions, because a label describes one answer of
    an interaction and not its outcome.

    Args:
        outcomes: From `trial_outcomes`.
        parts: From `parts_of`.
    """
    goals = parts.filter(quantity=GOAL_METRIC).select(
        *TRIAL, "human", "weight", goal_judge="judge", goal_value="value", goal_judged="judged"
    )
    is_by_goal = pl.col("source") == GOAL_METRIC
    value = pl.col("is_correct").cast(pl.Float64)
    by_interactions = (pl.col("source") == "interactions").any().over(PAIR)
    return (
        outcomes.drop_nulls("is_correct")
        .filter(~by_interactions)
        .join(goals, on=list(TRIAL), how="left")
        .with_columns(
            value=pl.when(is_by_goal).then("goal_value").otherwise(value),
            quantity=pl.lit(SUCCESS_RATE),
            judge=pl.when(is_by_goal).then("goal_judge").otherwise("source"),
            turn_index=pl.lit(None, pl.Int64),
            human=pl.when(is_by_goal).then("human").otherwise(value),
            weight=pl.when(is_by_goal).then("weight"),
            judged=pl.when(is_by_goal).then("goal_judged").otherwise(value),
        )
        .select(list(PARTS))
    )


def placed_parts(parts: pl.DataFrame, outcomes: pl.DataFrame, metrics: pl.DataFrame) -> pl.DataFrame:
    """Return the parts of every mean over conversations, with `session_id` and `cluster`: family, task or conversation.

    Parts of metrics count where `known_metrics` has a mean. Goal completion is omitted where the success is known, and the
    success rate is added, as in `conversation_values`.

    Args:
        parts: From `parts_of`.
        outcomes: From `trial_outcomes`.
        metrics: From `known_metrics`.
    """
    family = [name for name in ("task_family",) if name in outcomes.columns]
    outcomes_with_result = outcomes.drop_nulls("is_correct").select(TRIAL)
    is_open = metrics.select(*TRIAL, "quantity", "is_open")
    is_rate = pl.col("quantity").str.starts_with(FAILURE_RATE)
    of_metrics = parts.filter(~is_rate).join(is_open, on=[*TRIAL, "quantity"], how="inner")
    of_metrics = of_metrics.filter(~(pl.col("is_open") & (pl.col("judge") == RULE)))
    is_goal = pl.col("quantity") == GOAL_METRIC
    goals = of_metrics.filter(is_goal).join(outcomes_with_result, on=list(TRIAL), how="anti")
    every = [of_metrics.filter(~is_goal), goals, parts.filter(is_rate), success_parts(outcomes, parts)]
    return pl.concat([rows.select(list(PARTS)) for rows in every]).join(
        outcomes.select(
            *TRIAL, "session_id", "task", "task_set", cluster=pl.coalesce(*family, "task", "conversation_id")
        ),
        on=list(TRIAL),
    )


def goal_parts(conversation_judgments: pl.DataFrame) -> pl.DataFrame:
    """Return goal completion of every conversation as parts, if people answered it; else no rows."""
    of_goals = conversation_judgments.filter(metric=GOAL_METRIC)
    no_turns = of_goals.clear().with_columns(turn_index=pl.lit(None, pl.Int64))
    return parts_of(no_turns, of_goals, labelled_metrics(of_goals), (), "")


def corrected_rates_of(parts: pl.DataFrame, group: Sequence[str], unit: str) -> pl.DataFrame:
    """Return the corrected rate of each group of parts that has one, with the columns of `Corrected`.

    The arguments are those of `corrected`, with parts of several groups.
    """
    rows = [
        dict(zip(group, key, strict=True)) | rate[0]._asdict()
        for key, of_group in parts.partition_by(group, as_dict=True).items()
        if (rate := corrected(of_group, unit, (0.0, 1.0))) is not None
    ]
    floats = dict.fromkeys(("value", "low", "high", "of_judge"), pl.Float64)
    schema = {
        **dict.fromkeys(group, pl.String),
        **floats,
        "n_drawn": pl.Int64,
        "n_own": pl.Int64,
    }
    return pl.DataFrame(rows, schema=schema)


def corrected(
    parts: pl.DataFrame, unit: str, bounds: tuple[float, float], *, is_known_enough: bool = False
) -> tuple[Corrected, pl.Series] | None:
    """Return the corrected mean of one quantity of one agent, and the expected answer of people to each part.

    The result is None if sheets drew labels in fewer than five conversations, unless people labelled every part. The
    mean is over units, and a unit's value is the mean over its conversations of the mean of their parts. Clusters are
    the sessions if the labels are from at least two, else `cluster`.

    Args:
        parts: Parts with the columns PARTS, `session_id` and `cluster`.
        unit: The column of the unit: conversation_id or task.
        bounds: The ends of the scale.
        is_known_enough: Also return the mean if no part needs a judge, because rules, declared outcomes or people
            decided every one.
    """
    is_drawn = pl.col("human").is_not_null() & pl.col("weight").is_not_null()
    n_drawn = parts.filter(is_drawn).height
    if not n_drawn:
        if not is_known_enough or parts["human"].has_nulls():
            return None
        parts = parts.with_columns(weight=1.0)
    from agent_eval.scores.corrected_mean import corrected_mean  # imported on use: it loads numpy
    from agent_eval.scores.statistics.corrected_rate import DoubleSample

    of_unit, n_units = pl.col("conversation_id").n_unique().over(unit), pl.col(unit).n_unique()
    rows = parts.with_columns(share=1 / pl.len().over(unit, "conversation_id") / of_unit / n_units)
    by_session = Counter(rows.filter(is_drawn)["session_id"].to_list())
    is_by_session = n_drawn**2 >= 2 * sum(n**2 for n in by_session.values())
    human, weight = (
        rows[name].cast(pl.Float64).fill_null(float("nan")).to_numpy() for name in ("human", "weight")
    )
    clusters = rows["session_id" if is_by_session else "cluster"].to_list()
    sample = DoubleSample(
        rows["value"].to_numpy(),
        human,
        rows["share"].to_numpy(),
        weight,
        clusters,
        rows["conversation_id"].to_list(),
    )
    if not sample.has_labels:
        return None
    estimate = corrected_mean(sample, bounds, _STEP)
    has_interval = len({*clusters}) > 1
    assert estimate.value is not None and estimate.predicted is not None  # noqa: PT018 — it has labels
    low, high = (None if end is None else round(end, _DIGITS) for end in (estimate.low, estimate.high))
    mean = Corrected(
        round(estimate.value, _DIGITS),
        low if has_interval else None,
        high if has_interval else None,
        _without_people(rows),
        n_drawn,
        int(sample.is_decided.sum()),
    )
    return mean, pl.Series(estimate.predicted)


def _without_people(parts: pl.DataFrame) -> float | None:
    """Return the mean of the answers without people's labels, over the parts that have one."""
    parts_with_answer = parts.drop_nulls("judged")
    if parts_with_answer.is_empty():
        return None
    shares = parts_with_answer["share"].to_numpy()
    return round(float(shares @ parts_with_answer["judged"].to_numpy() / shares.sum()), _DIGITS)
