"""Collect the declarations of all stored tables and their graph.

The store adds the columns `dagster_run_id` and `created_at` to each table.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal, overload

import polars as pl

from agent_eval.tables import frames
from agent_eval.tables.contract import Table, UnknownTableError
from agent_eval.tables.declaration import read_declarations

_FILE = Path(__file__).with_name("tables.txt")
DECLARED = read_declarations(_FILE.read_text(encoding="utf-8"), f"agent_eval/tables/{_FILE.name}")
"""What `tables.txt` declares: groups of columns and tables."""
TABLES: dict[str, Table[Any]] = {name: each.table() for name, each in DECLARED.items() if each.is_table}

INTERNAL = frozenset(
    [
        "board_inputs",
        "error_events",
        "error_members",
        "error_rates",
        "error_registry",
        "failure_vectors",
        "issue_runs",
        "judge_state",
        "notified",
        "run_state",
    ]
)
"""Tables of the program's own state, and those that one step hands to the next: documented for contributors."""

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


@overload
def table(name: Literal["agents"]) -> Table[frames.Agents]: ...
@overload
def table(name: Literal["sessions"]) -> Table[frames.Sessions]: ...
@overload
def table(name: Literal["conversations"]) -> Table[frames.Conversations]: ...
@overload
def table(name: Literal["turns"]) -> Table[frames.Turns]: ...
@overload
def table(name: Literal["tool_calls"]) -> Table[frames.ToolCalls]: ...
@overload
def table(name: Literal["import_errors"]) -> Table[frames.ImportErrors]: ...
@overload
def table(name: Literal["transcripts"]) -> Table[frames.Transcripts]: ...
@overload
def table(name: Literal["turn_judgments"]) -> Table[frames.TurnJudgments]: ...
@overload
def table(name: Literal["conversation_judgments"]) -> Table[frames.ConversationJudgments]: ...
@overload
def table(name: Literal["rubric_ratings"]) -> Table[frames.RubricRatings]: ...
@overload
def table(name: Literal["tool_correctness"]) -> Table[frames.ToolCorrectness]: ...
@overload
def table(name: Literal["universal_scores"]) -> Table[frames.UniversalScores]: ...
@overload
def table(name: Literal["domain_scores"]) -> Table[frames.DomainScores]: ...
@overload
def table(name: Literal["composite_scores"]) -> Table[frames.CompositeScores]: ...
@overload
def table(name: Literal["reliability"]) -> Table[frames.Reliability]: ...
@overload
def table(name: Literal["error_rates"]) -> Table[frames.ErrorRates]: ...
@overload
def table(name: Literal["error_clusters"]) -> Table[frames.ErrorClusters]: ...
@overload
def table(name: Literal["quality_summary"]) -> Table[frames.QualitySummary]: ...
@overload
def table(name: str) -> Table[pl.DataFrame]: ...
def table(name: str) -> Table[Any]:
    """Return the declaration of a stored table.

    Raises:
        UnknownTableError: If there is no table with this name; the message suggests the closest match.
    """
    if name not in TABLES:
        raise UnknownTableError(name, TABLES)
    return TABLES[name]


def below(names: Collection[str]) -> set[str]:
    """Return the tables that depend directly or indirectly on these tables or sources."""
    dependent_tables = set(names)
    for name, parents in MADE_FROM.items():  # parents first
        if dependent_tables & {*parents}:
            dependent_tables.add(name)
    return dependent_tables - {*names}


def above(name: str) -> tuple[str, ...]:
    """Return a table and those that it directly or indirectly depends on, each before the tables that it is made from."""
    found, steps = {name}, []
    for each, parents in reversed(list(MADE_FROM.items())):  # children first
        if each in found:
            found |= {*parents}
            steps.append(each)
    return tuple(steps)


def shape_of(name: str) -> Shape:
    """Return the kind of partitions that a table or a source has."""
    if name in SOURCES:
        return SOURCES[name]
    columns = table(name).partition
    if columns == ("agent_id",):
        return "agent"
    return "agent x version" if "agent_id" in columns else "version"  # board history: not partitioned
