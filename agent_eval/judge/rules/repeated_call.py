"""Repeated tool call: the same call again, with nothing in between that could have changed its answer."""

from collections.abc import Iterator

from agent_eval.formats.hashing import canonical
from agent_eval.judge.evidence import call_text
from agent_eval.judge.protocol import Question
from agent_eval.judge.rules.finding import RuleFinding, is_live, may_have_failed, only_reads
from agent_eval.judge.rules.history import History, history_of
from agent_eval.judge.rules.repetition import is_asked_again
from agent_eval.metrics.builtin.tool_call_behavior_failure import REPEATED_TOOL_CALL
from agent_eval.transcripts.models import Conversation, ToolCall, Turn


def repeated_call(question: Question) -> RuleFinding | None:
    """Decides that the agent called a tool again with equal arguments, and got the same.

    Abstains where the earlier call may have failed, the results differ, the user asked for it again, another call
    that may change something came in between, or the tool tells what changes by itself, such as a status.
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
    """The calls of a turn that `repeated_call` would find, each of them."""
    return [call for call, _ in _repeated(history, turn)]


def _repeated(history: History, turn: Turn) -> Iterator[tuple[ToolCall, int]]:
    """Each repeated call of a turn, with the turn of the equal one before it."""
    for again, earlier, index in history.state(_CallsBefore).of_turn(turn.turn_index):
        if is_live(again.name) or (index != turn.turn_index and is_asked_again(turn)):
            continue
        if earlier.result == again.result and not may_have_failed(earlier):
            yield again, index


class _CallsBefore:
    """The agent's calls that are equal to an earlier one with no call between them that may change something."""

    def __init__(self, conversation: Conversation) -> None:
        self._latest: dict[
            bytes, tuple[ToolCall, int]
        ] = {}  # since the last change: the agent's calls, with turns
        self._repeated: dict[int, list[tuple[ToolCall, ToolCall, int]]] = {}

    def add(self, turn: Turn, start: int) -> None:
        """Take the next turn."""
        for call in turn.tool_calls:
            key = canonical([call.name, call.arguments])
            is_agents = call.requestor == "assistant"
            if is_agents and (earlier := self._latest.get(key)) is not None:
                self._repeated.setdefault(turn.turn_index, []).append((call, *earlier))
            if not only_reads(call.name):
                self._latest.clear()
            if is_agents:
                self._latest[key] = (call, turn.turn_index)

    def of_turn(self, turn_index: int) -> list[tuple[ToolCall, ToolCall, int]]:
        """Calls of a turn that are repeated, each with the latest equal one and that one's turn."""
        return self._repeated.get(turn_index, [])
