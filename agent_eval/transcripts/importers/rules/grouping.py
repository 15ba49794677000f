"""Group records by what contains them: first by trace, then by the thread that any record of the trace names."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class TracePart(NamedTuple):
    """Describe where a record belongs. A thread is a session or conversation of several traces."""

    own: str | None
    parent: str | None
    trace: str | None
    thread: str | None


def subagent_key(key: str | None, subagent: str | None) -> str | None:
    """Return the key of a subagent's conversation, or the key unchanged if there is no subagent."""
    return key if subagent is None else f"{key}/{subagent}"


class RunTree:
    """Know which records enclose which, to tell apart the model calls of an agent and those of its subagents.

    Model calls inside a tool run are those of a subagent, whose conversation is separate, if the trace also has model
    calls outside of tool runs.
    """

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}
        self._traces: dict[str, str | None] = {}
        self._tools: set[str] = set()
        self._calls: set[str] = set()
        self._agents: set[str] | None = None

    def add(
        self, own: str | None, parent: str | None, trace: str | None, *, is_tool: bool, is_call: bool
    ) -> None:
        """Add a record of a trace; one without an id is not part of the tree."""
        if own is None:
            return
        self._traces.setdefault(own, trace)
        if parent is not None and parent != own:
            self._parents.setdefault(own, parent)
        self._tools |= {own} if is_tool else set()
        self._calls |= {own} if is_call else set()

    def around(self, own: str | None) -> list[str]:
        """Return the records that enclose a record, innermost first."""
        enclosing: dict[str, None] = {}
        at = self._parents.get(own) if own is not None else None
        while at is not None and at not in enclosing:
            enclosing[at] = None
            at = self._parents.get(at)
        return [*enclosing]

    def subagent(self, own: str | None) -> str | None:
        """Return the tool run that runs the subagent to which a record belongs; None for the main agent."""
        if self._agents is None:
            self._agents = self._found()
        return (
            next((tool for tool in self.around(own) if tool in self._agents), None) if self._agents else None
        )

    def _found(self) -> set[str]:
        """Return the tool runs that enclose model calls, if their traces have other model calls too."""
        inside: dict[str, str | None] = {}
        outside: set[str | None] = set()
        for call in self._calls:
            tool = next((place for place in self.around(call) if place in self._tools), None)
            if tool is None:
                outside.add(self._traces[call])
            else:
                inside[tool] = self._traces[call]
        return {tool for tool, trace in inside.items() if trace in outside}


class Threads:
    """Know the trace and the thread of every record; the thread that a trace's root names counts before others."""

    def __init__(self, parts: Iterable[TracePart]) -> None:
        self._parents: dict[str, str] = {}
        self._traces: dict[str, str] = {}
        parts_with_session: list[TracePart] = []
        for part in parts:
            if part.own and part.parent and part.own != part.parent:
                self._parents.setdefault(part.own, part.parent)
            if part.own and part.trace:
                self._traces.setdefault(part.own, part.trace)
            if part.thread:
                parts_with_session.append(part)
        self._threads: dict[str, str] = {}
        for part in sorted(parts_with_session, key=lambda part: part.parent is not None):
            if trace := self.trace(part):
                self._threads.setdefault(trace, str(part.thread))

    def trace(self, part: TracePart) -> str | None:
        """Return the trace of a record: the one that it names, else that of the record that encloses it."""
        at, visited = part.own, set[str]()
        trace = part.trace
        parent = part.parent
        while trace is None and parent is not None and parent not in visited:
            visited.add(parent)
            at, trace = parent, self._traces.get(parent)
            parent = self._parents.get(parent)
        return trace or at

    def key(self, part: TracePart) -> str | None:
        """Return the thread of a record's trace, else the trace."""
        trace = self.trace(part)
        return self._threads.get(trace, trace) if trace else part.thread

    @property
    def by_trace(self) -> Mapping[str, str]:
        """Return the thread of each trace that has one."""
        return self._threads
