"""No reply and truncated reply: what a turn lacks, read from its messages without a model."""

from agent_eval.judge.protocol import Question, Scored, Verdict
from agent_eval.judge.rules.finding import RULE, RuleFinding, quote_of
from agent_eval.metrics.base import Metric
from agent_eval.metrics.builtin.agent_behavior_failure import SILENCE, TRUNCATED_REPLY
from agent_eval.metrics.metric_set import OF_SILENCE


def no_reply(question: Question) -> RuleFinding | None:
    """Decides that the agent owed a reply and gave none; `Turn.reply` says when a reply is owed."""
    if question.turn.reply != "no reply":
        return None
    is_empty = any(m.role == "assistant" and m.is_empty for m in question.turn.messages)
    how = "The agent's message is empty." if is_empty else "The conversation went on without a reply."
    return RuleFinding(SILENCE, f"No reply: {how}", "")


def truncated_reply(question: Question) -> RuleFinding | None:
    """Decides that the token limit ended the agent's last message of the turn, where the source says why it ended."""
    said = [m for m in question.turn.messages if m.role == "assistant"]
    if not said or not said[-1].is_cut_off or question.turn.reply == "ended":
        return None
    reason = f"The reply was cut off by the token limit (finish_reason {said[-1].finish_reason})."
    return RuleFinding(TRUNCATED_REPLY, reason, quote_of(said[-1].content) if said[-1].content else "")


def rated_for_silence(metric: Metric, question: Question) -> Verdict | None:
    """Decides the lowest rating or value of a metric for a turn in which the agent owed a reply and gave none."""
    found = no_reply(question) if question.turn_index is not None and metric.name in OF_SILENCE else None
    if found is None:
        return None
    if metric.answer == "value":
        return Scored(found.rationale, value=0.0, answered_by=RULE)
    return Scored(found.rationale, rating_1to5=1, answered_by=RULE)
