"""Prints what is stale in the project of AGENT_EVAL_HOME, in a process of its own: by Dagster, and by the command."""

import json
import sys

import dagster as dg
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from agent_eval.definitions import defs
from agent_eval.defs.launch import Launch
from agent_eval.project import Project
from agent_eval.project.data_versions import read_sources
from agent_eval.project.fingerprints import Fingerprints, stale_places


def stale() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """By Dagster and by the command: asset → partitions."""
    project = Project.open()
    agents, versions = project.known_agents(), list(project.registry.versions)
    sources = read_sources(project, agents, versions)
    missing = stale_places(project, Fingerprints.of(project, sources), agents, versions)
    with project.store.exclusive_section("run"):
        launch = Launch.at(project, defs, sources)
        launch.observe(agents=agents, versions=versions)
    by_asset = missing.partition_by("asset", include_key=False, as_dict=True)
    by_command = {
        asset: sorted("|".join(filter(None, key)) for key in rows.iter_rows())
        for (asset,), rows in by_asset.items()
    }
    return by_dagster(launch.instance), by_command


def by_dagster(instance: dg.DagsterInstance) -> dict[str, list[str]]:
    """Asset → the partitions that the UI marks as stale or not materialised."""
    graph = defs.resolve_asset_graph()
    resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
    stale: dict[str, list[str]] = {}
    for key in graph.materializable_asset_keys:
        shape = graph.get(key).partitions_def
        if shape is None:
            continue  # no change makes the report or an audit: the night, the week and people do
        for partition in shape.get_partition_keys(dynamic_partitions_store=instance):
            if resolver.get_status(key, partition) != StaleStatus.FRESH:
                stale.setdefault(key.path[-1], []).append(partition)
    return stale


if __name__ == "__main__":
    sys.stdout.write(json.dumps(stale()))
