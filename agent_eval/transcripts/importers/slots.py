"""Read benchmark slots for transcripts from a CSV file: task_id, slot, disclosures and task_family."""

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from pydantic import JsonValue, ValidationError

from agent_eval.errors import InputError
from agent_eval.formats.json_text import loads
from agent_eval.formats.streams import MEGABYTE
from agent_eval.formats.validation_messages import explain
from agent_eval.transcripts.models import Conversation, Scenario, Session, id_key

COLUMNS = ("task_id", "slot", "disclosures")
FAMILY = "task_family"  # an optional column
LARGEST = 10 * MEGABYTE
OF_SESSION = ("u3_scope", "repeatability_tested", "date", "session_run", "benchmark_id", "evaluator")
OF_CONVERSATION = ("injected_error", "interventions")
_WORDS: Mapping[str, JsonValue] = {"true": True, "false": False, "null": None, "none": []}


def _invalid_slots(path: Path, line: int, reason: str) -> InputError:
    return InputError(
        f"{path.name}:{line}: {reason}. Columns: {', '.join(COLUMNS)}, and {FAMILY} optionally."
    )


@dataclass(frozen=True)
class Slot:
    """Represent one row of the file: the slot of a task, and the disclosures of its conversations."""

    line: int
    slot: str | None
    fields: Mapping[str, JsonValue]


@dataclass
class Slots:
    """Hold the slots of a file by task id, and the file's disclosures for the session.

    `met` collects the task ids for which a conversation was found.
    """

    path: Path
    by_task: Mapping[str, Slot]
    session: Mapping[str, JsonValue]
    met: set[str] = field(default_factory=set[str])

    def placed(self, conversation: Conversation, session_id: str) -> Conversation:
        """Return the conversation with its slot and disclosures, or unchanged if no row refers to it.

        A row refers to a conversation by its task id, by its conversation id (with or without the session prefix),
        or by the id of one of its traces.

        Raises:
            ValidationError: If a row's disclosures are invalid for the conversation.
        """
        name = next((key for key in _names(conversation, session_id) if key in self.by_task), None)
        if name is None:
            return conversation
        self.met.add(name)
        slot = self.by_task[name]
        changed: dict[str, object] = {**slot.fields}
        if slot.slot is not None:
            changed["scenario"] = slot.slot
        if conversation.task_id is None:
            changed["task_id"] = name
        return Conversation.model_validate({**conversation.model_dump(exclude_defaults=True), **changed})

    def unmet(self) -> list[str]:
        """Return one sentence for each row without a matching conversation."""
        return [
            f"{self.path.name}:{slot.line}: no conversation has the task_id {task[:80]!r}"
            for task, slot in self.by_task.items()
            if task not in self.met
        ]


def read_slots(path: Path) -> Slots:
    """Read a file of slots; the optional column `task_family` contains the family of the task.

    `slot` is D1 to D5, standardised_task, hallucination, error_injection or empty. `disclosures` is empty, a JSON
    object, or `key=value` pairs separated by `;`. The keys for the session are u3_scope, repeatability_tested, date,
    session_run, benchmark_id and evaluator. The keys for the conversation are injected_error and interventions
    (`none` if there were no interventions).

    Raises:
        InputError: If the file cannot be read or a row is invalid; the message contains the line number.
    """
    by_task: dict[str, Slot] = {}
    session: dict[str, JsonValue] = {}
    for line, row in _rows(path):
        task = id_key(row["task_id"].strip())
        slot = row["slot"].strip() or None
        if not task:
            raise _invalid_slots(path, line, "task_id is empty")
        if task in by_task:
            raise _invalid_slots(path, line, f"task_id {task[:80]!r} is already in line {by_task[task].line}")
        if slot is not None and slot not in get_args(Scenario):
            allowed = ", ".join(get_args(Scenario))
            raise _invalid_slots(path, line, f"slot is {slot[:40]!r}; allowed: {allowed}, or empty")
        disclosures = _disclosures(path, line, row["disclosures"])
        for key in OF_SESSION:
            if key in disclosures and session.setdefault(key, disclosures[key]) != disclosures[key]:
                raise _invalid_slots(
                    path, line, f"{key} differs from an earlier line; the session has only one value"
                )
        _check_session(path, line, session)
        family = row.get(FAMILY, "").strip()
        fields = {key: disclosures[key] for key in OF_CONVERSATION if key in disclosures}
        by_task[task] = Slot(line, slot, fields | ({FAMILY: family} if family else {}))
    return Slots(path, by_task, session)


def _names(conversation: Conversation, session_id: str) -> Iterator[str]:
    own = conversation.conversation_id
    traces = conversation.metadata.get("trace_ids")
    for name in (conversation.task_id, own.removeprefix(f"{session_id}:"), own):
        if name is not None:
            yield id_key(name)
    yield from (
        id_key(trace) for trace in (traces if isinstance(traces, list) else ()) if isinstance(trace, str)
    )


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with path.open("rb") as stream:
            content = stream.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise _invalid_slots(path, 0, f"the file is larger than {LARGEST // MEGABYTE} MB")
        rows = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        header = [name.strip() for name in next(rows, [])]
        if set(header) - {FAMILY} != set(COLUMNS) or len(header) != len(set(header)):
            raise _invalid_slots(path, 1, f"the first line is {','.join(header)[:80]!r}")
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            if len(row) != len(header):
                raise _invalid_slots(
                    path, rows.line_num, f"{len(row)} cells; quote cells that contain a comma"
                )
            yield rows.line_num, dict(zip(header, row, strict=True))
    except OSError as error:
        raise _invalid_slots(path, 0, f"it cannot be read ({error.strerror or error})") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise _invalid_slots(path, 0, f"it is not a CSV file in UTF-8 ({error})") from error


def _disclosures(path: Path, line: int, text: str) -> dict[str, JsonValue]:
    text = text.strip()
    disclosures: JsonValue = {}
    try:
        if text.startswith("{"):
            disclosures = loads(text)
        elif text:
            pairs = [part.partition("=") for part in text.split(";") if part.strip()]
            disclosures = {key.strip(): _value(value.strip()) for key, _, value in pairs}
    except ValueError as error:
        raise _invalid_slots(path, line, f"disclosures: {error}") from error
    allowed = (*OF_SESSION, *OF_CONVERSATION)
    if not isinstance(disclosures, dict) or (unknown := sorted(set(disclosures) - set(allowed))):
        problem = (
            f"disclosures: {', '.join(unknown)[:80]!r} is unknown"
            if isinstance(disclosures, dict)
            else "disclosures"
        )
        raise _invalid_slots(path, line, f"{problem}; allowed: {', '.join(allowed)}")
    return disclosures


def _value(text: str) -> JsonValue:
    return (
        _WORDS[text.lower()]
        if text.lower() in _WORDS
        else loads(text)
        if text[:1] in ("{", "[", '"')
        else text
    )


def _check_session(path: Path, line: int, session: Mapping[str, JsonValue]) -> None:
    try:
        checked = Session.model_validate({"methodology_versions": "any", **session})
    except ValidationError as error:
        raise _invalid_slots(path, line, f"disclosures: {explain(error, Session)}") from error
    if problem := checked.future_date():
        raise _invalid_slots(path, line, f"disclosures: {problem}")
