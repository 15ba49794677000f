"""Write the sessions of a benchmark: conversation by conversation while they are held, and in place once complete.

A session in progress is a hidden folder beside its target. Each finished conversation is one line, written and
flushed at once, and so is each reply in a conversation that is not finished: a killed run loses only the calls that were
in flight.
"""

import asyncio
import datetime
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from pydantic import JsonValue

from agent_eval.formats.atomic_files import sync_folder, sync_stream, write_atomically
from agent_eval.formats.refusals import Refusal
from agent_eval.formats.streams import json_lines
from agent_eval.simulate.call_record import CallRecord, RecordedReply, read_records
from agent_eval.transcripts.importers.session_files import line_of, put_in_place
from agent_eval.transcripts.models import Conversation, Session
from agent_eval.transcripts.sessions import CONVERSATIONS, SESSION, read_session_file

REPEATED = frozenset({"harness_error", "unexplained_error"})
"""Outcome classes of conversations that are held again: the agent may not have caused the failure."""
REPLIES = "replies.jsonl"
"""File in the folder of a session in progress with the replies of its unfinished conversations."""
INDEPENDENT = 3  # complete sessions that make up a test of repeatability


@dataclass
class SessionFolder:
    """Hold one session of a benchmark on disk."""

    folder: Path
    wanted: Sequence[str]  # ids of its conversations, in order
    finished: dict[str, Conversation] = field(default_factory=dict[str, Conversation])
    replies: dict[str, list[RecordedReply]] = field(default_factory=dict[str, list[RecordedReply]])
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def _partial(self) -> Path:
        return self.folder.with_name(f".{self.folder.name}.part")

    @property
    def missing(self) -> list[str]:
        """Return the ids of conversations that are to be held."""
        return [name for name in self.wanted if name not in self.finished]

    @property
    def is_in_place(self) -> bool:
        """Return whether the session is complete and can be ingested."""
        return (self.folder / SESSION).is_file() and not self._partial.exists()

    @property
    def is_sound(self) -> bool:
        """Return whether every conversation is finished without a failure that may be the harness's."""
        outcomes = {c.outcome.classified for c in self.finished.values()}
        return not self.missing and not outcomes & REPEATED

    def load(self) -> None:
        """Read the finished conversations and the replies of the others. A line that a kill cut off is dropped."""
        source = self._partial if self._partial.exists() else self.folder
        ended = {
            c.conversation_id: c for c in map(Conversation.model_validate, _values(source / CONVERSATIONS))
        }
        self.finished = {
            name: conversation
            for name, conversation in ended.items()
            if name in self.wanted and conversation.outcome.classified not in REPEATED
        }
        records = read_records(_values(source / REPLIES))
        self.replies = {name: replies for name, replies in records.items() if name not in ended}
        if source.exists() and (self.missing or source == self._partial):
            self._begin()

    def _begin(self) -> None:
        """Write the partial folder with the conversations that are kept."""
        self._partial.mkdir(parents=True, exist_ok=True)
        lines = b"".join(line_of(c) for c in self.finished.values())
        write_atomically(self._partial / CONVERSATIONS, lines.decode())

    async def add(self, conversation: Conversation) -> None:
        """Store a finished conversation; it is on disk when this returns."""
        async with self._lock:
            await asyncio.to_thread(self._append, line_of(conversation))
        self.finished[conversation.conversation_id] = conversation

    def record_of(self, conversation_id: str, is_repeated: bool) -> CallRecord:
        """Return the record of a conversation's calls; if it is repeated after a failure, it starts empty."""
        earlier = () if is_repeated else self.replies.get(conversation_id, ())
        return CallRecord(conversation_id, earlier, self._append_reply)

    def _append_reply(self, line: bytes) -> None:
        """Append a line. It begins with a line end, so that it is read even if a kill cut off the line before it."""
        self._partial.mkdir(parents=True, exist_ok=True)
        with (self._partial / REPLIES).open("ab") as stream:
            stream.write(b"\n" + line)

    def _append(self, line: bytes) -> None:
        self._partial.mkdir(parents=True, exist_ok=True)
        with (self._partial / CONVERSATIONS).open("ab") as stream:
            stream.write(line)
            sync_stream(stream)

    def complete(self, session: Session) -> None:
        """Put the session in place, with its conversations in order."""
        lines = b"".join(line_of(self.finished[name]) for name in self.wanted)
        write_atomically(self._partial / CONVERSATIONS, lines.decode())
        write_atomically(self._partial / SESSION, _yaml(session))
        (self._partial / REPLIES).unlink(missing_ok=True)
        put_in_place(self._partial, self.folder)
        for leftover in self._partial.iterdir() if self._partial.is_dir() else ():
            leftover.unlink()
        if self._partial.is_dir():
            self._partial.rmdir()
        sync_folder(self.folder.parent)


def _values(file: Path) -> Iterator[JsonValue]:
    """Yield the lines of a file as JSON values; none if the file does not exist."""
    lines = json_lines(file, file.name) if file.is_file() else ()
    yield from (line.value for line in lines if not isinstance(line, Refusal))


def disclose(folders: Iterable[SessionFolder]) -> None:
    """Set `repeatability_tested` in every session of a benchmark: true with three complete sessions, else false."""
    placed = [f for f in folders if f.is_in_place]
    is_tested = sum(f.is_sound for f in placed) >= INDEPENDENT
    for one in placed:
        session = read_session_file(one.folder)
        if session.methodology_versions != "any" and session.repeatability_tested != is_tested:
            changed = session.model_copy(update={"repeatability_tested": is_tested})
            write_atomically(one.folder / SESSION, _yaml(changed))


def u3_scope(conversations: Collection[Conversation]) -> str:
    """Return the U3 scope that the conversations show: multi_turn if one has several turns."""
    return "multi_turn" if any(c.n_turns > 1 for c in conversations) else "single_message"


def benchmark_of(agent_folder: Path, suite: str, key: str, now: datetime.datetime) -> str:
    """Return the benchmark id of an earlier run with this key, finished or not, else a new one that sorts after it."""
    pattern = re.compile(rf"\.?({re.escape(suite)}-\d{{8}}t\d{{6}}z-{key})-\d+(\.part)?")
    names = sorted(path.name for path in agent_folder.iterdir()) if agent_folder.is_dir() else []
    earlier = [name_match[1] for name in names if (name_match := pattern.fullmatch(name))]
    return max(earlier, default=f"{suite}-{now:%Y%m%dt%H%M%Sz}-{key}")


def _yaml(session: Session) -> str:
    values = session.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=10**6)
