"""Metadata of many partitions at once: as Dagster's own way would show it, whatever the release keeps where."""

import dagster as dg
import pytest
from dagster._core.execution.context.system import StepExecutionContext

from agent_eval.defs.dagster_internals import add_metadata_by_partition

KEYS = ["a", "b", "c"]


@pytest.mark.parametrize("is_kept_elsewhere", [False, True])
def test_each_partition_shows_its_own(monkeypatch: pytest.MonkeyPatch, *, is_kept_elsewhere: bool) -> None:
    @dg.asset(
        partitions_def=dg.StaticPartitionsDefinition(KEYS),
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def shown(context: dg.AssetExecutionContext) -> None:
        context.add_asset_metadata({"of": "all"})
        if is_kept_elsewhere:
            monkeypatch.setattr(StepExecutionContext, "_metadata_accumulator", None, raising=False)
            kept = vars(context.get_step_execution_context()).pop("_metadata_accumulator")
            monkeypatch.setattr(StepExecutionContext, "add_asset_metadata", seen)
            add_metadata_by_partition(context, "shown", {key: {"key": key} for key in KEYS})
            vars(context.get_step_execution_context())["_metadata_accumulator"] = kept
        else:
            add_metadata_by_partition(context, "shown", {key: {"key": key} for key in KEYS})

    asked: list[tuple[object, object]] = []

    def seen(self: object, metadata: object, asset_key: object = None, partition_key: object = None) -> None:
        asked.append((metadata, partition_key))

    with dg.DagsterInstance.ephemeral() as instance:
        tags = {"dagster/asset_partition_range_start": "a", "dagster/asset_partition_range_end": "c"}
        result = dg.materialize([shown], instance=instance, tags=tags)
    if is_kept_elsewhere:
        assert asked == [({"key": key}, key) for key in KEYS]
        return
    found = {
        m.partition: {name: value.value for name, value in m.metadata.items()}
        for m in result.asset_materializations_for_node("shown")
    }
    assert {key: found[key]["key"] for key in KEYS} == {key: key for key in KEYS}
    assert all(metadata["of"] == "all" for metadata in found.values())
