"""List the formats that can be imported, and how their files are detected."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from pydantic import JsonValue

from agent_eval.formats.zip_members import ZipMember
from agent_eval.transcripts.importers import FORMAT_NAMES
from agent_eval.transcripts.importers.base import Importer, Source, listed, mapping
from agent_eval.transcripts.importers.registry import Format

Record = Mapping[str, JsonValue]
RECOGNISED: tuple[Format, ...] = tuple(
    sorted((import_module(module).FORMAT for module in FORMAT_NAMES.values()), key=lambda entry: entry.order)
)
"""All formats, in the order in which `import auto` tests them; the first match is used."""
FORMATS: Mapping[str, Importer] = {entry.name: entry.read for entry in RECOGNISED}
TASK_SETS: Mapping[str, Callable[[Source], str | None]] = {
    entry.name: entry.task_set for entry in RECOGNISED if entry.task_set is not None
}
"""Functions that read the task set from a file, for formats that contain it."""


def archive_format(path: Path | ZipMember) -> Format | None:
    """Return the format that a file is an archive of, such as an `.eval` file; None if it is a file of any other kind."""
    return next((entry for entry in RECOGNISED if entry.is_archive and entry.is_archive(path)), None)


@dataclass(frozen=True)
class Unsupported:
    """Describe a format that is detected but not supported, with the reason and what to import instead."""

    name: str
    reason: str
    looks_like: Callable[[Record], bool]
    is_beside: bool = (
        False  # accompanies conversations but contains none, so it is skipped in a folder or an archive
    )


def _keys(*alternatives: str) -> Callable[[Record], bool]:
    """Return a function that tests whether a record has all keys of an alternative (keys separated by spaces)."""
    return lambda record: any(set(keys.split()) <= set(record) for keys in alternatives)


def _exchange(*alternatives: str) -> Callable[[Record], bool]:
    """Return a function that tests whether a record has strings under both keys of an alternative."""
    pairs = [keys.split() for keys in alternatives]
    return lambda record: any(all(isinstance(record.get(key), str) for key in pair) for pair in pairs)


def _is_ragas(record: Record) -> bool:
    rows = [mapping(next(iter(listed(value)), None)) for value in record.values()]
    return bool(rows) and all("metric_input" in row and "metric_output" in row for row in rows)


def _is_qwen(record: Record) -> bool:
    message = mapping(record.get("message"))
    return {"uuid", "sessionId", "type"} <= record.keys() and "parts" in message and "content" not in message


def _is_openclaw(record: Record) -> bool:
    is_header = record.get("type") == "session" and "version" in record and "cwd" in record
    return is_header or (record.get("type") == "message" and "parentId" in record)


def _is_langfuse_check(record: Record) -> bool:
    values = [mapping(value) for value in record.values()]
    sides = [mapping(value.get(key)) for value in values for key in ("input", "output") if key in value]
    return bool(sides) and len(sides) >= len(values) and all("success" in side for side in sides)


def _is_tau2_task(record: Record) -> bool:
    return "user_scenario" in record and "evaluation_criteria" in record


def _is_inspect_header(record: Record) -> bool:
    return "eval" in record and "results" in record and "samples" not in record and "status" in record


def _is_autogen(record: Record) -> bool:
    values = (record, *map(mapping, listed(record.get("messages"))[:1]))
    return any("source" in value and "models_usage" in value for value in values)


_CHAT = 'write each conversation as {"messages": [{"role", "content"}]}, one per line'
_TRACES = f"not supported; export OpenTelemetry traces and import otel-genai, or {_CHAT}"
_SPEAKERS = f"it does not identify the agent; {_CHAT}"
UNSUPPORTED = (
    Unsupported(
        "ragas annotations",
        "it contains single answers with metric verdicts rather than conversations; human ratings belong in data/ratings",
        _is_ragas,
    ),
    Unsupported(
        "openclaw",
        "its session log is a tree of entries, which is not supported; export the traces with OpenTelemetry and import otel-genai",
        _is_openclaw,
    ),
    Unsupported(
        "qwen-code session",
        f"its session log resembles that of Claude Code, but is not supported; {_CHAT}",
        _is_qwen,
    ),
    Unsupported(
        "langfuse ChatML check",
        "it is the expected result of a Langfuse test, without times and order; import the trace itself",
        _is_langfuse_check,
    ),
    Unsupported("tau2 tasks", "it contains tasks without simulations; import a result file", _is_tau2_task),
    Unsupported(
        "inspect header",
        "it contains the header of a log without samples; write it with log_samples=true",
        _is_inspect_header,
    ),
    Unsupported(
        "preference pairs",
        f"it contains two replies to each prompt, and it is unknown which one is the agent's; {_CHAT}",
        _keys("chosen rejected", "preferred_output non_preferred_output"),
    ),
    Unsupported(
        "batch responses",
        'it contains responses without their requests; join both files by custom_id to {"request", "response"}',
        _keys("custom_id response", "custom_id result"),
    ),
    Unsupported(
        "batch requests",
        'it contains requests without responses; join both files by custom_id to {"request", "response"}',
        _keys("custom_id body", "custom_id params"),
    ),
    Unsupported(
        "single exchanges",
        f"it is unknown whether the second text is the agent's reply or the expected one; {_CHAT}",
        _exchange(*("prompt completion", "prompt response", "question answer", "input output")),
    ),
    Unsupported("alpaca", f"it is training data; {_CHAT}", _keys("instruction output")),
    Unsupported("phoenix table of spans", _TRACES, _keys("context.trace_id")),
    Unsupported("autogen", _TRACES, _is_autogen),
    Unsupported("crewai log", _TRACES, _keys("task_name agent output")),
    Unsupported("google adk session", _TRACES, _keys("appName events")),
    Unsupported("pydantic-ai messages", _TRACES, _keys("kind parts")),
    Unsupported("mlflow trace", _TRACES, lambda record: "spans" in mapping(record.get("data"))),
    Unsupported("weave calls", _TRACES, _keys("op_name trace_id")),
    Unsupported("gemini-cli session", _TRACES, _keys("projectHash messages")),
    Unsupported("bedrock invocation log", _TRACES, _keys("schemaType modelId")),
    Unsupported(
        "openhands events",
        f"not supported; run the agent under Harbor, which writes atif, or {_CHAT}",
        _keys("source action", "source observation", "instance_id history"),
    ),
    Unsupported("discord export", _SPEAKERS, _keys("guild channel messages")),
    Unsupported("slack export", _SPEAKERS, _keys("type ts text")),
    Unsupported("librechat export", _SPEAKERS, _keys("conversationId endpoint messages")),
    Unsupported("rasa tracker", f"not supported; {_CHAT}", _keys("sender_id events")),
    Unsupported("promptfoo results", f"not supported; {_CHAT}", _keys("evalId results")),
    Unsupported("deepeval test cases", f"not supported; {_CHAT}", _keys("conversationalTestCases")),
    Unsupported("openassistant trees", f"not supported; {_CHAT}", _keys("message_tree_id")),
    Unsupported(
        "account data",
        "it contains no conversations",
        _keys("full_name email_address", "id email", "uuid docs"),
        True,
    ),
)
"""Unsupported formats that are named in the message when detected, instead of \"not recognised\"."""
