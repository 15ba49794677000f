"""Runs that meet each other, Ctrl-C and `kill -9`: the next run does the rest, and nothing shows that it happened."""

import random
import signal
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from benchmarks.interrupting import disturbed, project_at, runs_under_way, start, tables
from tests.conftest import made_once

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        start(project_at(folder / "project")).communicate(timeout=300)

    return made_once(tmp_path_factory, "undisturbed", make) / "project"


def assert_same_tables(root: Path, undisturbed: Path) -> None:
    actual, expected = tables(root), tables(undisturbed)
    for name, frame in expected.items():
        assert_frame_equal(actual[name], frame)


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_the_run_after_a_broken_one_does_the_rest(
    undisturbed: Path, tmp_path: Path, sign: signal.Signals, code: int
) -> None:
    root = project_at(tmp_path / "project")
    left, err = disturbed(root, sign, random.Random(11), 1.5)
    assert left in {code, 0}  # 0: it was done before
    assert len(err.splitlines()) == (1 if sign is signal.SIGINT or left == 0 else 0), err
    _, err = (process := start(root)).communicate(timeout=300)
    assert process.returncode == 0, err
    assert_same_tables(root, undisturbed)
    assert runs_under_way(root) == []


def test_two_runs_at_once_take_turns(undisturbed: Path, tmp_path: Path) -> None:
    root = project_at(tmp_path / "project")
    both = [start(root), start(root)]
    ends = [process.communicate(timeout=300)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    assert sum("brought up to date" in err for err in ends) == 1
    assert_same_tables(root, undisturbed)
