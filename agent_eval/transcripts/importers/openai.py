"""OpenAI chat form: {"messages": […], …} or a bare list of messages; one a line, or in a JSON array."""

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import JsonValue

from agent_eval.formats.refusals import Refusal
from agent_eval.formats.streams import BREAKS, LONGEST_LINE, Record, broken, json_lines, opened, record_of
from agent_eval.formats.validation_messages import shorten
from agent_eval.transcripts.importers.base import (
    Fields,
    Ids,
    NotThisFormatError,
    Source,
    array_records,
    base_success,
    conversations,
    mapping,
    or_nothing_found,
    reward_note,
    reward_of,
    reward_outcome,
    task_id_of,
    text_of,
    yes_or_no,
)
from agent_eval.transcripts.importers.messages import chat_messages
from agent_eval.transcripts.models import Conversation
from agent_eval.transcripts.outcomes import class_of_error

NAME = "openai"
EXPECTED = '{"messages": […]} or a list of messages, one a line or in a JSON array'
Layout = Literal["lines", "array", "document"]

_HEAD = 64 * 1024
_IDS = ("conversation_id", "id")
_TEXTS = ("goal", "profile")
_NATIVE = ("scenario", "tools", "expected", "interventions", "injected_error")
_RESULTS = ("outcome", "reward", "correct", "error")
_KNOWN = {*_IDS, *_TEXTS, *_NATIVE, *_RESULTS, "messages", "task_id", "trial", "knowledge", "metadata"}


def read(source: Source) -> Iterator[Conversation | Refusal]:
    """The conversations of a chat file."""
    records = or_nothing_found(source, _wrapped(_records(source)), EXPECTED)
    return conversations(source, NAME, records, _conversation)


def _records(source: Source) -> Iterator[Record | Refusal]:
    layout = _layout(source)
    if layout == "lines":
        return json_lines(source.path, source.file)
    return array_records(source, "item") if layout == "array" else _document(source)


def _layout(source: Source) -> Layout:
    """How the file is laid out, from its beginning: a pretty-printed value spans lines, JSONL does not."""
    try:
        with opened(source.path) as stream:
            head = stream.read(_HEAD).lstrip()
    except BREAKS:
        return "lines"
    line, newline, _ = head.partition(b"\n")
    if head[:1] == b"[" and _holds_conversations(source):
        return "array"
    is_lines = not newline or _is_json(line) or ".json" not in source.path.suffixes
    return "lines" if is_lines else "document"


def _holds_conversations(source: Source) -> bool:
    """Whether the array's first element can be read and is no message: else the array is one conversation."""
    first = next(itertools.islice(array_records(source, "item"), 1), None)
    is_message = isinstance(first, Record) and isinstance(first.value, dict) and "role" in first.value
    return isinstance(first, Record) and not is_message


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _document(source: Source) -> Iterator[Record | Refusal]:
    """The one value of a pretty-printed file."""
    try:
        with opened(source.path) as stream:
            text = stream.read(LONGEST_LINE + 1)
        whole = text if len(text) <= LONGEST_LINE else None
        yield record_of(whole, 1, source.file, f"; expected {EXPECTED}")
    except BREAKS as error:
        yield Refusal(source.file, 1, broken(error))


def _wrapped(records: Iterator[Record | Refusal]) -> Iterator[Record | Refusal]:
    """Bare lists of messages as objects."""
    for record in records:
        if isinstance(record, Record) and isinstance(record.value, list):
            yield Record(record.number, {"messages": record.value})
        else:
            yield record


def _conversation(record: Mapping[str, JsonValue], ids: Ids, number: int) -> Fields:
    if "messages" not in record and all(record.get(name) is None for name in _RESULTS):
        raise NotThisFormatError(f"messages is missing; expected {EXPECTED}")
    return {
        **{name: text_of(record.get(name)) for name in _TEXTS},
        **{name: record[name] for name in _NATIVE if record.get(name) is not None},
        **_names(record, ids, number),
        "messages": chat_messages(record.get("messages")),
        "knowledge": _knowledge(record.get("knowledge")),
        "outcome": _outcome(record),
        "metadata": _metadata(record),
    }


def _names(record: Mapping[str, JsonValue], ids: Ids, number: int) -> Fields:
    task_id = task_id_of(record)
    own_id = next((text for key in _IDS if (text := text_of(record.get(key)))), None)
    if task_id is None:
        return {"conversation_id": own_id or ids.named(str(number)), "trial": record.get("trial")}
    names = ids.numbered(task_id, record.get("trial"))
    return names | ({"conversation_id": own_id} if own_id else {})


def _knowledge(value: JsonValue) -> list[str]:
    texts = value if isinstance(value, list) else [value]
    return [text for item in texts if (text := text_of(item)) is not None]


def _outcome(record: Mapping[str, JsonValue]) -> object:
    """The declared outcome as it is, else from `correct`, base_success, `error` and `reward`."""
    if record.get("outcome") is not None:
        return record["outcome"]
    error = record.get("error")
    correct = yes_or_no(record.get("correct"))
    if correct is None:
        return reward_outcome(NAME, record.get("reward"), base_success(record, "messages"), ("error", error))
    outcome = {"correct": correct, "reward": reward_of(record.get("reward")), "source": f"{NAME} correct"}
    if error in (None, False, ""):
        return outcome
    text = text_of(error) or ""  # the whole text decides: a traceback ends with its exception
    named = {} if correct else {"outcome_class": class_of_error(text)}
    return outcome | {"error": shorten(text)} | named


def _metadata(record: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    unknown = {key: value for key, value in record.items() if key not in _KNOWN}
    note = reward_note(record.get("reward")) if record.get("outcome") is None else {}
    return {**mapping(record.get("metadata")), **unknown, **note}
