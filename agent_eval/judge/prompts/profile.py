"""Compute the hash of the judge profile: the rules of metrics/profile.py, and the texts and schemas of the prompts.

The rubrics are not included. They have their own hashes, so that a changed rubric affects only its own metric.
"""

from dataclasses import replace
from functools import cache

from agent_eval.formats.hashing import digest
from agent_eval.judge.prompts import record, view, words
from agent_eval.judge.prompts.build import build_prompt
from agent_eval.judge.prompts.replies import ReplyError, repair_messages
from agent_eval.judge.protocol import Question
from agent_eval.metrics.base import NO_FAILURE, Metric
from agent_eval.metrics.findings import RatingFinding
from agent_eval.metrics.profile import INFORMED_BY, PROFILE_HASH, PROFILE_VERSION
from agent_eval.transcripts.models import Conversation, Expected, Message, MessageToolCall


@cache
def profile_hash() -> str:
    """Return the hash of PROFILE_VERSION, the rules of the profile, the limits, and one prompt of each kind."""
    turns = _CONVERSATION.turns()
    of_turn = Question((_CONVERSATION,), (turns,), 0, "", _TURN_METRICS)
    whole = Question((_CONVERSATION,), (turns,), None, "", _WHOLE_METRICS)
    rated = _CONVERSATION.model_copy(update={"injected_error": "x", "scenario": "D1"})
    session = Question((rated,), (turns,), None, "", _SESSION_METRICS)
    finding = RatingFinding("agent_behavior_failure", "repetition", "c", 0, reason="x")
    sample_prompts = [
        build_prompt([of_turn, whole], secret=b""),
        build_prompt([whole], secret=b""),
        build_prompt([session], secret=b"", findings=[finding]),
    ]
    again = [
        repair_messages(sample_prompts[0], ReplyError("x.", ""))[-1]["content"],
        words.MERGE,
        words.FORM,
        words.EXAMPLES,
    ]
    bounds = [record.STEPS, record.MANY_TURNS, record.FIRST_WORDS, view.TURNS, view.MOST_WINDOWS, view.INDEX]
    return digest(
        "judge profile", PROFILE_VERSION, PROFILE_HASH, bounds, [p.prompt_hash for p in sample_prompts], again
    )


_FIVE = {str(rating): "x" for rating in range(5, 0, -1)}
_ENDS = {"1": "x", "0": "x"}
_RATING = Metric("rating", "turn", "rating", "?", _FIVE, ".")
_TURN_METRICS = (
    _RATING,
    Metric("own_scale", "turn", "rating", "?", {"0": "x", "10": "x"}, minimum=0.0, maximum=10.0),
    Metric("failure", "turn", "label", "?", {NO_FAILURE: "x", "other": "x"}),
    Metric("label", "turn", "label", "?", {"one": "x", "two": "x"}),
    Metric("value", "turn", "value", "?", _ENDS, applies_when="has_expected_answer"),
)
_WHOLE_METRICS = (Metric("binary", "conversation", "value", "?", _ENDS, is_binary=True),)
_SESSION_METRICS = tuple(replace(_RATING, name=name, grain="session") for name in INFORMED_BY)
_CONVERSATION = Conversation(
    conversation_id="c",
    goal="g",
    profile="p",
    knowledge=("k",),
    tools=({"name": "t"},),
    messages=(
        Message(role="user", content="u <\u200b"),
        Message(role="assistant", tool_calls=(MessageToolCall(id="1", name="t", arguments={"a": 1}),)),
        Message(role="tool", name="t", tool_call_id="1", content="r", is_error=False),
        Message(role="assistant", content="x" * 30_000),
    ),
    expected=(Expected(turn_index=0, answer="e"),),
)
