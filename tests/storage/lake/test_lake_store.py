import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any
from unittest.mock import ANY, Mock

import duckdb
import polars as pl
import pytest

from agent_eval.storage import Replacement, RunScope, Store, StoreError
from agent_eval.storage.lake import LakeStore, catalog
from agent_eval.storage.lake.connections import Lake
from agent_eval.storage.lake.errors import CatalogError, ConflictError, DataFolderError, NotInitialisedError
from agent_eval.storage.lake.store import MARKER
from agent_eval.storage.lake.upkeep import Checked, check, compact, initialise
from agent_eval.storage.store import ensure_columns
from agent_eval.tables import TABLES, table
from benchmarks.postgres_server import PASSWORD, Server
from tests.storage.test_store import STATE, pairs, state

NONE = pl.DataFrame({"agent_id": ["none"]})


def put(store: Store, spec: str) -> None:
    """Replace the partition of agent a by one row."""
    store.replace(STATE, state(("a", "1", spec)), pairs(("a", "1")), run_id="r")


def test_a_write_replaces_exactly_its_partitions_and_stores_its_record_with_it(
    lake: LakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = Replacement(table("judge_cache"), table("judge_cache").empty(), pl.DataFrame({"cache_key": ["k"]}))
    assert lake.read(STATE).is_empty()
    monkeypatch.setattr(Lake, "attached", None)  # the connection of the read is kept open
    lake.replace(STATE, state(("a", "1", "x"), ("ab", "1", "x")), pairs(("a", "1"), ("ab", "1")), run_id="1")
    lake.replace(STATE, state(("a", "1", "new")), pairs(("a", "1")), run_id="2", record=note)
    assert lake.read(STATE).rows() == [("a", "1", "new"), ("ab", "1", "x")]
    assert lake.read(STATE, pl.DataFrame({"agent_id": ["ab"]})).height == 1
    assert lake.counts(STATE, columns=["spec"]).rows() == [("new", 1), ("x", 1)]


def test_writers_of_the_same_empty_partition_leave_the_rows_of_one(lake: LakeStore) -> None:
    def write(number: int) -> None:
        put(lake, str(number))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(8)))
    assert lake.read(STATE).height == 1
    assert check(lake).problems == []


@pytest.mark.parametrize("is_new", [True, False], ids=["the table is new", "the table has rows"])
def test_of_two_writers_without_locks_the_second_fails_at_its_commit(
    lake: LakeStore, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    if not is_new:
        lake.replace(STATE, state(("b", "1", "x")), pairs(("b", "1")), run_id="r")
    monkeypatch.setattr("agent_eval.storage.lake.catalog.CatalogSession.lock", lambda *_, **__: True)
    monkeypatch.setattr("agent_eval.storage.lake.catalog.CatalogSession.unlock", lambda *_, **__: None)
    impatient = replace(lake, patience_s=0)

    def between(con: duckdb.DuckDBPyConnection) -> None:
        put(lake, "first")
        con.execute("INSERT INTO judge_state BY NAME SELECT 'a' AS agent_id, '1' AS methodology_version")

    with pytest.raises(ConflictError, match=r"conflict.*No rows were changed"):
        impatient.transact([STATE], between)
    assert lake.read(STATE).filter(agent_id="a")["spec"].to_list() == ["first"]


def test_a_conflict_is_retried(lake: LakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    put(lake, "x")
    calls, taken = list[int](), list[bool]()
    lock = catalog.CatalogSession.lock

    def recorded(session: catalog.CatalogSession, name: str, *, shared: bool = False, **given: Any) -> bool:
        taken.extend([shared] * (name == "writes"))
        return lock(session, name, shared=shared, **given)

    monkeypatch.setattr(catalog.CatalogSession, "lock", recorded)
    monkeypatch.setattr("agent_eval.storage.lake.store._LONG_S", 60.0)

    def write(con: duckdb.DuckDBPyConnection) -> None:
        calls.append(1)
        if len(calls) == 1:  # another table: no lock orders the two, and both change `fence`
            lake.upsert(table("judge_cache"), table("judge_cache").empty(), run_id="r")
            lake.delete(table("agents"), NONE)

    lake.transact([STATE], write)
    assert len(calls) == 2
    assert all(taken)  # after a short attempt, other writes do not wait


def test_a_long_write_is_committed_though_other_workers_commit_all_the_time(
    lake: LakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_eval.storage.lake.store._LONG_S", 0.0)
    agents = table("agents")
    put(lake, "x")
    lake.delete(agents, NONE)  # creates the table
    attempts, others = list[int](), list[threading.Thread]()

    def write(con: duckdb.DuckDBPyConnection) -> None:
        attempts.append(1)
        con.execute("UPDATE judge_state SET spec = 'long'")
        others.append(threading.Thread(target=lake.delete, args=(agents, NONE)))
        others[-1].start()
        others[-1].join(60 if len(attempts) == 1 else 1)

    replace(lake, patience_s=5).transact([STATE], write)
    assert len(attempts) == 2  # during the second attempt, the other write waits
    others[-1].join(60)
    assert not others[-1].is_alive()
    assert lake.read(STATE)["spec"].to_list() == ["long"]


def test_nothing_to_delete_is_no_commit(lake: LakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LakeStore, "transact", None)
    lake.delete(STATE, STATE.empty().select(STATE.key))


@pytest.mark.parametrize("is_reader", [True, False], ids=["reader", "writer"])
def test_a_catalog_that_stops_in_a_transaction_is_one_line(
    lake: LakeStore, server: Server, is_reader: bool
) -> None:
    """DuckDB aborts the process if it closes a connection whose transaction cannot be rolled back."""
    lake.upsert(STATE, state(*((f"{i}", "1", "x") for i in range(100))), run_id="r")

    def use(change: str | None) -> None:
        with lake.session(read_only=is_reader) as con:
            if not is_reader:
                con.execute("BEGIN")
            con.execute("SELECT count(*) FROM judge_state").fetchall()
            server.restart()
            if change is None:
                raise KeyError
            con.execute(change)
            con.execute("SELECT count(*) FROM judge_state").fetchall()

    with pytest.raises(CatalogError, match=r"catalog cannot be reached \(it was stopped or restarted\)"):
        use("FROM judge_state" if is_reader else "UPDATE judge_state SET spec = 'y'")
    with pytest.raises(KeyError):
        use(None)

    def write(con: duckdb.DuckDBPyConnection) -> None:
        con.execute("DELETE FROM judge_state")
        server.restart()

    with pytest.raises(StoreError):
        lake.transact([STATE], write)
    assert lake.read(STATE).height == 100


def test_a_catalog_that_stops_while_a_worker_attaches_the_lake_is_one_line(
    lake: LakeStore, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attached(*_: object) -> None:
        server.restart()
        raise duckdb.IOException("Failed to attach DuckLake MetaData")

    monkeypatch.setattr(Lake, "attached", attached)
    with pytest.raises(CatalogError, match=r"cannot be reached \(it was stopped or restarted\)"):
        replace(lake, setup=("SELECT 1",)).read(STATE)  # a connection that is not kept yet


def test_a_writer_whose_section_ended_with_the_catalog_has_its_commit_refused(
    lake: LakeStore, server: Server
) -> None:
    put(lake, "x")
    with lake.exclusive_section("run"):
        server.restart()
        why = r"'run'.*another worker may have acquired it.*Run the command again"
        with pytest.raises(StoreError, match=why):
            put(lake, "late")
    assert lake.read(STATE)["spec"].to_list() == ["x"]
    put(lake, "next")
    assert lake.read(STATE)["spec"].to_list() == ["next"]


def test_a_writer_whose_table_lock_ended_has_its_commit_refused(
    lake: LakeStore, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(lake, "x")

    def write(con: duckdb.DuckDBPyConnection) -> None:
        con.execute("DELETE FROM judge_state")
        holders = "FROM pg_locks WHERE locktype = 'advisory' AND granted"
        server.execute(f"SELECT pg_terminate_backend(pid) {holders}")

    with pytest.raises(StoreError, match="tables that are written"):
        lake.transact([STATE], write)
    assert lake.read(STATE).height == 1


def test_one_holder_has_a_section_and_the_next_waits(lake: LakeStore) -> None:
    entered = threading.Event()

    def enter() -> None:
        with lake.exclusive_section("run"):
            entered.set()

    with lake.exclusive_section("run"), lake.exclusive_section("run") as is_again_held:
        assert is_again_held
        waiting = threading.Thread(target=enter)
        waiting.start()
        with ThreadPoolExecutor(1) as pool:
            assert not pool.submit(lambda: lake.exclusive_section("run", wait=False).__enter__()).result()
        assert not entered.is_set()
    waiting.join(10)
    assert entered.is_set()


def test_runs_on_other_agents_or_versions_go_on_at_once_and_a_run_on_all_waits_for_them(
    lake: LakeStore,
) -> None:
    entered: dict[str, threading.Event] = {}

    def start(name: str, scope: RunScope | None) -> threading.Event:
        def run() -> None:
            with lake.run_section(scope, name):
                entered[name].set()

        entered[name] = threading.Event()
        threading.Thread(target=run, daemon=True).start()
        return entered[name]

    with lake.run_section(RunScope(["a", "b"], ["1", "2"]), "run"):
        assert start("other agent", RunScope(["c"])).wait(60)
        assert start("other version", RunScope(["a", "d"], ["3"])).wait(60)
        waiting = [start("same agent and version", RunScope(["b", "d"], ["2"]))]
        waiting += [start("all versions", RunScope(["b"])), start("all", None)]
        time.sleep(0.3)
        assert not any(event.is_set() for event in waiting)
    assert all(event.wait(60) for event in waiting)
    with lake.run_section(None, "outer"), lake.run_section(RunScope(["a"]), "inner"):
        assert lake.abandoned_runs() == []


def test_a_run_whose_process_is_gone_is_abandoned_until_it_is_forgotten(
    lake: LakeStore, server: Server
) -> None:
    with lake.process_of_run("ended"):
        assert lake.abandoned_runs() == []
    with lake.run_section(RunScope(["a"]), "first"), lake.process_of_run("second"):
        server.restart()  # ends their sessions, as the end of their processes does
        assert lake.abandoned_runs() == ["first", "second"]
        with lake.process_of_run("second"):
            assert lake.abandoned_runs() == ["first"]
        lake.forget_runs(["first"])
    assert lake.abandoned_runs() == []


def test_a_run_on_very_many_agents_holds_the_section_with_one_lock(lake: LakeStore, server: Server) -> None:
    with lake.run_section(RunScope([f"agent {i}" for i in range(600)], ["1"]), "run"):
        ((n_locks,),) = server.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
        assert n_locks == 1
        with ThreadPoolExecutor(1) as pool:
            assert not pool.submit(lambda: lake.exclusive_section("run", wait=False).__enter__()).result()


def test_a_lock_leaves_no_time_limit_for_other_statements(lake: LakeStore) -> None:
    with contextlib.closing(lake.catalog_session("read")) as session:
        assert session.lock("merge of answers", limit_s=None, what="a merge")
        assert session.rows("SHOW lock_timeout") == [("0",)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_waits_for_a_run_of_another_one_can_be_interrupted(
    lake: LakeStore, number: signal.Signals
) -> None:
    waits = f"""
import signal, sys, time
from pathlib import Path
from agent_eval.storage.lake import LakeStore, catalog
locked_within = catalog.CatalogSession._locked_within
def slowly(session, key, wait_s, kind):
    time.sleep(wait_s > 3)  # the signal arrives before the statement
    return locked_within(session, key, wait_s, kind)
catalog.CatalogSession._locked_within = slowly
signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))
try:
    with LakeStore.of({lake.given!r}, Path({str(lake.data)!r})).exclusive_section("run"):
        print("held")
except KeyboardInterrupt:
    sys.exit(4)
"""
    command = [sys.executable, "-c", waits]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with (
        lake.exclusive_section("run"),
        subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process,
    ):
        assert process.stderr is not None
        assert "Waiting for the store" in process.stderr.readline()
        time.sleep(0.5)
        process.send_signal(number)
        assert process.wait(60) == 4


def test_a_store_without_a_lock_service_refuses_sections(tmp_path: Path) -> None:
    store = Store(attach=str(tmp_path / "s.duckdb"), options="TYPE duckdb")
    with pytest.raises(StoreError, match="no lock service"), store.exclusive_section("run"):
        pass


def test_what_is_wrong_with_a_lake_is_one_line_with_the_fix_and_without_the_password(
    empty: LakeStore, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def message(store: LakeStore, kind: type[StoreError]) -> str:
        with pytest.raises(kind) as raised:
            store.read(STATE)
        text = str(raised.value)
        assert "\n" not in text
        assert PASSWORD not in text
        return text

    assert "`agent-eval store init`" in message(empty, NotInitialisedError)
    assert initialise(empty)
    assert not initialise(empty)
    assert empty.read(STATE).is_empty()
    away = LakeStore.of(empty.given.replace(str(server.port), "1"), empty.data)
    assert "Start the Postgres server" in message(away, CatalogError)
    elsewhere = replace(empty, data=tmp_path / "elsewhere")
    assert "Mount the shared folder" in message(elsewhere, DataFolderError)
    elsewhere.data.mkdir()  # as a mount point without its disk
    assert "does not contain a lake" in message(elsewhere, DataFolderError)
    (elsewhere.data / MARKER).write_text("of another lake")
    of_another = message(elsewhere, DataFolderError)
    assert f"its files are in {empty.data}, not in {elsewhere.data}. Mount the shared folder" in of_another
    monkeypatch.setenv("PGPASSWORD", "wrong-" + PASSWORD)
    other = LakeStore.of(empty.given + " application_name=x", empty.data)
    assert "PGPASSWORD" in message(other, CatalogError)


@pytest.mark.parametrize("at", ["load_statements", "Lake.attached", "stamp"])
def test_an_interrupted_init_can_be_repeated_also_with_another_folder(
    empty: LakeStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, at: str
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(f"agent_eval.storage.lake.upkeep.{at}", interrupted)
        with pytest.raises(KeyboardInterrupt):
            initialise(empty)
    for use in (lambda: empty.read(STATE), lambda: put(empty, "x")):
        with pytest.raises(NotInitialisedError):
            use()
    if at != "stamp":
        (tmp_path / "file").touch()
        with pytest.raises(DataFolderError, match="cannot be written"):
            initialise(replace(empty, data=tmp_path / "file" / "lake"))
    assert initialise(empty)
    assert not initialise(empty)
    empty.upsert(STATE, state(("a", "1", "x")), run_id="r")
    assert check(empty).problems == []
    assert empty.prompt_secret() == empty.prompt_secret()
    with pytest.raises(DataFolderError, match="its files are in"):
        initialise(replace(empty, data=tmp_path / "elsewhere"))


def test_check_finds_double_keys_lost_fences_and_lost_files(lake: LakeStore) -> None:
    many = STATE.frame({"agent_id": f"{i}", "methodology_version": "1", "spec": "x"} for i in range(100))
    lake.upsert(STATE, many, run_id="r")
    assert check(lake).rows == {"judge_state": 100}
    with lake.session(read_only=False) as con:
        con.execute("INSERT INTO judge_state SELECT * FROM judge_state WHERE agent_id = '7'")
        con.execute("DELETE FROM fence")
    assert [problem.split(";")[0] for problem in check(lake).problems] == [
        "Table judge_state has 0 rows in `fence` instead of one",
        "Table judge_state contains 1 duplicate keys",
    ]
    for file in lake.data.rglob("*.parquet"):
        file.unlink()
    assert any("Table judge_state: its file" in problem for problem in check(lake).problems)


def test_check_names_each_damaged_file_by_table_and_orphans_and_goes_on(lake: LakeStore) -> None:
    """Every table has two files, of which one is lost, cut or damaged: half of what was written is left."""
    with lake.session(read_only=False) as con:
        for half in (range(50), range(50, 100)):
            for target in TABLES.values():
                ensure_columns(con, target)
                con.execute("INSERT INTO fence SELECT ?, 1 WHERE ?", [target.name, half[0] == 0])
                values = {n: [f"{i}" for i in half] for n, t in target.schema.items() if t == pl.String}
                days = {"day": [datetime(2026, 1, 1).date()] * len(half)} if "day" in target.schema else {}
                con.register("filled", pl.DataFrame(values | days))
                con.execute(f"INSERT INTO {target.name} BY NAME SELECT * FROM filled")
            con.execute("CALL ducklake_flush_inlined_data('store')")
    assert check(lake).problems == []
    files = {name: sorted(lake.data.rglob(f"*/{name}/*.parquet")) for name in TABLES}
    assert {len(found) for found in files.values()} == {2}
    stray = lake.data / "main" / "agents" / "stray.parquet"
    shutil.copyfile(files["agents"][1], stray)
    os.utime(stray, (1, 1))
    for number, (file, _) in enumerate(files.values()):
        content = file.read_bytes()
        file.unlink()
        if fault := number % 3:
            damaged = content[:4] + b"\xff" * 200 + content[204:]
            file.write_bytes(damaged if fault == 1 else content[: len(content) // 2])
    problems = check(lake).problems
    for name, (file, _) in files.items():
        assert sum(f"Table {name}: " in p and str(file) in p for p in problems) == 1, problems
    assert [p for p in problems if "belong to no snapshot" in p and str(stray) in p] == problems[len(files) :]
    assert len(problems) == len(files) + 1


def test_a_flipped_bit_anywhere_in_a_file_is_named_with_its_table(lake: LakeStore) -> None:
    """Also where DuckDB reads on: in a value, a statistic or a Bloom filter, which hide rows from filtered reads."""
    rows = pl.DataFrame(
        {"agent_id": [f"a{i % 40}" for i in range(4000)], "spec": [str(i) for i in range(4000)]}
    )
    lake.upsert(STATE, STATE.frame(rows.with_columns(methodology_version="spec").to_dicts()), run_id="r")
    (file,) = lake.data.rglob("judge_state/*.parquet")
    content = file.read_bytes()
    for place in range(0, len(content), len(content) // 60):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert [p for p in check(lake).problems if str(file) in p and p.startswith("Table judge_state: ")], (
            place
        )
    file.write_bytes(content)
    assert check(lake).problems == []


def test_files_have_checksums_after_writes_and_compaction_and_those_that_are_gone_have_none(
    lake: LakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = STATE.frame({"agent_id": f"{i}", "methodology_version": "1", "spec": "x"} for i in range(100))
    with monkeypatch.context() as killed_after_its_commit:
        killed_after_its_commit.setattr(
            "agent_eval.storage.lake.store.record_checksums", Mock(side_effect=CatalogError("", "", ""))
        )
        lake.upsert(STATE, many, run_id="r")
    assert check(lake).n_unrecorded == 1
    (first,) = lake.data.rglob("judge_state/*.parquet")
    lake.replace(STATE, many[:50], many[:70].select("agent_id", "methodology_version"), run_id="r")
    assert check(lake).n_unrecorded == 0
    lake.upsert(STATE, many, run_id="r")
    monkeypatch.setattr("agent_eval.storage.lake.upkeep._KEPT", "0 seconds")
    compact(lake)
    assert check(lake) == Checked({"judge_state": 100}, [], {"judge_state": ANY})
    compact(lake)
    with contextlib.closing(lake.catalog_session("read")) as session:
        recorded = {path for (path,) in session.rows(f"SELECT path FROM {catalog.SCHEMA}.file_checksum")}
    assert first.name not in recorded
    assert recorded <= {file.name for file in lake.data.rglob("*.parquet")}


def test_a_lake_without_the_table_of_checksums_gets_it_with_the_next_write(lake: LakeStore) -> None:
    with contextlib.closing(lake.catalog_session("write")) as session:
        session.rows(f"DROP TABLE {catalog.SCHEMA}.file_checksum")
    many = STATE.frame({"agent_id": f"{i}", "methodology_version": "1", "spec": "x"} for i in range(100))
    lake.upsert(STATE, many, run_id="r")
    assert check(lake) == Checked({"judge_state": 100}, [], {"judge_state": ANY})


def test_a_check_without_the_data_folder_says_so(lake: LakeStore) -> None:
    (lake.data / MARKER).unlink()
    with pytest.raises(DataFolderError, match="does not contain a lake"):
        check(lake)


def test_a_clock_that_is_wrong_is_a_problem_with_the_fix(
    lake: LakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class AnHourAhead(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "AnHourAhead":
            return cls.fromtimestamp(time.time() + 3600, tz)

    put(lake, "x")
    monkeypatch.setattr("agent_eval.storage.lake.catalog.datetime", AnHourAhead)
    (problem,) = check(lake).problems
    wanted = r"The clock of this machine is 3,\d+ s ahead of the catalog's: synchronise both with NTP\."
    assert re.fullmatch(wanted, problem)
    ahead = r"clock of this machine is 3,\d+ s ahead.* Set the clocks"
    with pytest.raises(StoreError, match=ahead):
        put(lake, "y")
    with pytest.raises(StoreError, match=ahead):
        compact(lake)  # it would remove files that readers still use
    assert lake.read(STATE)["spec"].to_list() == ["x"]


def test_compacting_keeps_the_rows(lake: LakeStore) -> None:
    for mark in range(6):
        rows = [(f"{mark}-{i}", "1", f"{mark}") for i in range(20)]
        lake.upsert(STATE, state(*rows), run_id="r")
    before, after = compact(lake)
    assert before - after == 5  # six files of the table, and small ones of `fence` and `schema_version`
    assert compact(lake) == (after, after)
    assert lake.read(STATE).height == 120
    assert check(lake).problems == []


def test_the_server_notices_within_half_a_minute_that_a_machine_is_gone(lake: LakeStore) -> None:
    """Otherwise it would keep the locks of that machine for two hours, the default of Linux."""
    names = {"tcp_keepalives_idle": "15", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
    names["tcp_user_timeout"] = "30000"
    shown = f"SELECT name, current_setting(name) FROM unnest(ARRAY{[*names]}) AS asked (name)"
    with contextlib.closing(lake.catalog_session("read")) as session:
        assert dict(session.rows(shown)) == names
    quoted = shown.replace("'", "''")
    with lake.session(read_only=True) as con:
        found = con.execute(f"FROM postgres_query('__ducklake_metadata_store', '{quoted}')").fetchall()
    assert dict(found) == names


@pytest.mark.usefixtures("server")
def test_timeouts_and_options_of_the_address_stay() -> None:
    made = catalog.connection_string("host=db keepalives_idle=60 options='-c tcp_keepalives_idle=90 -c a=b'")
    assert "keepalives_idle=60" in made.split()
    assert made.index("tcp_keepalives_idle=15") < made.index("tcp_keepalives_idle=90")  # the last one holds
    assert "-c a=b" in made
