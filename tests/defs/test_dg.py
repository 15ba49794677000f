"""Dagster's own command line finds the definitions, as in any Dagster project."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.defs.live import environment

pytestmark = pytest.mark.slow

DG = Path(sys.executable).with_name("dg")


@pytest.mark.parametrize(
    ("command", "said"),
    [(("check", "defs"), "All definitions loaded successfully"), (("list", "defs"), "leaderboard")],
)
def test_dg_finds_the_definitions(command: tuple[str, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    asked = [str(DG), *command]
    home = environment(tmp_path, COLUMNS="200")
    (tmp_path / ".dagster").mkdir()
    done = subprocess.run(asked, cwd=REPOSITORY, env=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert said in done.stdout + done.stderr
