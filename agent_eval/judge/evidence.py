"""Find the message in which a judge's quote occurs. Whitespace and the encoding of accents are ignored."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from agent_eval.formats.plain_text import on_one_line
from agent_eval.judge.protocol import n_turns_up_to
from agent_eval.metrics.builtin.goal_completion import DECISIVE_STEP, ROLE_OF_AUTHOR
from agent_eval.transcripts.models import Message, Turn
from agent_eval.transcripts.steps import ConversationStep, steps_of

if TYPE_CHECKING:
    from agent_eval.judge.prompts.personal_data import TextRedactor


def call_text(name: str, arguments: object) -> str:
    """Return a tool call as judges quote it: `name(arguments as JSON)`."""
    return f"{name}({json.dumps(arguments, ensure_ascii=False)})"


@dataclass(frozen=True)
class Transcript:
    """Hold the texts of a conversation by turn, for looking up quotes.

    If personal data was redacted for the judge, quotes are also looked up in the redacted texts.
    """

    turns: Sequence[Turn]
    personal: "TextRedactor | None" = None

    def holds(self, quote: str, last_turn: int | None = None) -> bool:
        """Return whether the quote occurs verbatim in any message or call up to and including `last_turn`.

        By default, all turns are searched. The result for an empty quote is False.
        """
        return self.find(quote, last_turn) is not None

    def find(self, quote: str, last_turn: int | None = None) -> ConversationStep | None:
        """Return the step in which the quote occurs verbatim, up to and including `last_turn`; None without one.

        If several messages contain the quote, it is the one in the latest turn; in a turn, the agent's messages come
        before those of the user, the operator and tools, and earlier ones before later ones.
        """
        one_line = on_one_line(quote)
        until_turn = self._texts if last_turn is None else self._texts[: n_turns_up_to(self.turns, last_turn)]
        places = (at for texts in reversed(until_turn) for at, text in texts if one_line in text)
        at = next(places, None) if one_line else None
        return None if at is None else self.steps[at]

    def cited(
        self, quote: str | None, metric: str, turn_index: int | None, label: str | None
    ) -> ConversationStep | None:
        """Return the step that an answer quotes.

        The decisive step is the first message with the quote, and one by the author that the label names if there is
        one: others may repeat its words before or after it. For all other metrics, see `find`.
        """
        if not quote or metric != DECISIVE_STEP.name:
            return self.find(quote, turn_index) if quote else None
        one_line, role = on_one_line(quote), ROLE_OF_AUTHOR.get(label or "")
        places = sorted(at for texts in self._texts for at, text in texts if one_line and one_line in text)
        roles = [message.role for turn in self.turns for message in turn.messages]
        first = next((at for at in places if roles[at] == role), next(iter(places), None))
        return None if first is None else self.steps[first]

    @cached_property
    def steps(self) -> Sequence[ConversationStep]:
        """Return the steps of the conversation, one per message."""
        return list(steps_of(message for turn in self.turns for message in turn.messages))

    @cached_property
    def _texts(self) -> list[list[tuple[int, str]]]:
        """Return the quotable texts of each turn with the indexes of their messages, those of the agent first."""
        forms = [None] if self.personal is None else [None, self.personal]
        texts: list[list[tuple[int, str]]] = []
        start = 0
        for turn in self.turns:
            order = sorted(enumerate(turn.messages, start), key=lambda pair: pair[1].role != "assistant")
            texts.append(
                [(i, on_one_line(t)) for i, m in order for form in forms for t in quotable([m], form)]
            )
            start += len(turn.messages)
        return texts


def quotable(messages: Iterable[Message], personal: "TextRedactor | None" = None) -> Iterator[str]:
    """Yield the texts that judges can quote: message texts, and each call in the form of `call_text`.

    If `personal` is given, personal data is replaced in them.
    """
    for message in messages:
        if message.content:
            yield message.content if personal is None else personal.hide(message.content)
        for call in message.tool_calls:
            if personal is None:
                yield call_text(call.name, call.arguments)
            else:
                yield call_text(personal.hide(call.name), personal.hide_in(call.arguments))
