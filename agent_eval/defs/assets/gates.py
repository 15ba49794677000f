"""Define the asset that evaluates, from stored rows, whether an agent passes the gates under a version."""

import dagster as dg

from agent_eval.defs.assets.common import TableEvents, check_and_store, table_asset
from agent_eval.defs.gate_checks import gate_check_results
from agent_eval.defs.partitions import PAIRS, key_frame
from agent_eval.project import Project
from agent_eval.project import gates as gating
from agent_eval.tables.frames import Agents
from agent_eval.tables.schema import MADE_FROM


@dg.asset(
    **table_asset("gate_results", {*MADE_FROM["gate_results"]} - {"agents"}),
    group_name="boards",
)
def gate_results(
    context: dg.AssetExecutionContext, agents: Agents, project: dg.ResourceParam[Project]
) -> TableEvents:
    """Evaluate all gates in section [gates] of agent_eval.toml: passed, failed or unknown, with evidence."""
    pairs = key_frame(PAIRS, context.partition_keys).join(agents, on="agent_id", how="semi")
    rows = gating.gate_results(project, pairs)
    yield from check_and_store(context, {"gate_results": rows})
    yield from gate_check_results(context, project, "gate_results", {"gate_results": rows})
