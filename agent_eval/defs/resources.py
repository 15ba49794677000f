"""Resources build plain objects; only Dagster sees the resource."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import dagster as dg

from agent_eval.project import Project

_IN_HAND: ContextVar[Project | None] = ContextVar("project in hand", default=None)


@contextlib.contextmanager
def in_hand(project: Project) -> Iterator[None]:
    """Runs started within the block work on this very project: its settings, its one budget, its watcher."""
    token = _IN_HAND.set(project)
    try:
        yield
    finally:
        _IN_HAND.reset(token)


class ProjectResource(dg.ConfigurableResource[Project]):
    """The project: folders, settings, methodology versions, store. `root` empty: found by the root rule."""

    root: str | None = None

    def create_resource(self, context: dg.InitResourceContext) -> Project:
        return _IN_HAND.get() or Project.open(self.root)
