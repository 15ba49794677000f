"""Compare the stored answers of people and of judges to the same questions."""

from collections.abc import Sequence

import polars as pl

from agent_eval.judge.inputs.human_ratings import SAMPLED, by_people, latest_ratings
from agent_eval.metrics.base import NO_FAILURE
from agent_eval.metrics.builtin.goal_completion import DECISIVE_STEP
from agent_eval.project.project import Project
from agent_eval.scores.reliability.trials import ANSWER_METRIC, GOAL_METRIC
from agent_eval.scores.statistics.unpaired import FAILURE_RATE, RULE
from agent_eval.tables import table
from agent_eval.tables.judging import enters_means, is_imported_judge, without_checks_of_judges

_ANSWERS = (
    *("methodology_version", "agent_id", "conversation_id", "metric", "judge", "judge_model", "rubric_hash"),
    *("status", "rating_1to5", "value", "label", "message_index", "speaker"),
)
_OF_RUBRIC = (
    *("methodology_version", "agent_id", "session_id", "conversation_id", "target", "criterion"),
    *("judge", "rater", "status", "rating_1to5"),
)
_PAIR = ["methodology_version", "agent_id"]
_JUDGED = ("turn_judgments", "conversation_judgments")


def calibrations(project: Project, versions: Sequence[str]) -> pl.DataFrame:
    """Return table judge_calibration of the given versions, from the stored judgments of all agents.

    Only conversations that a person labelled are read. If no judge can be compared on a metric now, its rows from an
    earlier run are kept and marked as stale.
    """
    from agent_eval.scores.calibration import (
        judge_calibration,
        with_earlier,
    )  # imported on use: it loads numpy

    with project.store.reading():
        judgments_with_labels = _human_and_judged(project, versions)
        rated = _rubric_ratings(project, versions)
        earlier = project.store.read(table("judge_calibration"), _versions(versions))
        beside = _beside_outcomes(project, versions)
        annotated = _annotated(project, versions)
    judgments = pl.concat([judgments_with_labels, rated], how="diagonal_relaxed")
    calibration_rows = judge_calibration(judgments, _sampling(project, versions), beside, annotated)
    return with_earlier(calibration_rows, earlier, judgments)


def corrections(project: Project, pairs: pl.DataFrame, *, by_task: bool = False) -> pl.DataFrame:
    """Return the rates of agents, corrected with the judge's errors on other agents (see `corrected_rates`).

    The result is empty without labels of people. Quantities are named as in table quality_summary and grouped by
    conversation and session. With `by_task`, the quantities are the task sets, with goal completion by task.

    Args:
        project: The project.
        pairs: agent_id and methodology_version.
        by_task: Whether to correct pass@1, if goal completion decides it, instead of the rates of each metric.
    """
    from agent_eval.scores.calibration import judge_accuracies  # imported on use: it loads numpy
    from agent_eval.scores.corrected_rates import SCHEMA, corrected_rates

    versions = pairs["methodology_version"].unique().to_list()
    judgments, sampling = _human_and_judged(project, versions), _sampling(project, versions)
    accuracies = judge_accuracies(judgments, sampling)
    metrics = sorted({metric for _, metric, _, _ in accuracies if not by_task or metric == GOAL_METRIC})
    if not metrics:
        return SCHEMA.to_frame()
    places = project.store.read(
        table("transcripts"), pairs, columns=[*_PAIR, "conversation_id", "session_id", "task_id", "task_set"]
    )
    judge_answers = _answers_of_judges(project, pairs.join(pl.DataFrame({"metric": metrics}), how="cross"))
    placed = judge_answers.join(places, on=[*_PAIR, "conversation_id"])
    if by_task:
        placed = placed.drop_nulls("task_id").with_columns(
            quantity=pl.col("task_set").fill_null("default"), unit="task_id", cluster="task_id"
        )
        return corrected_rates(placed, accuracies)
    n_sessions = pl.col("session_id").n_unique().over(*_PAIR, "quantity")
    alone = pl.coalesce("task_id", "conversation_id")
    unit = placed.with_columns(
        unit="conversation_id", cluster=pl.when(n_sessions > 1).then("session_id").otherwise(alone)
    )
    return corrected_rates(unit, accuracies)


def _answers_of_judges(project: Project, keys: pl.DataFrame) -> pl.DataFrame:
    """Return the scored answers of judges, with failure labels as 0 (no failure) or 1; those of people are omitted.

    Failure labels of rules are omitted too, because rules label only turns with a failure. Other effective answers
    of rules are kept, because a rate to which both rules and a judge contribute cannot be corrected.
    """
    from agent_eval.scores.judge_standing import is_judge

    columns = [
        *_PAIR,
        "conversation_id",
        "metric",
        "judge",
        "rubric_hash",
        "status",
        "is_effective",
        "value",
        "label",
    ]
    turn = {"turn_judgments": ["turn_index"]}
    tables = [
        project.store.read(table(name), keys, columns=[*columns, *turn.get(name, [])]) for name in _JUDGED
    ]
    rows = pl.concat(tables, how="diagonal")
    judges = [judge for judge in rows["judge"].unique() if is_judge(judge)]
    is_failure = pl.col("metric").is_in({m.name for m in project.metrics.metrics if m.is_failure})
    by_rule = (pl.col("judge") == "rule") & pl.col("is_effective") & ~is_failure
    failed = (pl.col("label") != NO_FAILURE).cast(pl.Float64)
    quantity = pl.when(is_failure).then(pl.concat_str(pl.lit(FAILURE_RATE), "metric")).otherwise("metric")
    part = [*_PAIR, "conversation_id", "turn_index", "metric"]
    rows = without_checks_of_judges(rows.filter(pl.col("status").cast(pl.String) == "scored"), part)
    return rows.filter(pl.col("judge").is_in(judges) | by_rule).with_columns(
        quantity=quantity, value=pl.when(is_failure).then(failed).otherwise("value")
    )


def standings(project: Project, versions: Sequence[str]) -> pl.DataFrame:
    """Return the agreement of each agent's judges with people, from the stored tables (see `judge_standings`)."""
    from agent_eval.scores.judge_standing import judge_standings  # imported on use: it loads numpy

    scored = _versions(versions).with_columns(status=pl.lit("scored"))
    columns = [*_PAIR, "judge", "status", "is_effective"]
    with project.store.reading():
        parts = [
            project.store.counts(
                table(name), scored, columns=[*columns, "is_counted", "metric", "rubric_hash"]
            )
            for name in _JUDGED
        ]
        rated = project.store.counts(table("rubric_ratings"), scored, columns=[*columns, "target"])
        calibrated = project.store.read(table("judge_calibration"), _versions(versions))
    parts = [part.filter(enters_means(part)) for part in parts]
    rated = rated.filter("is_effective")
    judgments = pl.concat([*parts, rated.rename({"target": "metric"})], how="diagonal_relaxed").drop("n")
    return judge_standings(judgments, calibrated)


def with_judge_error(project: Project, composite_scores: pl.DataFrame) -> pl.DataFrame:
    """Return rows of table composite_scores with the judge's error where people rated a part of them.

    See `scores.composite.judge_error`.
    """
    from agent_eval.scores.composite import judge_error  # imported on use: it loads numpy

    versions = composite_scores["methodology_version"].unique().to_list()
    keys = _versions(versions).with_columns(status=pl.lit("scored"), is_effective=pl.lit(value=True))
    with project.store.reading():
        ratings = project.store.counts(
            table("rubric_ratings"), keys, columns=["methodology_version", "agent_id", "target", "judge"]
        )
        calibration = project.store.read(table("judge_calibration"), _versions(versions))
    return judge_error.with_judge_error(
        composite_scores, ratings, calibration, project.methodologies(versions)
    )


def with_calibration(project: Project, board: pl.DataFrame) -> pl.DataFrame:
    """Fill the columns CALIBRATED of a board from the stored tables; they are null if no judge answered.

    On the reliability leaderboard, these columns describe the metrics that decide whether the trials of a row are
    correct; they are null if the declared outcome decides.
    """
    from agent_eval.scores.judge_standing import board_calibration

    judge_rows = standings(project, board["methodology_version"].unique().to_list())
    key, calibration_columns = _PAIR, board_calibration(judge_rows)
    if "correctness_source" in board.columns:
        key = [*_PAIR, "correctness_source"]
        sources = board["correctness_source"].drop_nulls().unique().to_list()
        of_source = [
            board_calibration(judge_rows.filter(pl.col("metric").is_in(_deciding(source)))).with_columns(
                correctness_source=pl.lit(source, pl.String)
            )
            for source in sources
        ]
        calibration_columns = pl.concat(
            [calibration_columns.clear().with_columns(correctness_source=pl.lit(None, pl.String)), *of_source]
        )
    rows = board.drop([c for c in calibration_columns.columns if c not in key], strict=False)
    return rows.join(calibration_columns, on=key, how="left", maintain_order="left").select(board.columns)


def _deciding(source: str) -> list[str]:
    """Return the metrics that decide whether trials with this correctness_source are correct."""
    metrics = {GOAL_METRIC: GOAL_METRIC, "interactions": ANSWER_METRIC}
    return [metrics[name] for name in source.split(" + ") if name in metrics]


def _sampling(project: Project, versions: Sequence[str]) -> pl.DataFrame:
    """Return the sampling design of the labels from rating sheets, per version; the latest label of each rater."""
    rated = latest_ratings(by_people(project.human_ratings[0]), versions, by=("rater",))
    sampled_labels = rated.filter(pl.any_horizontal(pl.col(SAMPLED).is_not_null()))
    return sampled_labels.rename({"target": "metric", "rubric_hash": "label_rubric"})


def _versions(versions: Sequence[str]) -> pl.DataFrame:
    return pl.DataFrame({"methodology_version": versions}, schema={"methodology_version": pl.String})


def _beside_outcomes(project: Project, versions: Sequence[str]) -> pl.DataFrame | None:
    """Return the answers of our judges and of rules about goals whose outcome is declared; None if none are asked."""
    from agent_eval.scores.judge_standing import is_judge

    if project.settings.judge_outcome_sample is None:
        return None
    keys = _versions(versions).with_columns(metric=pl.lit(GOAL_METRIC))
    rows = project.store.read(table("conversation_judgments"), keys, columns=_ANSWERS)
    judges = [judge for judge in rows["judge"].unique() if is_judge(judge)]
    return rows.filter(pl.col("judge").is_in([RULE, *judges])).with_columns(
        turn_index=pl.lit(None, pl.Int64),
        criterion=pl.lit(None, pl.String),
        reply_length=pl.lit(None, pl.Int64),
    )


def _annotated(project: Project, versions: Sequence[str]) -> pl.DataFrame | None:
    """Return the answers about conversations whose source cites a message for the same metric; None without any.

    The judge of an annotation is ANNOTATIONS, whatever the source.
    """
    from agent_eval.scores.calibration import ANNOTATIONS

    keys = _versions(versions).with_columns(metric=pl.lit(DECISIVE_STEP.name))
    rows = project.store.read(table("conversation_judgments"), keys, columns=_ANSWERS)
    is_cited = is_imported_judge() & pl.col("message_index").is_not_null()
    if rows.filter(is_cited).is_empty():
        return None
    part = [*_PAIR, "conversation_id"]
    judge = pl.when(is_cited).then(pl.lit(ANNOTATIONS)).otherwise("judge")
    return rows.join(rows.filter(is_cited), on=part, how="semi").with_columns(
        judge=judge, turn_index=pl.lit(None, pl.Int64), criterion=pl.lit(None, pl.String),
        reply_length=pl.lit(None, pl.Int64),
    )  # fmt: skip


def _human_and_judged(project: Project, versions: Sequence[str]) -> pl.DataFrame:
    """Return the answers of people and judges about conversations and metrics with labels of people."""
    parts = [_labelled(project, versions, name) for name in _JUDGED]
    return pl.concat(parts, how="diagonal_relaxed").with_columns(criterion=pl.lit(None, pl.String))


def _labelled(project: Project, versions: Sequence[str], name: str) -> pl.DataFrame:
    """Return the rows of a table of judgments for the conversations and metrics that people labelled."""
    rated = _versions(versions).with_columns(judge=pl.lit("human"))
    key = [*_PAIR, "conversation_id", "metric"]
    labelled = project.store.read(table(name), rated, columns=key).unique()
    columns = (*_ANSWERS, *(["turn_index"] if name == "turn_judgments" else []))
    rows = project.store.read(table(name), labelled, columns=columns)
    if name != "turn_judgments":
        return rows.with_columns(reply_length=pl.lit(None, pl.Int64))
    key = ["agent_id", "conversation_id"]
    turns = project.store.read(
        table("turns"), labelled.select(key).unique(), columns=[*key, "turn_index", "agent_message"]
    )
    lengths = turns.select(
        *key, "turn_index", reply_length=pl.col("agent_message").str.len_chars().cast(pl.Int64)
    )
    return rows.join(lengths, on=[*key, "turn_index"], how="left")


def _rubric_ratings(project: Project, versions: Sequence[str]) -> pl.DataFrame:
    """Return the rubric ratings of targets that people also rated, as answers about metrics such as U1."""
    rated = _versions(versions).with_columns(judge=pl.lit("human"))
    labelled = project.store.read(table("rubric_ratings"), rated, columns=[*_PAIR, "target"]).unique()
    rows = project.store.read(table("rubric_ratings"), labelled, columns=_OF_RUBRIC)
    return rows.with_columns(conversation_id=pl.coalesce("conversation_id", "session_id")).rename(
        {"target": "metric", "rater": "judge_model"}
    )
