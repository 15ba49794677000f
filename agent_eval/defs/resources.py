"""Define the project resource, which provides a plain object, so that other packages do not depend on Dagster."""

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace

import dagster as dg

from agent_eval.defs.partitions import VERSIONS
from agent_eval.project import Project
from agent_eval.project.data_versions import Sources, read_sources
from agent_eval.project.project import Origin
from agent_eval.storage import RunScope
from agent_eval.tables import TABLES

RANGE_TAGS = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")


@dataclass(frozen=True)
class InHand:
    """Hold the project that runs of this process use, and its sources as read before these runs."""

    project: Project
    sources: Sources


_IN_HAND: ContextVar[InHand | None] = ContextVar("project in hand", default=None)


@contextlib.contextmanager
def use_project(project: Project, sources: Sources) -> Iterator[None]:
    """Make runs that start within the block use this project object, with its settings, budget and watcher."""
    token = _IN_HAND.set(InHand(project, sources))
    try:
        yield
    finally:
        _IN_HAND.reset(token)


def is_project_in_hand() -> bool:
    """Return whether runs of this process use a project object that `use_project` provides."""
    return _IN_HAND.get() is not None


def is_automatic(run: dg.DagsterRun) -> bool:
    """Return whether a sensor or a schedule started the run."""
    return bool({"dagster/sensor_name", "dagster/schedule_name"} & run.tags.keys())


def opened_for(root: str | None, run: dg.DagsterRun | None) -> Project:
    """Return the project at `root`, with the run as the origin of judge calls."""
    project = Project.open(root)
    return replace(project, origin=Origin(run.run_id, is_automatic(run))) if run else project


def project_of_run(root: str | None, run: dg.DagsterRun | None) -> InHand:
    """Return the project in use by this process, else the one at `root` with its current sources.

    Versions that were edited after they were frozen are omitted: they are neither read nor computed.
    """
    if in_hand := _IN_HAND.get():
        return in_hand
    project = opened_for(root, run)
    versions = [v for v in project.registry.versions if v not in project.registry.edited()]
    return InHand(project, read_sources(project, project.known_agents(), versions))


def scope_of_run(context: dg.InitResourceContext) -> RunScope | None:
    """Return the agents and versions that a run is limited to; None if it may read the rows of other agents.

    Gates can compare an agent with another one.
    """
    run, selected = context.run, context.run.asset_selection if context.run else None
    if run is None or not selected or not all(map(is_by_agent, selected)):
        return None
    first, last = (run.tags.get(tag) or run.tags.get("dagster/partition", "") for tag in RANGE_TAGS)
    agent_keys = context.instance.get_dynamic_partitions("agent") if context.instance else ()
    (from_agent, _, from_version), (to_agent, _, to_version) = (key.partition("|") for key in (first, last))
    agents = _between(agent_keys, from_agent, to_agent)
    if agents is None:
        return None
    if not all("methodology_version" in TABLES[asset.path[-1]].partition for asset in selected):
        return RunScope(agents)
    return RunScope(agents, _between(VERSIONS.get_partition_keys(), from_version, to_version))


def _between(keys: Sequence[str], first: str, last: str) -> list[str] | None:
    """Return the keys from `first` to `last`; None if `first` or `last` is not among the keys."""
    return [*keys[keys.index(first) : keys.index(last) + 1]] if {first, last} <= {*keys} else None


def is_by_agent(asset: dg.AssetKey) -> bool:
    """Return whether a run of this asset can be limited to some agents: each row is made from rows of its own agent."""
    name = asset.path[-1]
    return name != "gate_results" and name in TABLES and "agent_id" in TABLES[name].partition


class ProjectResource(dg.ConfigurableResource[Project]):
    """Provide the project: folders, settings, methodology versions and store.

    If `root` is None, the root rule finds the project.
    """

    root: str | None = None

    def create_resource(self, context: dg.InitResourceContext) -> Project:
        """Return the project in use by this process, else the one at `root`."""
        in_hand = _IN_HAND.get()
        return in_hand.project if in_hand else opened_for(self.root, context.run)
