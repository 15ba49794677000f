import multiprocessing
from datetime import UTC, date, datetime
from pathlib import Path

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from agent_eval.formats import spill
from agent_eval.storage import Store, StoreError
from agent_eval.tables import TABLES, TableMismatchError, table
from agent_eval.tables.contract import DATE, DATES, TIME

STATE = table("judge_state")


def state(*rows: tuple[str | None, str, str]) -> pl.DataFrame:
    return STATE.frame(dict(zip(STATE.schema, row, strict=True)) for row in rows)


def pairs(*keys: tuple[str, str]) -> pl.DataFrame:
    return pl.DataFrame(keys, schema=["agent_id", "methodology_version"], orient="row")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.at(tmp_path / "store.duckdb")


def test_a_table_that_was_never_written_reads_as_empty(store: Store) -> None:
    assert_frame_equal(store.read(STATE), STATE.empty())


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_table_can_be_written_and_read_back_with_its_types(store: Store, name: str) -> None:
    contract = TABLES[name]
    values = {
        pl.String: "text", pl.Int64: 7, pl.Float64: 0.5, pl.Boolean: True, pl.List(pl.String): ["a", "b"],
        pl.List(pl.Float64): [0.5], pl.List(pl.Int64): [7], pl.List(pl.Float32): [0.5],
        TIME: datetime(2026, 4, 20, tzinfo=UTC), DATE: date(2026, 4, 20), DATES: [date(2026, 4, 20)],
    }  # fmt: skip
    full = {
        name: dtype.categories[0] if isinstance(dtype, pl.Enum) else values[dtype]
        for name, dtype in contract.schema.items()
    }
    frame = contract.frame([full])
    store.upsert(contract, frame, run_id="r")
    assert_frame_equal(store.read(contract), frame)


def test_a_write_replaces_exactly_its_partitions(store: Store) -> None:
    store.replace(
        STATE, state(("a", "1", "old"), ("ab", "1", "old")), pairs(("a", "1"), ("ab", "1")), run_id="r1"
    )
    store.replace(STATE, state(("a", "1", "new")), pairs(("a", "1")), run_id="r2")
    assert store.read(STATE).rows() == [("a", "1", "new"), ("ab", "1", "old")]


def test_a_partition_without_rows_is_emptied(store: Store) -> None:
    store.replace(STATE, state(("a", "1", "x"), ("b", "1", "x")), pairs(("a", "1"), ("b", "1")), run_id="r1")
    store.replace(STATE, STATE.empty(), pairs(("b", "1")), run_id="r2")
    assert store.read(STATE)["agent_id"].to_list() == ["a"]


def test_a_frame_of_the_wrong_shape_leaves_the_old_partition_whole(store: Store) -> None:
    store.replace(STATE, state(("a", "1", "kept")), pairs(("a", "1")), run_id="r1")
    with pytest.raises(TableMismatchError):
        store.replace(STATE, pl.DataFrame({"agent_id": ["a"]}), pairs(("a", "1")), run_id="r2")
    assert store.read(STATE)["spec"].to_list() == ["kept"]


def test_a_row_outside_the_written_partitions_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="1 rows do not belong to"):
        store.replace(STATE, state(("b", "1", "x")), pairs(("a", "1")), run_id="r")


def test_read_takes_only_the_wanted_keys(store: Store) -> None:
    store.upsert(STATE, state(("a", "1", "x"), ("a", "2", "y"), ("b", "1", "z")), run_id="r")
    assert store.read(STATE, pairs(("a", "2"), ("b", "1")))["spec"].to_list() == ["y", "z"]
    assert store.read(STATE, pl.DataFrame({"agent_id": ["a"]})).height == 2


def test_upsert_replaces_equal_keys_and_keeps_the_rest(store: Store) -> None:
    store.upsert(STATE, state(("a", "1", "x"), ("b", "1", "x")), run_id="r1")
    store.upsert(STATE, state(("a", "1", "y")), run_id="r2")
    assert store.read(STATE)["spec"].to_list() == ["y", "x"]


def test_values_stay_values(store: Store) -> None:
    evil = "x'); DROP TABLE judge_state; --"
    store.replace(STATE, state((evil, "1", evil)), pairs((evil, "1")), run_id=evil)
    assert store.read(STATE, pl.DataFrame({"agent_id": [evil]}))["spec"].to_list() == [evil]


def test_a_null_in_a_key_matches_a_null(store: Store) -> None:
    ratings = table("rubric_ratings")
    row = {
        "methodology_version": "1", "agent_id": "a", "target": "U1", "status": "missing", "judge": "none", "is_effective": True,
    }  # fmt: skip
    for _ in range(2):
        store.upsert(ratings, ratings.frame([row]), run_id="r")
    assert store.read(ratings).height == 1


def test_a_column_that_an_older_store_lacks_is_added(store: Store) -> None:
    with duckdb.connect() as con:
        con.execute(f"ATTACH '{store.attach}' AS s (STORAGE_VERSION 'v1.5.0')")
        con.execute("CREATE TABLE s.judge_state (agent_id VARCHAR, methodology_version VARCHAR)")
    store.upsert(STATE, state(("a", "1", "x")), run_id="r")
    assert store.read(STATE)["spec"].to_list() == ["x"]


def test_a_column_that_an_older_store_lacks_reads_as_null(store: Store) -> None:
    with duckdb.connect() as con:
        con.execute(f"ATTACH '{store.attach}' AS s (STORAGE_VERSION 'v1.5.0')")
        con.execute("CREATE TABLE s.judge_state AS SELECT 'a' AS agent_id, '1' AS methodology_version")
    assert store.read(STATE).rows() == [("a", "1", None)]


def test_a_column_that_an_older_store_lacks_matches_nothing(store: Store) -> None:
    with duckdb.connect() as con:
        con.execute(f"ATTACH '{store.attach}' AS s (STORAGE_VERSION 'v1.5.0')")
        con.execute("CREATE TABLE s.judge_state AS SELECT 'a' AS agent_id, '1' AS methodology_version")
    assert store.read(STATE, pl.DataFrame({"spec": ["x"]})).is_empty()


def test_only_the_wanted_columns_are_read(store: Store) -> None:
    store.upsert(STATE, state(("a", "1", "x")), run_id="r")
    assert store.read(STATE, columns=["spec"]).to_dicts() == [{"spec": "x"}]
    assert store.read(table("agents"), columns=["name"]).columns == ["name"]


def test_rows_are_counted_by_the_values_of_columns_nulls_included(store: Store) -> None:
    assert store.counts(STATE, columns=["spec"]).is_empty()
    store.upsert(
        STATE, state(("a", "1", "x"), ("a", "2", "y"), ("b", "1", "x"), (None, "1", "z")), run_id="r"
    )
    assert store.counts(STATE, columns=["spec"]).rows() == [("x", 2), ("y", 1), ("z", 1)]
    assert store.counts(STATE, pairs(("a", "1"), ("a", "2")), columns=["agent_id"]).rows() == [("a", 2)]
    assert (None, 1) in store.counts(STATE, columns=["agent_id"]).rows()
    by_agent = store.counts(STATE, pairs(("a", "1"), ("a", "2")), columns=["agent_id"], extent="spec")
    assert by_agent.rows() == [("a", 2, "x", "y")]


def test_a_write_that_is_keyed_by_other_columns_than_the_table_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="keyed by"):
        store.replace(STATE, STATE.empty(), pl.DataFrame({"agent_id": ["a"]}), run_id="r")


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    file = tmp_path / "store.duckdb"
    file.write_text("not a database, but quite long enough to be read as a header of one" * 100)
    with pytest.raises(StoreError, match=r"store\.duckdb"):
        Store.at(file).read(STATE)


def _write_many(file: Path, agent: str) -> None:
    for i in range(10):
        Store.at(file).replace(STATE, state((agent, "1", str(i))), pairs((agent, "1")), run_id=agent)


def test_three_processes_write_at_once_and_nothing_is_lost(store: Store) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_write_many, args=(Path(store.attach), name)) for name in "abc"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert store.read(STATE).rows() == [("a", "1", "9"), ("b", "1", "9"), ("c", "1", "9")]


def test_rows_in_files_are_stored_like_rows_in_memory(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "IN_MEMORY", 0)
    keys = pairs(("a", "1"), ("b", "1"))
    store.replace(
        STATE, state(("a", "1", "old"), ("c", "1", "kept")), pairs(("a", "1"), ("c", "1")), run_id="r1"
    )
    with spill.spilled({"s": state((agent, "1", "new"))} for agent in ("a", "b")) as rows:
        store.replace(STATE, rows["s"], keys, run_id="r2")
    assert store.read(STATE).rows() == [("a", "1", "new"), ("b", "1", "new"), ("c", "1", "kept")]


@pytest.mark.parametrize("bad", [state(("z", "1", "stray")), pl.DataFrame({"agent_id": ["b"]})])
def test_a_bad_file_among_several_leaves_the_old_partitions_whole(
    store: Store, monkeypatch: pytest.MonkeyPatch, bad: pl.DataFrame
) -> None:
    monkeypatch.setattr(spill, "IN_MEMORY", 0)
    keys = pairs(("a", "1"), ("b", "1"))
    store.replace(STATE, state(("a", "1", "kept")), keys, run_id="r1")
    with (
        spill.spilled({"s": part} for part in (state(("a", "1", "new")), bad)) as rows,
        pytest.raises((StoreError, TableMismatchError)),
    ):
        store.replace(STATE, rows["s"], keys, run_id="r2")
    assert store.read(STATE).rows() == [("a", "1", "kept")]
