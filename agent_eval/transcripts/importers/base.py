"""What every importer shares: records in, native conversations out, a refusal for each record that is none."""

import hashlib
import math
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Literal, TypeVar, cast

from pydantic import JsonValue, ValidationError

from agent_eval.formats.hashing import canonical, digest
from agent_eval.formats.json_arrays import TornError, elements
from agent_eval.formats.json_text import clean, dumps
from agent_eval.formats.refusals import REPEATED, Refusal
from agent_eval.formats.streams import BREAKS, KEPT, LONGEST_LINE, Record, broken, opened, record_of
from agent_eval.formats.validation_messages import explain, shorten
from agent_eval.formats.zip_members import ZipMember
from agent_eval.transcripts.models import Conversation, id_key
from agent_eval.transcripts.outcomes import CONTRADICTING, ROUNDING, class_of_error

LONGEST_ID = 512
RECORDED_REWARD = "recorded_reward"
"""Key of `metadata`: a reward that the file gives as true or false, as it is there."""
DEFINITION_REFUSED = "task_definition_refused"
"""Key of `metadata`: why the definition of a conversation's task was left out."""
_Item = TypeVar("_Item")
Fields = dict[str, object]
"""A conversation in native form, before it is validated."""


class NotThisFormatError(Exception):
    """A record, or a whole file, is not of the format; the text says what was expected."""


@dataclass(frozen=True)
class Source:
    """The file that is imported. `session_id` makes ids unique that the format does not number globally."""

    path: Path | ZipMember
    session_id: str
    name: str | None = None  # shown in place of the path's name

    @property
    def file(self) -> str:
        """The file's name, without its folders."""
        return clean(self.name or PurePath(self.path.name).name or "file")


@dataclass(frozen=True)
class LeftOut:
    """A part of a file that is no conversation and is left out; `import` prints how often each reason occurs."""

    reason: str


Success = bool | Literal["contradicting"] | None
"""What the success components of a record say together."""
Found = Conversation | Refusal | LeftOut
"""What an importer yields."""
Importer = Callable[[Source], Iterator[Found]]


class Ids:
    """Conversation ids and trial numbers that are unique and the same in every import of the file."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._trials: dict[str, set[int]] = {}
        self._free: dict[str, int] = {}
        self._ids: set[str] = set()

    def of_record(self, task_id: str | None, trial: JsonValue, number: int) -> Fields:
        """task_id, trial and conversation_id; a record without a task id is named after its number in the file."""
        if task_id is None:
            return {"conversation_id": self.named(str(number)), "trial": _integer(trial)}
        return self.numbered(task_id, trial)

    def numbered(self, task_id: str, trial: JsonValue) -> Fields:
        """task_id, trial and conversation_id for a record that has no id of its own.

        A trial that is taken gives way to the task's lowest free number: some files put the task's index
        where the trial belongs, and trials with equal numbers would count as one.
        """
        taken = self._trials.setdefault(task_id, set())
        number = _integer(trial)
        if number is None or number in taken:
            number = self._lowest_free(task_id, taken)
        taken.add(number)
        return {"task_id": task_id, "trial": number, "conversation_id": self.named(f"{task_id}-{number}")}

    def named(self, name: str) -> str:
        """An id that no other session of the agent has."""
        full = f"{self._session_id}:{name}"
        return full if len(full) <= LONGEST_ID else f"{full[:400]}…{digest(full)}"

    def is_claimed(self, conversation_id: str) -> bool:
        """Whether the id stands earlier in the file."""
        return id_key(conversation_id) in self._ids

    def claim(self, conversation_id: str) -> None:
        """Remember an id."""
        self._ids.add(id_key(conversation_id))

    def _lowest_free(self, task_id: str, taken: set[int]) -> int:
        number = self._free.get(task_id, 0)
        while number in taken:
            number += 1
        self._free[task_id] = number
        return number


Convert = Callable[[Mapping[str, JsonValue], Ids, int], Fields]
"""From a record, the ids given so far and the record's number; raises NotThisFormatError."""


def conversations(
    source: Source, format_name: str, records: Iterator[Record | Refusal | LeftOut], convert: Convert
) -> Iterator[Found]:
    """Convert each record; one that is no conversation is a refusal with its number."""
    ids = Ids(source.session_id)
    for record in records:
        if isinstance(record, Refusal | LeftOut):
            yield record
            continue
        try:
            yield _converted(source, format_name, record, convert, ids)
        except NotThisFormatError as error:
            yield Refusal(source.file, record.number, shorten(str(error)))
        except ValidationError as error:
            yield Refusal(source.file, record.number, explain(error, Conversation))
        except RecursionError:
            yield Refusal(source.file, record.number, "the record is nested too deeply")


def _converted(source: Source, format_name: str, record: Record, convert: Convert, ids: Ids) -> Conversation:
    if not isinstance(record.value, dict):
        raise NotThisFormatError("the record is no JSON object")
    sha = hashlib.sha256(canonical(record.value)).hexdigest()
    origin = f"{format_name}:{source.file}#{record.number} sha256:{sha}"
    fields = convert(record.value, ids, record.number)
    conversation = Conversation.model_validate(fields | {"source": origin})
    if problem := conversation.problem():
        raise NotThisFormatError(problem)
    name = conversation.conversation_id
    if ids.is_claimed(name):
        raise NotThisFormatError(
            f"conversation_id {name[:80]!r} stands earlier in the file; the first counts"
        )
    ids.claim(name)
    return conversation


def unrepeated(
    source: Source, records: Iterator[Record | Refusal], transcript: str, names: Sequence[str]
) -> Iterator[Record | Refusal]:
    """Refuse each record that repeats an earlier one word for word.

    Equal records are separate trials unless they name their trial: a deterministic agent ends alike every time. Runs
    without any message may well end alike too.

    Args:
        source: The file.
        records: Its records.
        transcript: The key of a record's messages.
        names: The keys of which each names one trial; a record without any of them is a trial of its own.
    """
    seen: dict[bytes, int] = {}
    for record in records:
        fields = mapping(record.value) if isinstance(record, Record) else {}
        is_named = any(fields.get(name) is not None for name in names)
        if isinstance(record, Record) and is_named and fields.get(transcript):
            first = seen.setdefault(_fingerprint(record), record.number)
            if first != record.number:
                yield Refusal(source.file, record.number, f"{REPEATED} {first}, which was imported")
                continue
        yield record


def _fingerprint(record: Record) -> bytes:
    try:
        text = canonical(record.value)
    except RecursionError:  # refused later, by name
        text = str(record.number).encode()
    return hashlib.blake2b(text, digest_size=16).digest()


def array_records(source: Source, prefix: str) -> Iterator[Record | Refusal]:
    """The elements of one array of a JSON file, one at a time: `item`, or under keys, e.g. `simulations.item`.

    An element that cannot be read is a refusal of its own. Where the file breaks off, the elements before stay
    and the break is a refusal.
    """
    number = 0
    keys = prefix.split(".")[:-1]
    try:
        with opened(source.path) as stream:
            for element in elements(stream, keys, LONGEST_LINE):
                number += 1
                yield record_of(element, number, source.file)
    except TornError as error:
        yield Refusal(source.file, number + 1, shorten(f"{error}; {KEPT}"))
    except BREAKS as error:
        yield Refusal(source.file, number + 1, broken(error))


def or_nothing_found(source: Source, records: Iterator[_Item], expected: str) -> Iterator[_Item | Refusal]:
    """The records; when there are none, one refusal that says what was expected."""
    is_empty = True
    for record in records:
        is_empty = is_empty and isinstance(record, LeftOut)
        yield record
    if is_empty:
        yield Refusal(source.file, 0, f"the file holds no records; expected {expected}")


def mapping(value: JsonValue) -> Mapping[str, JsonValue]:
    """The object, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def listed(value: JsonValue) -> list[JsonValue]:
    """The list, or an empty one for anything else."""
    return value if isinstance(value, list) else []


def text_of(value: JsonValue) -> str | None:
    """A text as it is, null as None, anything else as its JSON."""
    return value if value is None or isinstance(value, str) else dumps(value)


def number_of(value: JsonValue) -> float | None:
    """A number that is none of true and false; None for anything else."""
    is_one = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 10**300
    return float(cast("float", value)) if is_one else None


def task_id_of(record: Mapping[str, JsonValue]) -> str | None:
    """The id of the record's task as text; None where it is missing, null or empty. Ids that look the same are one id."""
    return unicodedata.normalize("NFC", text_of(record.get("task_id")) or "") or None


def reward_of(value: JsonValue) -> float | None:
    """A reward, also as text; true and false are read as 1 and 0. None if it is not a finite number."""
    if isinstance(value, bool):
        return float(value)
    return _number_in(value) if isinstance(value, str) else number_of(value)


def reward_note(value: JsonValue) -> dict[str, JsonValue]:
    """The entry of `metadata` for a reward that is true or false; empty for any other."""
    return {RECORDED_REWARD: value} if isinstance(value, bool) else {}


def _integer(value: JsonValue) -> int | None:
    """A whole number that a table can hold; true and false are none."""
    is_one = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    return cast("int", value) if is_one else None


def paid(value: JsonValue) -> float | None:
    """A recorded cost; 0 is what is written when the price is unknown, so it is None."""
    cost = number_of(value)
    return cost if cost is not None and cost > 0 else None


def without_nulls(fields: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The entries that say something."""
    return {name: value for name, value in fields.items() if value is not None}


def yes_or_no(value: JsonValue) -> bool | None:
    """True and false, also written as 1 and 0 (within 1e-6); None for anything else."""
    if isinstance(value, bool):
        return value
    number = number_of(value)
    if number is None or min(abs(number), abs(number - 1)) > ROUNDING:
        return None
    return number > 0.5


def base_success(record: Mapping[str, JsonValue], transcript: str) -> Success:
    """Return the success component of a composite reward, wherever it is in the record.

    Several are "contradicting" unless they are equal; a number that is neither 0 nor 1 alone says nothing.

    Args:
        record: The record.
        transcript: The key of its messages, which are not searched: a transcript's words never decide an outcome.
    """
    found: set[bool | None] = set()
    level: list[JsonValue] = [{key: value for key, value in record.items() if key != transcript}]
    while level:
        said = [mapping(place).get("base_success") for place in level]
        found |= {yes_or_no(value) for value in said if isinstance(value, bool | int | float)}
        level = [inner for place in level for inner in _inside(place)]
    return "contradicting" if len(found) > 1 else next(iter(found), None)


def _inside(value: JsonValue) -> Iterable[JsonValue]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [part for part in inner if isinstance(part, dict | list)]


def _number_in(text: str) -> float | None:
    """A reward that the file writes as text; null if it is not a finite number."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def reward_outcome(
    format_name: str, reward: JsonValue, success: Success, error: tuple[str, JsonValue] | None = None
) -> Fields:
    """`correct` from the success component, else from a reward within 1e-6 of 0 or 1, else unknown.

    Args:
        format_name: The format.
        reward: As recorded.
        success: From `base_success`.
        error: Where the record keeps an error, and what stands there; it decides where no reward above 0 does.
    """
    number = reward_of(reward)
    place, text = error or ("", None)
    said = shorten(text_of(text) or "") or None if text not in (None, False) else None
    fields: Fields = {"reward": number} | ({} if said is None else {"error": said})
    if success == "contradicting":
        return fields | {
            "correct": None,
            "outcome_class": "unknown",
            "source": f"{format_name} {CONTRADICTING}",
        }
    if success is not None:
        named = (
            {"outcome_class": class_of_error(text_of(text) or "")} if said is not None and not success else {}
        )
        return fields | {"correct": success, "source": f"{format_name} base_success"} | named
    if said is not None and (number is None or number <= ROUNDING):
        return fields | {
            "outcome_class": class_of_error(text_of(text) or ""),
            "source": f"{format_name} {place}",
        }
    return fields | {
        "correct": None if number is None else yes_or_no(number),
        "source": None if number is None else f"{format_name} reward",
    }


def tools_called(actions: JsonValue, arguments: str) -> list[dict[str, JsonValue]] | None:
    """Expected calls from a task's actions. No action says nothing of reads: None, tools are no part of the truth."""
    calls = [mapping(action) for action in listed(actions)]
    found: list[dict[str, JsonValue]] = [
        {"name": call.get("name"), "arguments": call.get(arguments) or {}} for call in calls
    ]
    return found or None


def whole_truth(
    tools: list[dict[str, JsonValue]] | None, answer: str | None, assertions: list[JsonValue]
) -> list[Fields]:
    """Expected for the whole conversation; empty when the task says nothing."""
    if tools is None and answer is None and not assertions:
        return []
    return [{"turn_index": None, "tools": tools, "answer": answer, "assertions": assertions}]


def joined(values: JsonValue) -> str | None:
    """Several texts, a line each; None without any."""
    return "\n".join(text_of(v) or "" for v in listed(values)) or None
