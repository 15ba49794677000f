"""Repeated tool call: the same call again, with nothing in between that could have changed its answer."""

from collections.abc import Sequence
from dataclasses import dataclass

from agent_eval.formats.hashing import canonical
from agent_eval.judge.evidence import call_text
from agent_eval.judge.protocol import Question
from agent_eval.judge.rules.finding import RuleFinding, may_have_failed, only_reads, word_set, words_of_name
from agent_eval.judge.rules.repetition import is_asked_again
from agent_eval.metrics.builtin.tool_call_behavior_failure import REPEATED_TOOL_CALL
from agent_eval.transcripts.models import ToolCall

_LIVE = word_set(
    "status state progress weather price quote stock time now current track tracking position wait poll ping"
)


@dataclass(frozen=True)
class _Made:
    """A call with its turn."""

    turn_index: int
    call: ToolCall

    @property
    def key(self) -> bytes:
        return canonical([self.call.name, self.call.arguments])


def repeated_call(question: Question) -> RuleFinding | None:
    """Decides that the agent called a tool again with equal arguments, and got the same.

    Abstains where the earlier call may have failed, the results differ, the user asked for it again, another call
    that may change something came in between, or the tool tells what changes by itself, such as a status.
    """
    turn = question.turn
    calls = [_Made(t.turn_index, call) for t in question.turns[0] for call in t.tool_calls]
    for at, again in enumerate(calls):
        if again.turn_index != turn.turn_index or again.call.requestor != "assistant":
            continue
        if _LIVE & set(words_of_name(again.call.name)):
            continue
        first = _earlier(calls, at)
        if first is None or (first.turn_index != turn.turn_index and is_asked_again(turn)):
            continue
        return RuleFinding(
            REPEATED_TOOL_CALL,
            f"{again.call.name} was called with the same arguments in turn {first.turn_index}, did not fail "
            "there, and nothing was changed since.",
            call_text(again.call.name, again.call.arguments),
        )
    return None


def _earlier(calls: Sequence[_Made], at: int) -> _Made | None:
    """The latest equal call before `at` that makes it a repetition."""
    again = calls[at]
    for earlier in reversed(calls[:at]):
        if earlier.key == again.key and earlier.call.requestor == "assistant":
            is_same = earlier.call.result == again.call.result and not may_have_failed(earlier.call)
            return earlier if is_same else None
        if not only_reads(earlier.call.name):
            return None
    return None
