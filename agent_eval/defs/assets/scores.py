"""Scores: ratings to universal, domain and composite scores; outcomes to reliability."""

import dagster as dg
import polars as pl

from agent_eval.defs.assets.common import ins, on, stored
from agent_eval.defs.gate_checks import gate_check
from agent_eval.defs.lineage import show_lineage
from agent_eval.defs.partitions import PAIRS, TO_AGENT, TO_VERSION, versions_of
from agent_eval.project import Project
from agent_eval.scores.composite import domain, universal
from agent_eval.scores.composite import score as composite
from agent_eval.scores.reliability import pass_rates as trials
from agent_eval.scores.tools import assertions
from agent_eval.scores.tools import correctness as tools

SCORED_BY = [on("scoring_spec", TO_VERSION)]


@stored("tool_correctness", "scores", PAIRS, ins=ins(conversations=TO_AGENT, tool_calls=TO_AGENT))
def tool_correctness(
    transcripts: pl.DataFrame,
    conversations: pl.DataFrame,
    tool_calls: pl.DataFrame,
    turn_judgments: pl.DataFrame,
) -> pl.DataFrame:
    """Were the right tools called: selection, parameters, sequence and utilisation, where tools were expected."""
    return tools.tool_correctness_table(transcripts, conversations, tool_calls, turn_judgments)


@stored(
    "assertion_results",
    "scores",
    PAIRS,
    ins=ins(conversations=TO_AGENT, tool_calls=TO_AGENT),
    quality=[gate_check("assertion_results", "assertions")],
)
def assertion_results(
    transcripts: pl.DataFrame, conversations: pl.DataFrame, tool_calls: pl.DataFrame
) -> pl.DataFrame:
    """Was each demand of `expected` met: expected calls, trajectories, forbidden calls. The gate `assertions` counts them."""
    return assertions.assertion_results(transcripts, conversations, tool_calls)


@stored("universal_scores", "scores", PAIRS, deps=SCORED_BY)
def universal_scores(
    context: dg.AssetExecutionContext, rubric_ratings: pl.DataFrame, project: dg.ResourceParam[Project]
) -> pl.DataFrame:
    """U1–U6, the qualities that every agent is held to, and their sum / 30 × 100: the U of the composite."""
    return universal.universal_scores(rubric_ratings, project.methodologies(versions_of(context)))


@stored("domain_scores", "scores", PAIRS, deps=SCORED_BY)
def domain_scores(
    context: dg.AssetExecutionContext,
    rubric_ratings: pl.DataFrame,
    transcripts: pl.DataFrame,
    project: dg.ResourceParam[Project],
) -> pl.DataFrame:
    """D1–D5, the scenarios of the agent's domain, each the sum of three criteria / 15 × 100, and their mean: the D."""
    return domain.domain_scores(rubric_ratings, transcripts, project.methodologies(versions_of(context)))


@stored(
    "composite_scores",
    "scores",
    PAIRS,
    ins=ins(sessions=TO_AGENT, conversations=TO_AGENT),
    deps=SCORED_BY,
    quality=[gate_check("composite_scores", name) for name in ("required_tests", "disclosures", "status")],
)
def composite_scores(
    context: dg.AssetExecutionContext,
    universal_scores: pl.DataFrame,
    domain_scores: pl.DataFrame,
    transcripts: pl.DataFrame,
    sessions: pl.DataFrame,
    conversations: pl.DataFrame,
    conversation_judgments: pl.DataFrame,
    project: dg.ResourceParam[Project],
) -> pl.DataFrame:
    """The one number of an agent: U and D weighted, less the penalty; with disclosures, required tests and status."""
    show_lineage(context, project, "composite_scores")
    return composite.composite_scores(
        universal_scores, domain_scores, transcripts, sessions, conversations, conversation_judgments,
        project.methodologies(versions_of(context)),
    )  # fmt: skip


@stored("reliability", "scores", PAIRS, ins=ins(conversations=TO_AGENT), deps=SCORED_BY)
def reliability(
    transcripts: pl.DataFrame,
    conversations: pl.DataFrame,
    tool_correctness: pl.DataFrame,
    conversation_judgments: pl.DataFrame,
    turn_judgments: pl.DataFrame,
    project: dg.ResourceParam[Project],
) -> pl.DataFrame:
    """Does the agent succeed again: pass@k and pass^k over trials of tasks, by three estimators, with intervals."""
    known = trials.TrialTables(
        transcripts, conversations, tool_correctness, conversation_judgments, turn_judgments
    )
    threshold = project.settings.answer_threshold
    return trials.reliability(known, estimators=trials.ESTIMATORS, answer_threshold=threshold)


ASSETS = [tool_correctness, assertion_results, universal_scores, domain_scores, composite_scores, reliability]
