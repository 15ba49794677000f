"""Resources build plain objects; only Dagster sees the resource."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace

import dagster as dg

from agent_eval.project import Project
from agent_eval.project.data_versions import Sources, read_sources
from agent_eval.project.project import Origin


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


def is_automatic(run: dg.DagsterRun) -> bool:
    """Whether a sensor or a schedule started a run."""
    return bool({"dagster/sensor_name", "dagster/schedule_name"} & run.tags.keys())


def opened_for(root: str | None, run: dg.DagsterRun | None) -> Project:
    """The project at `root`, which asks judges in the name of the run."""
    project = Project.open(root)
    return replace(project, origin=Origin(run.run_id, is_automatic(run))) if run else project


def project_of_run(root: str | None, run: dg.DagsterRun | None) -> InHand:
    """The project in hand, else the one at `root`, with its sources as they are now.

    Versions that were edited after they were frozen are left out: nothing of them is read or made.
    """
    if held := _IN_HAND.get():
        return held
    project = opened_for(root, run)
    versions = [v for v in project.registry.versions if v not in project.registry.edited()]
    return InHand(project, read_sources(project, project.known_agents(), versions))


class ProjectResource(dg.ConfigurableResource[Project]):
    """The project: folders, settings, methodology versions, store. `root` empty: found by the root rule."""

    root: str | None = None

    def create_resource(self, context: dg.InitResourceContext) -> Project:
        held = _IN_HAND.get()
        return held.project if held else opened_for(self.root, context.run)
