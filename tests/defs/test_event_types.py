"""Each type of event that Dagster indexes gives the same rows in the batched event log as in Dagster's own."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationPlanned
from dagster._core.definitions.events import (
    AssetMaterializationFailure,
    AssetMaterializationFailureReason,
    AssetMaterializationFailureType,
)
from dagster._core.definitions.freshness import FreshnessState, FreshnessStateChange
from dagster._core.events import (
    ASSET_CHECK_EVENTS,
    ASSET_EVENTS,
    EVENT_TYPE_TO_PIPELINE_RUN_STATUS,
    AssetFailedToMaterializeData,
    AssetMaterializationPlannedData,
    AssetObservationData,
    StepMaterializationData,
)

from agent_eval.defs.dagster_internals import FINISHED_STATUSES
from tests.defs.test_event_log import STOCK, folder, opened, rows

KIND = dg.DagsterEventType
KEY = dg.AssetKey("scores")


def change_to(state: FreshnessState) -> FreshnessStateChange:
    return FreshnessStateChange(
        key=KEY, previous_state=FreshnessState.UNKNOWN, new_state=state, state_change_timestamp=time.time()
    )


PAYLOADS: dict[KIND, Callable[[], object]] = {
    KIND.ASSET_MATERIALIZATION: lambda: StepMaterializationData(dg.AssetMaterialization(KEY, partition="p")),
    KIND.ASSET_OBSERVATION: lambda: AssetObservationData(dg.AssetObservation(KEY, tags={"team": "a"})),
    KIND.ASSET_MATERIALIZATION_PLANNED: lambda: AssetMaterializationPlannedData(KEY, "p"),
    KIND.ASSET_FAILED_TO_MATERIALIZE: lambda: AssetFailedToMaterializeData(
        AssetMaterializationFailure(
            asset_key=KEY,
            failure_type=AssetMaterializationFailureType.FAILED,
            reason=AssetMaterializationFailureReason.FAILED_TO_MATERIALIZE,
            partition="p",
        )
    ),
    KIND.ASSET_CHECK_EVALUATION_PLANNED: lambda: AssetCheckEvaluationPlanned(
        asset_key=KEY, check_name="is_there"
    ),
    KIND.ASSET_CHECK_EVALUATION: lambda: dg.AssetCheckEvaluation(
        asset_key=KEY, check_name="is_there", passed=True, metadata={}
    ),
    KIND.FRESHNESS_STATE_CHANGE: lambda: change_to(FreshnessState.WARN),
}
ASSETS, CHECKS, STATUSES = (
    {*types} for types in (ASSET_EVENTS, ASSET_CHECK_EVENTS, EVENT_TYPE_TO_PIPELINE_RUN_STATUS)
)
TABLES = ("event_logs", "asset_keys", "asset_event_tags", "asset_check_executions")


def store(instance: dg.DagsterInstance, kind: KIND, run_id: str) -> None:
    """One event of this type, in a run or outside of runs ('')."""
    payload = PAYLOADS[kind]() if kind in PAYLOADS else None
    event = dg.DagsterEvent(kind.value, "job", event_specific_data=payload, message="")  # type: ignore[arg-type]
    entry: dg.EventLogEntry = dg.EventLogEntry(  # type: ignore[no-untyped-call]
        None, 20, "", run_id, 1.5, job_name="job", dagster_event=event
    )
    instance.event_log_storage.store_event(entry)


def test_an_event_of_each_indexed_type_is_stored_as_dagster_does(tmp_path: Path) -> None:
    stored: dict[str, list[list[tuple[str, ...]]]] = {}
    for name, settings in (("ours", None), ("theirs", STOCK)):
        with opened(tmp_path / name, settings) as instance:
            for kind in sorted(ASSETS | CHECKS | STATUSES, key=str):
                for run_id in ["run"] + [""] * (kind in ASSETS):
                    if kind is KIND.ASSET_CHECK_EVALUATION:
                        store(instance, KIND.ASSET_CHECK_EVALUATION_PLANNED, run_id)
                    store(instance, kind, run_id)
                    instance.event_log_storage.dispose()  # stores a batch
            stored[name] = [rows(folder(instance) / "index.db", table) for table in TABLES]
            stored[name] += [rows(folder(instance) / f"{run_id}.db", "event_logs") for run_id in ("run", "")]
    assert stored["ours"] == stored["theirs"]
    indexed = [row for table in stored["ours"][: len(TABLES)] for row in table]
    assert [kind for kind in ASSETS if not any(kind.value in row for row in indexed)] == []


def test_freshness_is_known_once_it_was_reported_and_idling_adds_nothing(tmp_path: Path) -> None:
    """The daemon reports a state that differs from the stored one, so a state that is not found is reported for ever."""
    with opened(tmp_path) as instance:
        for state in (FreshnessState.PASS, FreshnessState.WARN):
            change = change_to(state)
            instance._report_runless_asset_event(change)
            assert instance.get_freshness_state_records([KEY])[KEY].freshness_state is state


def test_events_outside_of_runs_are_purged_except_the_latest_state(tmp_path: Path) -> None:
    from agent_eval.defs.purge import purge_history

    with opened(tmp_path) as instance:
        for state in [FreshnessState.PASS, FreshnessState.WARN] * 5:
            change = change_to(state)
            instance._report_runless_asset_event(change)
        purge_history(instance, datetime.now(UTC) + timedelta(minutes=1))
        assert instance.get_freshness_state_records([KEY])[KEY].freshness_state is FreshnessState.WARN
        counted = {}
        for file in folder(instance).rglob("*.db"):
            with closing(sqlite3.connect(file)) as connection:
                counted[file.name] = connection.execute("SELECT count(*) FROM event_logs").fetchone()[0]
    assert counted == {"index.db": 1, ".db": 0}


def test_the_statuses_of_finished_runs_are_those_that_dagster_reports() -> None:
    assert {*FINISHED_STATUSES} <= {*EVENT_TYPE_TO_PIPELINE_RUN_STATUS.values()}
