"""2,000 judge calls by one Celery worker and by three: by hand, ten minutes.

`python -m benchmarks workers` needs Postgres, Redis and the extra `cluster`; WORKERS_CALLS sets another number of
calls. A backfill, started as the UI starts it, ingests and judges three agents, each of which is a run of its own. The
judge takes 200 ms for a call, and each worker has ten calls in flight. The backfill leaves out error clusters and the
tables below them, whose names and ids depend on which agent's run comes first; `agent-eval run` then computes them for
all agents at once. Both projects need the same calls and must hold the same rows at the end.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent_eval.tables.schema import MADE_FROM, below, shape_of
from benchmarks.cluster import Cluster, add_session, cluster, differences, lake_project, postgres, workers
from benchmarks.judge_server import MockJudge, mock_judge
from benchmarks.live import eventually, run_in_process
from benchmarks.postgres_server import Server

AGENTS, CONCURRENCY, LATENCY_MS, CALLS_OF_CONVERSATION = ("anna", "bert", "cleo"), 10, 200, 2
_CLUSTERED = ("error_clusters", "error_rates", "failures")
ASSETS = sorted(
    name
    for name in MADE_FROM
    if shape_of(name) != "version" and name not in (*_CLUSTERED, *below(_CLUSTERED))
)
LIMIT_S = 7200
_AGENTS = "SELECT count(*) FROM dynamic_partitions WHERE partitions_def_name = 'agent'"


@dataclass
class Took:
    """What a backfill took."""

    root: Path
    wall_s: float  # from its start in the UI until it ended
    judging_s: float  # from the first call of a judge to the last
    n_calls: int


def measure() -> Iterator[str]:
    """Wall times of one and of three workers, their ratio, the calls, and the tables that differ."""
    n_calls = int(os.environ.get("WORKERS_CALLS", "2000"))
    n_conversations = max(1, round(n_calls / CALLS_OF_CONVERSATION / len(AGENTS)))
    folder = Path(tempfile.mkdtemp(prefix="agent-eval-workers-"))
    with postgres() as server, mock_judge() as judge:
        one, three = (_measured(folder, server, judge, n, n_conversations) for n in (1, len(AGENTS)))
        for n, took in ((1, one), (len(AGENTS), three)):
            yield (
                f"{n} worker{'s' * (n > 1)}: {took.n_calls:,} calls, judging {took.judging_s:.1f} s, "
                f"the backfill {took.wall_s:.1f} s"
            )
        yield (
            f"judging {one.judging_s / three.judging_s:.2f} x, the backfill {one.wall_s / three.wall_s:.2f} x as fast "
            "with three workers (bar: 2 x in judging)"
        )
        different = differences(three.root, one.root)
        if one.n_calls != three.n_calls:
            different.append(f"{three.n_calls - one.n_calls} more calls with three workers")
        yield f"differences: {'; '.join(different) or 'none'}"
    shutil.rmtree(folder)


def _measured(folder: Path, server: Server, judge: MockJudge, n_workers: int, n_conversations: int) -> Took:
    root = lake_project(folder / f"by_{n_workers}", server, concurrency=CONCURRENCY)
    for i, agent in enumerate(AGENTS):
        add_session(root, agent, "first", range(i * n_conversations, (i + 1) * n_conversations))
    judge.reset(latency_ms=LATENCY_MS)
    with cluster(root, server, judge, ()) as processes:
        processes.ui().stop_sensor("redo_stale")
        processes.start("daemon", *workers(n_workers))
        eventually(lambda: _is_ready(processes, n_workers), "all processes work", seconds=LIMIT_S)
        began = time.monotonic()
        backfill = processes.ui().backfill(ASSETS)
        first, last, n_calls = began, began, 0
        while processes.ui().backfill_status(backfill)[0] == "REQUESTED":
            if (n := judge.stats()["calls"]) != n_calls:
                last = time.monotonic()
                first, n_calls = (first if n_calls else last), n
            if last - began > LIMIT_S:
                raise TimeoutError("the backfill does not end")
            time.sleep(0.2)
        wall_s = time.monotonic() - began
        status, runs = processes.ui().backfill_status(backfill)
    if status != "COMPLETED_SUCCESS":
        raise RuntimeError(f"the backfill ended with {status}: {runs}; see {processes.home}")
    n_calls = judge.stats()["calls"]
    run_in_process(root)
    return Took(root, wall_s, last - first, n_calls)


def _is_ready(processes: Cluster, n_workers: int) -> bool:
    """Whether the workers wait for runs and the agents are partitions."""
    logs = [processes.home / f"{name}.log" for name in workers(n_workers)]
    n_agents = processes.server.execute(_AGENTS, processes.database)
    return n_agents == [(len(AGENTS),)] and all(" ready." in log.read_text() for log in logs)
