"""Who owns a run: a process that is active, one that has ended, or one that this machine cannot see."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from agent_eval.storage.run_owners import Owner, Process, RunOwners

HERE = Process.current()


@pytest.mark.parametrize(
    ("changed", "state"),
    [
        ({}, Owner.ALIVE),
        ({"start": "1"}, Owner.DEAD),  # the process id was reused
        ({"start": ""}, Owner.DEAD),
        ({"pid": 2**22 + 1}, Owner.DEAD),
        ({"boot": "before the reboot"}, Owner.DEAD),
        ({"boot": "before the reboot", "namespace": "its container"}, Owner.DEAD),
        ({"namespace": "another container"}, Owner.UNKNOWN),
        ({"host": "new name"}, Owner.ALIVE),
        ({"host": "another machine", "boot": "its boot"}, Owner.UNKNOWN),
    ],
)
def test_a_process_is_dead_only_if_this_machine_can_know_it(changed: dict[str, object], state: Owner) -> None:
    assert dataclasses.replace(HERE, **changed).state() is state  # type: ignore[arg-type]


def test_a_killed_child_is_dead_even_before_it_is_reaped(tmp_path: Path) -> None:
    code = "import sys, time; from agent_eval.storage.run_owners import RunOwners; from pathlib import Path\n"
    code += "RunOwners(Path(sys.argv[1])).record('run'); print('in', flush=True); time.sleep(60)"
    owners = RunOwners(tmp_path)
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        owners.record("mine")
        assert (owners.dead(), owners.state("run")) == ([], Owner.ALIVE)
        child.kill()
        child.stdout.read()  # its end is closed, and the child is a zombie until the block ends
        while owners.dead() != ["run"]:
            pass
    owners.forget("run")
    assert (owners.dead(), owners.state("run")) == ([], Owner.UNKNOWN)


def test_a_damaged_record_or_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "run_owners").mkdir()
    for name, text in (("a", ""), ("b", "[]"), ("c", '{"pid": 1}')):
        (tmp_path / "run_owners" / f"{name}.json").write_text(text)
    assert RunOwners(tmp_path).dead() == []
    file = tmp_path / "file"
    file.touch()
    RunOwners(file).record("run")
    assert RunOwners(file).dead() == []
