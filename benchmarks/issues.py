"""Issues over nights: the trials of tau1 airline, permuted and with a fault planted in night 3.

`python -m benchmarks issues` needs the shared data. It imports each trial as a night of one agent and judges with rules.
"""

import gzip
import json
import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from agent_eval.clusters.issues.lifecycle import BACK, FIXED, Issue, followed
from agent_eval.clusters.issues.sightings import ALL
from agent_eval.commands.api import import_file
from agent_eval.commands.run import run
from agent_eval.project import Project
from agent_eval.tables import table
from benchmarks.attribution import DATA as SHARED

DATA = SHARED.parents[1] / "tau1" / "airline__gpt-4o__4trials.json.gz"
AGENT, VERSION, PERMUTATIONS, DRAWS = "agent", "1.3.0", 200, 400
REPEATED = "Please wait while I look into this for you."
KEY = ("methodology_version", "agent_id", "cluster_id")


def measure() -> Iterator[str]:
    """Replay the nights, then permute them."""
    trials = _trials()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        os.environ |= {"AGENT_EVAL_HOME": str(root), "DAGSTER_HOME": str(root / ".dagster")}
        (root / "data").mkdir()
        planted = set[str]()
        nights = [(0, 0.0), (1, 0.0), (2, 0.5), (3, 0.0), (0, 0.0), (1, 0.5)]
        for number, (trial, share) in enumerate(nights, 1):
            before = _issues()
            _play(root, f"night-{number}", trials[trial], share)
            issues = _issues()
            planted |= {name for name in issues.keys() - before.keys() if share and number == 3}
            told = {
                name: (issues[name]["status"], issues[name]["fixed_in"], issues[name]["returned_in"])
                for name in sorted(planted)
            }
            n = Counter(row["status"] for row in issues.values())
            yield f"night {number}{' with the fault' if share else ''}: {dict(n)}; new in night 3: {told}"
        yield from _permuted(_with_issue([f"night-{n}" for n in (1, 2, 3, 4)], planted))
        yield from _constant()


def _trials() -> list[list[dict[str, Any]]]:
    records = json.loads(gzip.decompress(DATA.read_bytes()))
    return [[r for r in records if r["trial"] == trial] for trial in range(4)]


def _play(root: Path, night: str, records: list[dict[str, Any]], share: float) -> None:
    """Import a night; in a share of its conversations the agent says one sentence twice."""
    draw, written = random.Random(7), []
    for record in records:
        messages = [
            {**record["traj"][0], "content": f"{record['traj'][0]['content']} {night}"},
            *record["traj"][1:],
        ]
        if draw.random() < share:
            waits = [{"role": "assistant", "content": REPEATED}, {"role": "user", "content": "Yes, please."}]
            messages = [*messages[:2], *waits, *waits, *messages[2:]]
        written.append(record | {"traj": messages, "trial": 0})
    file = root / f"{night}.json"
    file.write_text(json.dumps(written))
    [report] = import_file(file, agent=AGENT, session=night, project=Project.open())
    assert not report.reason, report.reason[:300]
    run(Project.open(), versions=[VERSION])


def _issues() -> dict[str, dict[str, Any]]:
    return {row["cluster_id"]: row for row in Project.open().table("error_issues").iter_rows(named=True)}


def _with_issue(nights: list[str], planted: set[str]) -> dict[tuple[str, int], set[str]]:
    """Return the clusters of each task and night, without those that the fault may have made."""
    project = Project.open()
    places = project.table("transcripts").filter(pl.col("benchmark_id").is_in(nights))
    failures = project.table("failures").select("conversation_id", "cluster_id").unique()
    failures = failures.filter(~pl.col("cluster_id").is_in(planted))
    found: dict[tuple[str, int], set[str]] = {
        (task, nights.index(night)): set()
        for task, night in places.select("task_id", "benchmark_id").iter_rows()
    }
    seen = places.join(failures, on="conversation_id")
    for task, night, cluster in seen.select("task_id", "benchmark_id", "cluster_id").iter_rows():
        found[task, nights.index(night)].add(cluster)
    return found


def _permuted(found: dict[tuple[str, int], set[str]]) -> Iterator[str]:
    """Draw the nights of each task's trials again, with issues of our own at constant rates beside those found."""
    tasks, n_nights = sorted({task for task, _ in found}), len({night for _, night in found})
    draw = random.Random(3)
    own = {
        f"E-{i:010x}": {task: min(1.0, draw.expovariate(1 / mean)) for task in tasks}
        for i, mean in enumerate((0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.5))
    }
    names = sorted({c for clusters in found.values() for c in clusters} | {*own})
    registry = table("error_registry").frame(
        {"cluster_id": name, "label": "repetition", "severity": "low"} for name in names
    )
    n_back = n_fixed = n_early = 0
    for _ in range(PERMUTATIONS):
        nights: list[dict[str | None, Counter[str]]] = [{} for _ in range(4)]
        for task in tasks:
            order = [*range(n_nights)]
            draw.shuffle(order)
            for night, trial in enumerate(order):
                had = found[task, trial] | {name for name, rate in own.items() if draw.random() < rate[task]}
                for name in (None, *had):
                    nights[night].setdefault(name, Counter())[task] += 1
        rows: list[dict[str, object]] = []
        for i, of_night in enumerate(nights):
            run = {
                "methodology_version": VERSION,
                "agent_id": AGENT,
                "benchmark_id": f"n{i}",
                "run_key": f"n{i}",
            }
            for name, counts in of_night.items():
                lists = {"tasks": [*counts], "n_conversations": [*counts.values()]}
                rows.append({**run, "basis": ALL, "cluster_id": name, **lists})
        after = [issue for _, issue in followed(table("issue_runs").frame(rows), registry)]
        n_back += any(issue.status == BACK for issue in after)
        n_fixed += any(issue.status == FIXED for issue in after)
        n_early += any(issue.status == FIXED and issue.n_clean < (issue.n_needed or 0) for issue in after)
    yield (
        f"{PERMUTATIONS} permutations of {n_nights} trials over 4 nights, {len(names)} issues: any 'came back' in "
        f"{n_back / PERMUTATIONS:.1%} (bar 5 %), any 'fixed' in {n_fixed / PERMUTATIONS:.1%}, on too few in {n_early}"
    )


def _constant() -> Iterator[str]:
    """Draw 28 nights at a constant rate, from the start and after two nights at 30 %; nothing really comes back."""
    draw = np.random.default_rng(1)
    for rate in (0.005, 0.02, 0.1):
        for n in (50, 200, 600, 1000, 2000):
            n_back = [0, 0]
            for _ in range(DRAWS):
                nights = draw.binomial(n, rate, 28).tolist()
                for kind, before in enumerate(([], draw.binomial(n, 0.3, 2).tolist())):
                    n_back[kind] += _comes_back([*before, *nights], n)
            shares = [k / DRAWS for k in n_back]
            yield f"28 nights of {n} at {rate:.1%}: came back in {shares[0]:.1%}, after a repair in {shares[1]:.1%}"


def _comes_back(counts: list[int], n: int) -> bool:
    issue: Issue | None = None
    for i, k in enumerate(counts):
        issue = Issue(f"n{i}", f"n{i}") if issue is None and k else issue
        if issue is not None:
            issue.add(f"n{i}", Counter(t=n), Counter(t=k) if k else Counter())
            if issue.status == BACK:
                return True
    return False
