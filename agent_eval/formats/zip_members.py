"""Read members of zip archives as streams, without unpacking them to disk or using their names as paths."""

import io
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MOST_MEMBERS = 100_000
_BROKEN = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    ValueError,
)


@dataclass(frozen=True)
class ZipMember:
    """Represent a file in a zip archive; sizes are in bytes, as declared there, and reading stops at `size`."""

    archive: Path
    name: str
    size: int
    packed_size: int
    offset: int  # of its header in the archive; it identifies the member, because several can have one name

    @contextmanager
    def opened(self, largest: int) -> Iterator[io.RawIOBase]:
        """Open the member as a stream of bytes; errors of the archive while reading are also raised as OSError.

        Raises:
            OSError: If the member declares more than `largest` bytes, is encrypted or damaged, or uses an
                unsupported compression method.
        """
        if self.size > largest:
            raise OSError(
                f"it unpacks to {self.size:,} bytes, more than the {largest:,} allowed; unzip it first"
            )
        with ExitStack() as stack:
            try:
                archive = stack.enter_context(zipfile.ZipFile(self.archive))
                entry = next(e for e in archive.infolist() if e.header_offset == self.offset)
                stream = stack.enter_context(archive.open(entry))
            except StopIteration:
                raise OSError(f"the zip archive has no member {self.name!r} any more") from None
            except _BROKEN as error:
                raise _unreadable(error) from error
            yield _Unpacked(stream)


class _Unpacked(io.RawIOBase):
    """Stream the bytes of a member and unpack them while reading."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._n_read = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._n_read

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer)
        try:
            chunk = self._stream.read(len(view))
        except _BROKEN as error:
            raise _unreadable(error) from error
        view[: len(chunk)] = chunk
        self._n_read += len(chunk)
        return len(chunk)


def _unreadable(error: Exception) -> OSError:
    return OSError(f"the zip archive cannot be read: {error}")


def is_zip(path: Path) -> bool:
    """Return whether the file starts with the signature of a zip archive."""
    with path.open("rb") as stream:
        return stream.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


def members(path: Path) -> list[ZipMember]:
    """Return the files of a zip archive, sorted by name, without folders and macOS resource forks.

    Raises:
        OSError: If the file is not a zip archive, is damaged or has more than 100,000 entries.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except _BROKEN as error:
        raise _unreadable(error) from error
    if len(entries) > MOST_MEMBERS:
        raise OSError(f"the archive has {len(entries):,} entries; at most {MOST_MEMBERS:,} are read")
    files = [
        entry
        for entry in entries
        if not entry.filename.endswith("/") and not entry.filename.startswith("__MACOSX/")
    ]
    file_members = [
        ZipMember(path, entry.filename, entry.file_size, entry.compress_size, entry.header_offset)
        for entry in files
    ]
    return sorted(file_members, key=lambda member: (member.name, member.offset))
