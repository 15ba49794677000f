"""Import a file of a foreign format into a session folder in native form, completely or not at all."""

import filecmp
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from pydantic import ValidationError

from agent_eval.formats.atomic_files import locked, sync_folder, sync_stream
from agent_eval.formats.files import is_slug
from agent_eval.formats.json_text import clean, dumps
from agent_eval.formats.refusals import MORE_REFUSED, Refusal, n_records
from agent_eval.formats.streams import BREAKS, Record, json_lines, opened
from agent_eval.formats.validation_messages import explain
from agent_eval.formats.yaml import YamlError
from agent_eval.formats.zip_members import ZipMember
from agent_eval.transcripts.importers.agent_ids import AgentIds, Elsewhere, conversation_ids
from agent_eval.transcripts.importers.base import (
    DEFINITION_REFUSED,
    RECORDED_REWARD,
    Found,
    Importer,
    LeftOut,
    Source,
)
from agent_eval.transcripts.importers.catalog import FORMATS, TASK_SETS
from agent_eval.transcripts.importers.import_errors import (
    InvalidAgentIdError,
    InvalidSessionError,
    InvalidSessionIdError,
    NoTranscriptsError,
    OutsideProjectError,
    SessionExistsError,
    UnknownFormatError,
)
from agent_eval.transcripts.importers.slots import Slots
from agent_eval.transcripts.models import Conversation, Session, id_key
from agent_eval.transcripts.outcomes import has_contradicting_components, is_between
from agent_eval.transcripts.sessions import CONVERSATIONS, ERRORS, FILES, SESSION, read_session_file

_ENDINGS = (".gz", ".jsonl", ".ndjson", ".json", ".eval", ".traj", ".trajectory")
_ORIGIN = re.compile(r"(?P<origin>[^:]+:.*)#\d+ sha256:[0-9a-f]{64}", re.DOTALL)
_HEAD = 64 * 1024
MOST_TOLD = 10_000  # refusals of one import that are listed one by one


@dataclass(frozen=True)
class ImportReport:
    """Report one import. `is_changed` is false if an identical session existed already."""

    session_id: str
    n_imported: int
    n_refused: int
    refusals: tuple[Refusal, ...]
    is_changed: bool
    folder: Path
    n_rewards_between: int = 0  # rewards above 0 that are not 1, of trials whose success is unknown
    n_passed: int = 0
    notes: tuple[str, ...] = ()  # omitted or reinterpreted parts of the file, one sentence each
    n_contradicting: int = 0  # records whose success components contradict each other
    n_before: int = 0  # conversations of the session before this import
    n_turns: int = 0
    n_removed: int = 0  # those of them that were removed, by conversation_id


@dataclass(frozen=True)
class _Wanted:
    """Describe one import: input and target. `origin` is the prefix of each conversation's source."""

    source: Source
    origin: str
    agent_id: str
    folder: Path
    settings: Mapping[str, object]  # requested settings; the rest of an existing session.yaml stays
    task_set: str


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
) -> ImportReport:
    """Write a file's conversations into `sessions_folder`/<agent_id>/<session_id>, by default named after the file.

    Invalid records are rejected one by one, reported, and stored beside the session. Importing the same file
    again changes nothing; a changed file of the same name replaces its session, whose session.yaml keeps
    manual additions; the report has the number of removed conversations. If every record is rejected, a
    session with conversations stays unchanged; if there is none, a session without conversations is written,
    so that its rejected records are counted. Any import replaces it.

    Args:
        format_name: A key of FORMATS.
        path: The file, gzipped or not.
        sessions_folder: data/sessions.
        agent_id: The agent that the transcripts are of.
        session_id: Default: the file's name without its endings, as a slug.
        methodology_versions: The versions that the session was run for; None: any.
        task_set: Default: the domain that a tau2 file names, else the format's name.
        name: The file's name for display and storage; default: the path's.
        ids: The ids of the agent's sessions, if several files are imported; it is updated.
        slots: Slots and disclosures by task; they are added to the conversations and to session.yaml.

    Raises:
        AgentEvalError: If the format, an id or the file is invalid, or the session belongs to another file.
    """
    if format_name not in FORMATS:
        raise UnknownFormatError(format_name, FORMATS)
    if not is_slug(agent_id):
        raise InvalidAgentIdError(agent_id)
    source = Source(path, "", name)
    session = default_session_id(source.file) if session_id is None else session_id
    if not is_slug(session):
        raise InvalidSessionIdError(session)
    if isinstance(path, Path):
        _check_file(path)
    source = Source(path, session, name)
    named = clean(task_set) if task_set is not None else None
    asked = {
        "methodology_versions": methodology_versions,
        "task_set": named,
        **(slots.session if slots else {}),
    }
    wanted = _Wanted(
        source=source,
        origin=f"{format_name}:{source.file}",
        agent_id=agent_id,
        folder=sessions_folder / agent_id / session,
        settings={key: value for key, value in asked.items() if value is not None},
        task_set=clean(_own_task_set(format_name, source) or format_name),
    )
    return _take_in(wanted, FORMATS[format_name], sessions_folder, ids, slots)


def _own_task_set(format_name: str, source: Source) -> str | None:
    named_by = TASK_SETS.get(format_name)
    return named_by(source) if named_by else None


def default_session_id(file: str) -> str:
    """Return the slug of a file's name without its endings such as .gz, .json; 'session' if that is empty."""
    name = file.lower()
    while name.endswith(_ENDINGS):
        name = name.rpartition(".")[0]
    slug = re.sub(r"[^a-z0-9._-]+", "-", name).lstrip("._-")[:128].rstrip("-")
    return slug or "session"


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise NoTranscriptsError(path, "is a folder")
    if not path.is_file():
        raise NoTranscriptsError(path, "is no regular file" if path.exists() else "does not exist")
    with suppress(*BREAKS), opened(path) as stream:
        if not stream.read(_HEAD).strip():
            raise NoTranscriptsError(path, "is empty")


def _take_in(
    wanted: _Wanted,
    importer: Importer,
    sessions_folder: Path,
    ids: AgentIds | None,
    slots: Slots | None,
) -> ImportReport:
    agent_folder = wanted.folder.parent
    if not Path(os.path.realpath(wanted.folder)).is_relative_to(os.path.realpath(sessions_folder)):
        raise OutsideProjectError(wanted.folder)
    agent_folder.mkdir(parents=True, exist_ok=True)
    with locked(agent_folder), _temporary(wanted.folder) as new:
        session_text = _session_text(wanted)
        ids = ids or AgentIds(agent_folder)
        found = importer(wanted.source)
        found = _with_slots(found, slots, wanted.source) if slots else found
        found = _new_to_agent(found, ids.elsewhere(wanted.folder.name), wanted.source.file)
        left_out = Counter[str]()
        before = conversation_ids(wanted.folder / CONVERSATIONS)
        seen = _Seen(not_seen=set(before))
        counted = seen.watching(_counting_left_out(found, left_out))
        n_imported, n_refused, refusals = _write_records(new, counted)
        _write(new / SESSION, session_text)
        n_lost = sum(n_records(refusal.line, refusal.reason) for refusal in refusals)
        is_worth_keeping = n_imported > 0 or (n_lost > 0 and not _has_conversations(wanted.folder))
        is_changed = is_worth_keeping and not _is_same(wanted.folder, new)
        if is_changed:
            _put_in_place(new, wanted.folder)
            ids.put(wanted.folder.name, seen.ids)
    with suppress(OSError):
        agent_folder.rmdir()  # only if it was created for nothing
    return ImportReport(
        session_id=wanted.folder.name,
        n_imported=n_imported,
        n_refused=n_refused,
        refusals=tuple(refusals),
        is_changed=is_changed,
        folder=wanted.folder,
        n_rewards_between=seen.n_between,
        n_passed=seen.n_passed,
        notes=tuple(
            f"{n} of {n_imported} conversations: goal and truth of the task definition are left out, because {why}."
            for why, n in sorted(left_out.items())
        )
        + _note_of_flags(seen.n_flags, n_imported)
        + tuple(f"{n:,} × {why}." for why, n in sorted(seen.left_out.items())),
        n_turns=seen.n_turns,
        n_contradicting=seen.n_contradicting,
        n_before=len(before),
        n_removed=len(seen.not_seen) if is_changed else 0,
    )


@dataclass
class _Seen:
    """Count the conversations of an import while they pass. `not_seen`: earlier ids that did not pass."""

    not_seen: set[str]
    n_passed: int = 0
    n_between: int = 0
    n_contradicting: int = 0
    n_flags: int = 0  # rewards that the file gives as true or false
    n_turns: int = 0
    ids: list[str] = field(default_factory=list[str])
    left_out: Counter[str] = field(default_factory=Counter[str])

    def watching(self, found: Iterator[Found]) -> Iterator[Conversation | Refusal]:
        """Yield the conversations and refusals, counting all items."""
        for item in found:
            if isinstance(item, LeftOut):
                self.left_out[item.reason] += 1
                continue
            if isinstance(item, Conversation):
                self.not_seen.discard(item.conversation_id)
                self.ids.append(item.conversation_id)
                self.n_turns += item.n_turns
                outcome = item.outcome
                self.n_passed += outcome.correct is True
                is_contradicting = has_contradicting_components(outcome.source)
                self.n_contradicting += is_contradicting
                is_open = outcome.classified == "unknown" and not is_contradicting
                self.n_between += is_open and is_between(outcome.reward)
                self.n_flags += isinstance(item.metadata.get(RECORDED_REWARD), bool)
            yield item


def _note_of_flags(n: int, n_imported: int) -> tuple[str, ...]:
    if not n:
        return ()
    return (f"{n} of {n_imported} conversations: the reward is true or false and is read as 1 or 0.",)


def _with_slots(found: Iterator[Found], slots: Slots, source: Source) -> Iterator[Found]:
    """Yield the found items; conversations get their slots."""
    for item in found:
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
    """Return the number of the record that a conversation was read from."""
    number = re.search(r"#(\d+) ", item.source or "")
    return int(number[1]) if number else 0


def _counting_left_out(found: Iterator[Found], left_out: Counter[str]) -> Iterator[Found]:
    """Yield the found items, counting why definitions of tasks were omitted."""
    for item in found:
        reason = item.metadata.get(DEFINITION_REFUSED) if isinstance(item, Conversation) else None
        if reason is not None:
            left_out[str(reason)] += 1
        yield item


@contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    """Yield a hidden folder beside the target, after removing the remains of a killed import."""
    new = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    try:
        yield new
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _session_text(wanted: _Wanted) -> bytes:
    """Return session.yaml: the existing one with the requested settings, or a new one.

    Raises:
        SessionExistsError: If the folder exists and was not written from this file.
    """
    settings = {"methodology_versions": "any", "task_set": wanted.task_set, **wanted.settings}
    notes = f"Imported from {wanted.origin}."
    try:
        if not wanted.folder.exists():
            return _dumped(Session.model_validate(settings | {"notes": notes}))
        _check_origin(wanted)
        old = read_session_file(wanted.folder)
        new = Session.model_validate({**old.model_dump(), **wanted.settings})
    except ValidationError as error:
        raise InvalidSessionError(explain(error, Session)) from error
    except YamlError as error:
        raise SessionExistsError(
            wanted.folder.name, wanted.agent_id, f"its {SESSION}: {error.reason}"
        ) from error
    return (wanted.folder / SESSION).read_bytes() if new == old else _dumped(new)


def _dumped(session: Session) -> bytes:
    fields = session.model_dump(mode="json", exclude_defaults=True)
    text: str = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=10**6)
    return text.encode()


def _has_conversations(folder: Path) -> bool:
    path = folder / CONVERSATIONS
    return path.is_file() and path.stat().st_size > 0


def _check_origin(wanted: _Wanted) -> None:
    path = wanted.folder / CONVERSATIONS
    if (wanted.folder / ERRORS).is_file() and not _has_conversations(wanted.folder):
        return  # an import whose records were all rejected
    first = next(json_lines(path, path.name), None) if path.is_file() else None
    value = first.value if isinstance(first, Record) else None
    match = _ORIGIN.fullmatch(str(value.get("source"))) if isinstance(value, dict) else None
    if match is None:
        reason = "it was not written by an import"
    elif match["origin"] != wanted.origin:
        reason = f"it holds the import of {match['origin']}, not of {wanted.origin}"
    else:
        return
    raise SessionExistsError(wanted.folder.name, wanted.agent_id, reason)


def _new_to_agent(found: Iterator[Found], taken: Elsewhere, file: str) -> Iterator[Found]:
    """Reject conversations that the agent already has: only one of the two sessions would be read."""
    for item in found:
        session = taken.get(id_key(item.conversation_id)) if isinstance(item, Conversation) else None
        if isinstance(item, Conversation) and session is not None:
            reason = f"conversation_id {item.conversation_id!r} is already in session {session!r} of this agent; give it an id of its own"
            yield Refusal(file, _number(item), reason)
        else:
            yield item


def _write_records(folder: Path, found: Iterator[Conversation | Refusal]) -> tuple[int, int, list[Refusal]]:
    """Stream conversations.jsonl, then import_errors.jsonl if needed; return the counts and refusals."""
    n_imported = n_refused = 0
    refusals: list[Refusal] = []
    with (folder / CONVERSATIONS).open("wb") as stream:
        for item in found:
            if isinstance(item, Refusal):
                n_refused += 1
                if n_refused <= MOST_TOLD:
                    refusals.append(item)
            else:
                stream.write(item.model_dump_json(exclude_defaults=True).encode() + b"\n")
                n_imported += 1
        sync_stream(stream)
    if n_more := n_refused - len(refusals):
        reason = f"{n_more:,} {MORE_REFUSED}; the first {MOST_TOLD:,} are listed one by one"
        refusals.append(Refusal(refusals[-1].file, 0, reason))
    if refusals:
        _write(folder / ERRORS, "".join(f"{dumps(vars(r))}\n" for r in refusals).encode())
    return n_imported, n_refused, refusals


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(content)
        sync_stream(stream)


def _is_same(old: Path, new: Path) -> bool:
    """Return whether identical files exist already."""
    pairs = [(old / name, new / name) for name in FILES]
    return all(
        filecmp.cmp(a, b, shallow=False) if a.is_file() and b.is_file() else a.exists() == b.exists()
        for a, b in pairs
    )


def _put_in_place(new: Path, folder: Path) -> None:
    """Move a new session atomically; in an existing one replace each file atomically and keep other files."""
    if not folder.exists():
        sync_folder(new)
        new.rename(folder)
    else:
        for name in FILES:
            if (new / name).exists():
                (new / name).replace(folder / name)
            else:
                (folder / name).unlink(missing_ok=True)
        sync_folder(folder)
    sync_folder(folder.parent)
