"""The batched event log against Dagster's own: same rows, same files, whole batches, several processes."""

import functools
import itertools
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log import SqliteEventLogStorage
from sqlalchemy import event
from sqlalchemy.engine import Engine

from agent_eval.defs import launch
from agent_eval.defs.event_log import BATCH_SIZE, BatchedSqliteEventLogStorage
from agent_eval.defs.partitions import PAIRS
from agent_eval.defs.resources import RANGE_TAGS
from tests.conftest import REPOSITORY
from tests.defs.event_writer import report, write

pytestmark = pytest.mark.slow

AGENTS = [f"agent-{i}" for i in range(3)]
SWITCH = "DAGSTER_EVENT_BATCH_SIZE"
STOCK = "telemetry: {enabled: false}\n"


@pytest.fixture(autouse=True)
def switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")  # remembered, so that what a test sets is undone
    monkeypatch.delenv(SWITCH)


@pytest.fixture
def stock(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with opened(tmp_path / "stock", STOCK) as instance:
        assert type(instance.event_log_storage) is SqliteEventLogStorage
        yield instance


@pytest.fixture
def batched(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with opened(tmp_path / "batched") as instance:
        assert type(instance.event_log_storage) is BatchedSqliteEventLogStorage
        yield instance


def opened(home: Path, settings: str | None = None) -> dg.DagsterInstance:
    """The instance of a home; its settings are the project's own unless given."""
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").write_text(settings or (REPOSITORY / "dagster.yaml").read_text())
    return dg.DagsterInstance.from_config(str(home))


@dg.asset_check(asset="scores")
def scores_are_there() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True, metadata={"n": 1})


of_pairs = functools.partial(
    dg.asset, partitions_def=PAIRS, backfill_policy=dg.BackfillPolicy.single_run(), code_version="1"
)


@of_pairs()
def scores(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
    return dg.MaterializeResult(metadata={"rows": len(context.partition_keys)}, tags={"team": "evaluation"})


@of_pairs(deps=[scores])
def boards(context: dg.AssetExecutionContext) -> None:
    context.log.info("a line of the log")


def run_range(instance: dg.DagsterInstance) -> str:
    """One run over three agents under two versions; its id."""
    instance.add_dynamic_partitions("agent", AGENTS)
    result = dg.materialize(
        [scores, boards, scores_are_there],
        instance=instance,
        tags=dict(zip(RANGE_TAGS, ("agent-0|1.0.0", "agent-2|1.1.0"), strict=True)),
        run_config=launch._QUIET,
    )
    assert result.success
    return result.run_id


def rows(file: Path, table: str) -> list[tuple[str, ...]]:
    """Every row as text, with what differs between any two runs blotted out."""
    with closing(sqlite3.connect(file)) as connection:
        found = connection.execute(f"SELECT * FROM {table} ORDER BY id").fetchall()
    kinds = (
        r"[0-9a-f]{8}-[-0-9a-f]{27}",  # run ids
        r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?",
        r"\d{10}\.\d+",
        r"\b\d+(\.\d+)?m?s\b",
        r"\"duration_ms\": [\d.]+",
        r"\"log_key\": \"\w+\"",
    )
    noise = re.compile("|".join(kinds))
    return [tuple(noise.sub("…", str(value)) for value in row) for row in found]


def folder(instance: dg.DagsterInstance) -> Path:
    return Path(instance.root_directory) / "history" / "runs"


def partition_of(event: EventLogEntry) -> str | None:
    """The partition that the event says was materialised."""
    found = event.dagster_event
    return found.partition if found and found.is_step_materialization else None


def n_events(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return int(connection.execute("SELECT count(*) FROM event_logs").fetchone()[0])


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_range_run_leaves_the_same_rows_as_with_dagsters_own_storage(
    stock: dg.DagsterInstance, batched: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = [run_range(batched)]
    monkeypatch.delenv(SWITCH)
    written.append(run_range(stock))
    for table in ("event_logs", "asset_keys", "asset_event_tags", "asset_check_executions"):
        ours, theirs = (rows(folder(i) / "index.db", table) for i in (batched, stock))
        assert ours == theirs
        assert ours, table
    ours, theirs = (
        rows(folder(i) / f"{run}.db", "event_logs") for i, run in zip((batched, stock), written, strict=True)
    )
    assert ours == theirs
    # 2 assets × 3 agents × 2 versions, planned and materialised
    assert sum(row[3] == "ASSET_MATERIALIZATION" for row in ours) == 12
    assert sum(row[3] == "ASSET_MATERIALIZATION_PLANNED" for row in ours) == 12


def test_either_storage_goes_on_where_the_other_left_off(batched: dg.DagsterInstance) -> None:
    first = run_range(batched)
    with opened(Path(batched.root_directory), STOCK) as plain:
        assert len(plain.all_logs(first)) == len(batched.all_logs(first))
        second = run_range(plain)
    assert len(batched.all_logs(second)) == len(batched.all_logs(first))
    assert batched.get_run_by_id(second) is not None


def test_a_batch_that_fails_leaves_nothing_and_is_then_stored_one_by_one(
    batched: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = run_range(batched)
    stored = [e for e in batched.all_logs(run_id) if partition_of(e)]
    files = [folder(batched) / f"{name}.db" for name in (run_id, "index")]
    before, n_calls = [n_events(file) for file in files], itertools.count(1)
    plainly = SqliteEventLogStorage.store_event

    def failing(self: SqliteEventLogStorage, event: EventLogEntry) -> None:
        plainly(self, event)
        if next(n_calls) == 3:
            raise OSError("disk full")

    monkeypatch.setattr(SqliteEventLogStorage, "store_event", failing)
    with pytest.raises(OSError, match="disk full"):
        batched.event_log_storage.store_event_batch(stored)
    assert [n_events(file) for file in files] == before
    n_calls = itertools.count(1)
    report(batched, "run", ["a", "b", "c", "d"])
    assert "disk full" in capsys.readouterr().err
    assert [partition_of(e) for e in batched.all_logs("run")] == ["a", "b", "c", "d"]


def writer(home: Path, run_id: str, batches: int, size: int) -> "subprocess.Popen[str]":
    arguments = ["-m", "tests.defs.event_writer", str(home), run_id, str(batches), str(size)]
    return subprocess.Popen([sys.executable, *arguments], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)


def test_processes_that_write_at_once_lose_nothing(batched: dg.DagsterInstance) -> None:
    home = Path(batched.root_directory)
    others = [writer(home, f"run-{i}", 4, 25) for i in (1, 2)]
    assert all(other.stdout and other.stdout.readline() for other in others)  # now all three write
    write(batched, "run-0", 4, 25)
    assert [(other.communicate(timeout=300), other.returncode)[1] for other in others] == [0, 0]
    records = batched.fetch_materializations(dg.AssetKey("a"), limit=1000).records
    assert sorted((r.run_id, r.partition_key or "") for r in records) == sorted(
        (f"run-{i}", f"{j}-{k}") for i in range(3) for j in range(4) for k in range(25)
    )
    assert [len(batched.all_logs(f"run-{i}")) for i in range(3)] == [100, 100, 100]


def test_a_writer_that_is_killed_leaves_whole_batches_and_sound_files(batched: dg.DagsterInstance) -> None:
    home, size = Path(batched.root_directory), 50
    child = writer(home, "killed", 10_000, size)
    assert child.stdout
    for _ in range(5):
        child.stdout.readline()
    time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait(60)
    child.stdout.close()
    in_run, in_index = n_events(folder(batched) / "killed.db"), n_events(folder(batched) / "index.db")
    assert in_run % size == in_index % size == 0
    assert in_run - in_index in (0, size)  # the run's file commits first
    assert in_index >= 5 * size
    report(batched, "killed", ["after"])
    assert n_events(folder(batched) / "index.db") == in_index + 1


def test_events_of_a_run_share_a_connection_and_whoever_watches_sees_each(
    batched: dg.DagsterInstance,
) -> None:
    n_opened = 0

    def count(*_: object) -> None:
        nonlocal n_opened
        n_opened += 1

    report(batched, "run", ["first"])
    event.listen(Engine, "connect", count)
    try:
        for i in range(20):
            report(batched, "run", [str(i)])
    finally:
        event.remove(Engine, "connect", count)
    assert n_opened <= 2
    seen: list[str | None] = []
    with dg.DagsterInstance.from_config(batched.root_directory) as watching:
        watching.watch_event_logs("run", None, lambda entry, _: seen.append(partition_of(entry)))
        report(batched, "run", ["of", "a batch"])
        wait_until(lambda: len(seen) >= 23)
    assert seen == ["first", *map(str, range(20)), "of", "a batch"]


def note(instance: dg.DagsterInstance, text: str) -> None:
    """An event of a run that no other process waits for."""
    instance.report_engine_event(text, job_name="job", run_id="run")


def test_events_of_a_run_wait_until_one_of_them_or_a_reader_needs_them(
    batched: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_eval.defs.event_log.DEFERRED_S", 3600.0)
    report(batched, "run", ["first"])
    file = folder(batched) / "run.db"
    for text in ("a", "b"):
        note(batched, text)
    assert n_events(file) == 1
    report(batched, "run", ["second"])
    assert n_events(file) == 4
    note(batched, "c")
    assert len(batched.all_logs("run")) == 5
    note(batched, "d")
    batched.event_log_storage.dispose()
    assert n_events(file) == 6


def test_an_event_is_stored_after_a_while_if_no_other_follows(
    batched: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_eval.defs.event_log.DEFERRED_S", 0.01)
    report(batched, "run", ["first"])
    note(batched, "a")
    wait_until(lambda: n_events(folder(batched) / "run.db") == 2)


def test_an_event_that_cannot_be_stored_raises_and_the_others_are_stored(
    batched: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    plainly = BatchedSqliteEventLogStorage._event_to_row

    def failing(self: BatchedSqliteEventLogStorage, event: EventLogEntry) -> dict[str, Any]:
        if event.message == "b":
            raise OSError("no")
        return plainly(self, event)

    monkeypatch.setattr(BatchedSqliteEventLogStorage, "_event_to_row", failing)
    monkeypatch.setattr("agent_eval.defs.event_log.DEFERRED_S", 3600.0)
    for text in ("a", "b", "c"):
        note(batched, text)
    with pytest.raises(OSError, match="no"):
        batched.all_logs("run")
    assert [e.message for e in batched.all_logs("run")] == ["a", "c"]


def test_a_run_reads_its_dynamic_partitions_once_and_they_are_read_again_after_it(
    batched: dg.DagsterInstance,
) -> None:
    storage = batched.event_log_storage
    assert isinstance(storage, BatchedSqliteEventLogStorage)
    batched.add_dynamic_partitions("agent", ["a", "b"])
    with storage.partitions_held():
        assert batched.get_dynamic_partitions("agent") == ["a", "b"]
        batched.add_dynamic_partitions("agent", ["c"])
        assert [batched.has_dynamic_partition("agent", key) for key in "abc"] == [True, True, False]
    assert batched.get_dynamic_partitions("agent") == ["a", "b", "c"]
    assert batched.has_dynamic_partition("agent", "c")


def test_a_commit_does_not_wait_for_the_disk(batched: dg.DagsterInstance) -> None:
    storage = batched.event_log_storage
    assert isinstance(storage, BatchedSqliteEventLogStorage)
    with storage._connect("index") as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 1  # NORMAL
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


def test_wiped_runs_are_gone_and_new_ones_are_stored(batched: dg.DagsterInstance) -> None:
    report(batched, "run", ["a", "b"])
    batched.event_log_storage.wipe()
    report(batched, "run", ["c", "d"])
    assert [partition_of(e) for e in batched.all_logs("run")] == ["c", "d"]


def test_batches_are_switched_on_by_this_storage_only_and_never_against_the_users_wish(
    stock: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SWITCH not in os.environ
    with opened(tmp_path / "a"):
        assert os.environ[SWITCH] == str(BATCH_SIZE)
    monkeypatch.setenv(SWITCH, "7")
    with opened(tmp_path / "b"):
        assert os.environ[SWITCH] == "7"


def test_a_wiped_asset_is_gone_and_others_stay(batched: dg.DagsterInstance) -> None:
    for name in ("judge_spec", "judge_config"):
        batched.report_runless_asset_event(dg.AssetObservation(name, partition="agent-0|1.0.0"))
    batched.wipe_assets([dg.AssetKey("judge_spec")])
    assert batched.all_asset_keys() == [dg.AssetKey("judge_config")]
    assert n_events(folder(batched) / "index.db") == 1


def test_the_file_of_a_run_is_as_dagster_makes_it_and_never_replaces_one(
    stock: dg.DagsterInstance, batched: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    for instance in (stock, batched):
        report(instance, "first", ["a"])
        report(instance, "second", ["b"])
    made, copied = (folder(instance) / "second.db" for instance in (stock, batched))
    assert schema(copied) == schema(made)
    assert copied.stat().st_mode == made.stat().st_mode
    with closing(sqlite3.connect(copied)) as con:
        con.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def another_was_first(_: Path, file: Path) -> None:
        shutil.copyfile(copied, file)
        raise FileExistsError

    monkeypatch.setattr(os, "link", another_was_first)
    report(batched, "third", ["c"])
    assert n_events(folder(batched) / "third.db") == 2
    assert not [*folder(batched).glob("*.new")]


def schema(file: Path) -> list[tuple[str, ...]]:
    """The tables and indexes of a file, its migration and how it is written."""
    with closing(sqlite3.connect(file)) as con:
        found = con.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()
        return [
            *found,
            *con.execute("SELECT version_num FROM alembic_version"),
            *con.execute("PRAGMA journal_mode"),
        ]
