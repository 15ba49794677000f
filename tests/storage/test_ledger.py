"""The ledger of judge calls: caps that hold across processes, and what is left of a killed one."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_eval.storage.ledger import Ledger, LedgerError, SpendingCap, spent
from tests.conftest import REPOSITORY

NO_CAP = SpendingCap(None, None, "", "")


def ledger(file: Path, run: str = "r", *, is_automatic: bool = False, **caps: SpendingCap) -> Ledger:
    in_all, per_day, of_automation = (caps.get(n, NO_CAP) for n in ("in_all", "per_day", "of_automation"))
    return Ledger(file, run, is_automatic, in_all, per_day, of_automation)


def calls(n: int) -> SpendingCap:
    return SpendingCap(n, None, "max_{}_per_day", "wait")


def test_calls_are_counted_before_and_their_cost_after(tmp_path: Path) -> None:
    file = tmp_path / "s"
    held = ledger(file)
    assert held.reserve("m") is None
    assert spent(file).select("n_calls", "n_reserved", "cost_usd").row(0) == (1, 1, 0.0)
    held.settle("m", n_in=10, n_out=2, cost_usd=0.5)
    assert held.reserve("m") is None
    held.settle("m", n_in=None, n_out=None, cost_usd=None)
    (row,) = spent(file).to_dicts()
    assert row.pop("day")
    assert row == {
        "run": "r", "model": "m", "started_by": "person", "n_calls": 2, "n_reserved": 0, "n_unknown_cost": 1,
        "n_tokens_in": 10, "n_tokens_out": 2, "cost_usd": 0.5,
    }  # fmt: skip
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("cap", ["in_all", "per_day"])
def test_a_cap_counts_every_run(tmp_path: Path, cap: str) -> None:
    runs = [ledger(tmp_path / "s", f"r{i}", is_automatic=False, **{cap: calls(3)}) for i in range(5)]
    reached = "the cap of 3 calls (max_calls_per_day) is reached; wait"
    assert [run.reserve("m") for run in runs] == [None] * 3 + [reached] * 2


def test_automation_has_a_cap_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "s"
    by_hand, by_itself = ledger(file), ledger(file, "a", is_automatic=True, of_automation=calls(2))
    for _ in range(5):
        assert by_hand.reserve("m") is None
    assert [by_itself.reserve("m") is None for _ in range(3)] == [True, True, False]
    assert by_hand.reserve("m") is None


def test_dollars_are_capped_by_what_is_known(tmp_path: Path) -> None:
    held = ledger(tmp_path / "s", per_day=SpendingCap(None, 1.0, "max_{}_per_day", "wait"))
    for cost in (0.6, 0.6):
        assert held.reserve("m") is None
        held.settle("m", n_in=1, n_out=1, cost_usd=cost)
    assert held.reserve("m") == "the cap of $1 (max_cost_usd_per_day) is reached ($1.2000 spent); wait"


def child(file: Path, n: int, cap: int) -> "subprocess.Popen[str]":
    code = (
        "import sys; from pathlib import Path; from tests.storage.test_ledger import *\n"
        f"held = ledger(Path(sys.argv[1]), str(os.getpid()), per_day=calls({cap}))\n"
        f"for _ in range({n}):\n"
        "    if held.reserve('m') is None:\n"
        "        print('sent', flush=True); held.settle('m', n_in=1, n_out=1, cost_usd=0.1)\n"
    )
    command = [sys.executable, "-c", code, str(file)]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_processes_at_once_never_exceed_a_cap(tmp_path: Path) -> None:
    file = tmp_path / "s"
    said = [process.communicate(timeout=120)[0] for process in [child(file, 90, 150) for _ in range(3)]]
    assert sum(text.count("sent") for text in said) == 150
    assert spent(file)["n_calls"].sum() == 150
    assert spent(file)["n_reserved"].sum() == 0


@pytest.mark.slow
def test_open_calls_of_a_killed_process_have_an_unknown_cost(tmp_path: Path) -> None:
    file = tmp_path / "s"
    process = child(file, 10**6, 10**9)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.2)
    os.kill(process.pid, signal.SIGKILL)
    n_sent = 1 + process.communicate()[0].count("sent")
    (row,) = spent(file).to_dicts()
    assert row["n_reserved"] == 0
    assert n_sent <= row["n_calls"] <= n_sent + 1
    assert row["n_unknown_cost"] in (0, 1)


@pytest.mark.parametrize(
    "broken",
    [lambda file: file.write_bytes(b"no database at all" * 99), lambda file: file.mkdir()],
    ids=["garbage", "folder"],
)
def test_no_call_is_counted_in_a_broken_ledger_and_the_error_names_the_file(
    tmp_path: Path, broken: Callable[[Path], object]
) -> None:
    file = tmp_path / "s"
    broken(file)
    with pytest.raises(LedgerError, match=str(file)):
        ledger(file, per_day=calls(3)).reserve("m")
    with pytest.raises(LedgerError, match="restore it from a backup"):
        ledger(file).reserve("m")
    with pytest.raises(LedgerError):
        spent(file)
