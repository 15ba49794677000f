"""Define the finding of a check, and helpers that several checks use."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from agent_eval.judge.protocol import Question
from agent_eval.transcripts.models import ToolCall

RULE = "rule"
_QUOTE_LENGTH = 160


def word_set(words: str) -> frozenset[str]:
    """Return the set of words in a text."""
    return frozenset(words.split())


_READING = word_set(
    "get find search list read lookup look check fetch query view describe show count calculate compute think "
    "retrieve inspect browse grep cat ls select explain summarize summarise"
)
_LIVE = word_set(
    "status state progress weather price quote stock time now current track tracking position wait poll ping"
)
_ERROR = re.compile(
    r"\b(error|exception|traceback|fail(ed|ure|s)?|time-?out|timed out|not found|no connection|unavailable)\b",
    re.IGNORECASE,
)
_HEAD = 80  # an error is reported at the beginning of a result


@dataclass(frozen=True)
class RuleFinding:
    """Hold one failure, with the rule's reason and a verbatim quote."""

    label: str
    rationale: str
    quote: str


@dataclass(frozen=True)
class Made:
    """Hold a call of the agent or the user in the judged turn, and its position among the turn's messages."""

    position: int
    call: ToolCall


def calls_of(question: Question) -> Iterator[Made]:
    """Yield the agent's calls in the judged turn, in order."""
    calls = iter(question.turn.tool_calls)
    for position, message in enumerate(question.turn.messages):
        for _ in message.tool_calls:
            if (call := next(calls)).requestor == "assistant":
                yield Made(position, call)


def may_have_failed(call: ToolCall) -> bool:
    """Return whether a result is an error: declared, or reported at its beginning, often as plain text."""
    return call.is_error is True or tells_error(call.result or "")


def tells_error(result: str) -> bool:
    """Return whether a result reports an error at its beginning."""
    return bool(_ERROR.search(result[:_HEAD]))


@lru_cache(maxsize=4096)
def words_of_name(name: str) -> tuple[str, ...]:
    """Return `deleteFile`, `delete_file` or `fs.delete-file` as lower-case words."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return tuple(word.lower() for word in re.split(r"[^A-Za-z0-9]+", spaced) if word)


def only_reads(name: str) -> bool:
    """Return whether a tool's name indicates that it changes nothing."""
    words = words_of_name(name)
    return bool(words) and words[0] in _READING


def is_live(name: str) -> bool:
    """Return whether a tool's name indicates changing data, such as a status."""
    return not _LIVE.isdisjoint(words_of_name(name))


@lru_cache(maxsize=4096)
def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a text, ignoring case and signs."""
    return tuple(re.findall(r"\w+", text.casefold()))


def leaves(value: object) -> Iterator[str]:
    """Yield the texts and integers in a call's arguments, as texts."""
    if isinstance(value, dict):
        for part in value.values():
            yield from leaves(part)
    elif isinstance(value, list):
        for part in value:
            yield from leaves(part)
    elif isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        yield value if isinstance(value, str) else json.dumps(value)


def quote_of(text: str) -> str:
    """Return the longest line of a text, cut at a word."""
    return cut(max(text.splitlines(), key=len).strip())


def cut(line: str) -> str:
    """Return at most 160 characters, cut at a word."""
    return line if len(line) <= _QUOTE_LENGTH else line[:_QUOTE_LENGTH].rsplit(" ", 1)[0]
