"""Runs that meet each other, Ctrl-C and `kill -9`: the next run does the rest, and nothing shows that it happened.

Files that cannot grow: tests/storage/test_durability.py, and `python -m benchmarks.chaos store_full journal_full`.
"""

import random
import re
import signal
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from benchmarks.interrupting import PYTHON, disturbed, runs_under_way, start, tables
from benchmarks.warm import command
from tests.conftest import TWO_AGENTS, copy_sample

pytestmark = pytest.mark.slow


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two agents of the sample, never run."""
    copy_sample(tmp_path / "project", *TWO_AGENTS)
    return tmp_path / "project"


def assert_same_tables(root: Path, two_agents_today: Path) -> None:
    actual, expected = tables(root), tables(two_agents_today)
    for name, frame in expected.items():
        assert_frame_equal(actual[name], frame)


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_the_run_after_a_broken_one_does_the_rest(
    two_agents_today: Path, root: Path, sign: signal.Signals, code: int
) -> None:
    program = PYTHON if sign is signal.SIGKILL else command()
    left, err = disturbed(root, sign, random.Random(11), 1.5, program)
    assert left in {code, 0}, err  # 0: it was done before
    lines = [
        line for line in err.splitlines() if not re.match(r"\d+ s: ", line)
    ]  # progress of a slow machine
    assert len(lines) == (1 if sign is signal.SIGINT or left == 0 else 0), err
    _, err = (process := start(root, command())).communicate(timeout=300)
    assert process.returncode == 0, err
    assert_same_tables(root, two_agents_today)
    assert runs_under_way(root) == []


def test_two_runs_at_once_take_turns(two_agents_today: Path, root: Path) -> None:
    both = [start(root, command()), start(root, command())]
    ends = [process.communicate(timeout=300)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    assert sum("brought up to date" in err for err in ends) == 1
    assert_same_tables(root, two_agents_today)
