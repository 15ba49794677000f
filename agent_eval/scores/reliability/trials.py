"""Decide whether each trial (one run of a task) was correct, and by which source.

A trial is one admitted conversation. Its interactions are the turns with ground truth (an expected answer or
expected tools), or the conversation as a whole. `scores.tools` computes tool scores; `scores.reliability`
computes estimates from several trials of a task.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl

from agent_eval.errors import InvalidValueError
from agent_eval.tables.frames import (
    ConversationJudgments,
    Conversations,
    ImportErrors,
    ToolCorrectness,
    Transcripts,
    TurnJudgments,
)
from agent_eval.tables.judging import deciding_answers
from agent_eval.transcripts.admission import is_lost_to_harness
from agent_eval.transcripts.frames import has_ground_truth
from agent_eval.transcripts.models import EXPECTED
from agent_eval.transcripts.outcomes import ROUNDING, is_unexplained_error

ANSWER_METRIC, GOAL_METRIC = "answer_correctness", "goal_completion"
OUTCOME_METRICS = (GOAL_METRIC, ANSWER_METRIC)
"""The metrics of judgments that decide trials."""
ANSWER_THRESHOLD = 0.7
SOURCES = ("goal_completion", "interactions", "outcome")
GROUP = ("methodology_version", "agent_id", "task_set")
TRIAL = ("methodology_version", "agent_id", "conversation_id")
_CONVERSATION = ("agent_id", "conversation_id")
_TOLERANCE = 1e-9
# A tool score with an unknown aspect can show that a trial failed, but not that it was correct.
_IS_PARTIAL = pl.col("unknown_aspects").list.len().fill_null(0) > 0


def _invalid_threshold(threshold: object) -> InvalidValueError:
    return InvalidValueError(
        f"The answer threshold is {threshold!r}. Allowed: a number from 0 to 1; 0.7 is the default, "
        "0.8–0.9 is strict, 0.6 lenient."
    )


class TrialTables(NamedTuple):
    """Hold the tables that decide whether trials were correct; fields are named after the tables."""

    transcripts: Transcripts  # only admitted ones count; null `task_set` is 'default'
    conversations: Conversations  # for declared outcomes and expected answers
    tool_correctness: ToolCorrectness  # rows with status 'not_applicable' are not interactions
    conversation_judgments: ConversationJudgments  # for goals and answers of conversations
    turn_judgments: TurnJudgments  # for answer correctness
    import_errors: ImportErrors | None = None  # records rejected at import; None if there are none

    @classmethod
    def of(cls, frames: Mapping[str, Any]) -> "TrialTables":
        """Build the tuple from frames by table name, ignoring other tables."""
        return cls(**{name: frames[name] for name in cls._fields if name in frames})


def trial_outcomes(
    tables: TrialTables, *, answer_threshold: float = ANSWER_THRESHOLD, tools_count: bool = True
) -> pl.DataFrame:
    """Return whether each trial was correct, and by which source.

    The first known source counts: the declared outcome; the interactions, if all are scored (a success if all
    are correct); and goal completion. A trial lost to the harness is always unknown. Failures by interactions or
    goals are unknown in a session whose rewards give no outcome and in which no success was recognised. A trial that
    ended in an error of unknown cause is what its source declares, else unknown. If no other outcome of the agent's task
    set is known, the verdict of the hallucination test is not an outcome, because a test is not a sample of tasks.
    Conversations with the same trial number within a session and task all count, because recorded numbers are
    not reliable enough to discard a run.

    Args:
        tables: The tables of the conversations.
        answer_threshold: See `interaction_outcomes`.
        tools_count: See `interaction_outcomes`.

    Returns:
        One row per version and conversation that is admitted, or whose session was lost to the harness:
        `task_set` and `task` (both null for a conversation without a task id), `task_family` (null if none is
        declared), `session_id`, `is_correct` and `source` (both null if unknown), `is_harness_error`,
        `is_unexplained_error` (the trial ended in an error of unknown cause; a failure may be the harness's), `judge_failed` (the trial is unknown, and a judgment that could have decided it was lost),
        `n_interactions` and `n_interactions_correct` (null if an interaction is not scored or there is none).

    Raises:
        InvalidValueError: If the threshold is not a number from 0 to 1.
    """
    interactions = interaction_outcomes(tables, answer_threshold=answer_threshold, tools_count=tools_count)
    planned = tables.transcripts.filter(pl.col("is_admitted") | is_lost_to_harness()).select(
        *TRIAL,
        "session_id",
        is_lost_session=~pl.col("is_admitted"),
        is_test=pl.col("tests").list.contains("hallucination").fill_null(False),
        task_set=pl.when(pl.col("task_id").is_not_null()).then(pl.col("task_set").fill_null("default")),
        task="task:" + pl.col("task_id"),
    )
    conversations: pl.DataFrame = tables.conversations
    if "task_family" not in conversations.columns:
        conversations = conversations.with_columns(task_family=pl.lit(None, dtype=pl.String))
    trial_facts = (
        planned.join(
            conversations.select(
                *_CONVERSATION,
                "outcome_correct",
                "task_family",
                is_between=is_between_rewards(),
                is_harness_error=(pl.col("outcome_class") == "harness_error").fill_null(False),
                is_unexplained=is_unexplained_error(),
            ),
            on=list(_CONVERSATION),
            how="left",
        )
        .join(_per_conversation(interactions), on=list(TRIAL), how="left")
        .join(_goals(tables.conversation_judgments), on=list(TRIAL), how="left")
        .join(_lost(tables), on=list(TRIAL), how="left")
    )
    outcome, every, goal = (pl.col(c) for c in ("outcome_correct", "interactions_correct", "goal_reached"))
    is_broken = pl.col("is_harness_error").fill_null(False) | pl.col("is_lost_session")
    is_unexplained = pl.col("is_unexplained").fill_null(False) & ~is_broken
    # after an error of unknown cause only the source decides: what is missing may be missing by the harness's fault;
    # a source that can only show failures does not give a rate; see `transcripts.outcomes`
    is_passed = pl.when(~is_broken).then(
        pl.when(is_unexplained).then(outcome).otherwise(pl.coalesce(outcome, every, goal))
    )
    of_session = ["methodology_version", "agent_id", "session_id"]
    is_unreadable = pl.col("is_between").any().over(of_session) & ~is_passed.fill_null(False).any().over(
        of_session
    )
    is_read = pl.when(outcome.is_not_null() | ~is_unreadable.fill_null(False)).then(is_passed)
    # the verdict of the hallucination test alone is not a rate of solved tasks
    of_tasks = is_read.is_not_null() & ~pl.col("is_test")
    is_correct = pl.when(of_tasks.any().over(GROUP)).then(is_read)
    return trial_facts.select(
        *TRIAL,
        "session_id",
        "task_set",
        "task",
        "task_family",
        is_correct=is_correct,
        is_harness_error=is_broken,
        is_unexplained_error=is_unexplained,
        source=pl.when(is_correct.is_null())
        .then(None)
        .when(outcome.is_not_null())
        .then(pl.lit("outcome"))
        .when(every.is_not_null())
        .then(pl.lit("interactions"))
        .when(goal.is_not_null())
        .then(pl.lit("goal_completion")),
        judge_failed=is_correct.is_null() & ~is_broken & pl.col("is_lost").fill_null(False),
        n_interactions="n_interactions",
        n_interactions_correct="n_interactions_correct",
    )


def is_between_rewards() -> pl.Expr:
    """Return whether a conversation has a reward above 0 other than 1, which does not decide the outcome.

    A conversation with a harness error does not count, independent of its reward.
    """
    reward = pl.col("outcome_reward")
    is_between = (reward > ROUNDING) & ((reward - 1).abs() > ROUNDING)
    is_broken = (pl.col("outcome_class") == "harness_error").fill_null(False)
    return (pl.col("outcome_correct").is_null() & is_between).fill_null(False) & ~is_broken


def interaction_outcomes(
    tables: TrialTables, *, answer_threshold: float = ANSWER_THRESHOLD, tools_count: bool = True
) -> pl.DataFrame:
    """Return whether each interaction with ground truth was correct, in its answer and its expected tools.

    An answer is correct if its effective judgment, of the turn or of the whole conversation, reaches the
    threshold (within 1e-9). An interaction is known only if all its parts are scored; otherwise, lost judgments
    could only count against the agent.

    Args:
        tables: The tables of the conversations.
        answer_threshold: The minimum score of a correct answer, 0–1.
        tools_count: Whether tools also count; if False, only answers decide, as in the reference tool.

    Returns:
        One row per version, admitted conversation and interaction, with `turn_index` (null for the whole
        conversation), `answer` (0–1, null unless expected and scored), `answer_correct`, `tools_correct` (null if
        not expected or not scored) and `is_correct` (null if a part is not scored).

    Raises:
        InvalidValueError: If the threshold is not a number from 0 to 1.
    """
    limit = _checked(answer_threshold) - _TOLERANCE
    key = [*TRIAL, "turn_index"]
    admitted = tables.transcripts.filter("is_admitted").select(TRIAL)
    answers = (
        admitted.join(_expected_answers(tables.conversations), on=list(_CONVERSATION))
        .join(_answers(tables), on=key, how="left", nulls_equal=True)
        .with_columns(expects_answer=pl.lit(True), answer_correct=pl.col("answer") >= limit)
    )
    is_scored = (pl.col("status") == "scored") & ~_IS_PARTIAL
    tools = (
        tables.tool_correctness.filter(pl.col("status") != "not_applicable", pl.lit(tools_count))
        .join(admitted, on=list(TRIAL), how="semi")
        .select(*key, expects_tools=pl.lit(True), tools_correct=pl.when(is_scored).then("is_correct"))
    )
    both = answers.join(tools, on=key, how="full", coalesce=True, nulls_equal=True)
    is_known = (pl.col("expects_answer").is_null() | pl.col("answer_correct").is_not_null()) & (
        pl.col("expects_tools").is_null() | pl.col("tools_correct").is_not_null()
    )
    right = pl.col("answer_correct").fill_null(True) & pl.col("tools_correct").fill_null(True)
    return both.select(
        *key, "answer", "answer_correct", "tools_correct", is_correct=pl.when(is_known).then(right)
    ).sort(key, nulls_last=False)


def _checked(threshold: object) -> float:
    if isinstance(threshold, bool) or not isinstance(threshold, int | float):
        raise _invalid_threshold(threshold)
    if math.isnan(threshold) or not 0 <= threshold <= 1:
        raise _invalid_threshold(threshold)
    return threshold


def _expected_answers(conversations: pl.DataFrame) -> pl.DataFrame:
    """Return the agent, conversation and turn of every expected answer; several for one turn count once."""
    texts = conversations.filter(has_ground_truth())
    rows = {
        (agent_id, conversation_id, entry.turn_index)
        for agent_id, conversation_id, text in texts.select(*_CONVERSATION, "expected").iter_rows()
        for entry in EXPECTED.validate_json(text)
        if entry.answer is not None
    }
    schema = {"agent_id": pl.String, "conversation_id": pl.String, "turn_index": pl.Int64}
    return pl.DataFrame(list(rows), schema=schema, orient="row")


def _answers(tables: TrialTables) -> pl.DataFrame:
    """Return the `answer` score per version, conversation and turn; a null turn means the whole conversation."""
    counts = (pl.col("metric") == ANSWER_METRIC) & (pl.col("status") == "scored")
    whole = tables.conversation_judgments.with_columns(turn_index=pl.lit(None, dtype=pl.Int64))
    parts = (whole, tables.turn_judgments)
    return (
        pl.concat([deciding_answers(p.filter(counts)).select(*TRIAL, "turn_index", "value") for p in parts])
        .drop_nulls("value")
        .group_by(*TRIAL, "turn_index")
        .agg(answer=pl.col("value").min())
    )


def _per_conversation(interactions: pl.DataFrame) -> pl.DataFrame:
    """Return the number of correct interactions, and whether all are, for conversations that are fully scored."""
    is_correct = pl.col("is_correct")
    return (
        interactions.group_by(TRIAL)
        .agg(
            all_known=is_correct.is_not_null().all(),
            interactions_correct=is_correct.all(),
            n_interactions=pl.len().cast(pl.Int64),
            n_interactions_correct=is_correct.sum().cast(pl.Int64),
        )
        .filter("all_known")
        .drop("all_known")
    )


def _goals(conversation_judgments: pl.DataFrame) -> pl.DataFrame:
    """Return one row per conversation with a scored goal completion."""
    counts = (pl.col("metric") == GOAL_METRIC) & (pl.col("status") == "scored")
    return (
        deciding_answers(conversation_judgments.filter(counts))
        .drop_nulls("value")
        .group_by(TRIAL)
        .agg((pl.col("value") == 1).all().alias("goal_reached"))
    )


def _lost(tables: TrialTables) -> pl.DataFrame:
    """Return the conversations with an unscored judgment that could have decided the trial."""
    says = pl.col("metric").is_in(OUTCOME_METRICS)
    judgment_tables = (tables.conversation_judgments.filter(says), tables.turn_judgments.filter(says))
    is_lost = pl.col("status") == "unscored"
    tools = tables.tool_correctness.filter(is_lost | _IS_PARTIAL).select(TRIAL)
    parts = [tools, *(p.filter(is_lost).select(TRIAL) for p in judgment_tables)]
    return pl.concat(parts).unique().with_columns(is_lost=pl.lit(True))
