"""Errors: failure labels to clusters whose ids last, and how they compare with a baseline."""

from datetime import UTC, datetime

import dagster as dg
import polars as pl

from agent_eval.clusters import clusters, trends
from agent_eval.clusters.failures import failures
from agent_eval.clusters.registry import register
from agent_eval.defs.assets.common import ins, stored, stored_together
from agent_eval.defs.partitions import EVERY_AGENT, PAIRS, TO_AGENT, TO_VERSION, VERSIONS
from agent_eval.project import Project
from agent_eval.tables import table


@stored_together(
    "clustered_failures", ("failures", "error_clusters"), "errors", PAIRS, ins=ins(tool_calls=TO_AGENT)
)
def clustered_failures(
    context: dg.AssetExecutionContext,
    turn_judgments: pl.DataFrame,
    tool_calls: pl.DataFrame,
    project: dg.ResourceParam[Project],
) -> dict[str, pl.DataFrame]:
    """Failure labels of judged turns, each in a cluster of the registry."""
    found = failures(turn_judgments, tool_calls)
    with project.store.only_one("registry"):  # read, grown and written as one
        known = project.store.read(table("error_registry"))
        registry, assigned = register(known, found, seen_at=datetime.now(UTC).date().isoformat())
        changed = registry.join(known, on=registry.columns, how="anti", nulls_equal=True)
        project.store.upsert(table("error_registry"), changed, run_id=context.run.run_id)
    return {
        "failures": assigned,
        "error_clusters": clusters.error_clusters(assigned, turn_judgments, registry),
    }


@stored(
    "error_trends",
    "errors",
    VERSIONS,
    ins=ins(error_clusters=TO_VERSION, turn_judgments=TO_VERSION, agents=EVERY_AGENT),
)
def error_trends(
    error_clusters: pl.DataFrame, turn_judgments: pl.DataFrame, agents: pl.DataFrame
) -> pl.DataFrame:
    """Each agent's clusters beside those of the baseline that agents.yaml names."""
    return trends.error_trends(error_clusters, agents, clusters.judged_turns(turn_judgments))


ASSETS = [clustered_failures, error_trends]
