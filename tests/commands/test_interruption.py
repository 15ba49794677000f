"""Runs that meet each other, Ctrl-C and `kill -9`: a store that cannot grow: the next run does the rest, and nothing shows that it happened."""

import random
import re
import resource
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from agent_eval.project import Project
from agent_eval.tables import table
from benchmarks.interrupting import PYTHON, disturbed, runs_under_way, start, tables
from benchmarks.warm import command
from tests.conftest import TWO_AGENTS, copy_sample

pytestmark = pytest.mark.slow


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two agents of the sample, never run."""
    copy_sample(tmp_path / "project", *TWO_AGENTS)
    return tmp_path / "project"


@pytest.fixture
def undisturbed(two_agents: Path, tmp_path: Path) -> Path:
    """The two agents after a run of today, because clusters have the dates of the run: a suite can run over midnight."""
    made_on = Project.open(two_agents).store.read(table("error_registry"))["last_seen"].max()
    if made_on == datetime.now(UTC).date():
        return two_agents
    copy_sample(tmp_path / "undisturbed", *TWO_AGENTS)
    assert start(tmp_path / "undisturbed", command()).wait(300) == 0
    return tmp_path / "undisturbed"


def assert_same_tables(root: Path, undisturbed: Path) -> None:
    actual, expected = tables(root), tables(undisturbed)
    for name, frame in expected.items():
        assert_frame_equal(actual[name], frame)


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_the_run_after_a_broken_one_does_the_rest(
    undisturbed: Path, root: Path, sign: signal.Signals, code: int
) -> None:
    program = PYTHON if sign is signal.SIGKILL else command()
    left, err = disturbed(root, sign, random.Random(11), 1.5, program)
    assert left in {code, 0}  # 0: it was done before
    lines = [
        line for line in err.splitlines() if not re.match(r"\d+ s: ", line)
    ]  # progress of a slow machine
    assert len(lines) == (1 if sign is signal.SIGINT or left == 0 else 0), err
    _, err = (process := start(root, command())).communicate(timeout=300)
    assert process.returncode == 0, err
    assert_same_tables(root, undisturbed)
    assert runs_under_way(root) == []


def test_the_run_after_one_whose_files_could_not_grow_does_the_rest(undisturbed: Path, root: Path) -> None:
    size = (undisturbed / "data" / "agent_eval.duckdb").stat().st_size // 4  # of its store, and of the events
    resource.prlimit((full := start(root)).pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    _, err = full.communicate(timeout=300)
    assert full.returncode != 0, err
    _, err = (process := start(root, command())).communicate(timeout=300)
    assert process.returncode == 0, err
    assert_same_tables(root, undisturbed)


def test_two_runs_at_once_take_turns(undisturbed: Path, root: Path) -> None:
    both = [start(root, command()), start(root, command())]
    ends = [process.communicate(timeout=300)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    assert sum("brought up to date" in err for err in ends) == 1
    assert_same_tables(root, undisturbed)
