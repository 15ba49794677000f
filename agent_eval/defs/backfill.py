"""Start backfills, which distribute the work on agents and versions among several workers."""

import dagster as dg
import polars as pl

from agent_eval.defs.dagster_internals import has_backfill_under_way, start_backfill
from agent_eval.defs.launch import Launch
from agent_eval.defs.partitions import VERSIONS
from agent_eval.defs.resources import is_by_agent
from agent_eval.errors import ConfigurationError, RunError
from agent_eval.project.fingerprints import CLUSTERING
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.tables.schema import MADE_FROM, below, shape_of

_RETRIED = {
    "dagster/max_retries": "3",
    "dagster/retry_on_asset_or_op_failure": "true",  # a step fails if the catalog is away
    "dagster/retry_strategy": "ALL_STEPS",  # a step whose event is lost may not have run
}
"""Tags that let the daemon retry a lost run while the backfill goes on. Answers that arrived are stored."""


def start_backfills(launch: Launch, stale: pl.DataFrame) -> list[str]:
    """Start backfills of the agents and versions that are stale, and return a line for each.

    Clusters, gates and boards are left to `redo_stale`: gates and boards read other agents, and the names and severities
    of clusters depend on the order in which the agents' failures are registered. Dagster makes one run for each key of
    the dimension with fewer keys, so no backfill has more agents than versions: each run has one agent, and so has its
    retry.

    Raises:
        ConfigurationError: If no daemon uses this instance.
        RunError: If a backfill is in progress.
    """
    instance = launch.instance
    if not instance.get_daemon_statuses(["BACKFILL"])["BACKFILL"].healthy:
        raise ConfigurationError(
            f"No daemon uses DAGSTER_HOME {instance.root_directory}, so a backfill would never start. Set DAGSTER_HOME and "
            "the other variables as for the workers, and start the daemon."
        )
    if has_backfill_under_way(instance):
        raise RunError("A backfill is in progress. Wait until it ends, or cancel it in the UI.")
    left = {*CLUSTERING, *below(CLUSTERING)}
    names = [name for name in MADE_FROM if is_by_agent(dg.AssetKey(name)) and name not in left]
    places = stale.filter(pl.col("asset").is_in(names))
    agents = [a for a in instance.get_dynamic_partitions("agent") if a in {*places["agent_id"]}]
    versions = [v for v in VERSIONS.get_partition_keys() if v in {*places["methodology_version"]}]
    lines, n = [], max(1, len(versions))
    for group in (agents[i : i + n] for i in range(0, len(agents), n)):
        pairs = [
            AgentVersion.of(agent_id=agent, methodology_version=version).key
            for agent in group
            for version in versions
        ]
        keys = {name: group if shape_of(name) == "agent" else pairs for name in names}
        title = f"{', '.join(group)}: {len(names)} assets, {len(versions)} versions"
        backfill = start_backfill(instance, launch.defs, keys, title=title, tags=_RETRIED)
        lines.append(f"Backfill {backfill}: {title}.")
    return lines
