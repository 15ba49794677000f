"""Read the elements of an array in a JSON file one at a time, as bytes.

The file is split only at brackets, commas, colons and quotes; the content of each element is parsed separately.
An invalid element therefore does not affect the others, and memory use does not grow with the size of the file.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

BLOCK = 1_000_000
OPENING = b"[{"
_WHOLE = (b"]", b"}")  # a value with such an end is complete, even if the file is truncated after it
_ENDS = "the file ends here, but its JSON is incomplete"

# Only single characters are quantified possessively: Python before 3.11.5 matches possessive groups incorrectly.
_OVER_TEXTS = re.compile(rb'[^"\[\]{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*"[^"\[\]{}]*+)*', re.DOTALL)
_TO_SIGN = re.compile(rb'[^"\[\]{},:]*+')
_IN_TEXT = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*+")


class TruncatedJsonError(Exception):
    """Raised when the rest of the file cannot be split; the message contains the reason."""


def iter_array_elements(stream: BinaryIO, keys: Sequence[str], longest: int) -> Iterator[bytes | None]:
    """Yield the bytes of each element of the array under `keys`; without keys, the file itself is the array.

    None is yielded for an element of more than `longest` bytes. If there is no such array, nothing is yielded.

    Raises:
        TruncatedJsonError: If the file is not an array or object, ends before it is complete, or has content
            after it. Earlier elements have been yielded by then.
    """
    cutter = JsonArraySplitter(stream, longest)
    if cutter.first() not in (b"[", b"{"):
        raise TruncatedJsonError("expected a JSON array or object here")
    yield from _under(cutter, keys)
    if cutter.first():
        raise TruncatedJsonError("the file has content after the end of its JSON")


def top_level_keys(stream: BinaryIO) -> Iterator[str]:
    """Yield the keys of the object in the stream, in order; nothing if the stream is not an object.

    Raises:
        TruncatedJsonError: If the file ends within the object. Earlier keys have been yielded by then.
    """
    cutter = JsonArraySplitter(stream, BLOCK)
    if cutter.first() != b"{":
        return
    sign = cutter.step()
    while sign != b"}":
        key, sign = cutter.gathered(b":,}")
        if not sign:
            raise TruncatedJsonError(_ENDS)
        if sign == b":":
            cutter.step()
            if (text := _text_of(key)) is not None:
                yield text
            if not (sign := cutter.value(b",}")):
                raise TruncatedJsonError(_ENDS)
        if sign == b",":
            cutter.step()


def member(stream: BinaryIO, key: str, longest: int) -> bytes | None:
    """Return the bytes of the value under a key of the object in the stream.

    The result is None if there is no such key or its value is longer than `longest` bytes. Reading stops after
    the value.

    Raises:
        TruncatedJsonError: If the file ends within the object before the value is complete.
    """
    cutter = JsonArraySplitter(stream, longest)
    if cutter.first() != b"{":
        return None
    sign = cutter.step()
    while sign != b"}":
        name, sign = cutter.gathered(b":,}")
        if sign == b":":
            cutter.step()
            if _text_of(name) == key:
                return cutter.gathered(b",}")[0]
            sign = cutter.value(b",}")
        if not sign:
            raise TruncatedJsonError(_ENDS)
        if sign == b",":
            cutter.step()
    return None


def _under(cutter: "JsonArraySplitter", keys: Sequence[str]) -> Iterator[bytes | None]:
    """Yield the requested elements of the current value, and skip to its end."""
    first = cutter.first()
    if keys and first == b"{":
        yield from _of_object(cutter, keys)
    elif not keys and first == b"[":
        yield from _of_array(cutter)
    else:
        cutter.value(b",]}")


def _of_object(cutter: "JsonArraySplitter", keys: Sequence[str]) -> Iterator[bytes | None]:
    sign, n_found = cutter.step(), 0
    while sign != b"}":
        key, sign = cutter.gathered(b":,}")
        if not sign:
            raise TruncatedJsonError(_ENDS)
        if sign == b":":
            cutter.step()
            is_it = _is_text(key, keys[0])
            n_found += is_it
            if n_found > 1 and is_it:
                raise TruncatedJsonError(f"{keys[0]!r} occurs twice in its object; the first counts")
            if is_it:
                yield from _under(cutter, keys[1:])
            if not (sign := cutter.value(b",}")):
                raise TruncatedJsonError(_ENDS)
        if sign == b",":
            cutter.step()
    cutter.step()


def _of_array(cutter: "JsonArraySplitter") -> Iterator[bytes | None]:
    sign, is_first = cutter.step(), True
    while sign != b"]":
        element, sign = cutter.gathered(b",]")
        if not sign:
            if element and element.rstrip()[-1:] in _WHOLE:
                yield element
            raise TruncatedJsonError(_ENDS)
        if element is None or element.strip() or not (is_first and sign == b"]"):
            yield element
        is_first = False
        if sign == b",":
            cutter.step()
    cutter.step()


def _is_text(key: bytes | None, text: str) -> bool:
    return _text_of(key) == text


def _text_of(key: bytes | None) -> str | None:
    try:
        text = None if key is None else json.loads(key)
    except (ValueError, RecursionError):
        return None
    return text if isinstance(text, str) else None


@dataclass
class JsonArraySplitter:
    """Split JSON into values in a single pass over the bytes, block by block."""

    stream: BinaryIO
    longest: int
    block: bytes = b""
    at: int = 0
    size: int = 0
    pieces: list[bytes] | None = field(default=None)  # None if skipped bytes are not collected

    def first(self) -> bytes:
        """Return the next byte that is not a space; b'' at the end of the file."""
        while self._is_more():
            self._take(_end(_SPACE, self.block, self.at))
            if self.at < len(self.block):
                return self.block[self.at : self.at + 1]
        return b""

    def step(self) -> bytes:
        """Skip the current byte."""
        if self._is_more():
            self._take(self.at + 1)
        return b""

    def gathered(self, stops: bytes) -> tuple[bytes | None, bytes]:
        """Skip the current value; return its bytes (None if too long) and the delimiter after it."""
        self.pieces, self.size = [], 0
        sign = self.value(stops)
        value_bytes = b"".join(self.pieces) if self.size <= self.longest else None
        self.pieces = None
        return value_bytes, sign

    def value(self, stops: bytes) -> bytes:
        """Skip to the next of the delimiters `stops` and return it without skipping it; b'' at the end of the file."""
        while self._is_more():
            self._take(_end(_TO_SIGN, self.block, self.at))
            sign = self.block[self.at : self.at + 1]
            if not sign:
                continue
            if sign in stops:
                return sign
            if sign == b'"':
                self._text()
            elif sign in OPENING:
                self._nested()
            else:
                self.step()
        return b""

    def _text(self) -> None:
        self.step()
        while self._is_more():
            self._take(_end(_IN_TEXT, self.block, self.at))
            if self.at == len(self.block):
                continue
            is_end = self.block[self.at : self.at + 1] == b'"'
            self.step()
            if is_end:
                return
            self.step()  # a backslash ended the block; the next block begins with the escaped byte
        raise TruncatedJsonError("the file ends here, within a string")

    def _nested(self) -> None:
        """Skip an array or object by counting brackets; the element's parser checks that their types match."""
        depth = 0
        while self._is_more():
            self._take(_end(_OVER_TEXTS, self.block, self.at))
            sign = self.block[self.at : self.at + 1]
            if not sign:
                continue
            if sign == b'"':
                self._text()
                continue
            depth += 1 if sign in OPENING else -1
            self.step()
            if depth == 0:
                return
        raise TruncatedJsonError("the file ends here, within an array or object")

    def _is_more(self) -> bool:
        if self.at >= len(self.block):
            self.block, self.at = self.stream.read(BLOCK), 0
        return bool(self.block)

    def _take(self, end: int) -> None:
        if self.pieces is not None and end > self.at:
            self.size += end - self.at
            if self.size > self.longest:
                self.pieces.clear()
            else:
                self.pieces.append(self.block[self.at : end])
        self.at = end


def _end(pattern: re.Pattern[bytes], block: bytes, at: int) -> int:
    match = pattern.match(block, at)
    return match.end() if match else at
