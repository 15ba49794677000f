"""Summarise an agent's conversations with the project's metrics and `scores.statistics.quality`."""

import polars as pl

from agent_eval.metrics.base import NO_FAILURE, UNANSWERED
from agent_eval.project.project import Project
from agent_eval.scores.reliability.trials import TrialTables, trial_outcomes
from agent_eval.scores.statistics import quality
from agent_eval.scores.statistics.compared_values import conversation_metrics
from agent_eval.scores.statistics.unpaired import conversation_values


def values_of_conversations(project: Project, known: TrialTables, outcomes: pl.DataFrame) -> pl.DataFrame:
    """Return the known values of each conversation (see `conversation_values`).

    `outcomes` is the result of `trial_outcomes`.
    """
    return conversation_values(
        outcomes,
        conversation_metrics(known.turn_judgments, known.conversation_judgments),
        known.turn_judgments,
        [m.name for m in project.metrics.turn if m.is_failure],
        NO_FAILURE,
    )


def quality_summary(project: Project, known: TrialTables) -> pl.DataFrame:
    """Return table quality_summary for the agents and versions in `known`."""
    outcomes = trial_outcomes(known, answer_threshold=project.settings.answer_threshold)
    facts = quality.MetricFacts(
        scales={m.name: m.scale for m in project.metrics.metrics if m.scale is not None},
        failures=[m.name for m in project.metrics.turn if m.is_failure],
        unanswered=UNANSWERED,
    )
    return quality.quality_summary(
        values_of_conversations(project, known, outcomes),
        outcomes,
        known.conversations,
        known.turn_judgments,
        known.conversation_judgments,
        facts,
    )
