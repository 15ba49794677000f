"""Who needs the store's place for runs, and who must not hold it."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import polars as pl
import pytest

from agent_eval.definitions import defs
from agent_eval.defs import automation
from agent_eval.defs.instance import what_differs
from agent_eval.defs.launch import started_by
from agent_eval.defs.partitions import project_settings
from agent_eval.methodology.registry import MethodologyProblem, Registry
from agent_eval.project import Project
from agent_eval.project.data_versions import read_sources
from agent_eval.project.fingerprints import Fingerprints, stale_places
from agent_eval.project.project import PARENT_RUN
from agent_eval.tables.schema import MADE_FROM, shape_of
from tests.defs.test_live import edit_a_session


@pytest.fixture
def instance(two_agents_copy: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.from_config(str(two_agents_copy / ".dagster")) as made:
        yield made


def test_reconcile_passes_the_versions_on_and_leaves_the_place_for_runs_to_the_process_that_it_starts(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Project.open().store
    started = []

    def start(command: list[str], **options: Any) -> subprocess.Popen[str]:
        started.append((command[3:], store.abandoned_runs()))
        return subprocess.Popen(["echo", "done"], **options)

    monkeypatch.setattr(automation, "subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": start}))
    versions = ["1.1.0", "1.3.0"]
    config = {"ops": {"run_what_is_stale": {"config": {"boards": False, "methodologies": versions}}}}
    for run_config in (config, {}):
        done = defs.resolve_job_def("reconcile").execute_in_process(instance=instance, run_config=run_config)
        assert done.success
    assert started[0] == (["run", "--methodology", "1.1.0", "--methodology", "1.3.0"], [])
    assert started[1] == (["run", "--boards"], [])


@pytest.mark.parametrize(
    ("sensor", "begins_after_s", "is_ended"),
    [("redo_stale", 0, True), ("redo_stale", 2, True), (None, 2, False)],
)
def test_a_run_that_redo_stale_requested_ends_when_a_backfill_waits_for_it(
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    sensor: str | None,
    begins_after_s: float,
    is_ended: bool,
) -> None:
    began, started = time.monotonic(), list[subprocess.Popen[str]]()

    def start(_: list[str], **options: Any) -> subprocess.Popen[str]:
        started.append(subprocess.Popen(["sleep", "600" if is_ended else "4"], **options))
        return started[-1]

    monkeypatch.setattr(automation, "subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": start}))
    monkeypatch.setattr(automation, "EVERY_S", 0.2)
    monkeypatch.setattr(
        automation, "has_backfill_under_way", lambda _: time.monotonic() - began >= begins_after_s
    )
    tags = {"dagster/sensor_name": sensor} if sensor else {}
    done = defs.resolve_job_def("reconcile").execute_in_process(instance=instance, tags=tags)
    assert done.success
    assert len(started) == (begins_after_s > 0)
    assert [process.returncode for process in started] == [-signal.SIGTERM if is_ended else 0] * len(started)


def test_the_nightly_schedule_runs_reconcile_with_boards_at_the_time_of_the_settings() -> None:
    nightly = automation.nightly
    assert (nightly.job_name, nightly.cron_schedule) == (
        "reconcile",
        project_settings().nightly_cron,
    )
    assert nightly.default_status is dg.DefaultScheduleStatus.RUNNING
    [request] = nightly.evaluate_tick(dg.build_schedule_context()).run_requests or ()
    assert request.run_config == {}  # with which the job makes the boards


def test_reconcile_fails_when_the_run_could_not_do_it_and_the_failure_hook_gets_the_cause(
    two_agents_copy: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    (two_agents_copy / "alerts_of_mine.py").write_text(
        "import json, pathlib\n\ndef tell(failure):\n"
        "    pathlib.Path(__file__).with_name('told.json').write_text(json.dumps(failure))\n"
    )
    monkeypatch.syspath_prepend(str(two_agents_copy))
    monkeypatch.setenv("AGENT_EVAL_FAILURE_HOOK", "alerts_of_mine:tell")
    (two_agents_copy / "agent_eval.toml").write_text("nonsense = 1\n")
    done = defs.resolve_job_def("reconcile").execute_in_process(instance=instance, raise_on_error=False)
    (two_agents_copy / "agent_eval.toml").unlink()
    assert not done.success
    why = next(e.step_failure_data.error for e in done.all_events if e.is_step_failure)
    assert "nonsense" in str(why)
    failure = next(e for e in done.all_events if e.is_run_failure)
    context = dg.build_run_status_sensor_context("failed_runs", failure, instance, done.dagster_run)
    automation.failed_runs(context.for_run_failure())
    told = json.loads((two_agents_copy / "told.json").read_text())
    assert (told["job"], told["run_id"], bool(told["error"])) == ("reconcile", done.run_id, True)


def test_the_sensor_says_nothing_twice_and_waits_for_runs(
    two_agents_copy: Path, instance: dg.DagsterInstance
) -> None:
    observed = []
    for _ in range(2):
        found = automation.source_changes(dg.build_sensor_context(instance, definitions=defs))
        assert isinstance(found, dg.SensorResult)
        observed.append([(event.asset_key.path[-1], event.partition) for event in found.asset_events])
        edit_a_session(two_agents_copy)
    assert observed == [[], [("agent_sessions", "quill-help")]]


UP_TO_DATE = "up to date"  # a cursor that is empty would not be stored


def asked(instance: dg.DagsterInstance, cursor: str | None) -> tuple[int, str | None]:
    """Runs that a tick of `redo_stale` requests, and its cursor."""
    made = automation.redo_stale(dg.build_sensor_context(instance, cursor=cursor, definitions=defs))
    assert isinstance(made, dg.SensorResult)
    return len(made.run_requests or ()), made.cursor


def test_what_is_stale_is_requested_once_and_again_when_it_is_stale_again(
    two_agents_copy: Path, instance: dg.DagsterInstance
) -> None:
    session = next((two_agents_copy / "data" / "sessions" / "quill-help").glob("*/session.yaml"))
    text = session.read_text()
    assert asked(instance, None) == (0, UP_TO_DATE)
    session.write_text(f"{text}# looked at again\n")
    n, first = asked(instance, UP_TO_DATE)
    assert n == 1
    assert asked(instance, first) == (0, first)  # the run failed, or has not begun: it is not asked for twice
    session.write_text(f"{text}# and once more\n")
    assert asked(instance, first)[0] == 1  # another state
    session.write_text(text)
    assert asked(instance, first) == (0, UP_TO_DATE)  # as it was
    session.write_text(f"{text}# looked at again\n")
    assert asked(instance, UP_TO_DATE) == (1, first)


def test_a_run_that_a_run_of_a_sensor_starts_is_shown_as_launched_by_the_sensor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        passed = {f"dagster/{kind}_name": kind for kind in ("sensor", "schedule")}
        passed["dagster-celery/task_id"] = "t"
        reconcile = defs.resolve_job_def("reconcile")
        parent = instance.create_run_for_job(reconcile, tags=passed | {"note": "mine"}).run_id
        monkeypatch.setenv(PARENT_RUN, f"{parent} automation")
        own = {"dagster/parent_run_id": parent, "agent_eval/launched_by": "reconcile"}
        assert started_by(instance) == own | passed
        for _ in range(3):
            instance.create_run_for_job(reconcile, tags=started_by(instance))
        group = instance.get_run_group(parent)
        assert group is None or len([*group[1]]) == 1  # no retry is counted
        monkeypatch.setenv(PARENT_RUN, "a-run-that-was-deleted person")
        assert "dagster/sensor_name" not in started_by(instance)
        monkeypatch.delenv(PARENT_RUN)
        assert started_by(instance) == {"agent_eval/launched_by": "agent-eval run"}


def test_nothing_is_requested_while_work_is_under_way_and_a_run_that_no_worker_has_started_again(
    two_agents_copy: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit_a_session(two_agents_copy)
    job = defs.resolve_job_def("reconcile")
    under_way = instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    assert asked(instance, "before") == (0, "before")
    instance.report_run_failed(under_way)
    n_requested, cursor = asked(instance, "before")
    assert n_requested == 1
    instance.report_run_failed(instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTING))
    assert asked(instance, cursor) == (0, cursor)  # Dagster may retry it
    monkeypatch.setattr(automation, "EVERY_LOST_S", -1)
    assert asked(instance, cursor) == (1, cursor)
    run = instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTING)
    instance.report_dagster_event(dg.DagsterEvent("PIPELINE_START", "reconcile"), run.run_id)
    instance.report_run_failed(run)
    assert asked(instance, cursor) == (0, cursor)


def test_an_edited_frozen_version_does_not_stop_the_others(
    two_agents_copy: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit_a_session(two_agents_copy)
    problem = MethodologyProblem("1.0.0.yaml", "1.0.0 was published with another hash", version="1.0.0")
    monkeypatch.setattr(Registry, "edited", lambda _: {"1.0.0": problem})
    made = automation.redo_stale(dg.build_sensor_context(instance, definitions=defs))
    assert isinstance(made, dg.SensorResult)
    [request] = made.run_requests or ()
    config = request.run_config["ops"]["run_what_is_stale"]["config"]
    assert config == {"boards": False, "methodologies": ["1.1.0", "1.2.0", "1.3.0"]}


def test_an_instance_with_settings_of_its_own_is_told_what_it_lacks(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    assert what_differs(instance) is None
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "dagster.yaml").write_text("run_monitoring:\n  enabled: true\n")
    with dg.DagsterInstance.from_config(str(foreign)) as other:
        lacks, lacks_on_a_lake = what_differs(other) or "", what_differs(other, is_shared=True) or ""
    assert lacks_on_a_lake.endswith("Add it as in deploy/celery.yaml.")
    assert "max_concurrent_runs" not in lacks_on_a_lake
    for word in (str(foreign), "run_retries", "max_concurrent_runs: 1"):
        assert word in lacks
    assert "run_monitoring" not in lacks


@pytest.mark.slow
def test_a_run_of_one_asset_by_hand_leaves_stale_what_is_made_from_it(
    two_agents_copy: Path, instance: dg.DagsterInstance
) -> None:
    """Whatever the order of events: what counts is what the rows were made from."""
    edit_a_session(two_agents_copy)
    pair = dg.MultiPartitionKey({"agent": "quill-help", "version": "1.3.0"})
    job = defs.resolve_implicit_global_asset_job_def()

    def made_by_hand(partition: str, *assets: str) -> None:
        """In one run, with what the same ops compute."""
        graph = defs.resolve_asset_graph()
        keys = {key for asset in assets for key in graph.get(dg.AssetKey(asset)).execution_set_asset_keys}
        made = job.execute_in_process(instance=instance, asset_selection=[*keys], partition_key=partition)
        assert made.success

    made_by_hand(pair, "composite_scores")  # from rows that are stale
    made_by_hand("quill-help", "agents")
    found = {*stale()["asset"]}
    assert {"transcripts", "composite_scores", "gate_results", "leaderboard"} <= found
    assert not found & {"agents", "conversations", "turns"}
    made_by_hand(pair, *(name for name in MADE_FROM if shape_of(name) == "agent x version"))
    boards = [
        name for name in MADE_FROM if "composite_scores" in MADE_FROM[name] and shape_of(name) == "version"
    ]
    assert {*stale()["asset"]} == {*boards}  # the rows of the others did not change
    made_by_hand("1.3.0", *boards)
    made_by_hand(pair, "gate_results")
    assert {*stale()["asset"]} <= {"gate_results"}
    assert "quill-help" not in stale()["agent_id"].to_list()


def stale() -> pl.DataFrame:
    """The stale places that concern quill-help under 1.3.0."""
    project = Project.open()
    found = Fingerprints.of(project, read_sources(project, project.known_agents(), ["1.3.0"]))
    return stale_places(project, found, ["quill-help"], ["1.3.0"])
