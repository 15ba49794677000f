"""A run whose process was killed is closed by whatever comes next: the UI, a tick of a sensor, or any command."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.launcher.base import CheckRunHealthResult, WorkerStatus
from typer.testing import CliRunner

from agent_eval.cli import app
from agent_eval.definitions import defs
from agent_eval.defs import automation
from agent_eval.defs import instance as instance_module
from agent_eval.defs.instance import CELERY_TASK, close_abandoned_runs, close_lost_runs, end_lost_retries
from agent_eval.project import Project
from agent_eval.storage import run_owners
from agent_eval.storage.run_owners import Owner, RunOwners
from tests.conftest import at_home

STATUS = dg.DagsterRunStatus
EVENTS = {
    STATUS.STARTING: "PIPELINE_STARTING",
    STATUS.STARTED: "PIPELINE_START",
    STATUS.CANCELING: "PIPELINE_CANCELING",
}


@dg.job
def any_job() -> None: ...


@pytest.fixture
def home(two_agents_copy: Path) -> Iterator[Path]:
    with at_home(two_agents_copy):
        yield two_agents_copy


@pytest.fixture
def instance(home: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.from_config(str(home / ".dagster")) as made:
        yield made


def run_in(instance: dg.DagsterInstance, *statuses: STATUS, module: str = "agent_eval.definitions") -> str:
    """A run that has had these statuses one after the other, each reported by this process; its id."""
    job = dg.reconstructable(any_job)
    origin = job.get_python_origin()
    of_module = origin.repository_origin._replace(code_pointer=ModuleCodePointer(module, "defs"))
    run = instance.create_run_for_job(
        job.get_definition(), job_code_origin=origin._replace(repository_origin=of_module)
    )
    for status in statuses:
        kind = dg.DagsterEventType(EVENTS[status])
        instance.report_dagster_event(dg.DagsterEvent(kind.value, job_name="any_job", message=""), run.run_id)
    return run.run_id


def status_of(instance: dg.DagsterInstance, run_id: str) -> STATUS:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run.status


def kill_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the recorded processes are those of an earlier boot."""
    monkeypatch.setattr(run_owners, "_boot", lambda: "after the reboot")


REACHED = [
    ((STATUS.STARTING,), STATUS.FAILURE),
    ((STATUS.STARTING, STATUS.STARTED), STATUS.FAILURE),
    ((STATUS.STARTING, STATUS.STARTED, STATUS.CANCELING), STATUS.CANCELED),
]


@pytest.mark.parametrize(("statuses", "closed"), REACHED)
@pytest.mark.parametrize("by", ["sensor", "busy sensor", "command"])
def test_a_run_is_closed_once_its_process_has_ended_and_not_before(
    statuses: tuple[STATUS, ...],
    closed: STATUS,
    by: str,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_id = run_in(instance, *statuses, module="their_project.definitions")  # any run of this home

    def next_thing() -> None:
        if by == "command":
            assert CliRunner().invoke(app, ["leaderboard"]).exit_code == 0
        elif by == "sensor":
            automation.source_changes(dg.build_sensor_context(instance, definitions=defs))
        else:
            close_abandoned_runs(
                instance, Project.open().store
            )  # what a tick does while a run is in progress

    next_thing()
    assert status_of(instance, run_id) is statuses[-1]
    kill_all(monkeypatch)
    next_thing()
    assert status_of(instance, run_id) is closed
    assert RunOwners(Path(instance.root_directory)).dead() == []


def test_a_run_that_ends_has_no_owner_any_more(instance: dg.DagsterInstance) -> None:
    @dg.job
    def quick() -> None: ...

    run_id = quick.execute_in_process(instance=instance).run_id
    assert not list((Path(instance.root_directory) / "run_owners").iterdir())
    assert status_of(instance, run_id) is STATUS.SUCCESS


def test_a_run_without_a_recorded_process_is_closed_after_a_silence_under_the_lock(
    home: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    created, started = run_in(instance), run_in(instance, STATUS.STARTED)
    elsewhere, other = run_in(instance, STATUS.STARTED), run_in(instance, module="their_project.definitions")
    owners, store = RunOwners(Path(instance.root_directory)), Project.open().store
    owners.forget(started)  # as after an upgrade
    monkeypatch.setattr(
        RunOwners, "state", lambda _, run_id: Owner.UNKNOWN if run_id == elsewhere else _state(_, run_id)
    )
    assert close_lost_runs(instance, home, store) == []
    monkeypatch.setattr(instance_module, "SILENT_S", -1.0)
    assert close_lost_runs(instance, home, store) == sorted([created, started, elsewhere])
    assert status_of(instance, other) is STATUS.NOT_STARTED


def test_a_run_whose_celery_task_failed_before_it_started_is_closed_while_others_wait_for_a_worker(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, waiting = (run_in(instance, STATUS.STARTING) for _ in range(2))
    tasks = {failed: WorkerStatus.FAILED, waiting: WorkerStatus.UNKNOWN}  # of Celery: FAILURE and PENDING
    for run_id in tasks:
        instance.add_run_tags(run_id, {CELERY_TASK: run_id})
    run_in(instance, STATUS.STARTING)  # of another launcher

    answers = iter([ConnectionError()])  # at first, the broker is away

    def health(_: object, run: dg.DagsterRun) -> CheckRunHealthResult:
        for error in answers:
            raise error
        return CheckRunHealthResult(tasks[run.tags[CELERY_TASK]])

    monkeypatch.setattr(type(instance.run_launcher), "check_run_worker_health", health)
    for status in (STATUS.STARTING, STATUS.FAILURE):
        automation.source_changes(dg.build_sensor_context(instance, definitions=defs))
        assert status_of(instance, failed) == status
    assert status_of(instance, waiting) == STATUS.STARTING


def test_a_backfill_waits_no_longer_for_a_retry_that_was_never_started(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster forgets a retry if its database stops at that moment."""
    of_backfill = {"dagster/backfill": "b", "dagster/max_retries": "3"}
    lost, started, of_none = (
        instance.create_run_for_job(any_job, status=STATUS.STARTED, tags=tags)
        for tags in (of_backfill, of_backfill, {"dagster/max_retries": "3"})
    )
    for run in (lost, started, of_none):
        instance.report_run_failed(run)
    instance.add_run_tags(started.run_id, {"dagster/auto_retry_run_id": "r"})
    assert end_lost_retries(instance) == []  # it may be started yet
    monkeypatch.setattr(instance_module, "SILENT_S", -1.0)
    assert end_lost_retries(instance) == [lost.run_id]
    assert end_lost_retries(instance) == []
    waiting = instance.get_runs(dg.RunsFilter(tags={"dagster/will_retry": "true"}))
    assert {run.run_id for run in waiting} == {started.run_id, of_none.run_id}


_state = RunOwners.state
