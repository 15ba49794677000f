"""Select the conversations that judge models are asked about, if the setting `judge_sample` is set.

The sample is drawn per session by a hash of the conversation id. It is reproducible, and the sample of a larger
share includes that of a smaller one. Conversations in a slot or with a required test are always judged, because
the composite uses them.
"""

import math

import polars as pl

from agent_eval.formats.hashing import digest
from agent_eval.metrics.base import UNANSWERED
from agent_eval.scores.composite.board_facts import NOT_SAMPLED as NOT_SAMPLED

UNASKED = (*UNANSWERED, NOT_SAMPLED)
"""Beginnings of the reasons of answers that are missing because no model was asked."""
_SEED = "judge sample 1"
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
    held = (
        transcripts.filter("is_admitted")
        .group_by(*_CONVERSATION, "session_id")
        .agg(is_needed=is_needed.any())
        .sort("session_id", *_CONVERSATION)
    )
    chosen = {(a, c) for a, c in held.filter("is_needed").select(_CONVERSATION).iter_rows()}
    for _, of_session in held.filter(~pl.col("is_needed")).group_by("agent_id", "session_id"):
        drawn = sorted(of_session.select(_CONVERSATION).iter_rows(), key=lambda one: digest(_SEED, *one))
        chosen |= set(drawn[: math.ceil(share * len(drawn))])
    return chosen
