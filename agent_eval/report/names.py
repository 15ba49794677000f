"""Build the paths of the report's pages from ids; the paths are valid on every file system."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

TURNS_PER_PAGE = 100
CONVERSATIONS_PER_PAGE = 1_000
_LONGEST = 48  # maximum length of the readable part of a file name


def file_name(*ids: str) -> str:
    """Return a file name for untrusted ids: the readable part of the last id, and a hash of all ids.

    The name contains only a–z, 0–9 and '-'. Ids that differ in any character or in case have different names.
    """
    readable = re.sub(r"[^a-z0-9]+", "-", ids[-1].lower()).strip("-")[:_LONGEST].strip("-")
    joined = "".join(f"{len(part)}:{part}" for part in ids)
    digest = hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{readable}-{digest}" if readable else digest


@dataclass(frozen=True)
class Paths:
    """Build the paths of pages relative to the report's folder; `shown` is the version of index.html."""

    shown: str

    def board(self, version: str) -> str:
        """Return the path of a version's board."""
        return "index.html" if version == self.shown else self.permanent_board(version)

    @staticmethod
    def permanent_board(version: str) -> str:
        """Return the permanent path of a version's board, which does not depend on the version of index.html."""
        return f"boards/{version}/index.html"

    @staticmethod
    def side_by_side(version: str) -> str:
        """Return the path of the page that shows a version's agents side by side."""
        return f"boards/{version}/side-by-side.html"

    @staticmethod
    def logs(version: str) -> str:
        """Return the path of the page of a version's agents whose conversations fill no slot."""
        return f"boards/{version}/logs.html"

    @staticmethod
    def errors(version: str) -> str:
        """Return the path of the list of a version's error clusters."""
        return f"boards/{version}/errors.html"

    @staticmethod
    def calibration(version: str) -> str:
        """Return the path of the page that compares a version's judges with people."""
        return f"boards/{version}/calibration.html"

    @staticmethod
    def download(version: str, name: str, kind: str) -> str:
        """Return the path of a table's download for a version; `kind` is csv or json."""
        return f"boards/{version}/{name.replace('_', '-')}.{kind}"

    def agent(self, agent_id: str, version: str, part: int = 0) -> str:
        """Return the path of an agent's page under a version.

        From `part` 1 on, the pages contain the rest of a long list of conversations.
        """
        return f"agents/{version}/{file_name(agent_id)}{_number(part)}.html"

    def agent_under(self, agent_id: str) -> Callable[[str], str]:
        """Return a function that maps a version to the path of the agent's page."""
        return partial(self.agent, agent_id)

    def conversation(
        self,
        agent_id: str,
        conversation_id: str,
        turn_index: int | None = None,
        message_index: int | None = None,
    ) -> str:
        """Return the path of a conversation, of one of its turns, or of the message that a judgment of these cites.

        Long conversations have several pages. If the message is on an earlier page than the judged turn, the page of
        the turn links to it.
        """
        part = 0 if turn_index is None else turn_index // TURNS_PER_PAGE
        anchor = "" if turn_index is None else f"#turn-{turn_index}"
        anchor = anchor if message_index is None else f"#message-{message_index}"
        return f"{self.conversation_part(agent_id, conversation_id, part)}{anchor}"

    def conversation_part(self, agent_id: str, conversation_id: str, part: int) -> str:
        """Return the path of page `part` (from 0) of a conversation."""
        return (
            f"conversations/{file_name(agent_id)}/{file_name(agent_id, conversation_id)}{_number(part)}.html"
        )

    def source(self, agent_id: str, conversation_id: str) -> str:
        """Return the path of a conversation's source record; only the served report has this page."""
        return f"sources/{file_name(agent_id)}/{file_name(agent_id, conversation_id)}.html"

    @staticmethod
    def asset(table: str, *key: str) -> str:
        """Return the path of the page of an asset's partition; only the served report has this page."""
        return f"tables/{table}/{file_name(*key)}.html"

    def methodology(self, version: str) -> str:
        """Return the path of the page with a version's rubrics and rules."""
        return f"methodology/{version}.html"

    def diff(self, before: str, after: str) -> str:
        """Return the path of the page with the changes between two versions."""
        return f"methodology/{before}-to-{after}.html"

    @property
    def search(self) -> str:
        """Return the path of the list of all conversations."""
        return "conversations.html"

    @property
    def about(self) -> str:
        """Return the path of the page about the report."""
        return "about.html"


def _number(part: int) -> str:
    """Return the suffix of a part's file name; empty for the first part."""
    return f".{part + 1}" if part else ""
