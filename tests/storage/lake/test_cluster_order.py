"""Clusters and gates on a lake with two workers are those of one file, whoever registers which run first."""

import threading
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from agent_eval.clusters.clusters import error_clusters
from agent_eval.clusters.naming import Namer
from agent_eval.gates.error_severity import severity_finding
from agent_eval.gates.finding import GateFinding
from agent_eval.project import Project
from agent_eval.project.clusters import cluster_failures
from agent_eval.settings.gate_spec import Rules
from agent_eval.storage.lake import LakeStore
from agent_eval.storage.lake.upkeep import initialise
from agent_eval.tables import table
from benchmarks.postgres_server import PASSWORD, Server
from tests.clusters.rows import WORDS
from tests.clusters.test_order import by_content, in_run, living_rows

RUNS = [
    in_run(f"2026-01-0{n}", *(f"{a} {b} late" for a, b in zip(WORDS[n:], WORDS, strict=False)))
    for n in range(1, 5)
]


def registered(
    root: Path, *workers: Sequence[pl.DataFrame]
) -> tuple[list[pl.DataFrame], list[GateFinding | None]]:
    """The clusters and their texts, and the severity gate at each level, after workers registered their runs at once."""

    def work(runs: Sequence[pl.DataFrame]) -> None:
        for i, run in enumerate(runs):
            cluster_failures(Project.open(root), run, run_id=str(i), namer=Namer("mock", by_content))

    threads = [threading.Thread(target=work, args=(runs,)) for runs in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    project = Project.open(root)
    whole = cluster_failures(project, pl.concat(RUNS), run_id="whole")
    tables = [living_rows(whole.registry), project.store.read(table("error_members"))]
    clusters = error_clusters(whole.failures, table("turn_judgments").empty(), whole.registry)
    levels = [Rules(fail_on_error_severity=level) for level in ("low", "medium", "high", "critical")]
    return tables, [severity_finding(rules, clusters, (9, 9)) for rules in levels]


def test_two_workers_on_a_lake_make_the_clusters_of_one_on_a_file(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    (tmp_path / "file" / "data").mkdir(parents=True)
    on_file, gates = registered(tmp_path / "file", RUNS)
    assert {gate.result for gate in gates if gate} >= {"failed"}
    for i, order in enumerate([(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)]):
        root = tmp_path / f"lake{i}"
        (root / "data").mkdir(parents=True)
        server.execute(f"CREATE DATABASE clusters_{i}")
        catalog = f"{server.address} dbname=clusters_{i}"
        (root / "agent_eval.toml").write_text(
            f'[store]\nkind = "ducklake"\ncatalog = "postgres:{catalog}"\ndata = "{root}/lake/"\n'
        )
        initialise(LakeStore.of(catalog, root / "lake"))
        on_lake, gates_on_lake = registered(root, [RUNS[i] for i in order[:2]], [RUNS[i] for i in order[2:]])
        for one, other in zip(on_file, on_lake, strict=True):
            assert one.sort(one.columns[:3]).equals(other.sort(one.columns[:3]))
        assert gates_on_lake == gates
