"""What judges may cost beyond one run: caps over runs, and what automation may do without one.

Caps over processes and a kill: tests/storage/test_ledger.py.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_eval.project import Project
from agent_eval.project.project import PARENT_RUN
from benchmarks import warm
from benchmarks.chaos import IMPORT, RUN, write_chats
from benchmarks.judge_server import MockJudge, mock_judge

AUTOMATION = {PARENT_RUN: "a-run-of-dagster automation"}
PRICED = {"AGENT_EVAL_JUDGE_PRICE_IN": "1", "AGENT_EVAL_JUDGE_PRICE_OUT": "2"}


@pytest.fixture(scope="module")
def judge() -> Iterator[MockJudge]:
    with mock_judge() as running:
        yield running


@pytest.fixture
def root(tmp_path: Path, judge: MockJudge) -> Path:
    judge.reset(latency_ms=20)
    write_chats(tmp_path / "chats.jsonl", range(8))  # 16 turns
    start(tmp_path, judge, *IMPORT).communicate(timeout=60)
    return tmp_path


def start(root: Path, judge: MockJudge, *command: str, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*warm.command(), *(command or RUN)],
        cwd=root, env=os.environ | warm.home_of(root) | judge.environment | PRICED | more,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def ran(root: Path, judge: MockJudge, **more: str) -> tuple[int, str]:
    """Calls that a run sent, and what it said."""
    before = judge.stats()["calls"]
    said = start(root, judge, **more).communicate(timeout=300)[0]
    return judge.stats()["calls"] - before, said


def reasons(root: Path) -> set[str]:
    rows = Project.open(root).table("turn_judgments").filter(status="unscored")
    return set(rows["rationale"].drop_nulls())


@pytest.mark.slow
def test_automation_asks_no_paid_judge_without_a_cap(
    root: Path, judge: MockJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    n, said = ran(root, judge, **AUTOMATION)
    assert n == 0, said
    (why,) = reasons(root)
    assert "automation does not call judge models that cost money (openai/mock) without a cap" in why
    cap = AUTOMATION | {"AGENT_EVAL_AUTOMATION_MAX_CALLS_PER_DAY": "5"}
    assert ran(root, judge, **cap)[0] == 5
    for name, value in (PRICED | judge.environment | cap).items():
        monkeypatch.setenv(name, value)
    again = Project.open(root).judges.runtime.budget.begin_call("openai/mock")
    assert again is not None
    assert "automation_max_calls_per_day" in again
    for name in cap:
        monkeypatch.delenv(name)
    assert ran(root, judge)[0] > 5  # by hand
    spent = Project.open(root).table("spending")
    monkeypatch.setenv("AGENT_EVAL_MAX_CALLS_PER_DAY", str(spent["n_calls"].sum()))
    reached = Project.open(root).judges.runtime.budget.begin_call("openai/mock")
    assert reached is not None  # the cap of a day counts the calls of every run
    assert "(max_calls_per_day) is reached" in reached
    assert spent.filter(started_by="automation")["n_calls"].sum() == 5
    assert spent["n_calls"].sum() == judge.stats()["calls"]
    assert spent["cost_usd"].sum() > 0
    assert spent["n_reserved"].sum() == 0
