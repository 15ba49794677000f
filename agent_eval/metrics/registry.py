"""All metrics by grain, and where each of them applies."""

from collections.abc import Iterable

from agent_eval.metrics.agent_behavior_failure import AGENT_BEHAVIOR_FAILURE
from agent_eval.metrics.answer_correctness import ANSWER_CORRECTNESS
from agent_eval.metrics.base import Metric
from agent_eval.metrics.coherence import COHERENCE
from agent_eval.metrics.faithfulness import FAITHFULNESS
from agent_eval.metrics.goal_completion import GOAL_COMPLETION
from agent_eval.metrics.helpfulness import HELPFULNESS
from agent_eval.metrics.relevance import RELEVANCE
from agent_eval.metrics.tool_call_behavior_failure import TOOL_CALL_BEHAVIOR_FAILURE
from agent_eval.metrics.tool_result_utilisation import TOOL_RESULT_UTILISATION
from agent_eval.metrics.verbosity import VERBOSITY
from agent_eval.transcripts.models import Conversation, Expected, Turn

TURN_RATINGS = (HELPFULNESS, COHERENCE, RELEVANCE, FAITHFULNESS, VERBOSITY)
TURN_METRICS = (
    *TURN_RATINGS,
    AGENT_BEHAVIOR_FAILURE,
    TOOL_CALL_BEHAVIOR_FAILURE,
    ANSWER_CORRECTNESS,
    TOOL_RESULT_UTILISATION,
)
CONVERSATION_METRICS = (GOAL_COMPLETION,)

NO_REPLY = "no reply in this turn"


def expected_of(turn_index: int, expected: Iterable[Expected]) -> Expected | None:
    """The ground truth of one turn; the one for the whole conversation belongs to no turn."""
    return next((e for e in expected if e.turn_index == turn_index), None)


def why_not_applicable(
    metric: Metric, turn: Turn, conversation: Conversation, expected: Expected | None
) -> str | None:
    """Why a turn metric does not arise on this turn; None where it does.

    `expected` is the turn's ground truth, see `expected_of`. Only calls by the agent count as its tool calls.
    """
    if not turn.has_reply:
        return NO_REPLY
    calls = any(call.requestor == "assistant" for call in turn.tool_calls)
    if metric.name == TOOL_CALL_BEHAVIOR_FAILURE.name and not calls and not conversation.tools:
        return "no tool call, and no tool known to be available"
    if metric.name == TOOL_RESULT_UTILISATION.name and not calls:
        return "no tool call in this turn"
    if metric.name == ANSWER_CORRECTNESS.name and (expected is None or expected.answer is None):
        return "no expected answer"
    return None


def applicable(metric: Metric, turn: Turn, conversation: Conversation, expected: Expected | None) -> bool:
    """Whether a turn metric arises on this turn."""
    return why_not_applicable(metric, turn, conversation, expected) is None
