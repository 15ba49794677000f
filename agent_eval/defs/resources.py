"""Resources build plain objects; only Dagster sees the resource."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

import dagster as dg

from agent_eval.project import Project
from agent_eval.project.data_versions import Sources, read_sources


@dataclass(frozen=True)
class InHand:
    """The project that runs of this process work on, and its sources as they were read beforehand."""

    project: Project
    sources: Sources


_IN_HAND: ContextVar[InHand | None] = ContextVar("project in hand", default=None)


@contextlib.contextmanager
def in_hand(project: Project, sources: Sources) -> Iterator[None]:
    """Runs started within the block work on this very project: its settings, its one budget, its watcher."""
    token = _IN_HAND.set(InHand(project, sources))
    try:
        yield
    finally:
        _IN_HAND.reset(token)


def project_of_run(root: str | None) -> InHand:
    """The project in hand, else the one at `root`, with its sources as they are now.

    Versions that were edited after they were frozen are left out: nothing of them is read or made.
    """
    if held := _IN_HAND.get():
        return held
    project = Project.open(root)
    versions = [v for v in project.registry.versions if v not in project.registry.edited()]
    return InHand(project, read_sources(project, project.known_agents(), versions))


class ProjectResource(dg.ConfigurableResource[Project]):
    """The project: folders, settings, methodology versions, store. `root` empty: found by the root rule."""

    root: str | None = None

    def create_resource(self, context: dg.InitResourceContext) -> Project:
        held = _IN_HAND.get()
        return held.project if held else Project.open(self.root)
