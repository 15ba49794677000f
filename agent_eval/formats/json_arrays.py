"""The elements of an array in a JSON file, one at a time, each in its own bytes.

The file is cut by its brackets, commas, colons and quotes alone; what an element holds is read afterwards. So an
element that is no JSON is refused alone, and memory does not grow with the file, whatever stands in it.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

BLOCK = 1_000_000
OPENING = b"[{"
_WHOLE = (b"]", b"}")  # what ends so is whole, even where the file breaks off after it
_ENDS = "the file ends here, before its JSON does"

# Possessive, so that a long block needs no stack.
_OVER_TEXTS = re.compile(rb'[^"\[\]{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"\[\]{}]*+)*+', re.DOTALL)
_TO_SIGN = re.compile(rb'[^"\[\]{},:]*+')
_IN_TEXT = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*+")


class TornError(Exception):
    """The file cannot be cut on from here; the text says why."""


def elements(stream: BinaryIO, keys: Sequence[str], longest: int) -> Iterator[bytes | None]:
    """The bytes of each element of the array that stands under `keys` (none: the file is the array).

    None for an element of more than `longest` bytes. Nothing when there is no such array.

    Raises:
        TornError: If the file is no array or object, ends within it or goes on after it; what came before was given.
    """
    cutter = _Cutter(stream, longest)
    if cutter.first() not in (b"[", b"{"):
        raise TornError("no array or object of JSON begins here")
    yield from _under(cutter, keys)
    if cutter.first():
        raise TornError("something follows the end of its JSON")


def top_level_keys(stream: BinaryIO) -> Iterator[str]:
    """Yield the keys of the object that the stream holds, in order; nothing if it holds none.

    Raises:
        TornError: If the file ends within the object; the keys before were given.
    """
    cutter = _Cutter(stream, BLOCK)
    if cutter.first() != b"{":
        return
    sign = cutter.step()
    while sign != b"}":
        key, sign = cutter.gathered(b":,}")
        if not sign:
            raise TornError(_ENDS)
        if sign == b":":
            cutter.step()
            if (text := _text_of(key)) is not None:
                yield text
            if not (sign := cutter.value(b",}")):
                raise TornError(_ENDS)
        if sign == b",":
            cutter.step()


def member(stream: BinaryIO, key: str, longest: int) -> bytes | None:
    """Return the bytes of the value under a key of the object that the stream holds.

    None if there is no such key, or its value is longer than `longest` bytes. Nothing after the value is read.

    Raises:
        TornError: If the file ends within the object before the value is complete.
    """
    cutter = _Cutter(stream, longest)
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
            raise TornError(_ENDS)
        if sign == b",":
            cutter.step()
    return None


def _under(cutter: "_Cutter", keys: Sequence[str]) -> Iterator[bytes | None]:
    """The wanted elements of the value at hand, which is passed over whole."""
    first = cutter.first()
    if keys and first == b"{":
        yield from _of_object(cutter, keys)
    elif not keys and first == b"[":
        yield from _of_array(cutter)
    else:
        cutter.value(b",]}")


def _of_object(cutter: "_Cutter", keys: Sequence[str]) -> Iterator[bytes | None]:
    sign, n_found = cutter.step(), 0
    while sign != b"}":
        key, sign = cutter.gathered(b":,}")
        if not sign:
            raise TornError(_ENDS)
        if sign == b":":
            cutter.step()
            is_it = _is_text(key, keys[0])
            n_found += is_it
            if n_found > 1 and is_it:
                raise TornError(f"{keys[0]!r} stands twice in its object; the first counts")
            if is_it:
                yield from _under(cutter, keys[1:])
            if not (sign := cutter.value(b",}")):
                raise TornError(_ENDS)
        if sign == b",":
            cutter.step()
    cutter.step()


def _of_array(cutter: "_Cutter") -> Iterator[bytes | None]:
    sign, is_first = cutter.step(), True
    while sign != b"]":
        element, sign = cutter.gathered(b",]")
        if not sign:
            if element and element.rstrip()[-1:] in _WHOLE:
                yield element
            raise TornError(_ENDS)
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
class _Cutter:
    """Walks over the bytes once, a block at a time."""

    stream: BinaryIO
    longest: int
    block: bytes = b""
    at: int = 0
    size: int = 0
    pieces: list[bytes] | None = field(default=None)  # None: what is passed over is not wanted

    def first(self) -> bytes:
        """The next byte that is no space; b'' at the end of the file."""
        while self._is_more():
            self._take(_end(_SPACE, self.block, self.at))
            if self.at < len(self.block):
                return self.block[self.at : self.at + 1]
        return b""

    def step(self) -> bytes:
        """Pass over the byte at hand."""
        if self._is_more():
            self._take(self.at + 1)
        return b""

    def gathered(self, stops: bytes) -> tuple[bytes | None, bytes]:
        """The bytes of the value at hand and the sign that ends it; None when they are too many."""
        self.pieces, self.size = [], 0
        sign = self.value(stops)
        found = b"".join(self.pieces) if self.size <= self.longest else None
        self.pieces = None
        return found, sign

    def value(self, stops: bytes) -> bytes:
        """Pass over all up to one of the signs `stops`, which is returned and stays at hand; b'' at the end of the file."""
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
            self.step()  # a backslash ended the block: what it escapes begins the next one
        raise TornError("the file ends here, within a text")

    def _nested(self) -> None:
        """Brackets are counted; whether they match in kind is for the reader of the element."""
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
        raise TornError("the file ends here, within an array or object")

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
