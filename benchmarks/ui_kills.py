"""Kill -9 of `agent-eval ui` and all its processes while it works: by hand, about two minutes a kill.

`python -m benchmarks ui_kills`; the variables UI_KILLS (20), KILL_SEED (0), KILL_KINDS (all) and KILL_FOLDER (a new one)
set the number of kills, the seed, the kinds of runs and where the projects are; one that differs is kept there. Each
kill meets another kind of run at a random moment after it started: `reconcile` of the sensor, `nightly`, `audit`, and
assets that somebody materialises. The UI is started again. Runs that were in progress must end within a minute, later
ones must not wait for them, and then all tables must equal those of an undisturbed project with the same change.
"""

import contextlib
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from benchmarks.cluster import add_session, differences, file_project
from benchmarks.judge_server import MockJudge, mock_judge
from benchmarks.live import LOCATION, Ui, eventually, run_in_process, served
from tests.defs.test_live import is_settled

KINDS = ("reconcile", "nightly", "audit", "materialise")
CONCURRENCY, LATENCY_MS, LONGEST_S, WITHIN_S = 4, 1000, 14.0, 60.0
_ALIVE = [dg.DagsterRunStatus[n] for n in ("NOT_STARTED", "QUEUED", "STARTING", "STARTED", "CANCELING")]
_BUSY = ("STARTED", "STARTING", "CANCELING")
_LAUNCH = """mutation($p: ExecutionParams!) { launchRun(executionParams: $p) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
_BOARDS = {"ops": {"run_what_is_stale": {"config": {"boards": True}}}}
_MATERIALISED = ("turn_judgments", "conversation_judgments", "rubric_ratings", "universal_scores")


def measure() -> Iterator[str]:
    """Yield a line per kill, and one for all."""
    chance = random.Random(int(os.environ.get("KILL_SEED", "0")))
    n, failed = int(os.environ.get("UI_KILLS", "20")), 0
    kinds = os.environ.get("KILL_KINDS", " ".join(KINDS)).split()
    folder = Path(os.environ.get("KILL_FOLDER") or tempfile.mkdtemp())
    with mock_judge() as judge:
        judge.reset(latency_ms=LATENCY_MS)
        base = file_project(folder / "base", concurrency=CONCURRENCY)
        for number, agent in enumerate(("anna", "bert")):
            add_session(base, agent, "first", range(4 * number, 4 * number + 4))
        with pytest.MonkeyPatch.context() as patch:
            for name, value in judge.environment.items():
                patch.setenv(name, value)
            run_in_process(base)
            undisturbed = _copy(base, "undisturbed")
            judge.reset(latency_ms=LATENCY_MS)
            _change(undisturbed)
            run_in_process(undisturbed)
            n_needed = judge.stats()["calls"]
            for number in range(n):
                kind = kinds[number % len(kinds)]
                root = _copy(base, f"{number}-{kind}")
                line, problems = _round(root, kind, judge, chance, n_needed, undisturbed)
                failed += bool(problems)
                yield f"{number + 1} of {n}, {kind}: {line}; {'; '.join(problems) or 'all right'}"
                if not problems:
                    shutil.rmtree(root)
    yield f"{n - failed} of {n} kills healed"


def _round(
    root: Path, kind: str, judge: MockJudge, chance: random.Random, n_needed: int, undisturbed: Path
) -> tuple[str, list[str]]:
    problems = []
    judge.reset(latency_ms=LATENCY_MS)
    with contextlib.suppress(OSError, AssertionError), served(root) as ui:
        _change(root)
        _launch(ui, kind)
        eventually(lambda: bool(_runs(root, "STARTED")), "a run starts", seconds=120, log=ui.log)
        waited = chance.uniform(0, LONGEST_S)
        time.sleep(waited)
        killed = _runs(root, *_BUSY)  # one that waits in the queue begins after the restart
        _kill(root)
    with served(root) as ui:
        began = time.monotonic()
        with contextlib.suppress(AssertionError):
            eventually(
                lambda: not killed & _runs(root, *_BUSY),
                "dead runs end",
                seconds=WITHIN_S,
            )
        took = time.monotonic() - began
        if left := killed & _runs(root, *_BUSY):
            problems.append(f"{len(left)} dead runs are in progress after {took:.0f} s")
        try:
            eventually(
                lambda: not _runs(root, *(s.value for s in _ALIVE)) and is_settled(root),
                "all is made",
                seconds=300,
                log=ui.log,
            )
        except AssertionError as error:
            problems.append(str(error).splitlines()[0])
        settled = time.monotonic() - began
    run_in_process(root)
    different = [
        text
        for text in differences(root, undisturbed)
        if kind != "audit" or not text.startswith(("judge_audits", "gate_spec"))
    ]
    n_calls = judge.stats()["calls"]
    if n_calls > n_needed + CONCURRENCY and kind != "audit":
        problems.append(f"{n_calls} calls instead of {n_needed}, at most {CONCURRENCY} were in flight")
    line = f"killed after {waited:.1f} s with {len(killed)} runs, dead ones ended {took:.0f} s after the restart, all made after {settled:.0f} s, {n_calls} calls ({n_needed} needed)"
    return line, problems + different


def _copy(base: Path, name: str) -> Path:
    return Path(shutil.copytree(base, base.parent / name))


def _change(root: Path) -> None:
    add_session(root, "anna", "second", range(100, 112))


def _launch(ui: Ui, kind: str) -> None:
    if kind == "reconcile":
        return  # the sensor starts it
    if kind == "materialise":
        keys = [{"path": [name]} for name in _MATERIALISED]
        params = {
            "selector": LOCATION | {"jobName": "__ASSET_JOB", "assetSelection": keys},
            "executionMetadata": {"tags": [{"key": "dagster/partition", "value": "bert|1.3.0"}]},
        }
    else:
        params = {"selector": LOCATION | {"jobName": "audit" if kind == "audit" else "reconcile"}}
        params["runConfigData"] = _BOARDS if kind == "nightly" else {}
    launched = ui.ask(_LAUNCH, p=params)["launchRun"]
    assert launched["__typename"] == "LaunchRunSuccess", launched


def _runs(root: Path, *statuses: str) -> set[str]:
    with dg.DagsterInstance.from_config(str(root / ".dagster")) as instance:
        wanted = dg.RunsFilter(statuses=[dg.DagsterRunStatus(name) for name in statuses])
        return {run.run_id for run in instance.get_runs(wanted)}


def _kill(root: Path) -> None:
    """Kill every process of the project, until none is left."""
    mark = f"AGENT_EVAL_HOME={root}".encode()
    while True:
        alive = []
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdigit() and mark in (folder / "environ").read_bytes().split(b"\0"):
                    alive.append(int(folder.name))
        if not alive:
            return
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
