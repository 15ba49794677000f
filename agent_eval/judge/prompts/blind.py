"""Blinding: the judged agent's own names are withheld, and put back into the judge's quotes.

Withheld are the names that the project declares for the agent: id, name, provider and model. Other names of models
and companies are left alone: they may be what the conversation is about. In the text a name becomes [agent],
[provider] or [model], so the text stays readable; a quote that holds such a word is sought in the transcript and
returned as it stands there, so that the verbatim check of quotes still means what it says.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from pydantic import JsonValue

from agent_eval.transcripts.models import Agent

SHORTEST_NAME = 3
# Names that say nothing about whose they are; withholding them would only hurt the text.
TELLS_NOTHING = frozenset(
    ["agent", "assistant", "bot", "chatbot", "customer", "function", "model", "system", "tool", "user"]
)


@dataclass(frozen=True)
class BlindedTerms:
    """The names to withhold, each with the word that stands for it."""

    words: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, agent: Agent) -> Self:
        """The names declared for an agent. Very short ones and plain nouns such as 'assistant' are not withheld."""
        endpoint = agent.endpoint or {}
        declared = [
            (agent.name, "[agent]"),
            (agent.agent_id, "[agent]"),
            (agent.provider, "[provider]"),
            (endpoint.get("model"), "[model]"),
        ]
        kept = {
            name.casefold(): (name, word)
            for name, word in reversed(declared)
            if isinstance(name, str) and len(name) >= SHORTEST_NAME and name.casefold() not in TELLS_NOTHING
        }
        return cls(tuple(sorted(kept.values(), key=lambda pair: (-len(pair[0]), pair))))

    def hide(self, text: str) -> str:
        """The text with every name replaced, in whatever case; parts of longer words stay."""
        return self._pattern.sub(self._word, text) if self._pattern else text

    def hide_in(self, value: JsonValue) -> JsonValue:
        """The value with the names in all its texts replaced; in keys too, where they stay distinct."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, list):
            return [self.hide_in(item) for item in value]
        if isinstance(value, dict):
            hidden = {self.hide(key): self.hide_in(item) for key, item in value.items()}
            if len(hidden) == len(value):
                return hidden
            return {key: self.hide_in(item) for key, item in value.items()}
        return value

    def restore(self, quote: str, texts: Iterable[str]) -> str:
        """The quote as it stands in one of the texts, names included; unchanged when it stands in none."""
        pieces = re.split(r"(\[(?:agent|provider|model)\])", quote)
        if self._pattern is None or len(pieces) == 1:
            return quote
        pattern = re.compile("".join(self._sought(piece) for piece in pieces))
        return next((found[0] for text in texts if (found := pattern.search(text))), quote)

    def _sought(self, piece: str) -> str:
        names = [re.escape(name) for name, word in self.words if word == piece]
        if names:
            return f"(?:(?i:{'|'.join(names)})|{re.escape(piece)})"
        return re.sub(r"(?:\\?\s)+", r"\\s+", re.escape(piece))

    def _word(self, match: re.Match[str]) -> str:
        # folding in regular expressions and in str differ for a few letters
        return self._by_name.get(match[0].casefold(), "[agent]")

    @cached_property
    def _by_name(self) -> Mapping[str, str]:
        return {name.casefold(): word for name, word in self.words}

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        if not self.words:
            return None
        return re.compile(rf"(?i)(?<!\w)(?:{'|'.join(re.escape(name) for name, _ in self.words)})(?!\w)")


NO_BLINDED_TERMS = BlindedTerms()
