"""Runs that meet each other, Ctrl-C and `kill -9`: the next run does the rest, and nothing shows that it happened.

Files that cannot grow: tests/storage/test_durability.py, and `python -m benchmarks.chaos store_full journal_full`.
"""

import random
import re
import signal
import subprocess
import sys
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


INTERRUPTED_AT = {
    "a library logs what met it while it closed a connection": """
import logging
try:
    try:
        signal.raise_signal(signal.SIGINT)
    except BaseException:
        logging.getLogger("sqlalchemy.pool").error("Exception closing connection", exc_info=True)
        raise
except KeyboardInterrupt:
    print("ended")
""",
    "Python drops what met a finalizer": """
import time
class Closes:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
try:
    Closes()
    time.sleep(10)
    print("went on")
except KeyboardInterrupt:
    print("ended")
""",
}


@pytest.mark.parametrize("moment", INTERRUPTED_AT)
def test_ctrl_c_ends_the_process_without_a_traceback_wherever_it_arrives(moment: str) -> None:
    script = "import signal\nfrom agent_eval.cli import keep_interrupts_quiet\nkeep_interrupts_quiet()\n"
    done = subprocess.run(
        [sys.executable, "-c", script + INTERRUPTED_AT[moment]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("ended\n", "")


def test_an_error_of_a_library_is_still_printed() -> None:
    script = (
        "import logging\nfrom agent_eval.cli import keep_interrupts_quiet\nkeep_interrupts_quiet()\n"
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    logging.getLogger('pool').error('broken', exc_info=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert "broken" in done.stderr
    assert "ZeroDivisionError" in done.stderr


def test_two_runs_at_once_take_turns(two_agents_today: Path, root: Path) -> None:
    both = [start(root, command()), start(root, command())]
    ends = [process.communicate(timeout=300)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    assert sum("brought up to date" in err for err in ends) == 1
    assert_same_tables(root, two_agents_today)
