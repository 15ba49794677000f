"""Read the rows of a CSV file as records; each row is a message or a conversation."""

import csv
import io
from collections.abc import Iterator

from pydantic import JsonValue

from agent_eval.formats.refusals import Refusal
from agent_eval.formats.streams import BREAKS, LONGEST_LINE, Record, broken, opened
from agent_eval.formats.validation_messages import shorten
from agent_eval.transcripts.importers.base import Source
from agent_eval.transcripts.importers.shared.dialects import SYNONYMS, parsed

_WHOLE = frozenset({"messages", "conversation", "request", "request_body", "run_type", "traceId"})
_PAIRS = (("prompt", "completion"), ("prompt", "response"), ("question", "answer"), ("input", "output"))
_FLAGS: dict[str, JsonValue] = {"true": True, "false": False}
_LONGEST_NAME = 100


def columns(head: bytes) -> list[str]:
    """Return the columns of a CSV file that may contain conversations, given its first bytes.

    The list is empty for any other file.
    """
    line = head.lstrip().partition(b"\n")[0]
    try:
        names = next(csv.reader([line.decode()], delimiter=_separator(line.decode())), [])
    except (UnicodeDecodeError, csv.Error):
        return []
    names = [name.strip() for name in names]
    if len(names) < 2 or any(len(name) > _LONGEST_NAME for name in names):
        return []
    keys = _keys(names)
    holds = {"role", "content"} <= set(keys) or _WHOLE & set(keys) or any(set(p) <= set(keys) for p in _PAIRS)
    return keys if holds else []


def csv_rows(source: Source) -> Iterator[Record | Refusal]:
    """Yield each row as an object of its cells; empty cells are omitted, and cells with JSON are parsed."""
    csv.field_size_limit(LONGEST_LINE)
    line = 1
    try:
        with opened(source.path) as stream:
            text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
            first = text.readline().lstrip()
            separator = _separator(first)
            names = _keys([n.strip() for n in next(csv.reader([first], delimiter=separator))])
            rows = csv.reader(text, delimiter=separator, strict=True)
            for cells in rows:
                line = rows.line_num + 1
                if len(cells) > len(names):
                    yield Refusal(source.file, line, f"{len(cells)} cells for {len(names)} columns")
                elif any(cells):
                    value = {n: _cell(n, c) for n, c in zip(names, cells, strict=False) if c != ""}
                    yield Record(line, value, sum(map(len, cells)))
    except BREAKS as error:
        yield Refusal(source.file, line + 1, broken(error))
    except csv.Error as error:
        yield Refusal(source.file, line + 1, shorten(f"not valid CSV from this line on: {error}"))
    except UnicodeDecodeError:
        yield Refusal(source.file, line + 1, "not valid UTF-8 from this line on; save the file as UTF-8")


def _separator(line: str) -> str:
    return max(",;\t", key=line.count)


def _keys(names: list[str]) -> list[str]:
    """Return the keys for the columns; the columns of a message's role and text become `role` and `content`."""
    keys: list[str] = []
    for name in names:
        key = SYNONYMS.get(name.lower(), name)
        keys.append(name if key in keys else key)
    return keys


def _cell(name: str, text: str) -> JsonValue:
    if name == "content":
        return text
    return _FLAGS.get(text.lower(), parsed(text) if text.startswith(("{", "[")) else text)
