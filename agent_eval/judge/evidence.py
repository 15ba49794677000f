"""Check whether a judge's quote occurs in the transcript. Differences in whitespace are ignored."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from agent_eval.judge.protocol import n_turns_up_to
from agent_eval.transcripts.models import Message, Turn

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
        wanted = _plain(quote)
        seen = self._texts if last_turn is None else self._texts[: n_turns_up_to(self.turns, last_turn)]
        return bool(wanted) and any(wanted in text for texts in reversed(seen) for text in texts)

    @cached_property
    def _texts(self) -> list[list[str]]:
        forms = [None] if self.personal is None else [None, self.personal]
        return [
            [_plain(text) for form in forms for text in quotable(turn.messages, form)] for turn in self.turns
        ]


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


def _plain(text: str) -> str:
    return " ".join(text.split())
