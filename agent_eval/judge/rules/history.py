"""Process the earlier turns of a conversation once, so that the cost of rules does not grow with each turn.

A rule keeps the data that it needs from earlier turns in its own state, which receives each turn once, in order, up
to the judged turn. If the turns are judged in reverse order, the state is rebuilt for each turn.
"""

import threading
from typing import Protocol, TypeVar

from agent_eval.judge.protocol import Question
from agent_eval.transcripts.models import Conversation, Turn

_HELD = 4  # conversations kept in memory; questions are ordered by conversation


class State(Protocol):
    """Holds the data that a rule needs from the earlier turns of a conversation."""

    def __init__(self, conversation: Conversation) -> None: ...

    def add(self, turn: Turn, start: int) -> None:
        """Add the next turn; `start` is the number of messages before it."""
        ...


S = TypeVar("S", bound=State)


class History:
    """Hold the turns of a conversation so far, and the states of the rules."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.turns: list[Turn] = []
        self.starts: dict[int, int] = {}  # number of messages before a turn, by its index
        self._n_messages = 0
        self._states: dict[type, tuple[State, int]] = {}

    def extend(self, question: Question) -> None:
        """Add the turns of the question that are not included yet."""
        for turn in question.turns[0][len(self.turns) :]:
            self.turns.append(turn)
            self.starts[turn.turn_index] = self._n_messages
            self._n_messages += len(turn.messages)

    def state(self, kind: type[S]) -> S:
        """Return the state of a rule after all turns so far."""
        state, n_seen = self._states.get(kind) or (kind(self.conversation), 0)
        assert isinstance(state, kind)
        for turn in self.turns[n_seen:]:
            state.add(turn, self.starts[turn.turn_index])
        self._states[kind] = (state, len(self.turns))
        return state


class _Held(threading.local):
    def __init__(self) -> None:
        self.histories: list[History] = []


_HELD_HERE = _Held()


def history_of(question: Question) -> History:
    """Return the history of the question's conversation, up to the question's last turn."""
    conversation, turns = question.conversations[0], question.turns[0]
    histories = _HELD_HERE.histories
    for history in histories:
        n = len(history.turns)
        if history.conversation is conversation and n <= len(turns) and history.turns[-1] is turns[n - 1]:
            break
    else:
        history = History(conversation)
        histories.insert(0, history)
        del histories[_HELD:]
    history.extend(question)
    return history
