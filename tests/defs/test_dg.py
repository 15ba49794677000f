"""Dagster's own command line finds the definitions, as in any Dagster project."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent_eval.cli import app
from benchmarks.live import environment
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.slow

DG = Path(sys.executable).with_name("dg")


def test_dg_checks_the_definitions_of_a_new_project(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["init", str(tmp_path / "made")]).exit_code == 0
    (tmp_path / "made" / ".dagster").mkdir()
    home = environment(tmp_path / "made")
    asked = [str(DG), "check", "defs"]
    done = subprocess.run(asked, cwd=tmp_path / "made", env=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_dg_finds_the_definitions(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    home = environment(tmp_path, COLUMNS="200")
    (tmp_path / ".dagster").mkdir()
    asked = [str(DG), "list", "defs"]
    done = subprocess.run(asked, cwd=REPOSITORY, env=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "leaderboard" in done.stdout + done.stderr
