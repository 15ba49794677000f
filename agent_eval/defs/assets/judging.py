"""Judging: what judges, rules and people say of turns, conversations and sessions."""

import dagster as dg
import polars as pl

from agent_eval.defs.assets.common import ins, on, stored, stored_together
from agent_eval.defs.partitions import PAIRS, TO_AGENT, TO_VERSION, EvalPartition, versions_of
from agent_eval.judge.engine import judge_transcripts
from agent_eval.judge.rubric import rubric_ratings as rate
from agent_eval.project import Project

ASKED = [on("judge_spec", TO_VERSION), on("human_ratings", TO_AGENT)]


def _agents(context: dg.AssetExecutionContext) -> list[str]:
    return sorted({pair.agent_id for pair in EvalPartition.all(context)})


@stored_together(
    "judgments",
    ("turn_judgments", "conversation_judgments"),
    "judging",
    PAIRS,
    ins=ins(conversations=TO_AGENT, turns=TO_AGENT),
    deps=ASKED,
    pool="llm",
)
def judgments(
    context: dg.AssetExecutionContext,
    transcripts: pl.DataFrame,
    conversations: pl.DataFrame,
    turns: pl.DataFrame,
    project: dg.ResourceParam[Project],
) -> dict[str, pl.DataFrame]:
    """Every metric of every turn and conversation, each question asked once for all versions."""
    ratings = project.ratings_of(_agents(context))
    project.keep_recorded(_agents(context), run_id=context.run.run_id)
    judged = judge_transcripts(transcripts, conversations, turns, ratings, project.cached_verdicts)
    return vars(judged)


@stored(
    "rubric_ratings",
    "judging",
    PAIRS,
    ins=ins(conversations=TO_AGENT, turns=TO_AGENT, sessions=TO_AGENT),
    deps=[*ASKED, "turn_judgments", "conversation_judgments"],
)
def rubric_ratings(
    context: dg.AssetExecutionContext,
    transcripts: pl.DataFrame,
    conversations: pl.DataFrame,
    turns: pl.DataFrame,
    sessions: pl.DataFrame,
    project: dg.ResourceParam[Project],
) -> pl.DataFrame:
    """U1–U6 per session, three criteria per scenario: rated, or a row that says why not."""
    ratings, methodologies = project.ratings_of(_agents(context)), project.methodologies(versions_of(context))
    return rate(transcripts, conversations, turns, sessions, ratings, methodologies, project.cached_verdicts)


ASSETS = [judgments, rubric_ratings]
