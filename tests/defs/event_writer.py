"""Writes batches of events into a Dagster home; also a program, for tests that need a second process."""

import sys

import dagster as dg
from dagster._core.events import (
    DagsterEvent,
    DagsterEventBatchMetadata,
    DagsterEventType,
    StepMaterializationData,
)


def report(instance: dg.DagsterInstance, run_id: str, partitions: list[str]) -> None:
    """One batch: a materialisation of the asset `a` for each partition, as a run reports them."""
    for partition in partitions:
        made = StepMaterializationData(dg.AssetMaterialization("a", partition=partition), [])
        kind = DagsterEventType.ASSET_MATERIALIZATION.value
        event = DagsterEvent(event_type_value=kind, job_name="job", event_specific_data=made)
        batch = DagsterEventBatchMetadata("batch", is_end=partition == partitions[-1])
        instance.report_dagster_event(event, run_id, batch_metadata=batch)


def write(instance: dg.DagsterInstance, run_id: str, batches: int, size: int) -> None:
    """So many batches of partitions `batch-index`, and a line on stdout after each."""
    for i in range(batches):
        report(instance, run_id, [f"{i}-{j}" for j in range(size)])
        sys.stdout.write(f"{i}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    with dg.DagsterInstance.from_config(sys.argv[1]) as opened:
        write(opened, sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
