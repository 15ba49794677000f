"""Declare the inputs of each table's asset, parents first; a test compares them with Dagster's graph."""

from collections.abc import Collection, Mapping
from typing import Literal

from agent_eval.tables.schema import DECLARED, table

Shape = Literal["agent", "version", "agent x version"]

SOURCES: Mapping[str, Shape] = {
    "agent_sessions": "agent",
    "human_ratings": "agent",
    "judge_config": "agent x version",
    "scoring_spec": "version",
    "cluster_spec": "version",
    "gate_spec": "version",
}
"""The inputs that are read from files and settings, with the partitions of their data versions."""

MADE_FROM: Mapping[str, tuple[str, ...]] = {name: each.reads for name, each in DECLARED.items() if each.reads}
"""The tables and sources that each table's asset reads; tables are listed after the tables that they depend on."""


def below(names: Collection[str]) -> set[str]:
    """Return the tables that depend directly or indirectly on these tables or sources."""
    found = set(names)
    for name, parents in MADE_FROM.items():  # parents first
        if found & {*parents}:
            found.add(name)
    return found - {*names}


def shape_of(name: str) -> Shape:
    """Return the kind of partitions that a table or a source has."""
    if name in SOURCES:
        return SOURCES[name]
    columns = table(name).partition
    if columns == ("agent_id",):
        return "agent"
    return "agent x version" if "agent_id" in columns else "version"  # board history: not partitioned
