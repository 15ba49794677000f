"""Provide code for all importers: convert valid records to native conversations, and reject invalid records."""

import hashlib
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Literal, TypeVar

from pydantic import JsonValue, ValidationError
from pydantic_core import PydanticSerializationError

from agent_eval.formats.hashing import canonical, digest
from agent_eval.formats.json_arrays import TruncatedJsonError, iter_array_elements
from agent_eval.formats.json_text import clean, dumps
from agent_eval.formats.refusals import REPEATED, Refusal
from agent_eval.formats.streams import BREAKS, KEPT, LONGEST_LINE, Record, broken, opened, record_of
from agent_eval.formats.validation_messages import explain, shorten
from agent_eval.formats.zip_members import ZipMember
from agent_eval.transcripts.importers.rules.branches import LEFT_OUT
from agent_eval.transcripts.importers.rules.settling import settled
from agent_eval.transcripts.importers.rules.unread import described
from agent_eval.transcripts.importers.rules.values import Fields as Fields
from agent_eval.transcripts.importers.rules.values import NotThisFormatError as NotThisFormatError
from agent_eval.transcripts.importers.rules.values import listed as listed
from agent_eval.transcripts.importers.rules.values import mapping as mapping
from agent_eval.transcripts.importers.rules.values import number_of as number_of
from agent_eval.transcripts.importers.rules.values import text_of as text_of
from agent_eval.transcripts.importers.rules.values import without_nulls as without_nulls
from agent_eval.transcripts.models import Conversation, id_key
from agent_eval.transcripts.outcomes import CONTRADICTING, ROUNDING, class_of_error, final_exception

LONGEST_ID = 512
_LONGEST_FAULT = 160
RECORDED_REWARD = "recorded_reward"
"""Key of `metadata`: the unchanged reward, if it is true or false in the file."""
DEFINITION_REFUSED = "task_definition_refused"
"""Key of `metadata`: the reason why the definition of a conversation's task was omitted."""
SOURCE_SESSIONS = "source_sessions"
"""Key of `metadata`: ids (list of strings) of the conversation's session in the source; other files may continue it."""
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Source:
    """Identify the imported file. `session_id` makes ids unique if the format does not provide unique ones."""

    path: Path | ZipMember
    session_id: str
    name: str | None = None  # displayed instead of the path's name
    agent_id: str | None = None  # the agent that the transcripts belong to, if known

    @cached_property
    def file(self) -> str:
        """Return the file's name, without its folders."""
        return clean(self.name or PurePath(self.path.name).name or "file")


@dataclass(frozen=True)
class LeftOut:
    """Represent a part of a file that is omitted because it is not a conversation; `import` counts each reason."""

    reason: str


Success = bool | Literal["contradicting"] | None
"""The combined value of a record's success components."""
Found = Conversation | Refusal | LeftOut
"""The items that an importer yields."""
Importer = Callable[[Source], Iterator[Found]]


PASSED_ON = (OSError, MemoryError)
"""Errors of the machine, which the last resort for faults of an importer passes on."""


def fault_of(format_name: str, error: Exception) -> str:
    """Return the reason of a `Refusal` for an exception that an importer did not expect, with its class."""
    detail = shorten(f"{type(error).__name__}: {error}".rstrip(": "))[:_LONGEST_FAULT]
    return f"the importer of {format_name} failed ({detail}); this is a fault of agent_eval, please report it"


class Ids:
    """Assign conversation ids and trial numbers that are unique, and identical in every import of the file."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._trials: dict[str, set[int]] = {}
        self._free: dict[str, int] = {}
        self._ids: set[str] = set()

    def of_record(self, task_id: str | None, trial: JsonValue, number: int) -> Fields:
        """Return task_id, trial and conversation_id; if there is no task id, the record's number is used."""
        if task_id is None:
            return {"conversation_id": self.named(str(number)), "trial": trial_of(trial)}
        return self.numbered(task_id, trial)

    def numbered(self, task_id: str, trial: JsonValue) -> Fields:
        """Return task_id, trial and conversation_id for a record without an id.

        A trial number that is already in use is replaced by the task's lowest free number, because some files
        use the task's index as the trial number, and trials with equal numbers would count as one.

        Raises:
            NotThisFormatError: If the trial is neither null nor a valid trial number.
        """
        used_numbers = self._trials.setdefault(task_id, set())
        number = trial_of(trial)
        if number is None or number in used_numbers:
            number = self._lowest_free(task_id, used_numbers)
        used_numbers.add(number)
        return {"task_id": task_id, "trial": number, "conversation_id": self.named(f"{task_id}-{number}")}

    def named(self, name: str) -> str:
        """Return an id that is unique among the sessions of the agent."""
        full = f"{self._session_id}:{name}"
        return full if len(full) <= LONGEST_ID else f"{full[:400]}…{digest(full)}"

    def is_claimed(self, conversation_id: str) -> bool:
        """Return whether an earlier record of the file uses the id."""
        return id_key(conversation_id) in self._ids

    def claim(self, conversation_id: str) -> None:
        """Record an id as used."""
        self._ids.add(id_key(conversation_id))

    def _lowest_free(self, task_id: str, used_numbers: set[int]) -> int:
        number = self._free.get(task_id, 0)
        while number in used_numbers:
            number += 1
        self._free[task_id] = number
        return number


Convert = Callable[[Mapping[str, JsonValue], Ids, int], Fields]
"""Function that converts a record, given the ids in use and the record's number; it raises NotThisFormatError."""


def conversations(
    source: Source, format_name: str, records: Iterator[Record | Refusal | LeftOut], convert: Convert
) -> Iterator[Found]:
    """Convert each record; a record that is not a conversation becomes a `Refusal` with the record's number."""
    ids = Ids(source.session_id)
    for record in records:
        if isinstance(record, Refusal | LeftOut):
            yield record
            continue
        try:
            conversation, unread, left_out = _converted(source, format_name, record, convert, ids)
            for reason in described(unread):
                yield Refusal(source.file, record.number, reason)
            yield conversation
            yield from map(LeftOut, left_out)
        except NotThisFormatError as error:
            yield Refusal(source.file, record.number, shorten(str(error)))
        except ValidationError as error:
            yield Refusal(source.file, record.number, explain(error, Conversation))
        except (RecursionError, PydanticSerializationError):
            yield Refusal(source.file, record.number, "the record is nested too deeply")
        except PASSED_ON:
            raise
        except Exception as error:  # last resort: the records after this one are still read
            yield Refusal(source.file, record.number, fault_of(format_name, error))


def _converted(
    source: Source, format_name: str, record: Record, convert: Convert, ids: Ids
) -> tuple[Conversation, list[str], list[str]]:
    """Return the conversation of a record, its parts that were not read, and the reasons of those left out."""
    if not isinstance(record.value, dict):
        raise NotThisFormatError("the record is not a JSON object")
    sha = hashlib.sha256(canonical(record.value)).hexdigest()
    origin = f"{format_name}:{source.file}#{record.number} sha256:{sha}"
    fields, unread = settled(convert(record.value, ids, record.number))
    left_out = fields.pop(LEFT_OUT, None)
    conversation = Conversation.model_validate(fields | {"source": origin})
    if problem := conversation.problem():
        raise NotThisFormatError(problem)
    conversation.model_dump_json()  # fails on values that can be read but are nested too deeply to be written
    name = conversation.conversation_id
    if ids.is_claimed(name):
        raise NotThisFormatError(
            f"conversation_id {name[:80]!r} occurs earlier in the file; only the first one is imported"
        )
    ids.claim(name)
    return conversation, unread, [str(reason) for reason in left_out] if isinstance(left_out, list) else []


def unrepeated(
    source: Source, records: Iterator[Record | Refusal], transcript: str, names: Sequence[str]
) -> Iterator[Record | Refusal]:
    """Reject each record that is an exact repetition of an earlier one.

    Equal records are separate trials unless they identify their trial: a deterministic agent repeats its output,
    and runs without any messages can be equal too.

    Args:
        source: The file.
        records: Its records.
        transcript: The key of a record's messages.
        names: Keys, each of which identifies one trial; a record without any of them is a separate trial.
    """
    number_of_record: dict[bytes, int] = {}
    for record in records:
        fields = mapping(record.value) if isinstance(record, Record) else {}
        is_named = any(fields.get(name) is not None for name in names)
        if isinstance(record, Record) and is_named and fields.get(transcript):
            first = number_of_record.setdefault(_fingerprint(record), record.number)
            if first != record.number:
                yield Refusal(source.file, record.number, f"{REPEATED} {first}, which was imported")
                continue
        yield record


def _fingerprint(record: Record) -> bytes:
    try:
        text = canonical(record.value)
    except RecursionError:  # rejected later, with its reason
        text = str(record.number).encode()
    return hashlib.blake2b(text, digest_size=16).digest()


def array_records(
    source: Source, prefix: str, prepared: Callable[[bytes], bytes] = bytes
) -> Iterator[Record | Refusal]:
    """Yield the elements of an array in a JSON file; `prefix` is `item` or a path such as `simulations.item`.

    An unreadable element yields a `Refusal`. If the file is truncated, the preceding elements are kept and a `Refusal`
    for the truncation is yielded. `prepared` changes the text of an element before it is parsed.
    """
    number = 0
    keys = prefix.split(".")[:-1]
    try:
        with opened(source.path) as stream:
            for element in iter_array_elements(stream, keys, LONGEST_LINE):
                number += 1
                yield record_of(element if element is None else prepared(element), number, source.file)
    except TruncatedJsonError as error:
        yield Refusal(source.file, number + 1, shorten(f"{error}; {KEPT}"))
    except BREAKS as error:
        yield Refusal(source.file, number + 1, broken(error))


def or_nothing_found(source: Source, records: Iterator[_Item], expected: str) -> Iterator[_Item | Refusal]:
    """Yield the records; if there are none, yield one `Refusal` that describes the expected form."""
    is_empty = True
    for record in records:
        is_empty = is_empty and isinstance(record, LeftOut)
        yield record
    if is_empty:
        yield Refusal(source.file, 0, f"the file contains no records; expected {expected}")


def task_id_of(record: Mapping[str, JsonValue]) -> str | None:
    """Return the record's task id as text, or None if it is missing, null or empty.

    Ids with the same text, such as 1 and "1", are the same id.
    """
    return unicodedata.normalize("NFC", text_of(record.get("task_id")) or "") or None


def reward_of(value: JsonValue) -> float | None:
    """Return a reward as a number, or None if it is not finite; true is 1, false is 0, and strings are parsed."""
    if isinstance(value, bool):
        return float(value)
    return _number_in(value) if isinstance(value, str) else number_of(value)


def reward_note(value: JsonValue) -> dict[str, JsonValue]:
    """Return the `metadata` entry for a reward that is true or false; empty for any other reward."""
    return {RECORDED_REWARD: value} if isinstance(value, bool) else {}


def trial_of(value: JsonValue) -> int | None:
    """Return a trial number as an integer; strings are parsed, and null becomes None.

    Raises:
        NotThisFormatError: If the value is not a whole number from 0 to 2**63 − 1.
    """
    number = int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,19}", value) else value
    if number is None or (isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**63):
        return number
    raise NotThisFormatError(f"trial is {_shown(value)}; expected a whole number from 0 to 2^63 - 1, or null")


def id_of(record: Mapping[str, JsonValue], key: str) -> str | None:
    """Return the id under a key; None if it is missing, null or empty. A whole number is converted to text.

    Raises:
        NotThisFormatError: If the value is neither a string nor a whole number.
    """
    value = record.get(key)
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise NotThisFormatError(f"{key} is {_shown(value)}; expected a text or a whole number")


def success_of(record: Mapping[str, JsonValue], key: str) -> bool | None:
    """Return the success under a key, given as true, false, 1 or 0; None if it is missing or null.

    Raises:
        NotThisFormatError: If the value is anything else.
    """
    value = record.get(key)
    success = yes_or_no(value)
    if value is not None and success is None:
        raise NotThisFormatError(f"{key} is {_shown(value)}; expected true, false, 1, 0 or null")
    return success


def _shown(value: JsonValue) -> str:
    text = dumps(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def paid(value: JsonValue) -> float | None:
    """Return a recorded cost; None for 0, which sources write if the price is unknown."""
    cost = number_of(value)
    return cost if cost is not None and cost > 0 else None


def yes_or_no(value: JsonValue) -> bool | None:
    """Return a value of true, false, 1 or 0 (within 1e-6) as a boolean; None for anything else."""
    if isinstance(value, bool):
        return value
    number = number_of(value)
    if number is None or min(abs(number), abs(number - 1)) > ROUNDING:
        return None
    return number > 0.5


def base_success(record: Mapping[str, JsonValue], transcript: str) -> Success:
    """Return the success component of a composite reward, which may occur anywhere in the record.

    Several unequal components are "contradicting"; a single number other than 0 and 1 is ignored.

    Args:
        record: The record.
        transcript: The key of its messages, which are not searched: a transcript's text never determines an
            outcome.
    """
    values: set[bool | None] = set()
    level: list[JsonValue] = [{key: value for key, value in record.items() if key != transcript}]
    while level:
        entries = [mapping(place).get("base_success") for place in level]
        values |= {yes_or_no(value) for value in entries if isinstance(value, bool | int | float)}
        level = [inner for place in level for inner in _inside(place)]
    return "contradicting" if len(values) > 1 else next(iter(values), None)


def _inside(value: JsonValue) -> Iterable[JsonValue]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [part for part in inner if isinstance(part, dict | list)]


def _number_in(text: str) -> float | None:
    """Return the value of a reward that the file stores as text; None if it is not a finite number."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def error_text(error: str) -> str:
    """Return the text of an error that is stored: of a traceback its final exception, on one line, shortened."""
    return shorten(final_exception(error) or error)


def reward_outcome(
    format_name: str, reward: JsonValue, success: Success, error: tuple[str, JsonValue] | None = None
) -> Fields:
    """Return the outcome of a record from its success component, else its error, else its reward.

    The error decides unless the reward is above 0; if its cause is unknown, the outcome is what a reward of 0 declares,
    else unknown. A reward decides only if it is within 1e-6 of 0 or 1; otherwise the outcome is unknown.

    Args:
        format_name: The format.
        reward: The reward as recorded.
        success: The result of `base_success`.
        error: The key of the record's error, and its value.
    """
    number = reward_of(reward)
    place, text = error or ("", None)
    fault = error_text(text_of(text) or "") or None if text not in (None, False) else None
    fields: Fields = {"reward": number} | ({} if fault is None else {"error": fault})
    if success == "contradicting":
        return fields | {
            "correct": None,
            "outcome_class": "unknown",
            "source": f"{format_name} {CONTRADICTING}",
            "basis": "contradicting",
        }
    if success is not None:
        class_fields = (
            {"outcome_class": class_of_error(text_of(text) or "")}
            if fault is not None and not success
            else {}
        )
        declared: Fields = {"correct": success, "source": f"{format_name} base_success", "basis": "declared"}
        return fields | declared | class_fields
    if fault is not None and (number is None or number <= ROUNDING):
        return fields | {
            "outcome_class": class_of_error(text_of(text) or ""),
            "correct": None if number is None else yes_or_no(number),
            "source": f"{format_name} {place}",
            "basis": "error",
        }
    return fields | {
        "correct": None if number is None else yes_or_no(number),
        "source": None if number is None else f"{format_name} reward",
        "basis": None if number is None else "reward",
    }


def tools_called(actions: JsonValue, arguments: str) -> list[dict[str, JsonValue]] | None:
    """Return the expected calls from a task's actions, or None if there are none.

    The result is None rather than an empty list, because a task without actions may still require calls that only read data.
    """
    calls = [mapping(action) for action in listed(actions)]
    expected_calls: list[dict[str, JsonValue]] = [
        {"name": call.get("name"), "arguments": call.get(arguments) or {}} for call in calls
    ]
    return expected_calls or None


def whole_truth(
    tools: list[dict[str, JsonValue]] | None, answer: str | None, assertions: list[JsonValue]
) -> list[Fields]:
    """Return `expected` for the whole conversation; empty if the task does not define any ground truth."""
    if tools is None and answer is None and not assertions:
        return []
    return [{"turn_index": None, "tools": tools, "answer": answer, "assertions": assertions}]


def joined(values: JsonValue) -> str | None:
    """Return several strings joined with line breaks, or None if there are none."""
    return "\n".join(text_of(v) or "" for v in listed(values)) or None
