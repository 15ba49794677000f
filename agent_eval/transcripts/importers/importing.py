"""Import a file in a foreign format into a session folder in native form.

An import either succeeds completely or changes nothing.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml
from pydantic import ValidationError

from agent_eval.errors import InputError
from agent_eval.formats.atomic_files import locked
from agent_eval.formats.files import is_slug
from agent_eval.formats.json_text import clean
from agent_eval.formats.plain_text import count_of
from agent_eval.formats.refusals import Refusal, n_records
from agent_eval.formats.streams import BREAKS, KEPT, Record, broken, head_of, json_lines, opened
from agent_eval.formats.validation_messages import explain
from agent_eval.formats.yaml import YamlError
from agent_eval.formats.zip_members import ZipMember
from agent_eval.transcripts.importers.agent_ids import (
    AgentIds,
    FileContent,
    HeldConversation,
    KnownConversation,
    RecordOrigin,
)
from agent_eval.transcripts.importers.base import (
    DEFINITION_REFUSED,
    PASSED_ON,
    RECORDED_REWARD,
    Found,
    Importer,
    LeftOut,
    Source,
    fault_of,
)
from agent_eval.transcripts.importers.catalog import FORMATS, TASK_SETS
from agent_eval.transcripts.importers.import_errors import (
    invalid_agent_id,
    invalid_session_id,
    no_transcripts,
    session_exists,
    unknown_format,
)
from agent_eval.transcripts.importers.parts import SessionParts, continue_session
from agent_eval.transcripts.importers.session_files import (
    changed_lines,
    is_same,
    put_in_place,
    temporary,
    write,
    write_records,
)
from agent_eval.transcripts.importers.slots import Slots
from agent_eval.transcripts.models import Conversation, Session
from agent_eval.transcripts.outcomes import is_between
from agent_eval.transcripts.sessions import CONVERSATIONS, ERRORS, SESSION, read_session_file

_EARLIER_ENDINGS = (".gz", ".jsonl", ".ndjson", ".json", ".eval", ".traj", ".trajectory")
"""Endings that earlier releases removed; a session that was named by them keeps its id."""
_ENDINGS = (*_EARLIER_ENDINGS, ".csv", ".tsv", ".txt", ".log", ".stdin", ".zip")


@dataclass(frozen=True)
class ImportReport:
    """Hold the result of one import. `is_changed` is false if an identical session existed already."""

    session_id: str
    n_imported: int
    n_refused: int
    refusals: tuple[Refusal, ...]
    is_changed: bool
    folder: Path
    n_rewards_between: int = 0  # rewards above 0 that are not 1, of trials whose success is unknown
    n_passed: int = 0
    notes: tuple[str, ...] = ()  # one sentence for each kind of omitted or reinterpreted part of the file
    n_contradicting: int = 0  # records whose success components contradict each other
    n_before: int = 0  # conversations of the session before this import
    n_turns: int = 0  # of its own conversations, and those that other sessions gained
    n_changed: int = 0  # conversations of `n_before` that the new file contains with other content
    n_removed: int = 0  # conversations of `n_before` that were removed, matched by conversation_id
    n_known: int = 0  # conversations that other sessions of the agent already contain
    continued: tuple[str, ...] = ()  # sessions whose conversations the file continues
    first: Conversation | None = None  # as understood: the first with a question, else the first


@dataclass(frozen=True)
class _Wanted:
    """Describe the input and the target of an import. `origin` is the prefix of each conversation's source."""

    source: Source
    origin: str
    agent_id: str
    folder: Path
    settings: Mapping[str, object]  # requested settings; other settings in an existing session.yaml are kept
    task_set: str
    may_join: bool  # no session was named, so parts may be merged into other sessions

    def under(self, session: str, file: str) -> "_Wanted":
        """Return the same import with another target: the session and file name under which the content is stored."""
        source = replace(self.source, session_id=session, name=file)
        origin = f"{self.origin.partition(':')[0]}:{source.file}"
        return replace(self, source=source, origin=origin, folder=self.folder.with_name(session))


class _HeldElsewhereError(Exception):
    """Raised when another session, or this session under another file name, already contains the file's content."""

    def __init__(self, session: str, file: str) -> None:
        super().__init__(session)
        self.session, self.file = session, file


def import_file(
    format_name: str,
    path: Path | ZipMember,
    *,
    sessions_folder: Path,
    agent_id: str,
    session_id: str | None = None,
    methodology_versions: tuple[str, ...] | None = None,
    task_set: str | None = None,
    name: str | None = None,
    ids: AgentIds | None = None,
    slots: Slots | None = None,
    may_join: bool | None = None,
) -> ImportReport:
    """Write a file's conversations into `sessions_folder`/<agent_id>/<session_id>.

    Invalid records are rejected individually, reported, and stored beside the session. Importing the same file
    again changes nothing. A changed file of the same name replaces its session; manual additions to session.yaml
    are kept, and the report contains the number of removed conversations. If every record is rejected, an existing
    session with conversations is not changed. If there is no such session, a session without conversations is
    written, so that its rejected records are counted; any later import replaces it.

    Content that a session of the agent already contains is not imported again, even if the file name differs. If
    another session contains a part of the same source session (a coding session that was resumed in another file, or
    one `session_id` in two files), the new part is merged into that conversation.

    Args:
        format_name: A key of FORMATS.
        path: The file, gzipped or not.
        sessions_folder: data/sessions.
        agent_id: The agent that the transcripts belong to.
        session_id: The session; default: a slug of the file's name without its extensions.
        methodology_versions: The versions that the session was run for; None: any version.
        task_set: The task set; default: the domain in a tau2 file, else the format's name.
        name: The file's name for display and storage; default: the path's name.
        ids: The index of the agent's sessions, if several files are imported; it is updated.
        slots: Slots and disclosures by task; they are added to the conversations and to session.yaml.
        may_join: Search for the content and the source sessions in other sessions of the agent. Default: True if
            `session_id` is None.

    Raises:
        AgentEvalError: If the format, an id or the file is invalid, or the session belongs to another file.
    """
    if format_name not in FORMATS:
        raise unknown_format(format_name, FORMATS)
    if not is_slug(agent_id):
        raise invalid_agent_id(agent_id)
    source = Source(path, "", name)
    session = default_session_id(source.file) if session_id is None else session_id
    if session_id is None:
        session = kept_session_id(sessions_folder / agent_id, session, source.file)
    if not is_slug(session):
        raise invalid_session_id(session)
    if isinstance(path, Path):
        _check_file(path)
    source = Source(path, session, name, agent_id)
    clean_task_set = clean(task_set) if task_set is not None else None
    requested_settings = {
        "methodology_versions": methodology_versions,
        "task_set": clean_task_set,
        **(slots.session if slots else {}),
    }
    request = _Wanted(
        source=source,
        origin=f"{format_name}:{source.file}",
        agent_id=agent_id,
        folder=sessions_folder / agent_id / session,
        settings={key: value for key, value in requested_settings.items() if value is not None},
        task_set=clean(_own_task_set(format_name, source) or format_name),
        may_join=session_id is None if may_join is None else may_join,
    )
    return _import_locked(request, FORMATS[format_name], sessions_folder, ids, slots)


def _own_task_set(format_name: str, source: Source) -> str | None:
    named_by = TASK_SETS.get(format_name)
    return named_by(source) if named_by else None


def default_session_id(file: str) -> str:
    """Return a slug of a file's name without extensions such as .gz and .csv, or 'session' if it is empty."""
    return _slug(file)


def kept_session_id(agent_folder: Path, session_id: str, file: str) -> str:
    """Return the id of the session that an earlier release imported from a file, if it exists, else `session_id`."""
    ending = next((e for e in _ENDINGS if file.lower().removesuffix(".gz").endswith(e)), None)
    if ending is None or ending in _EARLIER_ENDINGS:
        return session_id
    earlier = f"{session_id}{ending}"[:128]
    return earlier if (agent_folder / earlier).is_dir() else session_id


def _slug(file: str) -> str:
    name = file.lower()
    while name.endswith(_ENDINGS):
        name = name.rpartition(".")[0]
    slug = re.sub(r"[^a-z0-9._-]+", "-", name).lstrip("._-")[:128].rstrip("-")
    return slug or "session"


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise no_transcripts(path, "is a folder")
    if not path.is_file():
        raise no_transcripts(path, "is not a regular file" if path.exists() else "does not exist")
    with suppress(*BREAKS), opened(path) as stream:
        if not head_of(stream, 1):
            raise no_transcripts(path, "is empty")


def _import_locked(
    request: _Wanted,
    importer: Importer,
    sessions_folder: Path,
    ids: AgentIds | None,
    slots: Slots | None,
) -> ImportReport:
    agent_folder = request.folder.parent
    if not Path(os.path.realpath(request.folder)).is_relative_to(os.path.realpath(sessions_folder)):
        raise InputError(
            f"{request.folder} is a link to a folder outside the sessions folder. Remove the link and import again."
        )
    agent_folder.mkdir(parents=True, exist_ok=True)
    with locked(agent_folder):
        ids = ids or AgentIds(agent_folder)
        try:
            report = _imported(request, importer, ids, slots)
        except _HeldElsewhereError as conflict:
            report = _imported(request.under(conflict.session, conflict.file), importer, ids, slots)
    with suppress(OSError):
        agent_folder.rmdir()  # succeeds only if the folder is empty
    return report


def _imported(request: _Wanted, importer: Importer, ids: AgentIds, slots: Slots | None) -> ImportReport:
    """Write the session, and merge conversations that continue other sessions into those sessions.

    Raises:
        _HeldElsewhereError: If another session contains the file's content, or this one under another file name.
        InputError: If the session belongs to another file.
    """
    session, content = request.folder.name, FileContent()
    with temporary(request.folder) as new:
        session_text = _session_text(request)
        tally = _Seen(not_seen=ids.of(session))
        n_before, before = len(tally.not_seen), SessionParts(request.folder)
        items = content.watching(_read(request, importer))
        items = _with_slots(items, slots, request.source) if slots else items
        items = _new_to_agent(items, ids, request, tally)
        n_imported, n_refused, refusals = write_records(new, tally.watching(_with_parts(items, before)))
        _refuse_held(request, ids.holder(content))
        if isinstance(session_text, InputError):
            raise session_text
        write(new / SESSION, session_text)
        before.write(new, tally.ids)
        n_lost = sum(n_records(refusal.line, refusal.reason) for refusal in refusals)
        is_worth_keeping = n_imported > 0 or (n_lost > 0 and not _has_conversations(request.folder))
        is_changed = is_worth_keeping and not is_same(request.folder, new)
        n_changed = len(changed_lines(request.folder, new)) if is_changed and n_before else 0
        if is_changed:
            put_in_place(new, request.folder)
            ids.put(session, tally.ids.values(), content)
    continued = {s: _continue(request, s, parts, ids) for s, parts in tally.continuing.items()}
    gained = {name: n for name, n in continued.items() if n is not None}
    return ImportReport(
        session_id=session if n_imported or n_refused or not tally.held_by else tally.held_by[0],
        n_imported=n_imported,
        n_refused=n_refused,
        refusals=tuple(refusals),
        is_changed=is_changed or bool(gained),
        folder=request.folder,
        n_rewards_between=tally.n_between,
        n_passed=tally.n_passed,
        notes=tally.notes(n_imported),
        n_turns=tally.n_turns + sum(gained.values()),
        n_contradicting=tally.n_contradicting,
        n_before=n_before,
        n_changed=n_changed,
        n_removed=len(tally.not_seen) if is_changed else 0,
        n_known=tally.n_known,
        continued=tuple(gained),
        first=tally.first,
    )


def _continue(
    request: _Wanted, session: str, parts: Mapping[str, list[Conversation]], ids: AgentIds
) -> int | None:
    """Merge parts into another session; return the number of turns that it gained, or None if it did not change."""
    continuation = continue_session(request.folder.with_name(session), parts)
    for name, whole in continuation[0].items() if continuation else ():
        ids.extend(HeldConversation(session, name, None), KnownConversation.of(whole))
    return None if continuation is None else continuation[1]


def _refuse_held(request: _Wanted, holder: tuple[str, str] | None) -> None:
    """Raise `_HeldElsewhereError` if the content is already stored under another session or file name.

    If the user named the session, other sessions are ignored.
    """
    if holder is None or holder == (request.folder.name, request.source.file):
        return
    if request.may_join or holder[0] == request.folder.name:
        raise _HeldElsewhereError(*holder)


def _with_parts(items: Iterator[Found], before: SessionParts) -> Iterator[Found]:
    """Yield the items; a conversation that other files continue is merged with the parts in those files."""
    for item in items:
        is_part = isinstance(item, Conversation) and item.conversation_id in before
        yield before.put(item.conversation_id, item) if is_part and isinstance(item, Conversation) else item


def _asks(conversation: Conversation) -> bool:
    return any(message.role == "user" and message.content for message in conversation.messages)


@dataclass
class _Seen:
    """Count the conversations of an import as they are read.

    `not_seen` holds the ids of earlier conversations that have not occurred in the new file.
    """

    not_seen: set[str]
    n_passed: int = 0
    n_between: int = 0
    n_contradicting: int = 0
    n_flags: int = 0  # rewards that are true or false in the file
    n_turns: int = 0
    ids: dict[str, KnownConversation] = field(default_factory=dict[str, KnownConversation])
    left_out: Counter[str] = field(default_factory=Counter[str])
    definitions_left_out: Counter[str] = field(default_factory=Counter[str])
    n_known: int = 0
    first: Conversation | None = None
    is_asked: bool = False  # whether `first` has a question
    held_by: list[str] = field(default_factory=list[str])  # sessions that contain the known conversations
    continuing: dict[str, dict[str, list[Conversation]]] = field(
        default_factory=dict[str, dict[str, list[Conversation]]]
    )  # session → conversation → parts

    def watching(self, items: Iterator[Found]) -> Iterator[Conversation | Refusal]:
        """Yield the conversations and rejected records, and count all items."""
        for item in items:
            if isinstance(item, LeftOut):
                self.left_out[item.reason] += 1
                continue
            if isinstance(item, Conversation):
                if not self.is_asked and (self.first is None or _asks(item)):
                    self.first, self.is_asked = item, _asks(item)
                self.not_seen.discard(item.conversation_id)
                self.ids[item.conversation_id] = KnownConversation.of(item)
                if (reason := item.metadata.get(DEFINITION_REFUSED)) is not None:
                    self.definitions_left_out[str(reason)] += 1
                self.n_turns += item.n_turns
                outcome = item.outcome
                self.n_passed += outcome.correct is True
                is_contradicting = outcome.basis == "contradicting"
                self.n_contradicting += is_contradicting
                is_open = outcome.classified == "unknown" and not is_contradicting
                self.n_between += is_open and is_between(outcome.reward)
                self.n_flags += isinstance(item.metadata.get(RECORDED_REWARD), bool)
            yield item

    def known(self, place: HeldConversation) -> None:
        """Count a conversation that another session contains."""
        self.n_known += 1
        if place.session not in self.held_by:
            self.held_by.append(place.session)

    def continues(self, place: HeldConversation, part: Conversation) -> None:
        """Record a part of another session's conversation."""
        self.known(place)
        self.continuing.setdefault(place.session, {}).setdefault(place.conversation_id, []).append(part)

    def notes(self, n_imported: int) -> tuple[str, ...]:
        """Return one sentence for each kind of part that was omitted or reinterpreted."""
        of = f"of {count_of(n_imported, 'conversation')}:"
        notes = [
            f"{n} {of} the goal and the ground truth of the task definition are omitted because {why}."
            for why, n in sorted(self.definitions_left_out.items())
        ]
        if self.n_flags:
            notes.append(f"{self.n_flags} {of} the reward is true or false and is read as 1 or 0.")
        return (*notes, *(f"{n:,} × {why}." for why, n in sorted(self.left_out.items())))


def _read(request: _Wanted, importer: Importer) -> Iterator[Found]:
    """Yield the items of the file; an exception that the importer did not expect is a `Refusal` for the rest of it."""
    format_name, file, number = request.origin.partition(":")[0], request.source.file, 0
    try:
        for item in importer(request.source):
            if not isinstance(item, LeftOut):
                number = max(number, item.line if isinstance(item, Refusal) else _number(item))
            yield item
    except OSError as error:  # importers only read, so it is an error of the file
        yield Refusal(file, number + 1, broken(error))
    except PASSED_ON:
        raise
    except Exception as error:  # last resort: other files are still read
        yield Refusal(file, number + 1, f"{fault_of(format_name, error)}; {KEPT}")


def _with_slots(items: Iterator[Found], slots: Slots, source: Source) -> Iterator[Found]:
    """Yield the items, with slots and disclosures added to the conversations."""
    for item in items:
        if not isinstance(item, Conversation):
            yield item
            continue
        try:
            placed = slots.placed(item, source.session_id)
            problem = placed.problem()
        except ValidationError as error:
            placed, problem = item, explain(error, Conversation)
        yield Refusal(source.file, _number(item), f"{slots.path.name}: {problem}") if problem else placed


def _number(item: Conversation) -> int:
    """Return the number of the record from which a conversation was read."""
    origin = RecordOrigin.of(item.source)
    return origin.number if origin else 0


def _session_text(request: _Wanted) -> bytes | InputError:
    """Return the content of session.yaml: the existing settings updated with the requested ones, or new settings.

    If the folder exists and was not written from this file, the error is returned rather than raised, because the
    file may turn out to have the same content.
    """
    settings = {"methodology_versions": "any", "task_set": request.task_set, **request.settings}
    notes = f"Imported from {request.origin}."
    try:
        if not request.folder.exists():
            return _dumped(Session.model_validate(settings | {"notes": notes}))
        if problem := _other_origin(request):
            return session_exists(request.folder.name, request.agent_id, problem)
        old = read_session_file(request.folder)
        new = Session.model_validate({**old.model_dump(), **request.settings})
    except ValidationError as error:
        raise InputError(f"The session cannot be written: {explain(error, Session)}.") from error
    except YamlError as error:
        return session_exists(request.folder.name, request.agent_id, f"its {SESSION}: {error.reason}")
    return (request.folder / SESSION).read_bytes() if new == old else _dumped(new)


def _dumped(session: Session) -> bytes:
    fields = session.model_dump(mode="json", exclude_defaults=True)
    text: str = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=10**6)
    return text.encode()


def _has_conversations(folder: Path) -> bool:
    path = folder / CONVERSATIONS
    return path.is_file() and path.stat().st_size > 0


def _other_origin(request: _Wanted) -> str | None:
    """Return the reason why a session does not belong to this file, or None if it was written from the file."""
    path = request.folder / CONVERSATIONS
    if (request.folder / ERRORS).is_file() and not _has_conversations(request.folder):
        return None  # an import of which all records were rejected
    first = next(json_lines(path, path.name), None) if path.is_file() else None
    value = first.value if isinstance(first, Record) else None
    origin = RecordOrigin.of(value.get("source")) if isinstance(value, dict) else None
    if origin is None:
        return "it was not written by an import"
    if origin.file_of_format != request.origin:
        return f"it contains the import of {origin.file_of_format}, not of {request.origin}"
    return None


def _new_to_agent(items: Iterator[Found], ids: AgentIds, request: _Wanted, tally: _Seen) -> Iterator[Found]:
    """Yield the items that are new to the agent.

    A conversation is rejected if another session has a conversation with its id, because only one of the two would be
    read. If no session is named, there are two exceptions: an identical conversation is counted as known, and a
    continuation of another session's conversation is recorded, to be merged later. But if any conversation of the
    file has a known id with different content, the file is a separate run, so its identical conversations are
    rejected at the end rather than counted as known.
    """
    own = request.folder.name
    equal: list[tuple[int, str, HeldConversation]] = []
    is_other_run = False
    for item in items:
        if not isinstance(item, Conversation):
            yield item
            continue
        conversation = KnownConversation.of(item)
        begun = ids.continued(conversation, own) if request.may_join else None
        place = begun or ids.elsewhere(item.conversation_id, own)
        is_equal = place is not None and place.record is not None and place.record == conversation.record
        if place is None:
            yield item
        elif request.may_join and is_equal:
            equal.append((_number(item), item.conversation_id, place))
        elif begun is not None:
            tally.continues(begun, item)
        else:
            is_other_run = True
            yield _taken(request, _number(item), item.conversation_id, place)
    for number, name, place in equal:
        if is_other_run:
            yield _taken(request, number, name, place)
        else:
            tally.known(place)


def _taken(request: _Wanted, number: int, name: str, place: HeldConversation) -> Refusal:
    """Return a `Refusal` for a conversation whose id another session of the agent already uses."""
    reason = (
        f"conversation_id {name!r} is already in session {place.session!r} of this agent; give it a unique id"
    )
    return Refusal(request.source.file, number, reason)
