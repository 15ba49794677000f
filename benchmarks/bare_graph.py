"""The same number and shapes of assets in Dagster alone, with empty bodies: what the framework itself costs here."""

import shutil
import sys
import tempfile
from pathlib import Path

import dagster as dg

SETTINGS = Path(__file__).parents[1] / "dagster.yaml"

AGENTS = dg.DynamicPartitionsDefinition(name="agent")
VERSIONS = dg.StaticPartitionsDefinition(["1.0.0", "1.1.0", "1.2.0", "1.3.0"])
PAIRS = dg.MultiPartitionsDefinition({"agent": AGENTS, "version": VERSIONS})


def _asset(name: str, partitions: dg.PartitionsDefinition) -> dg.AssetsDefinition:
    @dg.asset(name=name, partitions_def=partitions, backfill_policy=dg.BackfillPolicy.single_run())
    def empty() -> None:
        """Do nothing."""

    return empty


def main(event_log: str, n_agents: int, by_agent: int, by_pair: int, by_version: int) -> None:
    """Materialise so many empty assets of each shape for all partitions, as `agent-eval run` does.

    `event_log` is "stock" (Dagster's defaults) or "batched" (this project's dagster.yaml).
    """
    agents = [f"agent-{i:03}" for i in range(n_agents)]
    stages = (
        ("a", AGENTS, by_agent, agents[0], agents[-1]),
        ("p", PAIRS, by_pair, f"{agents[0]}|1.0.0", f"{agents[-1]}|1.3.0"),
        ("v", VERSIONS, by_version, "1.0.0", "1.3.0"),
    )
    with tempfile.TemporaryDirectory() as home, _instance(home, event_log) as instance:
        instance.add_dynamic_partitions("agent", agents)
        for letter, partitions, n, first, last in stages:
            assets = [_asset(f"{letter}{i}", partitions) for i in range(n)]
            dg.materialize(
                assets,
                instance=instance,
                tags={
                    "dagster/asset_partition_range_start": first,
                    "dagster/asset_partition_range_end": last,
                },
                run_config={"loggers": {"console": {"config": {"log_level": "ERROR"}}}},
            )


def _instance(home: str, event_log: str) -> dg.DagsterInstance:
    if event_log == "batched":
        shutil.copy(SETTINGS, home)
    return dg.DagsterInstance.from_config(home)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:6]))
