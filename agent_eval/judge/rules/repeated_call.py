"""Detect a repeated tool call: an equal call is made again although nothing could have changed its result."""

from collections.abc import Iterator

from agent_eval.formats.hashing import canonical
from agent_eval.judge.evidence import call_text
from agent_eval.judge.protocol import Question
from agent_eval.judge.rules.finding import (
    RuleFinding,
    decides,
    is_live,
    is_polled,
    may_have_failed,
    only_reads,
)
from agent_eval.judge.rules.history import History, history_of
from agent_eval.judge.rules.repetition import is_asked_again
from agent_eval.metrics.builtin.tool_call_behavior_failure import (
    REPEATED_TOOL_CALL,
    TOOL_CALL_BEHAVIOR_FAILURE,
)
from agent_eval.transcripts.models import Conversation, ToolCall, Turn


@decides(TOOL_CALL_BEHAVIOR_FAILURE, order=60)
def repeated_call(question: Question) -> RuleFinding | None:
    """Return a finding if the agent called a tool again with equal arguments and got the same result.

    Abstains if the earlier call may have failed, the results differ, the user asked for a repetition, a call in between
    may have changed something, or the tool reports changing data. A tool that reports data such as the weather is called
    again after a while, but not twice in a row; a status is polled.
    """
    for again, index in _repeated(history_of(question), question.turn):
        return RuleFinding(
            REPEATED_TOOL_CALL,
            f"{again.name} was called with the same arguments in turn {index}, did not fail "
            "there, and nothing was changed since.",
            call_text(again.name, again.arguments),
        )
    return None


def repeated_in(history: History, turn: Turn) -> list[ToolCall]:
    """Return all calls of a turn that `repeated_call` would report."""
    return [call for call, _ in _repeated(history, turn)]


def _repeated(history: History, turn: Turn) -> Iterator[tuple[ToolCall, int]]:
    """Yield each repeated call of a turn with the index of the turn that has the previous equal call."""
    for again, earlier, index, is_next in history.state(_CallsBefore).of_turn(turn.turn_index):
        is_due = is_polled(again.name) or (is_live(again.name) and not is_next)
        if is_due or (index != turn.turn_index and is_asked_again(turn)):
            continue
        if earlier.result == again.result and not may_have_failed(earlier):
            yield again, index


class _CallsBefore:
    """Collect the agent's calls that are equal to an earlier call, if nothing may have changed in between."""

    def __init__(self, conversation: Conversation) -> None:
        # the agent's calls since the last possible change, with their turns
        self._latest: dict[bytes, tuple[ToolCall, int]] = {}
        self._repeated: dict[int, list[tuple[ToolCall, ToolCall, int, bool]]] = {}

    def add(self, turn: Turn, start: int) -> None:
        """Add the next turn."""
        before: bytes | None = None
        for call in turn.tool_calls:
            key = canonical([call.name, call.arguments])
            is_agents = call.requestor == "assistant"
            if is_agents and (earlier := self._latest.get(key)) is not None:
                self._repeated.setdefault(turn.turn_index, []).append((call, *earlier, key == before))
            before = key if is_agents else None
            if not only_reads(call.name):
                self._latest.clear()
            if is_agents:
                self._latest[key] = (call, turn.turn_index)

    def of_turn(self, turn_index: int) -> list[tuple[ToolCall, ToolCall, int, bool]]:
        """Return the repeated calls of a turn, each with the previous equal call, its turn, and whether it is the last call."""
        return self._repeated.get(turn_index, [])
