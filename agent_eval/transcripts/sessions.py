"""Read an agent's session folders in native format into frames and a list of rejected records."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import polars as pl
from pydantic import ValidationError

from agent_eval.formats.files import Bounds, astray, entries
from agent_eval.formats.hashing import canonical
from agent_eval.formats.json_text import clean, dumps
from agent_eval.formats.refusals import Refusal
from agent_eval.formats.streams import MEGABYTE, Record, json_lines
from agent_eval.formats.validation_messages import LONGEST, explain, first_problem, shorten
from agent_eval.formats.yaml import YamlError, read_document, read_text
from agent_eval.tables import table
from agent_eval.transcripts.agents import add_agent, read_agents
from agent_eval.transcripts.frames import ConversationRows, Row, Rows
from agent_eval.transcripts.models import Agent, Conversation, Session, id_key, too_large
from agent_eval.transcripts.outcomes import with_causes_read, with_rewards_read

__all__ = [
    "IngestedSession",
    "add_agent",
    "agent_ids",
    "n_conversations",
    "read_agents",
    "read_session_file",
    "read_sessions",
    "sessions_hash",
]

SESSION, CONVERSATIONS, ERRORS = "session.yaml", "conversations.jsonl", "import_errors.jsonl"
FILES = (SESSION, CONVERSATIONS, ERRORS)


@dataclass(frozen=True)
class IngestedSession:
    """Hold one agent's sessions; each field is a frame of the table with the same name."""

    conversations: pl.DataFrame
    turns: pl.DataFrame
    tool_calls: pl.DataFrame
    sessions: pl.DataFrame
    import_errors: pl.DataFrame


def agent_ids(sessions_folder: Path) -> tuple[list[str], list[Refusal]]:
    """Return the sorted ids of agents with a folder here, and a `Refusal` for each entry that is not such a folder."""
    names: list[str] = []
    refusals: list[Refusal] = []
    bounds = Bounds.of(sessions_folder)
    if reason := astray(sessions_folder):
        refusals.append(Refusal(sessions_folder.name, 0, reason))
    for entry in entries(sessions_folder):
        if reason := bounds.refused_folder(entry, "agent"):
            refusals.append(Refusal(clean(entry.name), 0, reason))
        else:
            names.append(entry.name)
    return names, refusals


def read_sessions(
    agent_id: str,
    folder: Path,
    success_reward: float | None = None,
    policy: str | None = None,
    error_causes: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> IngestedSession:
    """Read an agent's sessions from `folder`/<session_id>/{session.yaml, conversations.jsonl}.

    A missing folder contains no sessions. Invalid parts become rows of `import_errors`, and the rest is read.
    A session with an invalid session.yaml is omitted entirely; an invalid line is omitted individually. If several
    conversations have the same id, only the first one counts, in order of session id and line.

    Args:
        agent_id: The agent.
        folder: The folder of its sessions.
        success_reward: Minimum reward that counts as a success if nothing else decides; None: 1.
        policy: The rules given to the agent, for conversations that do not contain a policy.
        error_causes: The project's own regexes of errors whose cause is known, by class; see `with_causes_read`.
    """
    reader = _SessionReader(agent_id, Bounds.of(folder.parent), policy)
    if folder.exists() and (reason := reader.bounds.refused_folder(folder, "agent")):
        reader.refuse(None, Refusal(clean(folder.name), 0, reason))
        return reader.ingested()
    for entry in entries(folder):
        if reason := reader.bounds.refused_folder(entry, "session"):
            reader.refuse(None, Refusal(clean(entry.name), 0, reason))
        else:
            reader.take(entry)
    return reader.ingested(success_reward, error_causes)


def sessions_hash(agent: Agent | None, folder: Path) -> str:
    """Return a hash (32 hex digits) of an agent's entry in agents.yaml and of everything `read_sessions` reads.

    File names and contents are hashed; modification times and directory order are not. A missing folder has the
    same hash as an empty one.
    """
    bounds = Bounds.of(folder.parent)
    state = hashlib.blake2b(canonical(agent.model_dump(mode="json") if agent else None), digest_size=16)
    if folder.exists() and (reason := bounds.refused_folder(folder, "agent")):
        state.update(canonical(reason))
        return state.hexdigest()
    for entry in entries(folder):
        reason = bounds.refused_folder(entry, "session")
        files = [] if reason else [[name, _file_hash(bounds, entry / name)] for name in FILES]
        state.update(canonical([entry.name, reason, files]))
    return state.hexdigest()


def n_conversations(folder: Path) -> int:
    """Return the number of conversations in an agent's session folders, counted as lines of the files."""
    bounds = Bounds.of(folder.parent)
    if bounds.refused_folder(folder, "agent"):
        return 0
    files = [e / CONVERSATIONS for e in entries(folder) if not bounds.refused_folder(e, "session")]
    return sum(_n_lines(file) for file in files if not bounds.refused_file(file))


def _n_lines(path: Path) -> int:
    try:
        with path.open("rb") as stream:
            return sum(block.count(b"\n") for block in iter(lambda: stream.read(MEGABYTE), b""))
    except OSError:
        return 0  # the reader reports it


def read_session_file(folder: Path) -> Session:
    """Read the session.yaml of one session folder.

    Raises:
        YamlError: If the file is missing, not YAML, or not a valid session; the reason contains the key, with its line.
    """
    path = folder / SESSION
    if reason := Bounds.of(folder.parent.parent).refused_file(path):
        raise YamlError(reason)
    document = read_document(read_text(path), "typed")
    value = {} if document.value is None else document.value
    if not isinstance(value, dict):
        raise YamlError("expected a mapping with the key methodology_versions", 1)
    try:
        session = Session.model_validate(value)
    except ValidationError as error:
        location, problem = first_problem(error, Session)
        locations = [
            (key,) for key in value if isinstance(key, str) and key in problem
        ]  # a problem of several keys
        raise YamlError(problem, document.line_of(location or next(iter(locations), ())) or 1) from error
    if future := session.future_date():
        raise YamlError(f"{future}; correct the date", document.line_of(("date",)) or 1)
    if session.session_id not in (None, folder.name):
        raise YamlError(
            f"session_id is {session.session_id!r} in the folder {folder.name!r}; rename one, or remove the key",
            document.line_of(("session_id",)) or 1,
        )
    return session


def line_in_session_file(folder: Path, key: str, entry: str | None = None) -> int:
    """Return the line of a key in the session.yaml of a session folder, or of an entry of its list.

    It is 0 if the file cannot be read.
    """
    try:
        document = read_document(read_text(folder / SESSION), "typed")
    except YamlError:
        return 0
    listed = document.value.get(key) if isinstance(document.value, dict) else None
    at = (key, listed.index(entry)) if isinstance(listed, list) and entry in listed else (key,)
    return document.line_of(at) or 0


@dataclass
class _SessionReader:
    """Collect the sessions of one agent while reading them."""

    agent_id: str
    bounds: Bounds
    policy: str | None = None
    rows: ConversationRows = field(default_factory=ConversationRows)
    sessions: Rows = field(default_factory=lambda: Rows("sessions"))
    errors: Rows = field(default_factory=lambda: Rows("import_errors"))
    session_of: dict[str, str] = field(default_factory=dict[str, str])

    def take(self, folder: Path) -> None:
        """Read one session folder."""
        try:
            session = read_session_file(folder)
        except YamlError as error:
            reason = shorten(f"{error.reason}; the whole session is omitted")
            line = error.line or int(
                (folder / CONVERSATIONS).is_file()
            )  # conversations are a record that is lost
            self.refuse(folder.name, Refusal(f"{folder.name}/{SESSION}", line, reason))
            return
        self.sessions.add(_session_row(self.agent_id, folder.name, session))
        for refusal in self._conversations(folder, session.task_set):
            self.refuse(folder.name, refusal)
        for refusal in self._earlier_refusals(folder):
            self.refuse(folder.name, refusal)

    def refuse(self, session_id: str | None, refusal: Refusal) -> None:
        """Record one rejected record or folder; `session_id` is None if the folder is not a session folder."""
        row: Row = {"agent_id": self.agent_id, "session_id": session_id, **vars(refusal)}
        self.errors.add(row)

    def ingested(
        self,
        success_reward: float | None = None,
        error_causes: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> IngestedSession:
        """Return the frames; sessions whose outcomes cannot be determined are reported as import errors."""
        explained = with_causes_read(self.rows.conversations.frame(), error_causes)
        conversations, unreadable = with_rewards_read(explained, success_reward)
        for session_id, refusal in unreadable:
            self.refuse(session_id, refusal)
        return IngestedSession(
            conversations=table("conversations").conform(conversations),
            turns=self.rows.turns.frame(),
            tool_calls=self.rows.tool_calls.frame(),
            sessions=self.sessions.frame(),
            import_errors=self.errors.frame(is_distinct=True),
        )

    def _conversations(self, folder: Path, task_set: str | None) -> Iterator[Refusal]:
        path, file = folder / CONVERSATIONS, f"{folder.name}/{CONVERSATIONS}"
        if reason := self.bounds.refused_file(path):
            yield Refusal(file, 0, reason)
            return
        is_empty = True
        for record in json_lines(path, file):
            is_empty = False
            if isinstance(record, Refusal):
                yield record
            elif reason := self._take_line(folder.name, task_set, record):
                yield Refusal(file, record.number, reason)
        if is_empty and not (folder / ERRORS).is_file():  # otherwise the import errors give the reason
            yield Refusal(file, 0, "the file contains no conversations; expected one JSON object per line")

    def _earlier_refusals(self, folder: Path) -> Iterator[Refusal]:
        """Yield the rejected records that the importer stored with the session."""
        path, file = folder / ERRORS, f"{folder.name}/{ERRORS}"
        if not path.exists() and not path.is_symlink():
            return
        if reason := self.bounds.refused_file(path):
            yield Refusal(file, 0, reason)
            return
        for record in json_lines(path, file):
            yield record if isinstance(record, Refusal) else _earlier(record, file)

    def _take_line(self, session_id: str, task_set: str | None, record: Record) -> str | None:
        """Ingest one line; return the reason if it is rejected, else None."""
        value = record.value
        if not isinstance(value, dict):
            return 'the line is not a JSON object; expected {"conversation_id": …, "messages": […]}'
        messages = value.get("messages")
        if reason := too_large(record.size, len(messages) if isinstance(messages, list) else 0):
            return reason
        try:
            conversation = Conversation.model_validate(value)
        except ValidationError as error:
            return explain(error, Conversation)
        if problem := conversation.problem():
            return problem
        name = conversation.conversation_id
        if first := self.session_of.get(id_key(name)):
            where = "twice in this session" if first == session_id else f"already in session {first!r}"
            rule = "ids must be unique within an agent, and only the first conversation counts"
            return shorten(f"conversation_id {name[:80]!r} is {where}; {rule}")
        self.session_of[id_key(name)] = session_id
        if self.policy is not None and conversation.policy is None:
            metadata = {**conversation.metadata, "policy": self.policy}
            conversation = conversation.model_copy(update={"metadata": metadata})
        self.rows.add(self.agent_id, session_id, task_set, conversation, record.number)
        return None


def _session_row(agent_id: str, session_id: str, session: Session) -> Row:
    versions = session.methodology_versions
    return {
        "agent_id": agent_id,
        "session_id": session_id,
        "benchmark_id": session.benchmark_id or session_id,
        "session_date": session.date,
        "methodology_versions": [versions] if isinstance(versions, str) else list(versions),
        "links": dumps(session.links),
        **session.model_dump(
            include={
                "session_run",
                "evaluator",
                "u3_scope",
                "repeatability_tested",
                "task_set",
                "invalid_reason",
            }
        ),
    }


def _earlier(record: Record, file: str) -> Refusal:
    match record.value:
        case {"file": str(source), "line": int(line), "reason": str(reason)} if abs(line) < 2**63:
            return Refusal(source[:LONGEST], line, shorten(reason))
    return Refusal(
        file, record.number, "expected an object with the texts file and reason and the number line"
    )


def _file_hash(bounds: Bounds, path: Path) -> str:
    """Return the hash of a file's content, or the reason why the file is not read."""
    if reason := bounds.refused_file(path):
        return reason
    state = hashlib.blake2b(digest_size=16)
    try:
        with path.open("rb") as stream:
            while block := stream.read(MEGABYTE):
                state.update(block)
    except OSError as error:
        return f"unreadable: {error.strerror}"
    return state.hexdigest()
