"""Clusters on a lake with two workers are those of one file, whoever registers which run first."""

import threading
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from agent_eval.clusters.naming import Namer
from agent_eval.project import Project
from agent_eval.project.clusters import cluster_failures
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


def registered(root: Path, *workers: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """The clusters and their texts after each worker has registered its runs, all at once."""

    def work(runs: Sequence[pl.DataFrame]) -> None:
        for i, run in enumerate(runs):
            cluster_failures(Project.open(root), run, run_id=str(i), namer=Namer("mock", by_content))

    threads = [threading.Thread(target=work, args=(runs,)) for runs in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = Project.open(root).store
    return [living_rows(store.read(table("error_registry"))), store.read(table("error_members"))]


def test_two_workers_on_a_lake_make_the_clusters_of_one_on_a_file(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    (tmp_path / "file" / "data").mkdir(parents=True)
    on_file = registered(tmp_path / "file", RUNS)
    for i, order in enumerate([(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)]):
        root = tmp_path / f"lake{i}"
        (root / "data").mkdir(parents=True)
        server.execute(f"CREATE DATABASE clusters_{i}")
        catalog = f"{server.address} dbname=clusters_{i}"
        (root / "agent_eval.toml").write_text(
            f'[store]\nkind = "ducklake"\ncatalog = "postgres:{catalog}"\ndata = "{root}/lake/"\n'
        )
        initialise(LakeStore.of(catalog, root / "lake"))
        on_lake = registered(root, [RUNS[i] for i in order[:2]], [RUNS[i] for i in order[2:]])
        for one, other in zip(on_file, on_lake, strict=True):
            assert one.sort(one.columns[:3]).equals(other.sort(one.columns[:3]))
