"""Define the pair that scores, judgments and gates belong to: one agent under one methodology version."""

from typing import NamedTuple, NewType

AgentId = NewType("AgentId", str)
MethodologyVersion = NewType("MethodologyVersion", str)


class AgentVersion(NamedTuple):
    """Identify one agent under one methodology version.

    The two ids have types of their own, so that values of these types cannot be swapped. Values from the row of a table
    have no such type: pass those by name, to `of`.
    """

    agent_id: AgentId
    methodology_version: MethodologyVersion

    @property
    def key(self) -> str:
        """Return the partition key of the pair in Dagster, with the dimensions sorted by name."""
        return f"{self.agent_id}|{self.methodology_version}"

    @classmethod
    def of(cls, *, agent_id: str, methodology_version: str) -> "AgentVersion":
        """Build the pair from plain texts, e.g. of a row."""
        return cls(AgentId(agent_id), MethodologyVersion(methodology_version))
