"""Purge Dagster's records of old runs, except those that the current state of the assets needs."""

import shutil
from datetime import datetime
from pathlib import Path

import dagster as dg

from agent_eval.defs.event_log import BatchedSqliteEventLogStorage

MOST_AT_ONCE = 500
"""Maximum number of runs removed per call, so that a long history does not delay a run by minutes."""
_FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


def purge_history(instance: dg.DagsterInstance, before: datetime) -> int:
    """Remove finished runs that started before a time, with their events and logs; return the number removed.

    A run is kept, regardless of its age, while it has the latest result of an asset partition or check: without the
    run, Dagster would show the partition as missing. The latest observation of each partition is also kept. Only the
    event log that this project's dagster.yaml configures is purged.
    """
    log = instance.event_log_storage
    if not isinstance(log, BatchedSqliteEventLogStorage):
        return 0
    log.purge_observations(before)
    old = instance.get_runs(dg.RunsFilter(statuses=_FINISHED, created_before=before), ascending=True)
    ids_in_log = log.runs_shown() if old else set()
    removed = [run.run_id for run in old if run.run_id not in ids_in_log][:MOST_AT_ONCE]
    root = Path(instance.root_directory)
    for run_id in removed:
        instance.delete_run(run_id)
        shutil.rmtree(root / "storage" / run_id, ignore_errors=True)
        for file in (root / "history" / "runs").glob(f"{run_id}.db*"):
            file.unlink(missing_ok=True)
    return len(removed)
