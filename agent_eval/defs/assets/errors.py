"""Define the assets that cluster failure labels under stable ids and compare the clusters with a baseline.

The clustering package is imported only when needed: importing numpy takes a quarter of the time limit for
loading the definitions.
"""

from typing import Any

import dagster as dg
import polars as pl

from agent_eval.defs.assets.common import (
    TableEvents,
    check_and_store,
    report_link,
    table_asset,
    table_multi_asset,
    watch_of,
)
from agent_eval.defs.gate_checks import gate_check_results
from agent_eval.defs.instance import REGISTERED
from agent_eval.defs.partitions import PAIRS, key_frame
from agent_eval.project import Project
from agent_eval.report.asset_pages.clusters import most_severe_first
from agent_eval.report.clusters import with_own_words
from agent_eval.report.conclusions import clusters_answer, open_failures, with_first_day
from agent_eval.tables import table
from agent_eval.tables.frames import (
    Agents,
    ErrorClusters,
    ErrorRates,
    Sessions,
    ToolCalls,
    Transcripts,
)

_MADE = {
    "failures": "Failure labels of judged turns, with the supporting quote, the party at fault and the cluster.",
    "error_clusters": "Clusters of failures with the same cause, under ids that do not change: severity, frequency, first "
    "and last occurrence. Use this table to decide what to fix first.",
    "error_rates": "The share of judged turns in which each cluster occurred, by run of the agent. Trends compare these "
    "rates.",
    "issue_runs": "The conversations of each run that were looked at for failures, and those with each cluster, by task.",
    "error_issues": "Whether each cluster of an agent is open, was fixed in a run, or came back, with what it costs.",
}


@dg.multi_asset(
    **table_multi_asset(_MADE, {"turn_judgments"}),
    group_name="errors",
    pool="llm",
)
def clustered_failures(
    context: dg.AssetExecutionContext,
    tool_calls: ToolCalls,
    transcripts: Transcripts,
    sessions: Sessions,
    project: dg.ResourceParam[Project],
) -> TableEvents:
    """Assign the failure labels of judged turns to clusters of the registry, and count how often each cluster occurs."""
    from agent_eval.project.clusters import clustered, failure_questions

    turn_judgments = failure_questions(project, key_frame(PAIRS, context.partition_keys))
    frames = (turn_judgments, tool_calls, transcripts, sessions)
    watch = watch_of(context, project)
    is_registered = REGISTERED in context.run.tags
    outputs = clustered(project, *frames, run_id=context.run.run_id, watch=watch, is_registered=is_registered)
    tables = dict(zip(_MADE, outputs, strict=True))
    yield from check_and_store(context, tables, turn_judgments=turn_judgments)
    at_hand = {"transcripts": transcripts, "turn_judgments": turn_judgments, **tables}
    yield from gate_check_results(context, project, "error_clusters", at_hand)


@dg.asset(
    **table_asset("error_trends"),
    group_name="errors",
)
def error_trends(
    context: dg.AssetExecutionContext,
    error_clusters: ErrorClusters,
    error_rates: ErrorRates,
    agents: Agents,
    project: dg.ResourceParam[Project],
) -> TableEvents:
    """Compare the error rates of each agent with its baseline in agents.yaml, else with its previous run."""
    from agent_eval.clusters import trends

    compared = trends.error_trends(error_rates, agents, project.store.read(table("error_registry")))
    for version in context.partition_keys:
        of_version = pl.col("methodology_version") == version
        page = _trends_metadata(project, version, error_clusters.filter(of_version))
        context.add_asset_metadata(page, partition_key=version)
    yield from check_and_store(context, {"error_trends": compared})


def _trends_metadata(
    project: Project, version: str, clusters: pl.DataFrame
) -> dict[str, dg.MetadataValue[Any] | str]:
    """Return the metadata of a version's trends: the answer, and the link to its page of errors."""
    from agent_eval.project.report import reader  # slow to load, so it is imported only when needed

    read = reader(project)
    summary = read("quality_summary", pl.DataFrame({"methodology_version": [version]}))
    worst_first = most_severe_first(clusters, "n_turns")
    worst_first = pl.concat([with_own_words(read, worst_first[:1]), worst_first[1:]], how="diagonal")
    worst_first = with_first_day(read, worst_first, clusters)
    return {
        "answer": clusters_answer(worst_first, open_failures(summary)),
        "report": report_link(project, f"boards/{version}/errors.html"),
    }
