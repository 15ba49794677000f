"""Runs whose process ended without a word: Dagster would show them as started, and wait for them, for ever.

Only for who holds the run lock of the store: while it is held nobody else can be at work.
"""

import dagster as dg

from agent_eval.storage import Store

OURS = {"agent_eval/started_by": "agent-eval run"}
"""Tags of the command's runs; it holds the lock before it starts one."""
_WHY = (
    "Its process ended before it did. What it finished is kept; `agent-eval run` or automation does the rest."
)
_UNFINISHED = [
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.CANCELING,
]


def bury_abandoned(instance: dg.DagsterInstance, store: Store) -> list[str]:
    """Mark abandoned runs as failed: the command's, and the one that held the lock last and never let go of it."""
    filters = [dg.RunsFilter(tags=OURS, statuses=_UNFINISHED)]
    if holder := store.holder("run"):
        filters.append(dg.RunsFilter(run_ids=[holder], statuses=_UNFINISHED))
    runs = {run.run_id: run for each in filters for run in instance.get_runs(each)}
    for run in runs.values():
        instance.report_run_failed(run, _WHY)
    store.hold("run", "")
    return sorted(runs)
