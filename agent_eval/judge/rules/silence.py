"""Detect turns with a missing or truncated reply."""

import re

from agent_eval.judge.protocol import Question, Scored, Verdict
from agent_eval.judge.rules.finding import RULE, RuleFinding, decides, quote_of
from agent_eval.metrics.base import Metric
from agent_eval.metrics.builtin.agent_behavior_failure import AGENT_BEHAVIOR_FAILURE, SILENCE, TRUNCATED_REPLY
from agent_eval.metrics.metric_set import OF_SILENCE
from agent_eval.transcripts.models import Message

MIN_WORDS = 20  # minimum words of a text that is checked for truncation
_HANGING = re.compile(r"\s(?:the|an?|of|and|or|your|our|their|its|because|which|with|from|into)$")


@decides(AGENT_BEHAVIOR_FAILURE, order=40)
def no_reply(question: Question) -> RuleFinding | None:
    """Return a finding if the turn required a reply and the agent gave none (see `Turn.reply`)."""
    if question.turn.reply != "no reply":
        return None
    is_empty = any(m.role == "assistant" and m.is_empty for m in question.turn.messages)
    n_users = sum(m.role == "user" for m in question.turn.messages)
    waited = "The conversation went on" if n_users < 2 else f"The user wrote {n_users} messages"
    how = "The agent's message is empty." if is_empty else f"{waited} without a reply."
    return RuleFinding(SILENCE, f"No reply: {how}", "")


@decides(AGENT_BEHAVIOR_FAILURE, order=70)
def truncated_reply(question: Question) -> RuleFinding | None:
    """Return a finding if the agent's last message in the turn is truncated.

    The message is truncated if the source states that the token limit ended it. If the source does not state why it
    ended, a long text is truncated if it ends within a fenced code block or with an English word that cannot end a
    sentence.
    """
    replies = [m for m in question.turn.messages if m.role == "assistant"]
    if not replies or question.turn.reply == "ended":
        return None
    if not replies[-1].is_cut_off:
        return _broken_off(replies[-1])
    reason = f"The reply was cut off by the token limit (finish_reason {replies[-1].finish_reason})."
    return RuleFinding(TRUNCATED_REPLY, reason, quote_of(replies[-1].content) if replies[-1].content else "")


def _broken_off(message: Message) -> RuleFinding | None:
    text = (message.content or "").rstrip()
    if message.finish_reason is not None or message.tool_calls or len(text.split()) < MIN_WORDS:
        return None
    is_open = text.count("```") % 2 == 1
    if not is_open and not _HANGING.search(text[-40:]):
        return None
    last = text.splitlines()[-1]
    return RuleFinding(TRUNCATED_REPLY, "The reply breaks off.", last if len(last) < 160 else last[-100:])


def rated_for_silence(metric: Metric, question: Question) -> Verdict | None:
    """Return the lowest rating or value for a turn without the required reply, or None for other turns and metrics."""
    silence = no_reply(question) if question.turn_index is not None and metric.name in OF_SILENCE else None
    if silence is None:
        return None
    if metric.answer == "value":
        return Scored(silence.rationale, value=0.0, answered_by=RULE)
    return Scored(silence.rationale, rating_1to5=1, answered_by=RULE)
