"""Read plain or gzipped files one record at a time, so that memory does not grow with the file."""

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from pydantic import JsonValue

from agent_eval.formats.json_text import loads
from agent_eval.formats.refusals import Refusal
from agent_eval.formats.validation_messages import shorten
from agent_eval.formats.zip_members import ZipMember

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MEGABYTE = 1_000_000
LONGEST_LINE = 200 * MEGABYTE
LARGEST_UNZIPPED = 1_000 * MEGABYTE
MOST_UNZIPPED = 200  # maximum ratio to the compressed size; transcripts compress about 10 times
MOST_KEPT = MEGABYTE
"""Largest total size of the records that `Lines` keeps, in bytes of JSON text."""
TOO_LONG = f"the record is longer than {LONGEST_LINE // MEGABYTE} MB"
KEPT = "records before it are kept"
BREAKS = (EOFError, OSError, zlib.error)
_GZIP, _BOM = b"\x1f\x8b", b"\xef\xbb\xbf"
_UTF16, _UTF32 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)


class Record(NamedTuple):
    """Hold a record of a file; `number` is its 1-based line, or its 1-based position in an array."""

    number: int
    value: JsonValue
    size: int = 0  # bytes of its text; 0 if it has no text of its own


@contextmanager
def opened(path: Path | ZipMember) -> Iterator[BinaryIO]:
    """Open a file or a member of a zip archive as a stream of bytes without a byte order mark.

    Gzipped content is decompressed. UTF-16 with a byte order mark, as written by PowerShell, is converted to UTF-8.

    Raises:
        OSError: If the member declares too large a size for its compressed size, or cannot be unpacked.
    """
    with path.open("rb") if isinstance(path, Path) else _member(path) as raw:
        is_gzip = raw.peek(2)[:2] == _GZIP
        stream = io.BufferedReader(_Unzipped(raw)) if is_gzip else raw
        head = stream.peek(4)[:4]
        if head[:3] == _BOM:
            stream.read(3)
        is_utf16 = head[:2] in _UTF16 and head not in _UTF32
        yield io.BufferedReader(_Recoded(stream)) if is_utf16 else stream


def head_of(stream: BinaryIO, size: int) -> bytes:
    """Return the first `size` bytes after leading white space, of any length; b"" if there is nothing else."""
    head = b""
    while len(head) < size and (block := stream.read(size)):
        head = (head + block).lstrip()
    return head[:size]


@contextmanager
def _member(member: ZipMember) -> Iterator[io.BufferedReader]:
    largest = max(LARGEST_UNZIPPED, MOST_UNZIPPED * member.packed_size)
    with member.opened(largest) as raw:
        yield io.BufferedReader(raw)


class _Unzipped(io.RawIOBase):
    """Decompress a gzipped stream, and reject content that expands like a zip bomb."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._zipped = gzip.GzipFile(fileobj=raw)
        self._size = 0

    def readable(self) -> bool:
        """Return true: the stream is read only."""
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Fill the buffer; raises OSError if the content is too large for its compressed size."""
        n_read = self._zipped.readinto(buffer)
        self._size += n_read
        if self._size > max(LARGEST_UNZIPPED, MOST_UNZIPPED * self._raw.tell()):
            raise OSError(
                f"its content is more than {MOST_UNZIPPED} times the size of the file; if this is intended, unzip it first"
            )
        return n_read


class _Recoded(io.RawIOBase):
    """Recode a stream of UTF-16 to UTF-8; invalid bytes become U+FFFD."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._decoder = codecs.getincrementaldecoder("utf-16")("replace")
        self._ready = io.BytesIO()

    def readable(self) -> bool:
        """Return true: the stream is read only."""
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Fill the buffer."""
        while not (n_read := self._ready.readinto(buffer)):
            block = self._raw.read(MEGABYTE)
            self._ready = io.BytesIO(self._decoder.decode(block, final=not block).encode())
            if not block:
                return self._ready.readinto(buffer)
        return n_read


def json_lines(path: Path | ZipMember, file: str) -> Iterator[Record | Refusal]:
    """Yield a record for each non-blank line; an unreadable line is yielded as a refusal."""
    for number, line in _lines(path):
        if isinstance(line, str):
            yield Refusal(file, number, line)
        elif line.strip():
            yield record_of(line, number, file, "; expected one JSON value per line")


class Lines:
    """Yield the items of `json_lines` in each iteration; those of a small file are parsed only in the first one."""

    def __init__(self, path: Path | ZipMember, file: str) -> None:
        self._path, self._file = path, file
        self._kept: list[Record | Refusal] | None = None

    def __iter__(self) -> Iterator[Record | Refusal]:
        """Yield each record or refusal; the caller does not change their values."""
        if self._kept is not None:
            yield from self._kept
            return
        size, items_so_far = 0, list[Record | Refusal]()
        for item in json_lines(self._path, self._file):
            if size <= MOST_KEPT:
                size += item.size if isinstance(item, Record) else len(item.reason)
                items_so_far.append(item)
                if size > MOST_KEPT:
                    items_so_far.clear()
            yield item
        self._kept = items_so_far if size <= MOST_KEPT else None


def record_of(text: bytes | None, number: int, file: str, expected: str = "") -> Record | Refusal:
    """Parse the bytes of a record (None if it was too long), or return a refusal if they are invalid."""
    if text is None:
        return Refusal(file, number, TOO_LONG)
    try:
        return Record(number, loads(text.decode()), len(text))
    except UnicodeDecodeError as error:
        reason = f"not UTF-8 at byte {error.start + 1} of the record; save the file as UTF-8"
    except ValueError as error:
        reason = f"not JSON: {error}{expected}"
    return Refusal(file, number, shorten(reason))


def _lines(path: Path | ZipMember) -> Iterator[tuple[int, bytes | str]]:
    """Yield the number and the bytes of each line, or the reason why the file cannot be read."""
    number = 0
    try:
        with opened(path) as stream:
            while line := stream.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    _skip_line(stream, line)
                    yield number, TOO_LONG
                else:
                    yield number, line
    except BREAKS as error:
        yield number + 1, broken(error)


def broken(error: Exception) -> str:
    """Return the reason why the rest of a file cannot be read."""
    name = type(error).__name__
    return shorten(f"the rest of the file cannot be read ({name}: {error}); {KEPT}")


def _skip_line(stream: BinaryIO, line: bytes) -> None:
    while line and not line.endswith(b"\n"):
        line = stream.readline(MEGABYTE)
