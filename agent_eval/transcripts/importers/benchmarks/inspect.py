"""Read Inspect evaluation logs: `.eval` archives, and `.json` logs {"version", "eval": {…}, "samples": […]}."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from agent_eval.formats.json_arrays import TruncatedJsonError, member
from agent_eval.formats.refusals import Refusal
from agent_eval.formats.streams import BREAKS, LONGEST_LINE, Record, broken, opened, record_of
from agent_eval.formats.zip_members import ZipMember, is_zip, members
from agent_eval.transcripts.importers.base import (
    Fields,
    Found,
    Ids,
    NotThisFormatError,
    Source,
    array_records,
    conversations,
    joined,
    listed,
    mapping,
    number_of,
    or_nothing_found,
    reward_of,
    reward_outcome,
    text_of,
    whole_truth,
    without_nulls,
)
from agent_eval.transcripts.importers.registry import Format
from agent_eval.transcripts.importers.rules.unread import UNREAD, further_choices
from agent_eval.transcripts.importers.shared.dialects import native_messages, parsed
from agent_eval.transcripts.importers.shared.threads import SOURCE_SCORES, Thread

NAME = "inspect"
EXPECTED = 'an Inspect log: an .eval archive, or {"version": …, "eval": {…}, "samples": […]}'
_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Inspect's grades as numbers: correct, incorrect, partial, no answer."""
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
"""Words that Inspect reads as numbers, in any case (`value_to_float`)."""
_NOT_FINITE = re.compile(rb'"(?:[^"\\]|\\.)*+"|-?\b(?:NaN|Infinity)\b')
_ATTACHMENT = "attachment://"
_STARTS = ("header.json", "_journal/start.json")


def read(source: Source) -> Iterator[Found]:
    """Yield the samples of a log as conversations; a sample is a task, and its epochs are the trials."""
    header = _header(source)
    model = text_of(header.get("model"))

    def convert(record: Mapping[str, JsonValue], ids: Ids, number: int) -> Fields:
        return _conversation(record, ids, number, model)

    return conversations(source, NAME, or_nothing_found(source, _samples(source), EXPECTED), convert)


def looks_like(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a document is an Inspect log."""
    return "eval" in value and "samples" in value and ("status" in value or "version" in value)


def is_archive(path: Path | ZipMember) -> bool:
    """Return whether a file is an `.eval` archive, based on the file names in the archive.

    Raises:
        OSError: If the file is a zip archive that cannot be read.
    """
    return isinstance(path, Path) and is_zip(path) and any(m.name in _STARTS for m in members(path))


def task(source: Source) -> str | None:
    """Return the name of the log's task, or None if the log does not name its task."""
    return text_of(_header(source).get("task"))


def _header(source: Source) -> Mapping[str, JsonValue]:
    """Return the part `eval` of the log; empty if it is unreadable.

    In this case the samples either are unreadable too or do not need the header.
    """
    path: Path | ZipMember = source.path
    try:
        if is_archive(path):
            member_of_name = {m.name: m for m in members(cast("Path", path))}
            path = next(member_of_name[name] for name in _STARTS if name in member_of_name)
        with opened(path) as stream:
            text = member(stream, "eval", LONGEST_LINE)
    except (*BREAKS, TruncatedJsonError):
        return {}
    record = record_of(text, 1, source.file)
    return mapping(record.value) if isinstance(record, Record) else {}


def _samples(source: Source) -> Iterator[Record | Refusal]:
    try:
        is_packed = is_archive(source.path)
    except OSError as error:
        yield Refusal(source.file, 0, broken(error))
        return
    if not is_packed:
        yield from array_records(source, "samples.item", _without_nan)
        return
    samples = [
        m
        for m in members(cast("Path", source.path))
        if m.name.startswith("samples/") and m.name.endswith(".json")
    ]
    for number, sample in enumerate(sorted(samples, key=_order), start=1):
        try:
            with opened(sample) as stream:
                text = stream.read(LONGEST_LINE + 1)
            whole = _without_nan(text) if len(text) <= LONGEST_LINE else None
            yield record_of(whole, number, source.file)
        except BREAKS as error:
            yield Refusal(source.file, number, f"{sample.name[:80]}: {broken(error)}")


def _without_nan(text: bytes) -> bytes:
    """Return the JSON text with null instead of NaN, which Inspect writes for the score of an unscored sample."""
    if b"NaN" not in text and b"Infinity" not in text:
        return text
    return _NOT_FINITE.sub(lambda match: match[0] if match[0].startswith(b'"') else b"null", text)


def _order(sample: ZipMember) -> tuple[int, str]:
    return len(sample.name), sample.name


def _conversation(record: Mapping[str, JsonValue], ids: Ids, number: int, model: str | None) -> Fields:
    if "id" not in record or not ("messages" in record or "output" in record or "error" in record):
        raise NotThisFormatError(f"id or messages is missing; expected {EXPECTED}")
    attachments = mapping(record.get("attachments"))
    output = mapping(record.get("output"))
    messages = cast("list[JsonValue]", _resolved(listed(record.get("messages")), attachments))
    if not messages:
        start = parsed(record.get("input"))
        replies = [mapping(choice).get("message") for choice in listed(output.get("choices"))[:1]]
        messages = [*(start if isinstance(start, list) else [start]), *replies]
    thread = Thread()
    thread.extend(native_messages([_message(m) for m in _measured(messages, record) if m is not None]))
    if unread := further_choices(listed(output.get("choices"))):
        thread.extend([{"role": "developer", "content": None, UNREAD: unread}])
    for schema in _schemas(record):
        thread.know_tools([_resolved(schema, attachments)])
    thread.metadata = _metadata(record)
    conversation_fields = thread.fields()
    names = ids.of_record(text_of(record.get("id")), record.get("epoch"), number)
    target = record.get("target")
    answer = joined(target) if isinstance(target, list) else text_of(target)
    metadata = cast("Mapping[str, JsonValue]", conversation_fields["metadata"])
    if model and not metadata.get("models"):
        conversation_fields["metadata"] = {**metadata, "models": [model]}
    return {
        **conversation_fields,
        **names,
        "expected": whole_truth(None, answer or None, []),
        "outcome": _outcome(record),
    }


def _message(value: JsonValue) -> JsonValue:
    """Return a message in the common form; Inspect stores a tool's name in `function` and errors in `error`."""
    message = mapping(value)
    if message.get("role") != "tool":
        return value
    return {**message, "name": message.get("function"), "id": None}


def _measured(messages: list[JsonValue], record: Mapping[str, JsonValue]) -> list[JsonValue]:
    """Return the messages with the token counts, time and stop reason of the model call that each is the reply of.

    A call is known by the id of its reply; the sample's own output is that of the agent's last message.
    """
    calls = [mapping(event) for event in listed(record.get("events"))]
    outputs = [mapping(call.get("output")) for call in calls if call.get("event") == "model"]
    by_reply = {text_of(_choice(output, "message").get("id")): output for output in outputs}
    replies = [i for i, m in enumerate(messages) if mapping(m).get("role") == "assistant"]
    measured_messages = list(messages)
    for i in replies:
        reply = mapping(messages[i])
        output = by_reply.get(text_of(reply.get("id")) or "", {})
        if i == replies[-1] and record.get("output"):
            output = mapping(record["output"])
        measured_messages[i] = {**reply, **_measures(output)}
    return measured_messages


def _choice(output: Mapping[str, JsonValue], key: str) -> Mapping[str, JsonValue]:
    return mapping(mapping(next(iter(listed(output.get("choices"))), None)).get(key))


def _measures(output: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    seconds = number_of(output.get("time"))
    reason = mapping(next(iter(listed(output.get("choices"))), None)).get("stop_reason")
    return without_nulls(
        {
            "usage": output.get("usage") if isinstance(output.get("usage"), dict) else None,
            "latency_ms": seconds * 1000 if seconds is not None and seconds >= 0 else None,
            "finish_reason": text_of(reason),
        }
    )


def _schemas(record: Mapping[str, JsonValue]) -> Sequence[JsonValue]:
    """Return the tool schemas of the first model call that has any."""
    calls = (mapping(event) for event in listed(record.get("events")))
    return next(
        (tools for call in calls if call.get("event") == "model" and (tools := listed(call.get("tools")))), ()
    )


def _resolved(value: JsonValue, attachments: Mapping[str, JsonValue]) -> JsonValue:
    """Return the value with references replaced by the long texts that the log stores separately."""
    if isinstance(value, str) and value.startswith(_ATTACHMENT):
        return attachments.get(value.removeprefix(_ATTACHMENT), value)
    if isinstance(value, list):
        return [_resolved(item, attachments) for item in value]
    if isinstance(value, dict):
        return {key: _resolved(item, attachments) for key, item in value.items()}
    return value


def _metadata(record: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    scores: list[JsonValue] = [
        without_nulls({"name": name, **mapping(score)}) for name, score in _scores(record).items()
    ]
    return without_nulls(
        {
            SOURCE_SCORES: scores or None,
            "sample_metadata": record.get("metadata") or None,
            "usage": record.get("model_usage") or None,
            "duration": number_of(record.get("total_time")),
            "limit": record.get("limit"),
            "invalidation": record.get("invalidation"),
        }
    )


def _outcome(record: Mapping[str, JsonValue]) -> Fields:
    """Return the outcome from the scores if all numbers and grades agree, else from the error, else unknown.

    The scores of an invalidated sample decide nothing.
    """
    values = {_reward(mapping(score).get("value")) for score in _scores(record).values()} - {None}
    is_valid = record.get("invalidation") is None
    reward = values.pop() if len(values) == 1 and is_valid else None
    error = mapping(record.get("error")).get("message") or record.get("error")
    return reward_outcome(NAME, reward, None, ("error", error))


def _scores(record: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return the scores by scorer; older logs have a single one under `score`."""
    scores = record.get("scores")
    if scores is None and record.get("score") is not None:
        return {"score": record["score"]}
    return mapping(scores)


def _reward(value: JsonValue) -> float | None:
    if not isinstance(value, str):
        return reward_of(value)
    grade = _GRADES.get(value, _WORDS.get(value.strip().lower()))
    return reward_of(value) if grade is None else grade


FORMAT = Format(
    NAME,
    read,
    looks_like,
    order=10,
    content="`.eval` archives and `.json` logs",
    conversation="one epoch of a sample",
    is_document=True,
    task_set=task,
    details=(
        "Texts that the log stores as attachments are inserted. `NaN`, the value of an unscored sample, "
        "counts as missing; the scores of an invalidated sample decide nothing. `target` is the expected "
        "answer. Events are read only for tool schemas and the tokens, time and stop reason of each "
        "reply. Archives compressed with zstd are rejected: unpack them first"
    ),
    outcome=(
        (
            "the scores, if all scores that are a single number or grade agree: `C` is 1, `I` and `N` are"
            " 0, `P` is 0.5"
        ),
        "`error.message`, if the scores are absent or 0: as tau-bench",
        "other rewards: as tau-bench",
    ),
    is_archive=is_archive,
)
"""This format, as `catalog` registers it."""
