"""Which pairs Dagster has brought up to date, by any door: the UI, a backfill, automation, the command.

A pair is settled when every asset of it is younger than all that it is made from, and its boards are younger than the
pair. Younger means a later event. That is exact because runs work on a store one after the other and sources are
observed only between runs (see docs/decisions/0012).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from agent_eval.defs.partitions import Shape, partition_key, shape_of
from agent_eval.tables.agent_version import AgentVersion

Events = Mapping[str, int]
"""Partition → storage id of its latest event."""


@dataclass(frozen=True)
class _Node:
    """An asset that is made, the shape of its partitions and what it is made from."""

    name: str
    shape: Shape
    parents: tuple[str, ...]


def settled_pairs(
    instance: dg.DagsterInstance,
    repository: dg.RepositoryDefinition,
    agents: Sequence[str],
    versions: Sequence[str],
) -> list[AgentVersion]:
    """The pairs of these agents and versions for which nothing is missing and nothing is older than its input."""
    graph = repository.asset_graph
    found = {key.path[-1]: shape_of(graph.get(key).partitions_def) for key in graph.get_all_asset_keys()}
    shapes = {name: shape for name, shape in found.items() if shape != "whole"}  # it is of no single pair
    nodes = [
        _Node(key.path[-1], shapes[key.path[-1]], tuple(p.path[-1] for p in graph.get(key).parent_keys))
        for key in graph.materializable_asset_keys
        if key.path[-1] in shapes
    ]
    made = {key.path[-1] for key in graph.materializable_asset_keys}
    events = {
        name: instance.get_latest_storage_id_by_partition(
            dg.AssetKey(name),
            dg.DagsterEventType.ASSET_MATERIALIZATION if name in made else dg.DagsterEventType.ASSET_OBSERVATION,
        )
        for name in shapes
    }  # fmt: skip
    pairs = [
        AgentVersion.of(agent_id=agent, methodology_version=version)
        for agent in agents
        for version in versions
    ]
    return [pair for pair in pairs if all(_in_order(node, pair, shapes, events) for node in nodes)]


def _in_order(
    node: _Node, pair: AgentVersion, shapes: Mapping[str, Shape], events: Mapping[str, Events]
) -> bool:
    made_at = events[node.name].get(_partition(node.shape, pair))
    inputs = (events[parent].get(_partition(shapes[parent], pair)) for parent in node.parents)
    return made_at is not None and all(at is not None and at < made_at for at in inputs)


def _partition(shape: Shape, pair: AgentVersion) -> str:
    return {
        "agent x version": partition_key(pair),
        "agent": pair.agent_id,
        "version": pair.methodology_version,
    }[shape]
