"""Define the pair that scores, judgments and gates belong to: one agent under one methodology version."""

from typing import NamedTuple, NewType

AgentId = NewType("AgentId", str)
MethodologyVersion = NewType("MethodologyVersion", str)


class AgentVersion(NamedTuple):
    """Identify one agent under one methodology version.

    The two ids have different types, so that a type checker detects swapped arguments. Values from table rows are plain
    strings; pass them to `of` by keyword.
    """

    agent_id: AgentId
    methodology_version: MethodologyVersion

    @property
    def key(self) -> str:
        """Return the partition key of the pair in Dagster, with the dimensions sorted by name."""
        return f"{self.agent_id}|{self.methodology_version}"

    @classmethod
    def of(cls, *, agent_id: str, methodology_version: str) -> "AgentVersion":
        """Build the pair from plain strings, e.g. from the values of a row."""
        return cls(AgentId(agent_id), MethodologyVersion(methodology_version))
