"""Summarise an agent's conversations with the project's metrics and `scores.statistics.quality`."""

from collections.abc import Mapping, Sequence

import polars as pl

from agent_eval.judge.sampling import UNASKED
from agent_eval.metrics.base import NO_FAILURE, UNANSWERED
from agent_eval.project.judgments import judgments_in_parts
from agent_eval.project.project import Project
from agent_eval.scores.labelled_parts import labelled_metrics, parts_of, placed_parts
from agent_eval.scores.reliability.trials import TrialTables, trial_outcomes
from agent_eval.scores.statistics import quality
from agent_eval.scores.statistics.compared_values import conversation_metrics, known_metrics
from agent_eval.scores.statistics.unpaired import conversation_values
from agent_eval.tables import table
from agent_eval.tables.judging import HUMAN

_ANSWER = (
    "methodology_version", "agent_id", "conversation_id", "metric", "judge", "rating_1to5", "value", "label", "status",
    "unscored_reason", "is_effective", "is_counted", "label_weight",
)  # fmt: skip
_COLUMNS: Mapping[str, Sequence[str]] = {
    "turn_judgments": (*_ANSWER, "turn_index"),
    "conversation_judgments": _ANSWER,
}


def values_of_conversations(project: Project, tables: TrialTables, outcomes: pl.DataFrame) -> pl.DataFrame:
    """Return the known values of each conversation (see `conversation_values`).

    `outcomes` is the result of `trial_outcomes`.
    """
    metrics = conversation_metrics(tables.turn_judgments, tables.conversation_judgments, UNASKED)
    return conversation_values(
        outcomes, known_metrics(metrics), tables.turn_judgments, _failures(project), NO_FAILURE
    )


def labelled_parts_of(project: Project, tables: TrialTables, outcomes: pl.DataFrame) -> pl.DataFrame:
    """Return the parts of the metrics that people answered (see `placed_parts`).

    `outcomes` is the result of `trial_outcomes`.
    """
    judgments = (tables.turn_judgments, tables.conversation_judgments)
    parts = parts_of(*judgments, labelled_metrics(*judgments), _failures(project), NO_FAILURE)
    return placed_parts(parts, outcomes, known_metrics(conversation_metrics(*judgments, UNASKED)))


def scales(project: Project) -> dict[str, tuple[float, float]]:
    """Return the ends of the scale of each metric with ratings or values."""
    return {m.name: m.scale for m in project.metrics.metrics if m.scale is not None}


def quality_summary(project: Project, tables: TrialTables, pairs: pl.DataFrame) -> pl.DataFrame:
    """Return table quality_summary for the given pairs.

    Args:
        project: The project, whose stored judgments are read in parts.
        tables: The tables that decide whether the pairs' trials were correct.
        pairs: agent_id and methodology_version, one row per pair.
    """
    outcomes = trial_outcomes(tables, answer_threshold=project.settings.answer_threshold)
    facts = quality.MetricFacts(
        scales=scales(project),
        failures=_failures(project),
        unanswered=UNANSWERED,
    )
    labelled_names = metrics_with_labels(project, pairs)
    metrics, labelled, answers, parts = [], [], [], []
    for part in judgments_in_parts(project, pairs, _COLUMNS, in_order=bool(labelled_names)):
        turns, whole = part["turn_judgments"], part["conversation_judgments"]
        parts.append(parts_of(turns, whole, labelled_names, facts.failures, NO_FAILURE))
        metrics.append(conversation_metrics(turns, whole, UNASKED))
        labelled.append(turns.filter(pl.col("metric").is_in(facts.failures), pl.col("label").is_not_null()))
        answers.append(quality.answer_counts(turns, whole, facts))
    of_metrics = known_metrics(pl.concat(metrics))
    values = conversation_values(outcomes, of_metrics, pl.concat(labelled), facts.failures, NO_FAILURE)
    placed = placed_parts(pl.concat(parts), outcomes, of_metrics)
    return quality.quality_summary(values, outcomes, tables.conversations, pl.concat(answers), facts, placed)


def metrics_with_labels(project: Project, pairs: pl.DataFrame) -> list[str]:
    """Return the metrics of these pairs that people answered."""
    people = pairs.select("agent_id", "methodology_version").unique().with_columns(judge=pl.lit(HUMAN))
    columns = ["metric", "judge"]
    return labelled_metrics(*(project.store.read(table(name), people, columns=columns) for name in _COLUMNS))


def _failures(project: Project) -> list[str]:
    return [m.name for m in project.metrics.turn if m.is_failure]
