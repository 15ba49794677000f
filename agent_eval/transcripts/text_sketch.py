"""Sketch the text of an agent, so that near-duplicates are found without the text.

A text is compared by its shingles: runs of three words, without case, punctuation, accents and look-alike letters, and
without numbers, words that look like ids, doubled letters and words, and reasoning in tags. The sketch holds the smallest hashes of the shingles, so that it is exact for short
texts and an unbiased sample of long ones (Broder, On the resemblance and containment of documents, 1997). Shingles that the agent
had before it from a tool, the user, its knowledge or its instructions are marked as quoted: that two agents quote one policy does
not make one a copy of the other.

The sketch also holds three words with one word left out between two of them, because words may be dropped from a text or added
to it, and the patterns in which words recur, which are the same if every word is replaced by another one.
"""

import re
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Self

from agent_eval.formats.plain_text import as_letters, shown_words
from agent_eval.transcripts.models import REASONING_TAGS, Conversation, Message

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Codes = NDArray[np.uint64]

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
_GAPS = ((1, 3), (2, 3), (2, 4))  # places of the second and third word of a shingle with words left out
_PATTERN, _RECENT, _LEAST_DISTANCES = 8, 64, 3
"""Words of a pattern, words before a word in which it recurs, and different distances that a pattern has.

Of 1,600 texts of tau-bench, tau2, MINT and the sample that share next to no words, no two share 30 % of eight or more patterns."""
_LEAST_PATTERNS = 8  # that two texts share; less may be chance
_OTHER_WORDS = 0.2  # largest share of the shingles of texts that are compared by their patterns
_FEWEST = 8  # shingles that a share is estimated from
_LEAST_OWN = 0.1  # of the shorter text's shingles; with fewer that are not quoted, texts are compared in full


@dataclass(frozen=True)
class TextSketch:
    """Hold the numbers of words and of distinct shingles of a text, and the smallest hashes of the shingles."""

    n_words: int
    n_shingles: int
    hashes: tuple[int, ...]  # ascending
    quoted: frozenset[int] = frozenset()  # those of the hashes that the agent had before it
    gapped: tuple[int, ...] = ()  # the smallest hashes of three words with words left out between them
    patterns: tuple[int, ...] = ()  # the smallest hashes of the patterns in which words recur

    @classmethod
    def of(cls, texts: Iterable[str], sources: Iterable[str] = ()) -> Self | None:
        """Return the sketch of the texts; None if none of them has as many words as a shingle, which is within one text."""
        n_words, text_codes = _coded(texts)
        if len(text_codes) <= SHINGLE:
            return None
        short, long = list[str](), list[str]()
        for source in sources:
            (short if len(source) < _LONG else long).append(source)
        codes = _array(text_codes)
        words = codes[codes > 0]
        own = _lowest([_shingles(words)], None)
        if not own:
            return None
        lowest = own[:SIZE]
        quoted = _all_shingles(short).intersection(lowest) if short else frozenset[int]()
        for source in long:
            quoted |= _hashes_before(source[:_MOST]).intersection(lowest)
        gapped = _lowest([_shingles(words, *places) for places in _GAPS])
        return cls(n_words, len(own), lowest, quoted, gapped, _lowest([_patterns(codes)]))

    @classmethod
    def read(cls, text: str) -> Self:
        """Return a sketch from its text form."""
        n_words, n_shingles, *packed = text.split(" ")
        hashes, quoted, gapped, patterns = [*map(_unpacked, packed), (), (), ()][:4]
        return cls(int(n_words), int(n_shingles), hashes, frozenset(quoted), gapped, patterns)

    def text(self) -> str:
        """Return the sketch as a text: the two numbers, and the four groups of hashes in hexadecimal digits."""
        groups = self.hashes, sorted(self.quoted), self.gapped, self.patterns
        return " ".join([str(self.n_words), str(self.n_shingles), *map(_packed, groups)])

    def joined(self, other: Self) -> Self:
        """Return the sketch of both texts; shingles that they share count once if both sketches are exact."""
        every = sorted({*self.hashes, *other.hashes})
        n_new = len(every) - len(self.hashes) if self.is_exact and other.is_exact else other.n_shingles
        quoted = (self.quoted | other.quoted) & {*every[:SIZE]}
        gapped, patterns = (
            tuple(sorted({*mine, *theirs})[:SIZE])
            for mine, theirs in ((self.gapped, other.gapped), (self.patterns, other.patterns))
        )
        n = self.n_shingles + n_new
        return type(self)(self.n_words + other.n_words, n, tuple(every[:SIZE]), quoted, gapped, patterns)

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

    A shingle is also in the other text if one word is left out there between two of its words. What both quote does not
    count. If the shorter text has next to nothing else, the whole texts are compared; of two
    agents they share nothing then, because both had to say the same. Texts that share next to no words are compared by
    their patterns.
    """
    shorter, longer = (a, b) if a.n_shingles <= b.n_shingles else (b, a)
    common_end = min(a.highest, b.highest)  # up to here, both sketches hold every shingle
    among = {*shorter.hashes[: bisect_right(shorter.hashes, common_end)]}
    shared = among.intersection(longer.hashes)
    with_gaps = shared.union(among.intersection(longer.gapped))
    share = _share_of_patterns(a, b) if len(with_gaps) < _OTHER_WORDS * len(among) else 0.0
    if a.quoted and b.quoted:
        own = among - (a.quoted & b.quoted)
        if own and len(own) >= _LEAST_OWN * len(among):
            among = own
        elif of_two_agents:
            return share
    exact = _FEWEST if common_end < 2**32 else 1
    share = max(share, len(among & shared) / max(len(among), min(exact, shorter.n_shingles)))
    common_end = min(common_end, _highest(longer.gapped))
    if len(with_gaps) > len(shared):
        among = {h for h in among if h <= common_end}
        exact = _FEWEST if common_end < 2**32 else 1
        share = max(share, len(among & with_gaps) / max(len(among), min(exact, shorter.n_shingles)))
    return share


def _share_of_patterns(a: TextSketch, b: TextSketch) -> float:
    """Return the share of the text that is the same but for its words, estimated from the patterns; 0 if there are too few.

    One word more or less changes about four times as many patterns as shingles.
    """
    common_end = min(_highest(a.patterns), _highest(b.patterns))
    fewer, more = sorted((s.patterns[: bisect_right(s.patterns, common_end)] for s in (a, b)), key=len)
    n_same = len({*fewer}.intersection(more))
    return float((n_same / len(fewer)) ** 0.25) if n_same >= _LEAST_PATTERNS else 0.0


def _highest(hashes: Sequence[int]) -> int:
    """Return the hash up to which a group of a sketch is complete."""
    return hashes[-1] if len(hashes) == SIZE else 2**32


def text_sketch(conversation: Conversation) -> str | None:
    """Return the sketch of the agent's texts in a conversation, as a text; None if they are too short.

    Long texts in the arguments of its calls belong to them, because a text can be sent by a call, as a whole or in lines.
    """
    contents = (text for m in conversation.messages if m.role == "assistant" for text in _said(m))
    visible_texts = (REASONING_TAGS.sub(" ", text) if "<" in text else text for text in contents)
    sketch = TextSketch.of(visible_texts, _sources(conversation))
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
        elif isinstance(value, dict | list | tuple):
            parts = list(value.values() if isinstance(value, dict) else value)
            lines = [p for p in parts if isinstance(p, str) and 0 < p.count(" ") < _LEAST_SPACES]
            waiting.append(" ".join(lines))  # a text may be given line by line
            waiting += (part for part in parts if part not in lines)


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
    codes_of_texts: list[int] = []
    n_left, n_words = _MOST, 0
    for text in texts:
        n, codes = _coded_text(text[:n_left]) if n_left else (0, ())
        n_left, n_words = max(0, n_left - len(text)), n_words + n
        codes_of_texts += codes
        codes_of_texts.append(_BETWEEN)
    return n_words, codes_of_texts


def _codes_of(text: str) -> tuple[int, Sequence[int]]:
    every = map(_CODES.__getitem__, shown_words(text))
    words = [word for word, _ in groupby(every)]  # a word that is doubled counts once
    return len(words) - words.count(0), words


_coded_before = lru_cache(maxsize=256)(
    _codes_of
)  # instructions and knowledge are the same in many conversations


def _coded_text(text: str) -> tuple[int, Sequence[int]]:
    return _coded_before(text) if len(text) <= _SHORT else _codes_of(text)


def _array(codes: list[int]) -> "Codes":
    import numpy as np

    return np.array(codes, dtype=np.uint64)


def _shingles(codes: "Codes", second: int = 1, third: int = 2) -> "Codes":
    """Return the hashes of the three words at the places 0, `second` and `third` from each word of the texts."""
    import numpy as np

    is_end = codes == _BETWEEN
    n_before = np.cumsum(is_end)
    n = max(len(codes) - third, 0)
    is_within = ~is_end[third:] & (n_before[:n] == n_before[third:])
    mixed = codes[:n] * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(31)
    mixed += codes[second : second + n]
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(29)
    mixed += codes[third:]
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed >>= np.uint64(32)
    shingle_codes: Codes = mixed[is_within & ~is_end[:n]]
    return shingle_codes


def _patterns(codes: "Codes") -> "Codes":
    """Return the hashes of the patterns of the texts: for each word of a run, how many words before it recurs.

    They do not depend on what the words are. Runs in which words recur rarely or in a constant distance, as in lists, are
    left out.
    """
    import numpy as np

    words: Codes = codes[codes != _BETWEEN]
    if len(words) < _PATTERN:
        return np.zeros(0, dtype=np.uint64)
    order = np.argsort(words, kind="stable")
    distances = np.zeros(len(words), dtype=np.uint64)
    is_again = words[order[1:]] == words[order[:-1]]
    is_again &= words[order[1:]] > 0
    distances[order[1:][is_again]] = (order[1:] - order[:-1])[is_again]
    distances[distances > _RECENT] = 0
    runs = np.lib.stride_tricks.sliding_window_view(distances, _PATTERN)
    ordered = np.sort(runs, axis=1)
    n_distances = ((ordered[:, 1:] != ordered[:, :-1]) & (ordered[:, 1:] > 0)).sum(axis=1)
    n_distances += ordered[:, 0] > 0
    mixed = np.zeros(len(runs), dtype=np.uint64)
    for column in runs.T:
        mixed = (mixed + column) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    pattern_codes: Codes = (mixed >> np.uint64(32))[n_distances >= _LEAST_DISTANCES]
    return pattern_codes


def _lowest(groups: Sequence["Codes"], most: int | None = SIZE) -> tuple[int, ...]:
    """Return the distinct smallest hashes, ascending."""
    import numpy as np

    return tuple(np.unique(np.concatenate(groups))[:most].tolist())


@lru_cache(maxsize=64)
def _hashes_before(text: str) -> frozenset[int]:
    """Return the hashes of the shingles of a long source, which many conversations have, such as instructions."""
    return _all_shingles([text])


def _all_shingles(texts: Iterable[str]) -> frozenset[int]:
    codes = _array(_coded(texts)[1])
    return frozenset(_shingles(codes[codes > 0]).tolist())


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
