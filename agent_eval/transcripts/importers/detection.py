"""Detect the format of a file from its content; its name does not matter."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from pydantic import JsonValue

from agent_eval.formats.json_arrays import TruncatedJsonError, top_level_keys
from agent_eval.formats.refusals import Refusal
from agent_eval.formats.streams import BREAKS, MEGABYTE, opened
from agent_eval.transcripts.importers.base import Source, mapping
from agent_eval.transcripts.importers.benchmarks import inspect
from agent_eval.transcripts.importers.catalog import RECOGNISED, UNSUPPORTED, Record
from agent_eval.transcripts.importers.shared.layouts import HEAD, layout_of, records_of

LARGEST_SAMPLE = 20 * MEGABYTE
"""Largest JSON value that is read whole for detection, bytes; only the keys of a larger one are read."""
_LINES = 50
_PACKED = {
    b"PK\x03\x04": "a zip archive in an archive; unpack it first",
    b"PAR1": "a Parquet file; write it as JSON lines",
    b"SQLite format 3": "a SQLite database; export the conversations as JSON lines",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; unpack it first",
    b"BZh": "compressed with bzip2; unpack it first",
    b"\xfd7zXZ": "compressed with xz; unpack it first",
    b"7z\xbc\xaf": "a 7z archive; unpack it first",
}
"""First bytes of files that may hold transcripts but are not read."""
_OTHER = {b"\x89PNG": "a picture", b"%PDF": "a PDF document", b"\x7fELF": "a program"}


@dataclass(frozen=True)
class Detected:
    """Report the format's name, or why none was detected."""

    format_name: str | None
    reason: str = ""
    may_hold_transcripts: bool = True  # false: neither JSON nor packed


def detect(source: Source) -> Detected:
    """Detect the format of a file from its first records.

    A format that is detected but not supported gives a reason that begins with its name.
    """
    try:
        if inspect.is_archive(source.path):
            return Detected(inspect.NAME)
        with opened(source.path) as stream:
            head = stream.read(HEAD)
        if not head.strip():
            return Detected(None, "it is empty", may_hold_transcripts=False)
        if packed := _kind(head, _PACKED):
            return Detected(None, packed)
        if reason := _no_json(head):
            return Detected(None, reason, may_hold_transcripts=False)
        samples = _samples(source, head)
    except (*BREAKS, TruncatedJsonError) as error:
        return Detected(None, f"it cannot be read ({type(error).__name__}: {error})")
    return _named(samples)


def _kind(head: bytes, kinds: Mapping[bytes, str]) -> str | None:
    return next((f"it is {what}" for magic, what in kinds.items() if head.startswith(magic)), None)


def _no_json(head: bytes) -> str | None:
    if other := _kind(head, _OTHER):
        return other
    if b"\x00" in head:
        return "it is binary, not JSON"
    return (
        None
        if head.lstrip()[:1] in (b"{", b"[")
        else "it is not JSON; expected an object, an array or JSON lines"
    )


def _samples(source: Source, head: bytes) -> list[JsonValue]:
    """Return the first records; for a large single value an object with its keys and no values."""
    if head.lstrip().startswith(b"{") and (b"\n" not in head.strip() or layout_of(source) == "document"):
        with opened(source.path) as stream:
            text = stream.read(LARGEST_SAMPLE + 1)
        is_document = b"\n" not in text.strip() or layout_of(source) == "document"
        if is_document and len(text) > LARGEST_SAMPLE:
            with opened(source.path) as stream:
                return [dict.fromkeys(top_level_keys(stream))]
    records = records_of(source, "JSON", lambda value: "role" in mapping(value))
    return [r.value for r in islice(records, _LINES) if not isinstance(r, Refusal)]


def _named(samples: list[JsonValue]) -> Detected:
    if not samples:
        return Detected(None, "none of its records is JSON")
    lists = [value for value in samples if isinstance(value, list) and value]
    records: list[Record] = [value for value in samples if isinstance(value, dict)]
    records += [{"messages": value} for value in lists if "role" in mapping(value[0])]
    for entry in RECOGNISED:
        if any(entry.looks_like(record) for record in records):
            return Detected(entry.name)
    for other in UNSUPPORTED:
        if any(other.looks_like(record) for record in records):
            return Detected(None, f"{other.name}: {other.reason}")
    keys = ", ".join(repr(key)[:40] for key in list(next(iter(records), {}))[:8])
    description = f"its first record has the keys {keys}" if keys else "its records are no objects"
    names = ", ".join(entry.name for entry in RECOGNISED)
    return Detected(None, f"its format is not recognised: {description}. Formats: {names}")
