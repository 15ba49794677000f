"""Keep conversation ids unique across an agent's sessions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_eval.formats.streams import Record, json_lines
from agent_eval.transcripts.models import id_key
from agent_eval.transcripts.sessions import CONVERSATIONS


@dataclass(frozen=True)
class Elsewhere:
    """Look up which other session of the agent has an id."""

    sessions: Mapping[str, Mapping[str, None]]
    own: str

    def get(self, name: str) -> str | None:
        """Return the first other session with this id; None without one."""
        return next((session for session in self.sessions.get(name, ()) if session != self.own), None)


class AgentIds:
    """Hold the conversation ids of an agent's sessions; ids are unique within an agent.

    The session folders are read once; a command that imports many files passes the same object to each
    import.
    """

    def __init__(self, agent_folder: Path) -> None:
        paths = sorted(agent_folder.glob(f"[!.]*/{CONVERSATIONS}"))
        self._of = {path.parent.name: [id_key(name) for name in conversation_ids(path)] for path in paths}
        self._sessions: dict[str, dict[str, None]] = {}
        for session, names in self._of.items():
            self._note(session, names)

    def elsewhere(self, session: str) -> Elsewhere:
        """Return a view of the ids of all other sessions."""
        return Elsewhere(self._sessions, session)

    def put(self, session: str, names: Sequence[str]) -> None:
        """Record that a session now contains exactly these conversations."""
        for name in self._of.get(session, ()):
            self._sessions.get(name, {}).pop(session, None)
        self._of[session] = [id_key(name) for name in names]
        self._note(session, self._of[session])

    def _note(self, session: str, names: Sequence[str]) -> None:
        for name in names:
            self._sessions.setdefault(name, {}).setdefault(session)


def conversation_ids(path: Path) -> list[str]:
    """Return the distinct ids in a session's file of conversations; empty if it is missing."""
    records = json_lines(path, path.name) if path.is_file() else ()
    values = (record.value for record in records if isinstance(record, Record))
    names = (value.get("conversation_id") for value in values if isinstance(value, dict))
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))
