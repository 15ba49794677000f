"""Read the records of a JSON file in any layout, and group records that belong together."""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal

from pydantic import JsonValue

from agent_eval.formats.refusals import Refusal
from agent_eval.formats.streams import (
    BREAKS,
    LONGEST_LINE,
    MEGABYTE,
    Record,
    broken,
    head_of,
    json_lines,
    opened,
    record_of,
)
from agent_eval.transcripts.importers.base import LeftOut, Source, array_records
from agent_eval.transcripts.importers.shared.csv_rows import columns, csv_rows

Layout = Literal["lines", "array", "document", "table"]
Item = Record | Refusal | LeftOut
HEAD = 64 * 1024
MOST_HELD = 100 * MEGABYTE
"""Maximum total size of incomplete groups in memory, in bytes of JSON text."""


def records_of(
    source: Source, expected: str, is_part: Callable[[JsonValue], bool] | None = None
) -> Iterator[Record | Refusal]:
    """Yield the records of a file: its lines, array elements or CSV rows, or its single value.

    Args:
        source: The file.
        expected: Description of the expected form, for the message about a record that is not JSON.
        is_part: Function that returns whether an array with this first element is a single record rather than a list.
    """
    layout = layout_of(source, is_part)
    if layout == "lines":
        return json_lines(source.path, source.file)
    if layout == "table":
        return csv_rows(source)
    return array_records(source, "item") if layout == "array" else _document(source, expected)


def layout_of(source: Source, is_part: Callable[[JsonValue], bool] | None = None) -> Layout:
    """Return the layout of the file, detected from its first bytes.

    A pretty-printed value spans several lines; JSONL has one value per line.
    """
    try:
        with opened(source.path) as stream:
            head = head_of(stream, HEAD)
    except BREAKS:
        return "lines"
    line, newline, _ = head.partition(b"\n")
    if head[:1] == b"[" and _holds_records(source, is_part):
        return "array"
    if head[:1] not in (b"{", b"[") and columns(head):
        return "table"
    is_opening = line.rstrip() in (b"{", b"[", b"[{")
    is_lines = not newline or _is_json(line) or not (is_opening or ".json" in PurePath(source.file).suffixes)
    return "lines" if is_lines else "document"


def _holds_records(source: Source, is_part: Callable[[JsonValue], bool] | None) -> bool:
    """Return whether the array's first element is readable and is a record rather than a part of one."""
    first = next(itertools.islice(array_records(source, "item"), 1), None)
    return isinstance(first, Record) and not (is_part and is_part(first.value))


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _document(source: Source, expected: str) -> Iterator[Record | Refusal]:
    """Yield the single value of a pretty-printed file."""
    try:
        with opened(source.path) as stream:
            text = stream.read(LONGEST_LINE + 1)
        whole = text if len(text) <= LONGEST_LINE else None
        yield record_of(whole, 1, source.file, f"; expected {expected}")
    except BREAKS as error:
        yield Refusal(source.file, 1, broken(error))


DELIVERED_TWICE = "records are copies of another one (same id, same content), and are omitted"
ONE_ID = (
    "records have the id of another record of the conversation and another content; all of them are imported"
)
_OWN_IDS = ("id", "span", "spanId", "span_id", "message_id", "messageId", "uuid")
"""Keys of a record's own id."""
_KEYS_OF_IDS = frozenset(_OWN_IDS)


@dataclass
class _Group:
    number: int
    size: int = 0
    values: list[JsonValue] = field(default_factory=list[JsonValue])
    by_id: dict[str, list[JsonValue]] = field(default_factory=dict[str, list[JsonValue]])

    def has_copy(self, value: JsonValue) -> bool:
        """Return whether the group has a record with the same id and content; otherwise remember the record."""
        if not isinstance(value, dict) or _KEYS_OF_IDS.isdisjoint(value):
            return False
        name = next((own for key in _OWN_IDS if isinstance(own := value.get(key), str) and own), None)
        if name is None:
            return False
        records = self.by_id.setdefault(name, [])
        if value in records:
            return True
        records.append(value)
        return False

    @property
    def n_of_one_id(self) -> int:
        """Return the number of records whose id an earlier record has; 0 if the ids do not tell records apart."""
        return sum(len(records) - 1 for records in self.by_id.values()) if len(self.by_id) > 1 else 0


def grouped(
    source: Source,
    items: Callable[[], Iterator[Item]],
    key: Callable[[JsonValue], str | None],
    prepared: Callable[[Item], Item] = lambda item: item,
    counts: Counter[str] | None = None,
) -> Iterator[Item]:
    """Group records with equal keys into one record {"key": …, "records": […]} per key.

    A record that the source delivered twice, with the same id and the same content, counts once: its copies are
    yielded as `LeftOut`, as is a note for each record with the id of another one and another content. The items are read twice, so that a group can be yielded after its last record and only
    incomplete groups are in memory. A record without a key forms a separate group. The number of a group is the number
    of its first record.

    Args:
        source: The file.
        items: Function that yields the records; called twice.
        key: Function that returns the key of a record's value.
        prepared: Function that converts each record once, before it is stored in its group; it may refuse the record.
        counts: Number of records of each key, if it is known; the items are then read once.
    """
    left: Counter[str | None] = Counter(counts)
    left = left if counts is not None else Counter(key(i.value) for i in items() if isinstance(i, Record))
    groups: dict[str, _Group] = {}
    n_bytes = 0
    for raw in items():
        item = prepared(raw)
        name = key(raw.value) if isinstance(raw, Record) else None
        if not isinstance(item, Record):
            yield item
            if name is None:
                continue
        elif name is None:
            yield Record(item.number, {"key": None, "records": [item.value]}, item.size)
            continue
        left[name] -= 1
        if not isinstance(item, Record):
            pass
        elif n_bytes + item.size > MOST_HELD:
            yield Refusal(source.file, item.number, _TOO_MUCH)
        else:
            group = groups.setdefault(name, _Group(item.number))
            if group.has_copy(item.value):
                yield LeftOut(DELIVERED_TWICE)
            else:
                group.values.append(item.value)
                group.size += item.size
                n_bytes += item.size
        if left[name] == 0 and name in groups:
            group = groups.pop(name)
            n_bytes -= group.size
            yield from [LeftOut(ONE_ID)] * group.n_of_one_id
            yield Record(group.number, {"key": name, "records": group.values}, group.size)


_TOO_MUCH = (
    f"incomplete conversations need more than {MOST_HELD // MEGABYTE} MB; split the file, or sort its records by "
    "conversation"
)
