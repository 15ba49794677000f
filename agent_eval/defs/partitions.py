"""Define the partitions: agent (dynamic), version (static, from the methodology files), agent × version.

The report covers all of them and has no partitions: its shape is `whole`.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import dagster as dg
import polars as pl

from agent_eval.methodology import version_names
from agent_eval.settings import Settings, home_around, read_settings
from agent_eval.settings.home import NoRootError, find_root
from agent_eval.tables.agent_version import AgentVersion


def _version_names() -> tuple[str, ...]:
    try:
        return version_names(home_around().methodologies)
    except NoRootError:
        return version_names(None)


def project_settings() -> Settings:
    """Return the settings of the project that the definitions are loaded for, or the defaults without a project."""
    try:
        return read_settings(find_root())
    except NoRootError:
        return Settings()


AGENTS = dg.DynamicPartitionsDefinition(name="agent")
VERSIONS = dg.StaticPartitionsDefinition(list(_version_names()))
PAIRS = dg.MultiPartitionsDefinition({"agent": AGENTS, "version": VERSIONS})

TO_AGENT = dg.MultiToSingleDimensionPartitionMapping("agent")
TO_VERSION = dg.MultiToSingleDimensionPartitionMapping("version")
EVERY_AGENT = dg.AllPartitionMapping()

PARTITIONS: Mapping[str, dg.PartitionsDefinition[Any]] = {
    "agent": AGENTS,
    "version": VERSIONS,
    "agent x version": PAIRS,
}
"""The partitions of assets by the shape that the partition columns of their table have."""
MAPPINGS: Mapping[tuple[str, str], dg.PartitionMapping] = {
    ("agent x version", "agent"): TO_AGENT,
    ("agent x version", "version"): TO_VERSION,
    ("version", "agent x version"): TO_VERSION,
    ("version", "agent"): EVERY_AGENT,
}
"""How an asset's partitions depend on an input's, by the shapes of both; partitions of one shape on their equals."""

Shape = Literal["agent", "agent x version", "version", "whole"]

_COLUMN = {"agent": "agent_id", "version": "methodology_version"}


def shape_of(partitions: dg.PartitionsDefinition | None) -> Shape:
    """Return the partition shape of an asset."""
    if partitions is None:
        return "whole"
    return "agent x version" if partitions == PAIRS else "version" if partitions == VERSIONS else "agent"


def partition_key(pair: AgentVersion) -> str:
    """Return the partition key of a pair: its dimensions sorted by name."""
    return pair.key


def agent_versions(context: dg.AssetExecutionContext) -> list[AgentVersion]:
    """Return every agent × version partition of this run: a single partition or a range."""
    return [AgentVersion(**row) for row in key_frame(PAIRS, context.partition_keys).iter_rows(named=True)]


def versions_of(context: dg.AssetExecutionContext) -> set[str]:
    """Return the methodology versions among this run's agent × version partitions."""
    return {pair.methodology_version for pair in agent_versions(context)}


def key_frame(partitions: dg.PartitionsDefinition | None, keys: Iterable[str]) -> pl.DataFrame:
    """Return partition keys as a frame with the columns of stored tables: agent_id, methodology_version."""
    if isinstance(partitions, dg.MultiPartitionsDefinition):
        parsed = [partitions.get_partition_key_from_str(k).keys_by_dimension for k in keys]
        return pl.DataFrame(
            {column: [k[d] for k in parsed] for d, column in _COLUMN.items()},
            schema=_strings(_COLUMN.values()),
        )
    column = _COLUMN["agent" if isinstance(partitions, dg.DynamicPartitionsDefinition) else "version"]
    return pl.DataFrame({column: list(keys)}, schema=_strings([column]))


def current_last(
    partitions: dg.PartitionsDefinition | None, keys: Iterable[str], current: Collection[str]
) -> list[str]:
    """Return partition keys in order, with those of the current methodology version last.

    Dagster gives the keys of a run in no order, and its page of an asset shows the partition that was reported last.
    """
    ordered = sorted(keys)
    of_key = dict(zip(ordered, key_frame(partitions, ordered).to_dicts(), strict=True))
    return sorted(ordered, key=lambda key: of_key[key].get("methodology_version") in current)


def _strings(columns: Iterable[str]) -> dict[str, type[pl.String]]:
    return dict.fromkeys(columns, pl.String)


def stretches(keys: Collection[str], order: Sequence[str]) -> list[list[str]]:
    """Return the requested keys as contiguous ranges in `order`, since a range run covers neighbouring partitions."""
    return [list(group) for is_in, group in itertools.groupby(order, key=keys.__contains__) if is_in]


def chunks(keys: Sequence[str], sizes: Mapping[str, int], limit: int | None) -> Iterator[list[str]]:
    """Split neighbouring keys into parts with a total size of at most `limit`; a larger key is a separate part."""
    part: list[str] = []
    total = 0
    for key in keys:
        if part and limit is not None and total + sizes.get(key, 0) > limit:
            yield part
            part, total = [], 0
        part.append(key)
        total += sizes.get(key, 0)
    if part:
        yield part


def rectangles(
    pairs: Iterable[AgentVersion],
    agents: Sequence[str],
    versions: Sequence[str],
    sizes: Mapping[str, int] | None = None,
    limit: int | None = None,
    *,
    splits_agents: bool = True,
) -> Iterator[tuple[AgentVersion, AgentVersion]]:
    """Yield rectangles (first, last) that cover exactly the given pairs of agent and version.

    Neighbouring agents with the same versions share a rectangle.

    Args:
        pairs: The pairs to cover.
        agents: All agents, in the order of their partitions.
        versions: All versions, in the order of their partitions.
        sizes: Number of conversations of each agent; they count once per version.
        limit: Maximum number of conversations in a rectangle, or None for no limit. A single pair is never split.
        splits_agents: Whether the versions of an agent larger than the limit are split into several rectangles.
    """
    versions_of_agent: dict[str, set[str]] = {}
    for pair in pairs:
        versions_of_agent.setdefault(pair.agent_id, set()).add(pair.methodology_version)
    of_agent = sizes or {}
    for shared, group in itertools.groupby(agents, key=lambda agent: versions_of_agent.get(agent, set())):
        block = list(group)
        for stretch in stretches(shared, versions):
            in_all = {agent: of_agent.get(agent, 0) * len(stretch) for agent in block}
            for part in chunks(block, in_all, limit):
                size_of_version = dict.fromkeys(stretch, sum(of_agent.get(agent, 0) for agent in part))
                for cut in chunks(stretch, size_of_version, limit if splits_agents else None):
                    yield (
                        AgentVersion.of(agent_id=part[0], methodology_version=cut[0]),
                        AgentVersion.of(agent_id=part[-1], methodology_version=cut[-1]),
                    )
