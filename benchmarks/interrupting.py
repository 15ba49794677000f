"""Runs that are disturbed, for the tests here and for `python -m benchmarks.chaos`."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import dagster as dg
import polars as pl

from agent_eval.project import Project
from agent_eval.tables import TABLES

PYTHON = (sys.executable, "-m", "agent_eval")


def start(root: Path, program: Sequence[str] = PYTHON) -> subprocess.Popen[str]:
    """`agent-eval run` on the project, in a process of its own."""
    environment = os.environ | {"AGENT_EVAL_HOME": str(root), "DAGSTER_HOME": str(root / ".dagster")}
    return subprocess.Popen(
        [*program, "run"],
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def at_work(root: Path, process: subprocess.Popen[str]) -> bool:
    """Wait until the run has made the store; False when it ended before."""
    while process.poll() is None:
        if (root / "data" / "agent_eval.duckdb").exists():
            return True
        time.sleep(0.02)
    return False


def disturbed(
    root: Path, sign: signal.Signals, chance: random.Random, longest_s: float, program: Sequence[str] = PYTHON
) -> tuple[int, str]:
    """A run that gets a signal at a random moment after it began to write: exit code, stderr."""
    process = start(root, program)
    if at_work(root, process):
        time.sleep(chance.uniform(0, longest_s))
        process.send_signal(sign)
    err = process.communicate(timeout=300)[1]
    return process.returncode, err


def tables(root: Path) -> dict[str, pl.DataFrame]:
    """Every stored table without run ids and times: `read` leaves out the store's own, the rest is dates of the day."""
    store = Project.open(root).store
    times = ("recorded_at", "changed_at")
    return {name: store.read(contract).drop(times, strict=False) for name, contract in TABLES.items()}


def runs_under_way(root: Path) -> list[str]:
    """Dagster runs that look alive."""
    alive = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.NOT_STARTED]
    with dg.DagsterInstance.from_config(str(root / ".dagster")) as instance:
        return [run.run_id for run in instance.get_runs(dg.RunsFilter(statuses=alive))]
