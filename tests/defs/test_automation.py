"""Who needs the store's place for runs, and who must not hold it."""

import json
import subprocess
from pathlib import Path

import dagster as dg
import pytest

from agent_eval.definitions import defs
from agent_eval.defs import automation
from agent_eval.project import Project


def test_reconcile_leaves_the_place_for_runs_to_the_process_that_it_starts(
    sample_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Project.open().store
    held = []

    def started(*_: object, **__: object) -> object:
        held.append(store.signed_in("run"))
        return subprocess.CompletedProcess([], 0, "done", "")

    monkeypatch.setattr(subprocess, "run", started)
    with dg.DagsterInstance.from_config(str(sample_copy / ".dagster")) as instance:
        assert defs.resolve_job_def("reconcile").execute_in_process(instance=instance).success
    assert held == [""]


def test_reconcile_fails_when_the_run_could_not_do_it(sample_copy: Path) -> None:
    (sample_copy / "agent_eval.toml").write_text("nonsense = 1\n")
    with dg.DagsterInstance.from_config(str(sample_copy / ".dagster")) as instance:
        done = defs.resolve_job_def("reconcile").execute_in_process(instance=instance, raise_on_error=False)
    assert not done.success
    why = next(e.step_failure_data.error for e in done.all_events if e.is_step_failure)
    assert why is not None
    assert "nonsense" in str(why)


def test_the_failure_hook_is_told_what_failed(sample_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sample_copy / "alerts_of_mine.py").write_text(
        "import json, pathlib\n\ndef tell(failure):\n"
        "    pathlib.Path(__file__).with_name('told.json').write_text(json.dumps(failure))\n"
    )
    monkeypatch.syspath_prepend(str(sample_copy))
    monkeypatch.setenv("AGENT_EVAL_FAILURE_HOOK", "alerts_of_mine:tell")
    with dg.DagsterInstance.from_config(str(sample_copy / ".dagster")) as instance:
        (sample_copy / "agent_eval.toml").write_text("nonsense = 1\n")
        done = defs.resolve_job_def("reconcile").execute_in_process(instance=instance, raise_on_error=False)
        (sample_copy / "agent_eval.toml").unlink()
        failure = next(e for e in done.all_events if e.is_run_failure)
        context = dg.build_run_status_sensor_context(
            "failed_runs", failure, instance, done.dagster_run
        ).for_run_failure()
        automation.failed_runs(context)
    told = json.loads((sample_copy / "told.json").read_text())
    assert told["job"] == "reconcile"
    assert told["run_id"] == done.run_id
    assert told["error"]


def test_the_sensor_says_nothing_twice_and_waits_for_runs(sample_copy: Path) -> None:
    with dg.DagsterInstance.from_config(str(sample_copy / ".dagster")) as instance:
        first = automation.source_changes(dg.build_sensor_context(instance, definitions=defs))
        assert isinstance(first, dg.SensorResult)
        assert not first.asset_events
        session = next((sample_copy / "data" / "sessions" / "quill-help").glob("*/session.yaml"))
        session.write_text(session.read_text() + "# looked at again\n")
        second = automation.source_changes(dg.build_sensor_context(instance, definitions=defs))
        assert isinstance(second, dg.SensorResult)
        assert [(e.asset_key.path[-1], e.partition) for e in second.asset_events] == [
            ("agent_sessions", "quill-help")
        ]
