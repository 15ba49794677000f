"""Sessions that follow each other closely share an attachment, which other processes wait for only briefly.

Below it, engines serve one session after another, hold nothing in between, and are left by what went wrong in them.
"""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import polars as pl
import pytest

from agent_eval.storage import Store, StoreError, engines, kept
from agent_eval.storage.engines import attached
from agent_eval.storage.versions import SCHEMA_VERSION
from tests.storage.test_store import STATE, state

READER = """
import sys
from pathlib import Path
from agent_eval.storage import Store
from agent_eval.tables import table
print(Store.at(Path(sys.argv[1])).read(table("judge_state")).height)
"""


def rows(n: int) -> pl.DataFrame:
    return state(*((f"a{i}", "1.3.0", "x") for i in range(n)))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store.at(tmp_path / "s.duckdb")
    made.upsert(STATE, rows(1), run_id="r")
    return made


@pytest.fixture
def attachments(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options of each attachment."""
    found: list[str] = []
    attached = engines.attached

    def counted(attach: str, options: str, setup: tuple[str, ...]) -> object:
        found.append(options)
        return attached(attach, options, setup)

    monkeypatch.setattr(engines, "attached", counted)
    return found


def test_reads_and_writes_share_one_attachment(
    store: Store, attachments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "HELD_S", 3600.0)
    with store.kept_attached(), store.kept_attached():
        store.upsert(STATE, rows(3), run_id="r")
        assert store.read(STATE).height == 3
        with store.reading():
            assert store.counts(STATE, columns=["spec"])["n"].to_list() == [3]
        assert len(attachments) == 1
    assert store.read(STATE).height == 3
    assert "READ_ONLY" in attachments[-1]


def test_an_attachment_is_released_after_the_session_that_is_in_progress(
    store: Store, attachments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "HELD_S", 0.01)
    with store.kept_attached():
        with store.session(read_only=True) as con:
            time.sleep(0.1)  # the time is over
            assert con.execute("SELECT count(*) FROM judge_state").fetchone() == (1,)
        for _ in range(500):  # who waited for the session has the lock before or after the next one
            store.upsert(STATE, rows(2), run_id="r")
            if len(attachments) > 1:
                return
            time.sleep(0.01)
    raise AssertionError("the attachment is never released")


def test_an_attachment_in_use_is_kept_until_another_process_waits(
    store: Store, attachments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "HELD_S", 0.4)
    with store.kept_attached():
        began = time.monotonic()
        while time.monotonic() - began < 1:
            store.upsert(STATE, rows(2), run_id="r")
        assert len(attachments) == 1
        reader = subprocess.Popen(
            [sys.executable, "-c", READER, str(store.file)], stdout=subprocess.PIPE, text=True
        )
        while reader.poll() is None and time.monotonic() - began < 60:
            store.upsert(STATE, rows(2), run_id="r")
        assert reader.communicate()[0] == "2\n"


def test_another_process_reads_while_this_one_is_idle_and_nothing_is_attached_after_the_block(
    store: Store,
) -> None:
    with store.kept_attached():
        store.upsert(STATE, rows(2), run_id="r")
        read = subprocess.run(
            [sys.executable, "-c", READER, str(store.file)], capture_output=True, text=True, check=True
        )
        assert read.stdout == "2\n"
        store.upsert(STATE, rows(4), run_id="r")
    with duckdb.connect(str(store.file)) as elsewhere:  # it would be refused if the file were still attached
        assert elsewhere.execute("SELECT count(*) FROM judge_state").fetchone() == (4,)


def test_a_failed_write_is_rolled_back_and_the_next_session_works(store: Store) -> None:
    def broken(con: duckdb.DuckDBPyConnection) -> None:
        con.execute("DELETE FROM judge_state")
        raise ZeroDivisionError

    with store.kept_attached():
        store.upsert(STATE, rows(2), run_id="r")
        with pytest.raises(ZeroDivisionError):
            store.transact([STATE], broken)
        assert store.read(STATE).height == 2
        with pytest.raises(StoreError, match="nonsense"), store.session(read_only=False) as con:
            con.execute("nonsense")
        assert store.read(STATE).height == 2


def test_a_store_of_a_later_release_is_refused_and_left_free(store: Store) -> None:
    with store.session(read_only=False) as con:
        con.execute(f"INSERT INTO schema_version VALUES ({SCHEMA_VERSION + 1}, '9.0.0', now())")
    with store.kept_attached():
        for _ in range(2):
            with pytest.raises(StoreError):
                store.read(STATE)
        with duckdb.connect(str(store.file)) as elsewhere:
            elsewhere.execute("SELECT 1")


def test_threads_follow_one_another(store: Store) -> None:
    def work(i: int) -> None:
        for _ in range(5):
            store.upsert(STATE, rows(i), run_id="r")
            store.read(STATE)

    with store.kept_attached():
        threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.read(STATE).height == 4


# Engines serve one session after another, and are left by what went wrong in them


def one(store: Store, setup: tuple[str, ...] = ()) -> duckdb.DuckDBPyConnection:
    with attached(store.attach, "TYPE duckdb", setup) as con:
        assert con.execute("SELECT count(*) FROM judge_state").fetchone() == (1,)
        return con


def test_an_engine_serves_again_and_holds_no_database_meanwhile(store: Store) -> None:
    con = one(store)
    names = con.execute("SELECT database_name FROM duckdb_databases()").fetchall()
    assert ("store",) not in names
    with duckdb.connect(store.attach) as elsewhere:  # it would be refused while it is attached
        elsewhere.execute("SELECT 1")
    assert one(store) is con


def test_sessions_at_once_have_engines_of_their_own(store: Store) -> None:
    with attached(store.attach, "READ_ONLY", ()) as first, attached(store.attach, "READ_ONLY", ()) as second:
        assert first is not second


def test_an_engine_that_saw_an_error_is_closed_and_not_used_again(store: Store) -> None:
    seen = []

    def broken() -> None:
        with attached(store.attach, "TYPE duckdb", ()) as con:
            seen.append(con)
            con.execute("BEGIN")
            con.execute("DELETE FROM judge_state")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    with pytest.raises(duckdb.ConnectionException):
        seen[0].execute("SELECT 1")
    assert one(store) is not seen[0]


def test_an_engine_is_kept_for_its_setup_alone(store: Store) -> None:
    plain = one(store)
    other = one(store, ("SET VARIABLE answer = 42",))
    assert other is not plain
    assert one(store, ("SET VARIABLE answer = 42",)) is other
    assert other.execute("SELECT getvariable('answer')").fetchone() == (42,)
    assert plain.execute("SELECT getvariable('answer')").fetchone() == (None,)


def test_a_file_that_is_no_database_leaves_no_engine_behind(tmp_path: Path, store: Store) -> None:
    before = one(store)
    (tmp_path / "no.duckdb").write_text("no database" * 500)
    with pytest.raises(StoreError):
        Store.at(tmp_path / "no.duckdb").read(STATE)
    assert one(store) is not before


def test_a_read_leaves_no_frame_registered(store: Store) -> None:
    store.read(STATE, pl.DataFrame({"agent_id": ["a"]}))
    with attached(store.attach, "READ_ONLY", ()) as con:
        left = "SELECT view_name FROM duckdb_views() WHERE NOT internal AND database_name <> 'store'"
        assert con.execute(left).fetchall() == []


def test_a_forked_child_makes_its_own(store: Store) -> None:
    con = one(store)
    if (child := os.fork()) == 0:
        os._exit(0 if one(store) is not con else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_reads_of_a_block_share_a_connection_and_a_write_within_it_is_refused(
    store: Store, attachments: list[str]
) -> None:
    with store.reading(), store.reading():
        assert store.read(STATE).height == store.counts(STATE, columns=["agent_id"])["n"].sum() == 1
        with pytest.raises(StoreError, match="the same thread is reading it"):
            store.upsert(STATE, rows(1), run_id="r")
        with ThreadPoolExecutor(1) as others:  # another thread has a connection of its own
            assert others.submit(store.read, STATE).result().height == 1
    assert len(attachments) == 2
    store.upsert(STATE, rows(1), run_id="r")
    assert len(attachments) == 3


def test_a_missing_store_is_read_as_empty_within_a_block(tmp_path: Path) -> None:
    with (store := Store.at(tmp_path / "none.duckdb")).reading():
        assert store.read(STATE).is_empty()
