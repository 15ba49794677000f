"""Sketch the text of an agent, so that near-duplicates are found without the text.

A text is compared by its shingles: runs of three words, without case, punctuation, accents and look-alike letters, and
without numbers, words that look like ids, fillers, doubled letters and words, and reasoning in tags. The sketch holds the smallest hashes of the shingles, so that it is exact for short
texts and an unbiased sample of long ones (Broder, On the resemblance and containment of documents, 1997). Shingles that the agent
had before it from a tool, the user, its knowledge or its instructions are marked as quoted: that two agents quote one policy does
not make one a copy of the other.
"""

import re
import struct
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Self

from agent_eval.formats.plain_text import as_letters, shown_words
from agent_eval.transcripts.models import REASONING_TAGS, Conversation, Message

SHINGLE = 3  # words
SIZE = 128  # hashes
ENOUGH_WORDS = 40
_LEAST_SPACES = 11  # of a text in a call's arguments that counts as said
_BETWEEN = 2**32  # code between two texts, which is not the code of a word
_MOST = 200_000  # characters that are sketched
_DOUBLED = re.compile(r"(.)\1+")
_MOST_KNOWN = 100_000  # words whose hashes are kept
_LONG = 3_000  # characters from which the shingles of a source are kept
_SHORT = 20_000  # characters of a text whose codes are kept
_FILLER_TIMES, _FILLER_EVERY = 3, 16  # a word that occurs so often, and more than once in so many words
_FEWEST = 8  # shingles that a share is estimated from
_LEAST_OWN = 0.1  # of the shorter text's shingles; with fewer that are not quoted, texts are compared in full


@dataclass(frozen=True)
class TextSketch:
    """Hold the numbers of words and of distinct shingles of a text, and the smallest hashes of the shingles."""

    n_words: int
    n_shingles: int
    hashes: tuple[int, ...]  # ascending
    quoted: frozenset[int] = frozenset()  # those of the hashes that the agent had before it

    @classmethod
    def of(cls, texts: Iterable[str], sources: Iterable[str] = ()) -> Self | None:
        """Return the sketch of the texts; None if none of them has as many words as a shingle, which is within one text."""
        n_words, said = _coded(texts)
        if len(said) <= SHINGLE:
            return None
        short, long = list[str](), list[str]()
        for source in sources:
            (short if len(source) < _LONG else long).append(source)
        own, given = _hashed(said, _coded(short)[1])
        if not own:
            return None
        lowest = own[:SIZE]
        quoted = given.intersection(lowest)
        for source in long:
            quoted |= _hashes_before(source[:_MOST]).intersection(lowest)
        return cls(n_words, len(own), tuple(lowest), frozenset(quoted))

    @classmethod
    def read(cls, text: str) -> Self:
        """Return a sketch from its text form."""
        n_words, n_shingles, *packed = text.split(" ")
        hashes, quoted = [*map(_unpacked, packed), ()][:2]
        return cls(int(n_words), int(n_shingles), hashes, frozenset(quoted))

    def text(self) -> str:
        """Return the sketch as a text: the two numbers, and the hashes and the quoted ones in hexadecimal digits."""
        found = f"{self.n_words} {self.n_shingles} {_packed(self.hashes)}"
        return f"{found} {_packed(sorted(self.quoted))}" if self.quoted else found

    def joined(self, other: Self) -> Self:
        """Return the sketch of both texts; shingles that they share count once if both sketches are exact."""
        every = sorted({*self.hashes, *other.hashes})
        n_new = len(every) - len(self.hashes) if self.is_exact and other.is_exact else other.n_shingles
        quoted = (self.quoted | other.quoted) & {*every[:SIZE]}
        return type(self)(self.n_words + other.n_words, self.n_shingles + n_new, tuple(every[:SIZE]), quoted)

    @property
    def highest(self) -> int:
        """Return the hash up to which the sketch holds all shingles."""
        return 2**32 if self.is_exact else self.hashes[-1]

    @property
    def is_exact(self) -> bool:
        """Return whether the sketch holds all shingles."""
        return self.n_shingles <= SIZE


def containment(a: TextSketch, b: TextSketch, *, of_two_agents: bool = False) -> float:
    """Return the share of the shorter text's shingles that the other text has, 0–1, estimated for long texts.

    What both quote does not count. If the shorter text has next to nothing else, the whole texts are compared; of two
    agents they share nothing then, because both had to say the same.
    """
    shorter, longer = sorted((a, b), key=lambda sketch: sketch.n_shingles)
    known = min(a.highest, b.highest)  # up to here, both sketches hold every shingle
    among = shorter.hashes[: bisect_right(shorter.hashes, known)]
    both = a.quoted & b.quoted if a.quoted and b.quoted else ()
    own = tuple(h for h in among if h not in both) if both else among
    if own and len(own) >= _LEAST_OWN * len(among):
        among = own
    elif of_two_agents:
        return 0.0
    least = 1 if a.is_exact and b.is_exact else min(_FEWEST, shorter.n_shingles)
    return len({*among}.intersection(longer.hashes)) / max(len(among), least)


def text_sketch(conversation: Conversation) -> str | None:
    """Return the sketch of the agent's texts in a conversation, as a text; None if they are too short.

    Long texts in the arguments of its calls belong to them, because a text can be sent by a call.
    """
    contents = (text for m in conversation.messages if m.role == "assistant" for text in _said(m))
    said = (REASONING_TAGS.sub(" ", text) if "<" in text else text for text in contents)
    sketch = TextSketch.of(said, _sources(conversation))
    return None if sketch is None else sketch.text()


def _said(message: Message) -> Iterator[str]:
    """Yield the text of a message, and the long texts in the arguments of its calls."""
    if message.content:
        yield message.content
    waiting: list[object] = [call.arguments for call in message.tool_calls]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            if value.count(" ") >= _LEAST_SPACES:
                yield value
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value


def _sources(conversation: Conversation) -> Iterator[str]:
    """Yield the texts that the agent had before it: its knowledge, instructions, results of tools, and what users said."""
    yield from conversation.knowledge or ()
    if isinstance(policy := conversation.metadata.get("policy"), str):
        yield policy
    for message in conversation.messages:
        if message.content and message.role != "assistant":
            yield message.content


def _coded(texts: Iterable[str]) -> tuple[int, list[int]]:
    """Return the number of words of the texts, and their codes, with `_BETWEEN` after each text."""
    found: list[int] = []
    n_left, n_words = _MOST, 0
    for text in texts:
        n, codes = _coded_text(text[:n_left]) if n_left else (0, ())
        n_left, n_words = max(0, n_left - len(text)), n_words + n
        found += codes
        found.append(_BETWEEN)
    return n_words, found


def _codes_of(text: str) -> tuple[int, Sequence[int]]:
    every = filter(None, map(_CODES.__getitem__, shown_words(text)))
    words = [word for word, _ in groupby(every)]  # a word that is doubled counts once
    return len(words), _without_fillers(words)


_coded_before = lru_cache(maxsize=256)(
    _codes_of
)  # instructions and knowledge are the same in many conversations


def _coded_text(text: str) -> tuple[int, Sequence[int]]:
    return _coded_before(text) if len(text) <= _SHORT else _codes_of(text)


def _hashed(said: list[int], given: list[int]) -> tuple[list[int], set[int]]:
    """Return the distinct hashes of the shingles of what was said, ascending, and those of what was given."""
    import numpy as np

    codes = np.array(said + given, dtype=np.uint64)
    is_end = codes == _BETWEEN
    is_within = ~(is_end[:-2] | is_end[1:-1] | is_end[2:])
    mixed = codes[:-2] * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(31)
    mixed += codes[1:-1]
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(29)
    mixed += codes[2:]
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed >>= np.uint64(32)
    own = mixed[: len(said)][is_within[: len(said)]]
    own.sort()
    others = mixed[len(said) :][is_within[len(said) :]].tolist() if given else ()
    return list(dict.fromkeys(own.tolist())), set(others)


@lru_cache(maxsize=64)
def _hashes_before(text: str) -> frozenset[int]:
    """Return the hashes of the shingles of a long source, which many conversations have, such as instructions."""
    return frozenset(_hashed(_coded([text])[1], [])[0])


def _without_fillers(words: list[int]) -> list[int]:
    """Return the words but those that are more than one in sixteen of the text, such as 'um' after every third word."""
    if len(words) - len(set(words)) < _FILLER_TIMES - 1:
        return words
    counts = Counter(words)
    most = max(counts.values(), default=0)
    if most < _FILLER_TIMES or most * _FILLER_EVERY <= len(words):
        return words
    often = {w for w, n in counts.items() if n >= _FILLER_TIMES and n * _FILLER_EVERY > len(words)}
    return [word for word in words if word not in often]


def _packed(hashes: Sequence[int]) -> str:
    return struct.pack(f">{len(hashes)}I", *hashes).hex()


def _unpacked(text: str) -> tuple[int, ...]:
    return struct.unpack(f">{len(text) // 8}I", bytes.fromhex(text))


class _Codes(dict[str, int]):
    """Know the hashes of words; 0 for a number and for a word that looks like an id."""

    def __missing__(self, word: str) -> int:
        if len(self) >= _MOST_KNOWN:
            self.clear()
        letters = as_letters(word)
        once = "" if letters is None else _DOUBLED.sub(r"\1", letters)
        self[word] = code = zlib.crc32(once.encode("utf-8", "surrogatepass")) if once else 0
        return code


_CODES = _Codes()
