"""Define the assets that collect judgments of models, rules and people on turns, conversations and sessions."""

from collections.abc import Iterator
from functools import partial

import dagster as dg
import polars as pl

from agent_eval.defs.assets.common import (
    TableEvents,
    check_and_store,
    part_of,
    table_asset,
    table_multi_asset,
    watch_of,
)
from agent_eval.defs.gate_checks import gate_check_results
from agent_eval.defs.partitions import agent_versions, versions_of
from agent_eval.formats.spill import spilled
from agent_eval.judge.engine import judged_in_parts
from agent_eval.judge.rubric import rubric_ratings as rate
from agent_eval.project import Project
from agent_eval.project.calibration import calibrations
from agent_eval.project.ingest import store_recorded
from agent_eval.tables.frames import (
    ConversationJudgments,
    Conversations,
    Sessions,
    Transcripts,
    TurnJudgments,
    Turns,
)
from agent_eval.tables.schema import MADE_FROM

_TEXTS = ("agent_id", "conversation_id", "turn_index", "messages", "content_hash")
"""The columns of turns that a judge reads. The other texts are parts of the messages."""
_FINDING = (
    "methodology_version", "agent_id", "conversation_id", "metric", "rating_1to5", "value", "label", "further_labels",
    "status", "rationale", "is_effective",
)  # fmt: skip
"""The columns of judgments that a model is shown as findings when it rates rubrics."""
_AT_ONCE_BY_RULES = 250
"""Maximum number of conversations that rules judge together. Models are asked about more, to have few last calls."""

_MADE = {
    "turn_judgments": "The answers of people, rules and models about every turn, metric by metric, with rationale and "
    "quote. Clusters and scores are computed from them.",
    "conversation_judgments": "The answers about whole conversations, e.g. whether the goal was reached and whether a "
    "required test passed. Composite scores and reliability use them.",
}


def _agents(context: dg.AssetExecutionContext) -> list[str]:
    return sorted({pair.agent_id for pair in agent_versions(context)})


@dg.multi_asset(
    **table_multi_asset(_MADE, turns=part_of(_TEXTS)),
    group_name="judging",
    pool="llm",
)
def judgments(
    context: dg.AssetExecutionContext,
    transcripts: Transcripts,
    conversations: Conversations,
    turns: Turns,
    project: dg.ResourceParam[Project],
) -> TableEvents:
    """Judge every turn and conversation by every metric; a question that several versions share is asked once."""
    store_recorded(project, _agents(context), run_id=context.run.run_id)
    with spilled(_judged(context, project, transcripts, conversations, turns)) as judgment_tables:
        project.judges.answers.record_judge(
            agent_versions(context), project.judges.own, run_id=context.run.run_id
        )
        yield from check_and_store(context, judgment_tables, conversations=conversations, turns=turns)
        at_hand = {"transcripts": transcripts, **judgment_tables}
        yield from gate_check_results(context, project, "turn_judgments", at_hand)


def _judged(
    context: dg.AssetExecutionContext,
    project: Project,
    transcripts: Transcripts,
    conversations: Conversations,
    turns: Turns,
) -> Iterator[dict[str, pl.DataFrame]]:
    """Yield the tables of judgments in parts."""
    agents = _agents(context)
    ask = partial(
        judged_in_parts, conversations=conversations, turns=turns,
        human_ratings=project.ratings_of(agents), rater_rule=project.settings.rater_rule, metrics=project.metrics,
        lookup=project.judges.answers.find, names=project.blinded_terms(agents), watch=watch_of(context, project),
    )  # fmt: skip
    for panel, of_judge in project.judges.by_judge(transcripts):
        at_once = project.conversations_at_once
        if panel is None:
            at_once = min(at_once or _AT_ONCE_BY_RULES, _AT_ONCE_BY_RULES)
        yield from map(vars, ask(of_judge, panel=panel, at_once=at_once))


@dg.asset(
    **table_asset(
        "rubric_ratings",
        turns=part_of(_TEXTS),
        turn_judgments=part_of((*_FINDING, "turn_index"), is_effective=[True], status=["scored"]),
        conversation_judgments=part_of(_FINDING, is_effective=[True], status=["scored"]),
    ),
    group_name="judging",
    pool="llm",
)
def rubric_ratings(
    context: dg.AssetExecutionContext,
    transcripts: Transcripts,
    conversations: Conversations,
    turns: Turns,
    sessions: Sessions,
    turn_judgments: TurnJudgments,
    conversation_judgments: ConversationJudgments,
    project: dg.ResourceParam[Project],
) -> TableEvents:
    """Rate U1–U6 per session, and three criteria per scenario, against the written anchors.

    A missing rating has a row with the reason. Universal and domain scores are computed from these ratings.
    """
    agents, methodologies = _agents(context), project.methodologies(versions_of(context))
    both = pl.concat([turn_judgments, conversation_judgments], how="diagonal")
    ratings = pl.concat(
        rate(
            *(of_judge, conversations, turns, sessions, project.ratings_of(agents)),
            *(methodologies, project.judges.answers.find),
            judgments=both, panel=panel, names=project.blinded_terms(agents), watch=watch_of(context, project),
            rater_rule=project.settings.rater_rule,
        ) for panel, of_judge in project.judges.by_judge(transcripts)
    )  # fmt: skip
    yield from check_and_store(context, {"rubric_ratings": ratings}, transcripts=transcripts)


@dg.asset(
    **table_asset("judge_calibration", MADE_FROM["judge_calibration"]),
    group_name="judging",
)
def judge_calibration(context: dg.AssetExecutionContext, project: dg.ResourceParam[Project]) -> TableEvents:
    """Measure how well each judge agrees with people, metric by metric, with intervals over conversations."""
    compared = calibrations(project, context.partition_keys)
    yield from check_and_store(context, {"judge_calibration": compared})
