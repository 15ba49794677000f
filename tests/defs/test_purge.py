"""Old runs go with their files; what the assets show now stays."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from agent_eval.defs.purge import purge_history
from tests.defs.test_event_log import opened

pytestmark = pytest.mark.slow

SOON = timedelta(minutes=1)
DAYS = dg.StaticPartitionsDefinition(["mon", "tue"])


@dg.asset(partitions_def=DAYS)
def sales() -> None: ...


@dg.asset_check(asset=sales)
def is_complete() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=False)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with opened(tmp_path) as made:
        yield made


def run(instance: dg.DagsterInstance, partition: str, *, check: bool = False) -> str:
    parts: list[object] = [sales, is_complete] if check else [sales]
    return dg.materialize(parts, partition_key=partition, instance=instance).run_id  # type: ignore[arg-type]


def files_of(instance: dg.DagsterInstance, run_id: str) -> list[Path]:
    return [path for path in Path(instance.root_directory).rglob("*") if run_id in path.name]


def test_a_run_stays_as_long_as_a_partition_or_a_check_shows_it(instance: dg.DagsterInstance) -> None:
    replaced, checked = run(instance, "mon"), run(instance, "mon", check=True)
    tuesday, latest = run(instance, "tue"), run(instance, "mon")
    made = dg.DagsterEventType.ASSET_MATERIALIZATION
    shown = instance.get_latest_storage_id_by_partition(sales.key, made)
    assert files_of(instance, replaced)
    assert purge_history(instance, datetime.now(UTC) + SOON) == 1
    assert {r.run_id for r in instance.get_runs()} == {checked, tuesday, latest}
    assert files_of(instance, replaced) == []
    assert all(files_of(instance, run_id) for run_id in (checked, tuesday, latest))
    assert shown == instance.get_latest_storage_id_by_partition(sales.key, made)
    assert instance.get_materialized_partitions(sales.key) == {"mon", "tue"}
    assert purge_history(instance, datetime.now(UTC) + SOON) == 0


def test_younger_runs_and_those_under_way_stay(instance: dg.DagsterInstance) -> None:
    run(instance, "mon")
    run(instance, "mon")
    job = dg.Definitions([sales]).resolve_implicit_global_asset_job_def()
    under_way = instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    assert purge_history(instance, datetime.now(UTC) - SOON) == 0
    assert len(instance.get_runs()) == 3
    assert purge_history(instance, datetime.now(UTC) + SOON) == 1
    assert under_way.run_id in {r.run_id for r in instance.get_runs()}


def test_of_observations_the_latest_of_each_partition_stays(instance: dg.DagsterInstance) -> None:
    for value in ("1", "2", "3"):
        for partition in ("mon", "tue"):
            tags = {"dagster/data_version": value}
            instance.report_runless_asset_event(dg.AssetObservation("prices", partition=partition, tags=tags))
    purge_history(instance, datetime.now(UTC) + SOON)
    kept = instance.fetch_observations(dg.AssetKey("prices"), limit=10).records
    found = [record.asset_observation or dg.AssetObservation("x") for record in kept]
    assert {(o.partition, o.tags["dagster/data_version"]) for o in found} == {("mon", "3"), ("tue", "3")}
    assert len(found) == 2


def test_another_event_log_is_left_alone(tmp_path: Path) -> None:
    with opened(tmp_path, "telemetry: {enabled: false}\n") as instance:
        run(instance, "mon")
        run(instance, "mon")
        assert purge_history(instance, datetime.now(UTC) + SOON) == 0
        assert len(instance.get_runs()) == 2
