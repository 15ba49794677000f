"""Engines serve one session after another, hold nothing in between, and are left by what went wrong in them."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from agent_eval.storage import Store, StoreError, engines
from agent_eval.storage.engines import attached
from tests.storage.test_store import STATE, state


@pytest.fixture
def file(tmp_path: Path) -> Path:
    store = Store.at(tmp_path / "s.duckdb")
    store.upsert(STATE, state(("a", "1.3.0", "x")), run_id="r")
    return tmp_path / "s.duckdb"


def one(file: Path, setup: tuple[str, ...] = ()) -> duckdb.DuckDBPyConnection:
    with attached(str(file), "TYPE duckdb", setup) as con:
        assert con.execute("SELECT count(*) FROM judge_state").fetchone() == (1,)
        return con


def test_an_engine_serves_again_and_holds_no_database_meanwhile(file: Path) -> None:
    con = one(file)
    names = con.execute("SELECT database_name FROM duckdb_databases()").fetchall()
    assert ("store",) not in names
    with duckdb.connect(str(file)) as elsewhere:  # it would be refused while it is attached
        elsewhere.execute("SELECT 1")
    assert one(file) is con


def test_sessions_at_once_have_engines_of_their_own(file: Path) -> None:
    with (
        attached(str(file), "READ_ONLY", ()) as first,
        attached(str(file), "READ_ONLY", ()) as second,
    ):
        assert first is not second


def test_an_engine_that_saw_an_error_is_closed_and_not_used_again(file: Path) -> None:
    seen = []

    def broken() -> None:
        with attached(str(file), "TYPE duckdb", ()) as con:
            seen.append(con)
            con.execute("BEGIN")
            con.execute("DELETE FROM judge_state")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    with pytest.raises(duckdb.ConnectionException):
        seen[0].execute("SELECT 1")
    assert one(file) is not seen[0]


def test_an_engine_is_kept_for_its_setup_alone(file: Path) -> None:
    plain = one(file)
    other = one(file, ("SET VARIABLE answer = 42",))
    assert other is not plain
    assert one(file, ("SET VARIABLE answer = 42",)) is other
    assert other.execute("SELECT getvariable('answer')").fetchone() == (42,)
    assert plain.execute("SELECT getvariable('answer')").fetchone() == (None,)


def test_a_file_that_is_no_database_leaves_no_engine_behind(tmp_path: Path, file: Path) -> None:
    before = one(file)
    (tmp_path / "no.duckdb").write_text("no database" * 500)
    with pytest.raises(StoreError):
        Store.at(tmp_path / "no.duckdb").read(STATE)
    assert one(file) is not before


def test_a_read_leaves_no_frame_registered(file: Path) -> None:
    Store.at(file).read(STATE, pl.DataFrame({"agent_id": ["a"]}))
    with attached(str(file), "READ_ONLY", ()) as con:
        left = "SELECT view_name FROM duckdb_views() WHERE NOT internal AND database_name <> 'store'"
        assert con.execute(left).fetchall() == []


def test_a_forked_child_makes_its_own(file: Path) -> None:
    con = one(file)
    if (child := os.fork()) == 0:
        os._exit(0 if one(file) is not con else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_reads_of_a_block_share_a_connection_and_a_write_within_it_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, opened = Store.at(file), 0
    session = engines.attached

    def counted(*given: Any) -> Any:
        nonlocal opened
        opened += 1
        return session(*given)

    monkeypatch.setattr(engines, "attached", counted)
    with store.reading(), store.reading():
        assert store.read(STATE).height == store.counts(STATE, columns=["agent_id"])["n"].sum() == 1
        with pytest.raises(StoreError, match="the same thread is reading it"):
            store.upsert(STATE, store.read(STATE), run_id="r")
        with ThreadPoolExecutor(1) as others:  # another thread has a connection of its own
            assert others.submit(store.read, STATE).result().height == 1
    assert opened == 2
    store.upsert(STATE, store.read(STATE), run_id="r")
    assert opened == 4


def test_a_missing_store_is_read_as_empty_within_a_block(tmp_path: Path) -> None:
    with (store := Store.at(tmp_path / "none.duckdb")).reading():
        assert store.read(STATE).is_empty()
