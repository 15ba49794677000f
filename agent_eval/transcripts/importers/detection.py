"""Detect the format of a file from its content, independent of its name."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from pydantic import JsonValue

from agent_eval.formats.json_arrays import TruncatedJsonError, top_level_keys
from agent_eval.formats.refusals import Refusal
from agent_eval.formats.streams import BREAKS, MEGABYTE, head_of, opened
from agent_eval.transcripts.importers.base import PASSED_ON, Source, fault_of
from agent_eval.transcripts.importers.catalog import (
    RECOGNISED,
    UNSUPPORTED,
    Record,
    Unsupported,
    archive_format,
)
from agent_eval.transcripts.importers.registry import Format
from agent_eval.transcripts.importers.shared.csv_rows import columns
from agent_eval.transcripts.importers.shared.dialects import is_chat_message
from agent_eval.transcripts.importers.shared.layouts import HEAD, layout_of, records_of

LARGEST_SAMPLE = 20 * MEGABYTE
"""Largest JSON value, in bytes, that detection reads entirely; of a larger value, only the keys are read."""
_LINES = 50
_LONGEST_HEADER = 1000
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
_TAR = (b"ustar", 257)
_UTF32 = (b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")
_OTHER = {b"\x89PNG": "a picture", b"%PDF": "a PDF document", b"\x7fELF": "a program"}


_TABLE = "CSV with the columns role (or sender, speaker, author) and content (or message, text, body, utterance), or messages"
_AS_LINES = 'write each conversation as {"messages": [{"role", "content"}]}, one per line'


@dataclass(frozen=True)
class Detected:
    """Hold the name of the detected format, or the reason why no format was detected."""

    format_name: str | None
    reason: str = ""
    may_hold_transcripts: bool = True  # false if neither JSON nor compressed


def detect(source: Source) -> Detected:
    """Detect the format of a file from its first records.

    For a format that is detected but not supported, the reason begins with the name of the format.
    """
    try:
        if archive := archive_format(source.path):
            return Detected(archive.name)
        with opened(source.path) as stream:
            head = head_of(stream, HEAD)
        if not head:
            return Detected(None, "it is empty", may_hold_transcripts=False)
        if packed := _packed(head):
            return Detected(None, packed)
        if reason := _no_json(head):
            return Detected(None, reason, may_hold_transcripts=False)
        samples, refused = _samples(source, head)
    except (*BREAKS, TruncatedJsonError) as error:
        return Detected(None, f"it cannot be read ({type(error).__name__}: {error})")
    if not samples and refused:
        format_by_name = _named(_keys(source, head))
        if any(entry.is_document and entry.name == format_by_name.format_name for entry in RECOGNISED):
            return format_by_name
        first = f"record {refused[0].line}: {refused[0].reason}"
        return Detected(None, f"none of its records are JSON; {first}{_hint(refused[0].reason)}")
    return _named(samples)


def _keys(source: Source, head: bytes) -> list[JsonValue]:
    """Return an object with the keys of a document of which a part cannot be read; its other parts may be records."""
    if not head.lstrip().startswith(b"{"):
        return []
    with suppress(*BREAKS, TruncatedJsonError), opened(source.path) as stream:
        return [dict.fromkeys(top_level_keys(stream))]
    return []


def _hint(reason: str) -> str:
    """Return a hint for files that do not have one JSON value per line."""
    return ". Write one JSON value per line, e.g. with `jq -c .`" if "Extra data" in reason else ""


def _kind(head: bytes, kinds: Mapping[bytes, str]) -> str | None:
    return next((f"it is {what}" for magic, what in kinds.items() if head.startswith(magic)), None)


def _packed(head: bytes) -> str | None:
    """Return the reason why a file that may contain transcripts is not read, or None."""
    magic, offset = _TAR
    if head[offset : offset + len(magic)] == magic:
        return "it is a tar archive; unpack it first"
    if head.startswith(_UTF32):
        return "it is UTF-32; save it as UTF-8"
    return _kind(head, _PACKED)


def _no_json(head: bytes) -> str | None:
    if other := _kind(head, _OTHER):
        return other
    if head.lstrip()[:1] in (b"{", b"["):
        return None
    if b"\x00" in head:
        return "it is binary, not JSON"
    if columns(head):
        return None
    line = head.lstrip().partition(b"\n")[0].decode("utf-8", "replace").strip()
    is_table = any(line.count(separator) for separator in ",;\t") and len(line) <= _LONGEST_HEADER
    columns_note = f"; its columns are {line!r}" if is_table else ""
    return f"it is not JSON; expected an object, an array or JSON lines, or {_TABLE}{columns_note}"


def _samples(source: Source, head: bytes) -> tuple[list[JsonValue], list[Refusal]]:
    """Return the first values of the file, and a `Refusal` for each record that cannot be read.

    If the file is one large object, only its keys are read, and all values are None.
    """
    if head.lstrip().startswith(b"{") and (b"\n" not in head.strip() or layout_of(source) == "document"):
        with opened(source.path) as stream:
            text = stream.read(LARGEST_SAMPLE + 1)
        is_document = b"\n" not in text.strip() or layout_of(source) == "document"
        if is_document and len(text) > LARGEST_SAMPLE:
            with opened(source.path) as stream:
                return [dict.fromkeys(top_level_keys(stream))], []
    first_records = list(islice(records_of(source, "JSON", is_chat_message), _LINES))
    refused = [record for record in first_records if isinstance(record, Refusal)]
    return [record.value for record in first_records if not isinstance(record, Refusal)], refused


def _named(samples: list[JsonValue]) -> Detected:
    if not any(samples):
        return Detected(None, "it contains no records", may_hold_transcripts=False)
    lists = [value for value in samples if isinstance(value, list) and value]
    records: list[Record] = [value for value in samples if isinstance(value, dict)]
    records += [{"messages": value} for value in lists if is_chat_message(value[0])]
    faults: list[str] = []
    for entry in RECOGNISED:
        if _is_any(entry, records, faults):
            return Detected(entry.name)
    for other in UNSUPPORTED:
        if _is_any(other, records, faults):
            may_hold = not other.is_beside
            return Detected(None, f"{other.name}: {other.reason}", may_hold_transcripts=may_hold)
    if faults:
        return Detected(None, f"its format is not recognised: {faults[0]}")
    keys = ", ".join(repr(key)[:40] for key in list(next(iter(records), {}))[:8])
    description = f"its first record has the keys {keys}" if keys else "its records are not objects"
    names = ", ".join(entry.name for entry in RECOGNISED)
    return Detected(None, f"its format is not recognised: {description}. Formats: {names}; or {_AS_LINES}")


def _is_any(entry: Format | Unsupported, records: list[Record], faults: list[str]) -> bool:
    """Return whether a record is in the format; if the test fails by an exception, add the reason to `faults`."""
    try:
        return any(entry.looks_like(record) for record in records)
    except PASSED_ON:
        raise
    except Exception as error:  # last resort: the other formats are still tested
        faults.append(fault_of(entry.name, error))
        return False
