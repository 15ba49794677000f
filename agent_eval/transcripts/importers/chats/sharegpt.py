"""Read ShareGPT data sets: {"id", "conversations": [{"from": "human" | "gpt" | …, "value": …}]}."""

import re
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from agent_eval.transcripts.importers.base import (
    Fields,
    Found,
    Ids,
    NotThisFormatError,
    Source,
    conversations,
    mapping,
    or_nothing_found,
    text_of,
    without_nulls,
)
from agent_eval.transcripts.importers.registry import Format
from agent_eval.transcripts.importers.rules.branches import spoken_in_order
from agent_eval.transcripts.importers.rules.speakers import SAID_ROLES, known_role
from agent_eval.transcripts.importers.shared.dialects import native_messages, parsed
from agent_eval.transcripts.importers.shared.layouts import records_of
from agent_eval.transcripts.importers.shared.threads import Thread

NAME = "sharegpt"
EXPECTED = '{"conversations": [{"from": …, "value": …}]}, one per line or in a JSON array'
_CALL = "function_call"
_KNOWN = {"id", "conversations", "system", "tools"}
_THOUGHT = re.compile(r"\s*<think>(.*?)</think>", re.DOTALL)


def read(source: Source) -> Iterator[Found]:
    """Yield the conversations of a data set."""
    return conversations(
        source, NAME, or_nothing_found(source, records_of(source, EXPECTED), EXPECTED), _conversation
    )


def looks_like(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a record is a ShareGPT conversation."""
    turns = value.get("conversations")
    return isinstance(turns, list) and (not turns or "from" in mapping(turns[0]))


def _conversation(record: Mapping[str, JsonValue], ids: Ids, number: int) -> Fields:
    values = record.get("conversations")
    if not isinstance(values, list):
        raise NotThisFormatError(f"conversations is missing or not a list; expected {EXPECTED}")
    thread = Thread()
    thread.instruct(text_of(record.get("system")))
    thread.know_tools(record.get("tools"))
    ordered, thread.n_withdrawn = spoken_in_order(values)
    thread.extend(message for i, value in enumerate(ordered) for message in _messages(value, i))
    fields = thread.fields()
    rest = without_nulls({key: value for key, value in record.items() if key not in _KNOWN})
    name = ids.named(text_of(record.get("id")) or str(number))
    return {**fields, "conversation_id": name, "metadata": {**rest, **mapping(fields["metadata"])}}  # type: ignore[arg-type]


def _messages(value: JsonValue, index: int) -> Iterator[Fields]:
    speaker = mapping(value).get("from")
    if speaker != _CALL:
        if known_role(speaker) is None:
            raise NotThisFormatError(
                f"conversations[{index}].from is {str(speaker)[:40]!r}; allowed: {_CALL}, {', '.join(SAID_ROLES)}"
            )
        yield from native_messages([{**mapping(value), "role": known_role(speaker)}])
        return
    text = text_of(mapping(value).get("value"))
    thought, written = _thought(text) if text else (None, text)
    if written and not written.lstrip().startswith(("{", "[")):
        yield {"role": "assistant", "content": text}
        return
    value_of_calls = parsed(written)
    calls = [
        mapping(call) for call in (value_of_calls if isinstance(value_of_calls, list) else [value_of_calls])
    ]
    tool_calls: list[JsonValue] = [{"name": c.get("name"), "arguments": c.get("arguments")} for c in calls]
    yield {"role": "assistant", "content": thought, "tool_calls": tool_calls}


def _thought(text: str) -> tuple[str | None, str]:
    """Split a text into the thought before it, in <think> tags, and the rest."""
    thought_match = _THOUGHT.match(text)
    return (thought_match[1].strip() or None, text[thought_match.end() :]) if thought_match else (None, text)


FORMAT = Format(
    NAME,
    read,
    looks_like,
    order=80,
    content='`{"conversations": [{"from", "value"}]}`',
    conversation="a record",
)
"""This format, as `catalog` registers it."""
