"""Rounds of kill -9 while three Celery workers share a project: by hand, an hour or two.

`python -m benchmarks kill_rounds` needs Postgres, Redis and the extra `cluster`. The variables KILL_ROUNDS (60),
KILL_SEED (0) and KILL_FOLDER (a new one) set the number of rounds, the seed and where everything is stored. All
processes run during all rounds. A round changes the files and leaves the work to automation, or every third time to
`agent-eval backfill`; at a random moment a worker, the catalog (with Dagster's records), or the broker with the code server is killed
and started again. Each eighth round kills all workers, the code server and the broker, which also loses its file, so that
submitted runs are lost. A round ends when no run is in progress and no partition is stale. Then no table may contain a
key twice, no more answers may be paid twice than calls were in flight, and no call may be missing in the ledger. At the
end, all tables must equal those of a project on a single file with the same changes that was not disturbed.
"""

import contextlib
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agent_eval.errors import StorageError
from agent_eval.project import Project
from agent_eval.storage.lake import LakeStore
from agent_eval.storage.lake.upkeep import check
from agent_eval.tables import TABLES
from benchmarks.cluster import (
    Cluster,
    add_session,
    cluster,
    differences,
    file_project,
    lake_project,
    postgres,
    workers,
)
from benchmarks.judge_server import mock_judge
from benchmarks.live import run_in_process
from tests.defs.test_live import is_settled

AGENTS, N_WORKERS, CONCURRENCY, LATENCY_MS = ("anna", "bert", "cleo"), 3, 2, 700
KINDS = ("worker", "catalog", "broker")
LIMIT_S = 3600  # a lost run is noticed after two minutes, and is then repeated
HEAD = "agent_id,session_id,conversation_id,turn_index,methodology_version,target,criterion,rating_1to5,rationale,evidence,rater,rated_at\n"
_BACKFILLS = "SELECT count(*) FROM bulk_actions WHERE status IN ('REQUESTED', 'CANCELING', 'FAILING')"
_RUNS = "SELECT status, count(*) FROM runs GROUP BY status ORDER BY status"


def change(root: Path, number: int) -> None:
    """The change of a round: a session of two conversations, every fourth time a rating by a person."""
    agent = AGENTS[number % len(AGENTS)]
    if number % 4 == 3:
        file = root / "data" / "ratings" / "people.csv"
        file.parent.mkdir(exist_ok=True)
        text = file.read_text() if file.exists() else HEAD
        rated = f"{agent},first,c{2 * AGENTS.index(agent)},0,any,helpfulness,,{1 + number % 5},as said,,kim,2026-11-01T10:00:00Z\n"
        lines = [line for line in text.splitlines(keepends=True) if not line.startswith(f"{agent},")]
        file.write_text("".join([*lines, rated]))
        return
    add_session(root, agent, f"s{number}", range(1000 + 2 * number, 1002 + 2 * number))


def prepare(root: Path) -> None:
    for i, agent in enumerate(AGENTS):
        add_session(root, agent, "first", range(2 * i, 2 * i + 2))


@dataclass
class Rounds:
    """The rounds on one cluster."""

    cluster: Cluster
    chance: random.Random
    work_s: float = 10.0  # from the first call until all is settled, without a kill
    n_answered_twice: int = 0

    def undisturbed(self) -> float:
        """Wait for the first work of automation; its duration."""
        began = time.monotonic()
        _until(lambda: self._n_calls() > 0 or bool(self.cluster.ended()), "a judge is called", every_s=0.5)
        if ended := self.cluster.ended():
            raise RuntimeError(f"{', '.join(ended)} did not start: see the logs in {self.cluster.home}")
        first = time.monotonic()
        _until(self.is_settled, "the first work is done")
        self.work_s = time.monotonic() - first
        return time.monotonic() - began

    def play(self, number: int) -> tuple[str, list[str]]:
        """One round: what happened, and what was wrong."""
        began, runs = time.monotonic(), self._runs()
        every = workers(N_WORKERS)
        is_lost, is_backfill = number % 8 == 7, number % 3 == 2
        kind = "all workers and the broker's file" if is_lost else KINDS[(number + number // 3) % 3]
        if is_lost:
            self.cluster.kill(*every)
        change(self.cluster.root, number)
        if is_backfill:
            self.cluster.run("backfill")
        moment = self._moment(is_lost=is_lost, has_calls=number % 4 != 3)
        n_in_flight = self._kill(kind, every)
        killed_s = time.monotonic() - began
        wrong = []
        try:
            _until(self.is_settled, "all is settled")
        except TimeoutError as error:
            wrong.append(str(error))
        if ended := self.cluster.ended():
            wrong.append(f"ended by themselves: {', '.join(ended)}")
            self.cluster.kill(*ended)
            self.cluster.start(*ended)
        n_twice = self.cluster.judge.stats()["duplicate_ok_calls"] - self.n_answered_twice
        self.n_answered_twice += n_twice
        n_of_catalog = N_WORKERS if is_backfill else 1  # processes that judge
        n_in_flight_at_most = CONCURRENCY * {"worker": 1, "catalog": n_of_catalog}.get(kind, 0)
        if n_twice > n_in_flight_at_most:
            wrong.append(f"{n_twice} answers paid twice")
        wrong += self._problems()
        made = {status: n - runs.get(status, 0) for status, n in self._runs().items()}
        words = ", ".join(f"{n} {status.lower()}" for status, n in made.items() if n)
        said = (
            f"{'backfill' if is_backfill else 'automation'}, {kind} killed {moment} ({killed_s:.0f} s), {n_in_flight} calls "
            f"in flight, {n_twice} paid twice; runs: {words}; {time.monotonic() - began:.0f} s"
        )
        return said, wrong

    def is_settled(self) -> bool:
        """Whether no run and no backfill is in progress and no partition is stale."""
        if self.cluster.n_unfinished_runs() or self.cluster.server.execute(
            _BACKFILLS, self.cluster.database
        ) != [(0,)]:
            return False
        return is_settled(self.cluster.root)

    def _moment(self, *, is_lost: bool, has_calls: bool) -> str:
        """Wait for the random moment of the kill; its name."""
        kinds = ("when queued", "while judging", "while writing") if has_calls else ("when queued",)
        moment = "when queued" if is_lost else self.chance.choice(kinds)
        before = self._n_calls()
        longest_s = {"when queued": 5.0 if has_calls else self.work_s, "while writing": self.work_s}.get(
            moment, 0.0
        )
        n_calls = before + (self.chance.randint(1, 3) if moment == "while judging" else 1)
        if moment == "when queued":
            _until(lambda: self.cluster.n_unfinished_runs() > 0, "a run is queued")
        else:
            _until(lambda: self._n_calls() >= n_calls, "judges are called", every_s=0.05)
        end = time.monotonic() + (2.0 if is_lost else self.chance.uniform(0, longest_s))
        while time.monotonic() < end and self.cluster.n_unfinished_runs():
            time.sleep(0.1)
        return moment

    def _kill(self, kind: str, every: list[str]) -> int:
        """Kill and start again; the number of calls in flight at that moment."""
        stats = self.cluster.judge.stats()
        if kind == "worker":
            name = self._busy() or self.chance.choice(every)
            self.cluster.kill(name)
            self.cluster.start(name)
        elif kind == "catalog":
            self.cluster.server.kill()
            time.sleep(self.chance.uniform(0, 5))
            self.cluster.server.start_after_kill()
        else:
            self.cluster.kill("redis", "code")
            if kind != "broker":
                shutil.rmtree(self.cluster.home / "redis")
            time.sleep(self.chance.uniform(0, 5))
            self.cluster.start("redis", "code")
            if kind != "broker":
                self.cluster.start(*every)
        return stats["calls"] - stats["ok"]

    def _busy(self) -> str | None:
        """A worker with a process that runs `agent-eval run`."""
        groups = set()
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if b"\0agent_eval\0run" in file.read_bytes():
                    groups.add(os.getpgid(int(file.parent.name)))
        found = [name for name in workers(N_WORKERS) if self.cluster.processes[name].pid in groups]
        return self.chance.choice(found) if found else None

    def _problems(self) -> list[str]:
        store = Project.open(self.cluster.root).store
        assert isinstance(store, LakeStore)
        n_counted = int(Project.open(self.cluster.root).beside_store.spent()["n_calls"].sum())
        lacking = self._n_calls() - n_counted
        return check(store).problems + [f"{lacking} calls are not in the ledger"] * (lacking > 0)

    def _n_calls(self) -> int:
        return self.cluster.judge.stats()["calls"]

    def _runs(self) -> dict[str, int]:
        return {
            str(status): int(str(n))
            for status, n in self.cluster.server.execute(_RUNS, self.cluster.database)
        }


def measure() -> Iterator[str]:
    """A line per round, the tables that differ at the end, and `n of n`."""
    n_rounds, seed = int(os.environ.get("KILL_ROUNDS", "60")), int(os.environ.get("KILL_SEED", "0"))
    folder = Path(os.environ.get("KILL_FOLDER") or tempfile.mkdtemp(prefix="agent-eval-kills-"))
    held, names = 0, ("daemon", *workers(N_WORKERS))
    with postgres() as server, mock_judge() as judge:
        judge.reset(latency_ms=LATENCY_MS)
        shaken = lake_project(folder / "shaken", server, concurrency=CONCURRENCY)
        calm = file_project(folder / "calm", concurrency=CONCURRENCY)
        prepare(shaken)
        with cluster(shaken, server, judge, names, lost_after_s=120) as processes:
            rounds = Rounds(processes, random.Random(seed))
            yield f"{folder}: the first work took {rounds.undisturbed():.0f} s"
            for number in range(n_rounds):
                said, wrong = rounds.play(number)
                held += not wrong
                yield f"round {number + 1}: {'; '.join([said, *wrong])}"
        n_paid, n_twice = judge.stats()["calls"], judge.stats()["duplicate_ok_calls"]
        judge.reset(latency_ms=0)
        os.environ |= judge.environment
        prepare(calm)
        run_in_process(calm)
        for number in range(n_rounds):
            change(calm, number)
            run_in_process(calm)
        different = differences(shaken, calm)
        rows = {name: Project.open(shaken).store.read(contract) for name, contract in TABLES.items()}
        held_rows = {name: frame for name, frame in rows.items() if frame.height}
        n_rows = sum(frame.height for frame in held_rows.values())
        n_keys = sum(frame.select(TABLES[name].key).n_unique() for name, frame in held_rows.items())
        yield f"{len(held_rows)} tables with rows: {n_rows:,} rows, {n_keys:,} keys"
        yield f"{n_paid} calls, {n_twice} answers paid twice; an undisturbed project needs {judge.stats()['calls']} calls"
        yield f"tables that differ from an undisturbed project: {'; '.join(different) or 'none'}"
        yield f"{held} of {n_rounds}"
    if held == n_rounds and not different and "KILL_FOLDER" not in os.environ:
        shutil.rmtree(folder)


def _until(is_so: Callable[[], bool], what: str, *, every_s: float = 5.0) -> None:
    """Wait until it is so; the catalog may be away meanwhile.

    Raises:
        TimeoutError: If it takes longer than the limit.
    """
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        with contextlib.suppress(StorageError):
            if is_so():
                return
        time.sleep(every_s)
    raise TimeoutError(f"not within {LIMIT_S} s: {what}")
