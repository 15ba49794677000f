"""Hide the judged agent's names from the judge, and restore them in the judge's quotes.

The hidden names are those that the project declares for the agent: id, name, provider and model. Other names of models
and companies are kept, because the conversation may be about them. A hidden name is replaced by [agent], [provider] or
[model], so that the text stays readable. A quote with such a placeholder is looked up in the transcript and returned
with the original names, so that it can still be checked verbatim. If the project redacts personal data, that is replaced
first, and stays replaced in quotes, which are then looked up in the redacted transcript.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from pydantic import JsonValue

from agent_eval.judge.prompts.personal_data import PLACEHOLDER, TextRedactor
from agent_eval.transcripts.models import Agent

SHORTEST_NAME = 3
# Generic names that do not identify the agent. Hiding them would only make the text less readable.
TELLS_NOTHING = frozenset(
    ["agent", "assistant", "bot", "chatbot", "customer", "function", "model", "system", "tool", "user"]
)


@dataclass(frozen=True)
class BlindedTerms:
    """Hold the names to hide with their placeholders, and the redactor of personal data, if any."""

    words: tuple[tuple[str, str], ...] = ()
    personal: TextRedactor | None = None

    @classmethod
    def of(cls, agent: Agent, personal: TextRedactor | None = None) -> Self:
        """Return the declared names of an agent, except very short ones and nouns such as 'assistant'."""
        endpoint = agent.endpoint or {}
        declared = [
            (agent.name, "[agent]"),
            (agent.agent_id, "[agent]"),
            (agent.provider, "[provider]"),
            (endpoint.get("model"), "[model]"),
        ]
        declared_terms = {
            name.casefold(): (name, word)
            for name, word in reversed(declared)
            if isinstance(name, str) and len(name) >= SHORTEST_NAME and name.casefold() not in TELLS_NOTHING
        }
        return cls(tuple(sorted(declared_terms.values(), key=lambda pair: (-len(pair[0]), pair))), personal)

    def hide(self, text: str) -> str:
        """Return the text with all names replaced, ignoring case. Names within longer words are kept."""
        text = text if self.personal is None else self.personal.hide(text)
        return self._hide_names(text)

    def _hide_names(self, text: str) -> str:
        return self._pattern.sub(self._word, text) if self._pattern else text

    def hide_in(self, value: JsonValue) -> JsonValue:
        """Return the value with the names in all its texts and keys replaced. Different keys stay different."""
        return self._hide_names_in(self.without_personal_data(value))

    def without_personal_data(self, value: JsonValue) -> JsonValue:
        """Return the value with personal data replaced if the project redacts it, else the value."""
        return value if self.personal is None else self.personal.hide_in(value)

    def _hide_names_in(self, value: JsonValue) -> JsonValue:
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self._hide_names(value)
        if isinstance(value, list):
            return [self._hide_names_in(item) for item in value]
        if isinstance(value, dict):
            hidden = {self._hide_names(key): self._hide_names_in(item) for key, item in value.items()}
            if len(hidden) == len(value):
                return hidden
            return {key: self._hide_names_in(item) for key, item in value.items()}
        return value

    def restore(self, quote: str, texts: Iterable[str]) -> str:
        """Return the quote with the original names, as it occurs in one of the texts, or unchanged if in none."""
        pieces = re.split(r"(\[(?:agent|provider|model)\])", quote)
        if self._pattern is None or len(pieces) == 1:
            return quote
        pattern = re.compile("".join(self._sought(piece) for piece in pieces))
        return next((quote_match[0] for text in texts if (quote_match := pattern.search(text))), quote)

    def _sought(self, piece: str) -> str:
        names = [re.escape(name) for name, word in self.words if word == piece]
        if names:
            return f"(?:(?i:{'|'.join(names)})|{re.escape(piece)})"
        return re.sub(r"(?:\\?\s)+", r"\\s+", re.escape(piece))

    def _word(self, match: re.Match[str]) -> str:
        if match[0].startswith("["):  # a placeholder of personal data
            return match[0]
        # case folding of some letters differs between regular expressions and str
        return self._by_name.get(match[0].casefold(), "[agent]")

    @cached_property
    def _by_name(self) -> Mapping[str, str]:
        return {name.casefold(): word for name, word in self.words}

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        if not self.words:
            return None
        placeholder_pattern = "" if self.personal is None else rf"{PLACEHOLDER.pattern}|"
        return re.compile(
            rf"(?i){placeholder_pattern}(?<!\w)(?:{'|'.join(re.escape(name) for name, _ in self.words)})(?!\w)"
        )


NO_BLINDED_TERMS = BlindedTerms()
