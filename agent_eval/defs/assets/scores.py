"""Define the assets that compute scores from ratings, reliability from outcomes, and a summary of all answers."""

import dagster as dg
import polars as pl

from agent_eval.defs.assets.common import (
    TableEvents,
    check_and_store,
    part_of,
    table_asset,
)
from agent_eval.defs.gate_checks import gate_check_results
from agent_eval.defs.partitions import PAIRS, agent_versions, key_frame, versions_of
from agent_eval.project import Project
from agent_eval.project.data_versions import score_inputs
from agent_eval.project.judgments import answering_models, disputes, effective_judgments
from agent_eval.project.quality import quality_summary as summarised
from agent_eval.scores.composite import domain, universal
from agent_eval.scores.composite import score as composite
from agent_eval.scores.composite.history import with_inputs
from agent_eval.scores.reliability import pass_rates as trials
from agent_eval.scores.reliability.trials import OUTCOME_METRICS
from agent_eval.scores.tools import assertions
from agent_eval.scores.tools import correctness as tools
from agent_eval.tables.frames import (
    ConversationJudgments,
    Conversations,
    DomainScores,
    ImportErrors,
    RubricRatings,
    Sessions,
    ToolCalls,
    ToolCorrectness,
    Transcripts,
    TurnJudgments,
    UniversalScores,
)

_ANSWER = (
    "methodology_version", "agent_id", "conversation_id", "metric", "judge", "rating_1to5", "value", "label", "status",
    "unscored_reason", "is_effective", "is_counted", "label_weight",
)  # fmt: skip
_SAID = ("agent_id", "conversation_id", "turn_index", "agent_message")
_OF_TURNS = (*_ANSWER, "turn_index")
"""The columns of judgments that scores are computed from, without texts and costs."""


@dg.asset(
    **table_asset("tool_correctness", turn_judgments=part_of(_OF_TURNS, metric=[tools.UTILISATION_METRIC])),
    group_name="scores",
)
def tool_correctness(
    context: dg.AssetExecutionContext,
    transcripts: Transcripts,
    conversations: Conversations,
    tool_calls: ToolCalls,
    turn_judgments: TurnJudgments,
    project: dg.ResourceParam[Project],
) -> TableEvents:
    """Score the tool calls of conversations with expected calls: selection, parameters, sequence, utilisation."""
    s = project.settings
    input_tables = (transcripts, conversations, tool_calls, turn_judgments)
    scored = tools.tool_correctness_table(
        *input_tables, weights=s.tool_weights, threshold=s.tool_threshold, profile=s.tool_profile
    )
    yield from check_and_store(context, {"tool_correctness": scored}, transcripts=transcripts)


@dg.asset(
    **table_asset("assertion_results", turns=part_of(_SAID)),
    group_name="scores",
)
def assertion_results(
    context: dg.AssetExecutionContext,
    transcripts: Transcripts,
    conversations: Conversations,
    tool_calls: ToolCalls,
    turns: pl.DataFrame,
    project: dg.ResourceParam[Project],
) -> TableEvents:
    """Check each assertion of field `expected`: expected calls, trajectories, forbidden calls and forbidden texts.

    The gate `assertions` reads these results.
    """
    input_tables = (transcripts, conversations, tool_calls, turns)
    checked = {"assertion_results": assertions.assertion_results(*input_tables)}
    yield from check_and_store(context, checked, transcripts=transcripts)
    at_hand = {"transcripts": transcripts, **checked}
    yield from gate_check_results(context, project, "assertion_results", at_hand)


@dg.asset(**table_asset("universal_scores"), group_name="scores")
def universal_scores(
    context: dg.AssetExecutionContext, rubric_ratings: RubricRatings, project: dg.ResourceParam[Project]
) -> TableEvents:
    """Compute U1–U6, the qualities required of every agent, and the universal score: their sum / 30 × 100."""
    scored = universal.universal_scores(rubric_ratings, project.methodologies(versions_of(context)))
    yield from check_and_store(context, {"universal_scores": scored}, rubric_ratings=rubric_ratings)


@dg.asset(**table_asset("domain_scores"), group_name="scores")
def domain_scores(
    context: dg.AssetExecutionContext,
    rubric_ratings: RubricRatings,
    transcripts: Transcripts,
    project: dg.ResourceParam[Project],
) -> TableEvents:
    """Compute D1–D5, each the sum of three criteria / 15 × 100, and the domain score, which is their mean."""
    scored = domain.domain_scores(rubric_ratings, transcripts, project.methodologies(versions_of(context)))
    yield from check_and_store(context, {"domain_scores": scored}, rubric_ratings=rubric_ratings)


@dg.asset(
    **table_asset("composite_scores"),
    group_name="scores",
)
def composite_scores(
    context: dg.AssetExecutionContext,
    universal_scores: UniversalScores,
    domain_scores: DomainScores,
    transcripts: Transcripts,
    sessions: Sessions,
    conversations: Conversations,
    conversation_judgments: ConversationJudgments,
    import_errors: ImportErrors,
    project: dg.ResourceParam[Project],
) -> TableEvents:
    """Compute the composite score of each agent: the weighted sum of U and D, minus the penalty.

    The table also has the disclosures, the required tests and the publication status.
    """
    tables = composite.CompositeTables(
        universal_scores=universal_scores, domain_scores=domain_scores, transcripts=transcripts, sessions=sessions,
        conversations=conversations, conversation_judgments=conversation_judgments, import_errors=import_errors,
        disputes=disputes(project, transcripts), judged=effective_judgments(project, transcripts),
        answered=answering_models(project, transcripts),
    )  # fmt: skip
    scored = composite.composite_scores(tables, project.methodologies(versions_of(context)))
    rows = {"composite_scores": with_inputs(scored, score_inputs(project, agent_versions(context)))}
    yield from check_and_store(context, rows, universal_scores=universal_scores)
    yield from gate_check_results(context, project, "composite_scores", {**rows, "transcripts": transcripts})


@dg.asset(
    **table_asset(
        "reliability",
        turn_judgments=part_of(_OF_TURNS, metric=OUTCOME_METRICS),
        conversation_judgments=part_of(_ANSWER, metric=OUTCOME_METRICS),
    ),
    group_name="scores",
)
def reliability(
    context: dg.AssetExecutionContext,
    transcripts: Transcripts,
    conversations: Conversations,
    tool_correctness: ToolCorrectness,
    conversation_judgments: ConversationJudgments,
    turn_judgments: TurnJudgments,
    import_errors: ImportErrors,
    project: dg.ResourceParam[Project],
) -> TableEvents:
    """Estimate pass@k and pass^k over trials of tasks, by four estimators, with intervals."""
    input_tables = trials.TrialTables(
        transcripts, conversations, tool_correctness, conversation_judgments, turn_judgments, import_errors
    )
    s = project.settings
    estimated = trials.reliability(
        input_tables, estimators=trials.ESTIMATORS, answer_threshold=s.answer_threshold, prior=s.beta_prior, level=s.credible_level
    )  # fmt: skip
    yield from check_and_store(context, {"reliability": estimated})


@dg.asset(
    **table_asset(
        "quality_summary",
        turn_judgments=part_of(_OF_TURNS, metric=OUTCOME_METRICS),
        conversation_judgments=part_of(_ANSWER, metric=OUTCOME_METRICS),
    ),
    group_name="scores",
)
def quality_summary(
    context: dg.AssetExecutionContext,
    transcripts: Transcripts,
    conversations: Conversations,
    tool_correctness: ToolCorrectness,
    conversation_judgments: ConversationJudgments,
    turn_judgments: TurnJudgments,
    project: dg.ResourceParam[Project],
) -> TableEvents:
    """Summarise the logs of each agent: success, metrics, failures and cost, with intervals."""
    input_tables = trials.TrialTables(
        transcripts, conversations, tool_correctness, conversation_judgments, turn_judgments
    )
    summary = {"quality_summary": summarised(project, input_tables, key_frame(PAIRS, context.partition_keys))}
    yield from check_and_store(context, summary, transcripts=transcripts)
