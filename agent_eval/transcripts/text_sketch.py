"""Sketch the text of an agent, so that near-duplicates are found without the text.

A text is compared by its shingles: runs of three words, without case, punctuation, accents and look-alike letters, and
without words that look like ids. The sketch holds the smallest hashes of the shingles, so that it is exact for short
texts and an unbiased sample of long ones (Broder, On the resemblance and containment of documents, 1997).
"""

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from agent_eval.formats.plain_text import DIGITS_AS_LETTERS, folded_words, looks_like_id
from agent_eval.transcripts.models import Conversation

SHINGLE = 3  # words
SIZE = 128  # hashes
ENOUGH_WORDS = 40
_BETWEEN = 2**32  # code between two texts, which is not the code of a word
_MOST = 200_000  # characters that are sketched


@dataclass(frozen=True)
class TextSketch:
    """Hold the numbers of words and of distinct shingles of a text, and the smallest hashes of the shingles."""

    n_words: int
    n_shingles: int
    hashes: tuple[int, ...]  # ascending

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self | None:
        """Return the sketch of the texts; None if none of them has as many words as a shingle, which is within one text."""
        import numpy as np  # slow to load, and the definitions do not need it

        found: list[int] = []
        n_left, n_words = _MOST, 0
        for text in texts:
            words = [code for code in map(_code, folded_words(text[:n_left])) if code >= 0]
            n_left, n_words = max(0, n_left - len(text)), n_words + len(words)
            found += [*words, _BETWEEN]
        codes = np.array(found, dtype=np.uint64)
        is_end = codes == _BETWEEN
        is_within = ~(is_end[:-2] | is_end[1:-1] | is_end[2:])
        if not is_within.any():
            return None
        mixed = codes[:-2] * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(31))) + codes[1:-1]
        mixed = mixed * np.uint64(0xBF58476D1CE4E5B9)
        mixed = ((mixed ^ (mixed >> np.uint64(29))) + codes[2:]) * np.uint64(0x94D049BB133111EB)
        distinct = np.unique(mixed[is_within] >> np.uint64(32))
        return cls(n_words, len(distinct), tuple(distinct[:SIZE].tolist()))

    @classmethod
    def read(cls, text: str) -> Self:
        """Return a sketch from its text form."""
        n_words, n_shingles, hashes = text.split(" ")
        return cls(
            int(n_words), int(n_shingles), struct.unpack(f">{len(hashes) // 8}I", bytes.fromhex(hashes))
        )

    def text(self) -> str:
        """Return the sketch as a text: the two numbers, and the hashes in hexadecimal digits."""
        return f"{self.n_words} {self.n_shingles} {struct.pack(f'>{len(self.hashes)}I', *self.hashes).hex()}"

    def joined(self, other: Self) -> Self:
        """Return the sketch of both texts; shingles that they share count once if both sketches are exact."""
        every = sorted({*self.hashes, *other.hashes})
        n_new = len(every) - len(self.hashes) if self.is_exact and other.is_exact else other.n_shingles
        return type(self)(self.n_words + other.n_words, self.n_shingles + n_new, tuple(every[:SIZE]))

    @property
    def is_exact(self) -> bool:
        """Return whether the sketch holds all shingles."""
        return self.n_shingles <= SIZE


def containment(a: TextSketch, b: TextSketch) -> float:
    """Return the share of the shorter text's shingles that the other text has, 0–1, estimated for long texts."""
    both = {*a.hashes} & {*b.hashes}
    fewest = min(a.n_shingles, b.n_shingles)
    if a.is_exact and b.is_exact:
        return len(both) / fewest
    union = sorted({*a.hashes, *b.hashes})[:SIZE]
    share = len(both.intersection(union)) / len(union)
    return min(1.0, share * (a.n_shingles + b.n_shingles) / (1 + share) / fewest)


def text_sketch(conversation: Conversation) -> str | None:
    """Return the sketch of the agent's texts in a conversation, as a text; None if they are too short."""
    said = (m.content for m in conversation.messages if m.role == "assistant" and m.content)
    sketch = TextSketch.of(said)
    return None if sketch is None else sketch.text()


@lru_cache(maxsize=100_000)
def _code(word: str) -> int:
    """Return the hash of a word, or -1 if it looks like an id."""
    if looks_like_id(word):
        return -1
    return zlib.crc32(word.translate(DIGITS_AS_LETTERS).encode("utf-8", "surrogatepass"))
