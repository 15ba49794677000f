"""Runs of workers that were killed, and of a catalog that was restarted, are repeated."""

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._daemon.types import DaemonHeartbeat

from agent_eval.commands.run import backfill
from agent_eval.definitions import defs
from agent_eval.defs import automation
from agent_eval.defs import instance as instance_module
from agent_eval.defs.instance import close_lost_runs
from agent_eval.defs.partitions import PAIRS
from agent_eval.errors import ConfigurationError, NotFoundError, RunError
from agent_eval.project import Project
from agent_eval.storage import RunScope
from agent_eval.storage.lake import LakeStore, catalog
from benchmarks.postgres_server import Server
from tests.conftest import at_home, copy_sample
from tests.defs.test_automation import asked


@dg.job
def reconcile() -> None:
    """A job whose definition is quickly loaded."""


def on_lake(lake: LakeStore, root: Path) -> None:
    """A project, with one agent unless it has some, whose store is the lake."""
    if not (root / "data").exists():
        copy_sample(root, "harbor-desk")
    (root / "agent_eval.toml").write_text(
        f'[store]\nkind = "ducklake"\ncatalog = "postgres:{lake.given}"\ndata = "{lake.data}/"\n'
    )


def started_run(instance: dg.DagsterInstance, module: str) -> str:
    """A run that has started, as a worker starts it; its id."""
    job = dg.reconstructable(reconcile)
    origin = job.get_python_origin()
    of_module = origin.repository_origin._replace(code_pointer=ModuleCodePointer(module, "defs"))
    origin = origin._replace(repository_origin=of_module)
    run = instance.create_run_for_job(
        job.get_definition(), job_code_origin=origin, status=dg.DagsterRunStatus.STARTED
    )
    instance.report_engine_event("Started process for run", run)
    return run.run_id


def test_a_run_whose_worker_was_killed_before_it_used_the_store_is_marked_as_failed(
    lake: LakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        silent, alive = (started_run(instance, "agent_eval.definitions") for _ in range(2))
        other = started_run(instance, "their_project.definitions")
        with lake.process_of_run(alive):
            assert close_lost_runs(instance, tmp_path, lake) == []  # it may have started just now
            monkeypatch.setattr(instance_module, "SILENT_S", -1.0)
            assert close_lost_runs(instance, tmp_path, lake) == [silent]
        statuses = {run.run_id: run.status for run in instance.get_runs()}
    assert statuses == {
        silent: dg.DagsterRunStatus.FAILURE,
        alive: dg.DagsterRunStatus.STARTED,
        other: dg.DagsterRunStatus.STARTED,
    }


def test_the_run_of_a_lost_machine_is_marked_as_failed_while_another_run_is_in_progress(
    lake: LakeStore, tmp_path: Path
) -> None:
    on_lake(lake, tmp_path)
    with at_home(tmp_path), dg.DagsterInstance.ephemeral() as instance, ThreadPoolExecutor(1) as worker:
        lost, stopped, active = (started_run(instance, "agent_eval.definitions") for _ in range(3))
        of_stopped = instance.get_run_by_id(stopped)
        assert of_stopped is not None
        instance.report_run_canceling(of_stopped)  # a user terminated it
        with contextlib.closing(lake.catalog_session("write")) as session:
            for run_id in (lost, stopped, "in another DAGSTER_HOME"):
                session.rows(f"INSERT INTO {catalog.SCHEMA}.run_process VALUES (%s, '1 1.5')", [run_id])
        entered, ended = threading.Event(), threading.Event()

        def other_run() -> None:
            with lake.run_section(RunScope(["a"]), active):
                entered.set()
                ended.wait(60)

        worker.submit(other_run)
        entered.wait(60)
        found = automation.source_changes(dg.build_sensor_context(instance, definitions=defs))
        ended.set()
        assert isinstance(found, dg.SkipReason)
        statuses = {run.run_id: run.status for run in instance.get_runs()}
        assert lake.abandoned_runs() == ["in another DAGSTER_HOME"]  # it is marked there
    assert statuses == {
        lost: dg.DagsterRunStatus.FAILURE,
        stopped: dg.DagsterRunStatus.CANCELED,
        active: dg.DagsterRunStatus.STARTED,
    }


def test_after_a_restart_of_the_catalog_the_same_stale_partitions_are_requested_again(
    lake: LakeStore, server: Server, tmp_path: Path
) -> None:
    on_lake(lake, tmp_path)
    with at_home(tmp_path), dg.DagsterInstance.ephemeral() as instance:
        n_requested, cursor = asked(instance, None)
        assert n_requested == 1
        assert asked(instance, cursor) == (0, cursor)  # a run that failed by itself is not repeated
        server.restart()
        assert asked(instance, cursor)[0] == 1


def test_a_backfill_has_one_run_for_each_stale_agent_and_retries_lost_ones(
    lake: LakeStore, tmp_path: Path
) -> None:
    agents = ["concierge-pa", "forge-coder", "harbor-desk", "lumen-support", "pilot-chat", "quill-help"]
    copy_sample(tmp_path, *agents)
    with at_home(tmp_path):
        with pytest.raises(ConfigurationError, match="use `agent-eval run`"):
            backfill(Project.open())
        on_lake(lake, tmp_path)
        with pytest.raises(ConfigurationError, match=r"No daemon uses DAGSTER_HOME .*\.dagster"):
            backfill(Project.open())
        with dg.DagsterInstance.from_config(str(tmp_path / ".dagster")) as instance:
            instance.add_daemon_heartbeat(DaemonHeartbeat(time.time(), "BACKFILL", "d", None))
            with pytest.raises(NotFoundError, match="Agent 'nobody' is not known"):
                backfill(Project.open(), ["nobody"])
            lines = backfill(Project.open(), versions=["1.1.0", "1.2.0", "1.3.0"])
            assert [line.partition(": ")[2] for line in lines[:-1]] == [
                "concierge-pa, forge-coder, harbor-desk: 18 assets, 3 versions.",
                "lumen-support, pilot-chat, quill-help: 18 assets, 3 versions.",
            ]
            with pytest.raises(RunError, match="in progress"):
                backfill(Project.open())
            assert asked(instance, "") == (0, "")
            ranges = []
            for made in instance.get_backfills():
                assert made.tags["dagster/max_retries"] == "3"
                data = made.get_asset_backfill_data(defs.resolve_asset_graph())
                with partition_loading_context(dynamic_partitions_store=instance):
                    subset = data.target_subset.get_partitions_subset(dg.AssetKey("turn_judgments"))
                    ranges += [(r.start, r.end) for r in subset.get_partition_key_ranges(PAIRS)]
            assert sorted(ranges) == [(f"{agent}|1.1.0", f"{agent}|1.3.0") for agent in agents]
