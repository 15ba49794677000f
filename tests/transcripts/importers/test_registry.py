"""Every importer, by walking the registry: what an addition has to bring, and what it must not take from others."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_eval.formats.refusals import Refusal
from agent_eval.transcripts.importers import FORMAT_NAMES
from agent_eval.transcripts.importers.base import Source
from agent_eval.transcripts.importers.catalog import RECOGNISED
from agent_eval.transcripts.importers.registry import Format
from agent_eval.transcripts.models import Conversation
from tests.transcripts.importers.samples import SAMPLES

DAMAGE: tuple[Any, ...] = (None, 7, "x", [7], {"x": 7})
"""What takes the place of each value of a sample, one at a time."""
FEWEST = 20  # damaged records of one sample
every_format = pytest.mark.parametrize("entry", RECOGNISED, ids=lambda entry: entry.name)


def test_each_module_of_a_family_is_the_format_of_its_name_with_a_place_of_its_own() -> None:
    assert {entry.name for entry in RECOGNISED} == set(FORMAT_NAMES)
    assert len({entry.order for entry in RECOGNISED}) == len(RECOGNISED)


@every_format
def test_a_format_has_a_sample_and_its_documentation(entry: Format) -> None:
    assert entry.name in SAMPLES, "add a sample to samples.py"
    texts = [entry.content, entry.conversation, *(entry.outcome or ()), *filter(None, (entry.details,))]
    assert [text for text in texts if not text.strip() or "|" in text or "\n" in text] == []


@every_format
def test_a_format_takes_only_its_own_sample_and_a_general_one_those_before_it(entry: Format) -> None:
    own = SAMPLES[entry.name].content
    records = [record for record in (own if isinstance(own, list) else [own]) if isinstance(record, dict)]
    others = [
        other.name
        for other in RECOGNISED
        if any(other.looks_like(record) for record in records)
        and not (other.is_general and other.order > entry.order)
    ]
    assert others == [entry.name]


def damaged(value: Any) -> Iterator[Any]:
    """Yield a JSON value with one of its parts replaced or missing, for each part; keys and indices are kept otherwise."""
    yield from DAMAGE
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        for changed in damaged(part):
            if isinstance(value, dict):
                yield {**value, key: changed}
            else:
                yield [*value[:key], changed, *value[key + 1 :]]
        if isinstance(value, dict):
            yield {other: kept for other, kept in value.items() if other != key}


@every_format
def test_no_damaged_record_makes_an_importer_fail_by_an_exception_of_its_own(
    entry: Format, tmp_path: Path
) -> None:
    """`base` catches such an exception as a last resort, and asks to report it."""
    sample, path = SAMPLES[entry.name], tmp_path / "file"
    contents = [c for c in damaged(sample.content) if isinstance(c, list) or not sample.is_lines]
    assert len(contents) > FEWEST
    faults: list[str] = []
    for content in contents:
        path.write_bytes(sample._replace(content=content).to_bytes())
        for record in content if isinstance(content, list) else [content]:
            assert not isinstance(record, dict) or entry.looks_like(record) in (True, False)
        found = entry.read(Source(path, "s"))
        faults += [r.reason for r in found if isinstance(r, Refusal) and "please report it" in r.reason]
    assert faults == []


POINTERS = re.compile(r'"key": "[^"]*"|attachment://\w+')
"""Names of attributes, and references to texts elsewhere in a record: of another one, nothing is known."""


@every_format
def test_what_a_damaged_record_still_says_is_imported_or_named_as_missing(
    entry: Format, tmp_path: Path
) -> None:
    """An importer that skips what it does not understand, such as a role or a call, must say so."""
    sample, path = SAMPLES[entry.name], tmp_path / "file"

    def read(content: Any) -> tuple[list[Conversation], list[Any]]:
        path.write_bytes(sample._replace(content=content).to_bytes())
        found = list(entry.read(Source(path, "s")))
        imported = [item for item in found if isinstance(item, Conversation)]
        return imported, [item for item in found if item not in imported]

    conversations, named_before = read(sample.content)
    messages = [message for conversation in conversations for message in conversation.messages]
    said = {json.dumps(m.content)[1:-1] for m in messages if m.content}
    said |= {call.name for m in messages for call in m.tool_calls}
    whole = json.dumps(sample.content)
    vanished: list[tuple[str, Any]] = []
    for content in damaged(sample.content):
        text = json.dumps(content)
        if isinstance(content, list | dict) and POINTERS.findall(text) == POINTERS.findall(whole):
            conversations, named = read(content)
            imported = json.dumps([conversation.model_dump(mode="json") for conversation in conversations])
            still_there = (part for part in said if text.count(part) >= whole.count(part) > 0)
            vanished += [
                (part, content) for part in still_there if named == named_before and part not in imported
            ]
    assert said
    assert vanished == []
