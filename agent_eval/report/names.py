"""Build the path of each page of the report from ids, safe on every file system."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

TURNS_PER_PAGE = 100
CONVERSATIONS_PER_PAGE = 1_000
_LONGEST = 48  # characters of an id that stay readable in a file's name


def file_name(*ids: str) -> str:
    """Return a file name for untrusted ids: the readable part of the last one, and a hash of all.

    Only a–z, 0–9, '-' occur; ids that differ in a sign or in case have different names.
    """
    readable = re.sub(r"[^a-z0-9]+", "-", ids[-1].lower()).strip("-")[:_LONGEST].strip("-")
    joined = "".join(f"{len(part)}:{part}" for part in ids)
    digest = hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{readable}-{digest}" if readable else digest


@dataclass(frozen=True)
class Paths:
    """Build the paths of pages in the report's folder; `shown` is the version of index.html."""

    shown: str

    def board(self, version: str) -> str:
        """Return the board of a version."""
        return "index.html" if version == self.shown else self.permanent_board(version)

    @staticmethod
    def permanent_board(version: str) -> str:
        """Return the board of a version at an address that stays when another version is shown first."""
        return f"boards/{version}/index.html"

    @staticmethod
    def side_by_side(version: str) -> str:
        """Return the page of a version's agents side by side."""
        return f"boards/{version}/side-by-side.html"

    @staticmethod
    def calibration(version: str) -> str:
        """Return the page that compares a version's judges with people."""
        return f"boards/{version}/calibration.html"

    @staticmethod
    def download(version: str, name: str, kind: str) -> str:
        """Return a table of a version's board as a file of a kind: csv or json."""
        return f"boards/{version}/{name.replace('_', '-')}.{kind}"

    def agent(self, agent_id: str, version: str, part: int = 0) -> str:
        """Return an agent under a version, or from `part` 1 on the rest of a long conversation list."""
        return f"agents/{version}/{file_name(agent_id)}{_number(part)}.html"

    def agent_under(self, agent_id: str) -> Callable[[str], str]:
        """Return the page of the agent under each version."""
        return partial(self.agent, agent_id)

    def conversation(self, agent_id: str, conversation_id: str, turn_index: int | None = None) -> str:
        """Return a conversation, or one of its turns; long conversations are parted into several pages."""
        part = 0 if turn_index is None else turn_index // TURNS_PER_PAGE
        anchor = "" if turn_index is None else f"#turn-{turn_index}"
        return f"{self.conversation_part(agent_id, conversation_id, part)}{anchor}"

    def conversation_part(self, agent_id: str, conversation_id: str, part: int) -> str:
        """Return the path of page `part` (from 0) of a conversation."""
        return (
            f"conversations/{file_name(agent_id)}/{file_name(agent_id, conversation_id)}{_number(part)}.html"
        )

    def source(self, agent_id: str, conversation_id: str) -> str:
        """Return the record of a conversation's source file; only the served report has this page."""
        return f"sources/{file_name(agent_id)}/{file_name(agent_id, conversation_id)}.html"

    def methodology(self, version: str) -> str:
        """Return a version's rubric and rules."""
        return f"methodology/{version}.html"

    def diff(self, before: str, after: str) -> str:
        """Return the page of changes between two versions."""
        return f"methodology/{before}-to-{after}.html"

    @property
    def about(self) -> str:
        """Return the page about the report."""
        return "about.html"


def _number(part: int) -> str:
    """Return what the name of a later part ends with."""
    return f".{part + 1}" if part else ""
