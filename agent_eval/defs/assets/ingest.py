"""Define the assets that ingest session folders and decide which conversations count under each version."""

import dagster as dg

from agent_eval.defs.assets.common import (
    TableEvents,
    check_and_store,
    table_asset,
    table_multi_asset,
)
from agent_eval.defs.partitions import versions_of
from agent_eval.project import Project
from agent_eval.project.ingest import ingest
from agent_eval.tables.frames import Agents, Conversations, Sessions
from agent_eval.transcripts.admission import admit_all

# Tables are stored in this order. `agents` is last: its column ingest_fingerprint shows that the others are stored.
INGESTED = {
    "sessions": "The sessions of an agent, on a benchmark or elsewhere: date, source, versions and disclosures. The status "
    "and the intervals of the boards depend on them.",
    "conversations": "Conversations and their results: task, trial, scenario, declared outcome, cost. Judges and "
    "reliability use them.",
    "turns": "The unchanged texts of the conversations, turn by turn. They are untrusted data and are never executed.",
    "tool_calls": "Every tool call with its arguments and its result. Tool correctness and the rules use them.",
    "expected_calls": "The calls that the ground truth of a conversation expects of the agent and of the user, each with "
    "the actual call that matches it. `recorded_match` is the result of the source's own check.",
    "import_errors": "The rejected records, each with file, line, reason and fix. All other records count.",
    "agents": "The evaluated agents: name, category, provider and baseline. Boards show these names.",
}


@dg.multi_asset(**table_multi_asset(INGESTED), group_name="ingest")
def ingest_sessions(context: dg.AssetExecutionContext, project: dg.ResourceParam[Project]) -> TableEvents:
    """Read the agents' session folders; rejected records are stored as rows of table import_errors."""
    frames = ingest(project, list(context.partition_keys))
    for refused in frames["import_errors"].iter_rows(named=True):
        context.log.warning("%(agent_id)s: %(file)s:%(line)s: %(reason)s", refused)
    yield from check_and_store(context, {name: frames[name] for name in INGESTED})


@dg.asset(
    **table_asset("transcripts"),
    group_name="ingest",
)
def transcripts(
    context: dg.AssetExecutionContext,
    conversations: Conversations,
    sessions: Sessions,
    agents: Agents,
    project: dg.ResourceParam[Project],
) -> TableEvents:
    """List the conversations of an agent under a version, with file, content hash, counts and slot.

    The table also states whether each conversation counts, and the reason if it does not.
    """
    admitted = admit_all(conversations, sessions, agents, project.methodologies(versions_of(context)))
    yield from check_and_store(context, {"transcripts": admitted}, conversations=conversations)
