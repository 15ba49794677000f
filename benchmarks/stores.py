"""The same project in a file, in a lake, and in a lake that three Celery workers fill: all tables must be equal.

`python -m benchmarks stores`, by hand, some minutes, needs Postgres, Redis and the extra `cluster`. Twenty agents with
sessions of the sample are judged by a mock judge under all versions. The workers' project is left to automation: a
sensor notices the sessions and starts the runs. The other two projects are computed by `agent-eval run`. Table
run_state is compared too; ids of runs and times are not.
"""

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.cluster import cluster, differences, file_project, lake_project, postgres, workers
from benchmarks.judge_server import mock_judge
from benchmarks.kill_rounds import N_WORKERS, Rounds
from benchmarks.live import run_in_process
from tests.defs.test_backfill import N_AGENTS, generated

CONCURRENCY = 10


def measure() -> Iterator[str]:
    """A line per project with the number of calls, and the tables that differ from those of the file."""
    folder = Path(tempfile.mkdtemp(prefix="agent-eval-stores-"))
    with postgres() as server, mock_judge() as judge:
        by_workers, lake = (
            generated(lake_project(folder / name, server, concurrency=CONCURRENCY))
            for name in ("by_workers", "lake")
        )
        with cluster(by_workers, server, judge, ("daemon", *workers(N_WORKERS))) as processes:
            took_s = Rounds(processes, random.Random(0)).undisturbed()
        yield f"{N_AGENTS} agents, {N_WORKERS} workers, automation: {judge.stats()['calls']} calls, {took_s:.0f} s"
        os.environ |= judge.environment
        file = file_project(generated(folder / "file"), concurrency=CONCURRENCY)
        for root in (lake, file):
            judge.reset(latency_ms=0)
            run_in_process(root)
            yield f"{root.name}: {judge.stats()['calls']} calls"
        different = {root.name: differences(root, file) for root in (lake, by_workers)}
    for name, found in different.items():
        yield f"tables of {name} that differ from those of the file: {'; '.join(found) or 'none'}"
    if not any(different.values()):
        shutil.rmtree(folder)
