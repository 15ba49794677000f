"""Select the conversations that judge models are asked about, if `judge_sample` or `judge_outcome_sample` is set.

A sample is drawn per session by a hash of the conversation id. It is reproducible, and the sample of a larger
share includes that of a smaller one. Conversations in a slot or with a required test are always judged, because
the composite uses them. The conversations of `judge_outcome_sample` have a declared outcome: judges are asked
goal_completion too, and their answers only check the judges.
"""

import math

import polars as pl

from agent_eval.formats.hashing import digest
from agent_eval.metrics.base import UNANSWERED
from agent_eval.scores.composite.board_facts import NOT_SAMPLED as NOT_SAMPLED

UNASKED = (*UNANSWERED, NOT_SAMPLED)
"""Beginnings of the reasons of answers that are missing because no model was asked."""
_SEED, _OUTCOME_SEED = "judge sample 1", "outcome sample 1"
_CONVERSATION = ["agent_id", "conversation_id"]


def sampled(transcripts: pl.DataFrame, share: float | None) -> set[tuple[str, str]] | None:
    """Return the (agent, conversation) pairs that models are asked about, or None for all.

    Args:
        transcripts: Table transcripts; rows that are not admitted are ignored.
        share: Share, 0–1, of the conversations of each session that the composite does not use. The number is
            rounded up.
    """
    if share is None:
        return None
    is_needed = pl.col("slot").is_not_null() | (pl.col("tests").list.len() > 0)
    admitted_rows = (
        transcripts.filter("is_admitted")
        .group_by(*_CONVERSATION, "session_id")
        .agg(is_needed=is_needed.any())
        .sort("session_id", *_CONVERSATION)
    )
    needed_pairs = {(a, c) for a, c in admitted_rows.filter("is_needed").select(_CONVERSATION).iter_rows()}
    return needed_pairs | _drawn(admitted_rows.filter(~pl.col("is_needed")), share, _SEED)


def with_outcomes_to_check(
    transcripts: pl.DataFrame,
    conversations: pl.DataFrame,
    sample: set[tuple[str, str]] | None,
    share: float | None,
) -> set[tuple[str, str]]:
    """Return the (agent, conversation) pairs whose declared outcome checks judge models; none without a share.

    Args:
        transcripts: Table transcripts; rows that are not admitted are ignored.
        conversations: Table conversations of the same agents.
        sample: From `sampled`; models are asked about no other conversations.
        share: Share, 0–1, of the conversations of each session that have a declared outcome. The number is rounded up.
    """
    if share is None:
        return set()
    declared = conversations.filter(pl.col("outcome_correct").is_not_null()).select(_CONVERSATION)
    outcomes = (
        transcripts.filter("is_admitted").select(*_CONVERSATION, "session_id").unique().sort("session_id", *_CONVERSATION)
        .join(declared, on=_CONVERSATION, how="semi", maintain_order="left")
    )  # fmt: skip
    if sample is not None:
        outcomes = outcomes.filter(
            pl.Series(
                [pair in sample for pair in outcomes.select(_CONVERSATION).iter_rows()], dtype=pl.Boolean
            )
        )
    return _drawn(outcomes, share, _OUTCOME_SEED)


def _drawn(candidate_rows: pl.DataFrame, share: float, seed: str) -> set[tuple[str, str]]:
    sampled_pairs: set[tuple[str, str]] = set()
    for _, of_session in candidate_rows.group_by("agent_id", "session_id"):
        ordered = sorted(of_session.select(_CONVERSATION).iter_rows(), key=lambda one: digest(seed, *one))
        sampled_pairs |= set(ordered[: math.ceil(share * len(ordered))])
    return sampled_pairs
