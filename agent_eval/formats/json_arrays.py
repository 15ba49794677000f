"""Read the elements of an array in a JSON file one at a time, each as its own bytes.

The file is split by brackets, commas, colons and quotes only; the content of an element is parsed afterwards.
So one invalid element does not affect the others, and memory does not grow with the file, whatever its
content.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

BLOCK = 1_000_000
OPENING = b"[{"
_WHOLE = (b"]", b"}")  # a value that ends so is complete, even if the file is truncated after it
_ENDS = "the file ends here, before its JSON does"

# Possessive quantifiers: a long block does not use the stack.
_OVER_TEXTS = re.compile(rb'[^"\[\]{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"\[\]{}]*+)*+', re.DOTALL)
_TO_SIGN = re.compile(rb'[^"\[\]{},:]*+')
_IN_TEXT = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*+")


class TruncatedJsonError(Exception):
    """Raised when the file cannot be split beyond this position; the message says why."""


def iter_array_elements(stream: BinaryIO, keys: Sequence[str], longest: int) -> Iterator[bytes | None]:
    """Yield the bytes of each element of the array under `keys` (empty: the file is the array).

    Yields None for an element of more than `longest` bytes, and nothing if there is no such array.

    Raises:
        TruncatedJsonError: If the file is not an array or object, ends within it or continues after it; earlier
            elements were yielded.
    """
    cutter = JsonArraySplitter(stream, longest)
    if cutter.first() not in (b"[", b"{"):
        raise TruncatedJsonError("no array or object of JSON begins here")
    yield from _under(cutter, keys)
    if cutter.first():
        raise TruncatedJsonError("something follows the end of its JSON")


def top_level_keys(stream: BinaryIO) -> Iterator[str]:
    """Yield the keys of the object that the stream holds, in order; nothing if it holds none.

    Raises:
        TruncatedJsonError: If the file ends within the object; earlier keys were yielded.
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
    """Return the bytes of the value under a key of the object that the stream holds.

    None if there is no such key, or its value is longer than `longest` bytes. Nothing after the value is read.

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


def _is_text(key: bytes | None, wanted: str) -> bool:
    return _text_of(key) == wanted


def _text_of(key: bytes | None) -> str | None:
    try:
        text = None if key is None else json.loads(key)
    except (ValueError, RecursionError):
        return None
    return text if isinstance(text, str) else None


@dataclass
class JsonArraySplitter:
    """Scan the bytes once, block by block."""

    stream: BinaryIO
    longest: int
    block: bytes = b""
    at: int = 0
    size: int = 0
    pieces: list[bytes] | None = field(default=None)  # None: skipped bytes are not collected

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
        """Return the bytes of the current value (None if too long) and the delimiter that ends it."""
        self.pieces, self.size = [], 0
        sign = self.value(stops)
        found = b"".join(self.pieces) if self.size <= self.longest else None
        self.pieces = None
        return found, sign

    def value(self, stops: bytes) -> bytes:
        """Skip to one of the delimiters `stops`, return it and stay before it; b'' at the end of the file."""
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
            self.step()  # a backslash ended the block: the escaped byte begins the next one
        raise TruncatedJsonError("the file ends here, within a text")

    def _nested(self) -> None:
        """Count brackets; the parser of the element checks that their kinds match."""
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
