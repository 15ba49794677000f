"""Group records by what contains them: first by trace, then by the thread that any record of the trace names."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class TracePart(NamedTuple):
    """Describe where a record belongs. A thread is a session or conversation of several traces."""

    own: str | None
    parent: str | None
    trace: str | None
    thread: str | None


class Threads:
    """Know the trace and the thread of every record; the thread that a trace's root names counts before others."""

    def __init__(self, parts: Iterable[TracePart]) -> None:
        self._parents: dict[str, str] = {}
        self._traces: dict[str, str] = {}
        named: list[TracePart] = []
        for part in parts:
            if part.own and part.parent and part.own != part.parent:
                self._parents.setdefault(part.own, part.parent)
            if part.own and part.trace:
                self._traces.setdefault(part.own, part.trace)
            if part.thread:
                named.append(part)
        self._threads: dict[str, str] = {}
        for part in sorted(named, key=lambda part: part.parent is not None):
            if trace := self.trace(part):
                self._threads.setdefault(trace, str(part.thread))

    def trace(self, part: TracePart) -> str | None:
        """Return the trace of a record: the one that it names, else that of the record that encloses it."""
        at, seen = part.own, set[str]()
        found = part.trace
        parent = part.parent
        while found is None and parent is not None and parent not in seen:
            seen.add(parent)
            at, found = parent, self._traces.get(parent)
            parent = self._parents.get(parent)
        return found or at

    def key(self, part: TracePart) -> str | None:
        """Return the thread of a record's trace, else the trace."""
        trace = self.trace(part)
        return self._threads.get(trace, trace) if trace else part.thread

    @property
    def by_trace(self) -> Mapping[str, str]:
        """Return the thread of each trace that has one."""
        return self._threads
