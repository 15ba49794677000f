from datetime import UTC, date, datetime
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from agent_eval.formats import spill
from agent_eval.storage import Store, StoreError
from agent_eval.tables import TABLES, Table, TableMismatchError, table
from agent_eval.tables.contract import DATE, DATES, TIME

STATE = table("judge_state")


def state(*rows: tuple[str | None, str, str]) -> pl.DataFrame:
    return STATE.frame(dict(zip(STATE.schema, row, strict=True)) for row in rows)


def pairs(*keys: tuple[str, str]) -> pl.DataFrame:
    return pl.DataFrame(keys, schema=["agent_id", "methodology_version"], orient="row")


FULL = {
    pl.String: "it's 5 %", pl.Int64: 7, pl.Float64: 0.5, pl.Boolean: True, pl.List(pl.String): ["a", "b"],
    pl.List(pl.Float64): [0.5], pl.List(pl.Int64): [7], pl.List(pl.Float32): [0.5],
    TIME: datetime(2026, 4, 20, tzinfo=UTC), DATE: date(2026, 4, 20), DATES: [date(2026, 4, 20)],
}  # fmt: skip


def full_row(contract: Table) -> pl.DataFrame:
    """One row of a table with a value in every column."""
    types = contract.schema.items()
    return contract.frame([{n: t.categories[0] if isinstance(t, pl.Enum) else FULL[t] for n, t in types}])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.at(tmp_path / "store.duckdb")


def test_every_table_can_be_written_and_read_back_with_its_types(store: Store) -> None:
    for contract in TABLES.values():
        assert_frame_equal(store.read(contract), contract.empty())
        store.upsert(contract, full_row(contract), run_id="r")
        assert_frame_equal(store.read(contract), full_row(contract))


def test_a_write_replaces_exactly_its_partitions_also_with_no_rows(store: Store) -> None:
    keys = [(agent, "1") for agent in ("a", "ab", "b")]
    store.replace(STATE, state(*((*key, "old") for key in keys)), pairs(*keys), run_id="r1")
    store.replace(STATE, state(("a", "1", "new")), pairs(("a", "1"), ("b", "1")), run_id="r2")
    assert store.read(STATE).rows() == [("a", "1", "new"), ("ab", "1", "old")]


@pytest.mark.parametrize(
    ("frame", "keys", "error"),
    [
        (pl.DataFrame({"agent_id": ["a"]}), pairs(("a", "1")), "column 'methodology_version' is missing"),
        (state(("b", "1", "x")), pairs(("a", "1")), "1 rows do not belong to"),
        (STATE.empty(), pl.DataFrame({"agent_id": ["a"]}), "keyed by"),
    ],
    ids=["shape", "row outside", "other key"],
)
def test_a_write_that_cannot_be_meant_is_refused_and_leaves_the_old_partition_whole(
    store: Store, frame: pl.DataFrame, keys: pl.DataFrame, error: str
) -> None:
    store.replace(STATE, state(("a", "1", "kept")), pairs(("a", "1")), run_id="r1")
    with pytest.raises((StoreError, TableMismatchError), match=error):
        store.replace(STATE, frame, keys, run_id="r2")
    assert store.read(STATE)["spec"].to_list() == ["kept"]


def test_read_takes_only_the_wanted_keys_and_columns(store: Store) -> None:
    store.upsert(STATE, state(("a", "1", "x"), ("a", "2", "y"), ("b", "1", "z")), run_id="r")
    assert store.read(STATE, pairs(("a", "2"), ("b", "1")))["spec"].to_list() == ["y", "z"]
    assert store.read(STATE, pl.DataFrame({"agent_id": ["a"]})).height == 2
    assert store.read(STATE, columns=["spec"]).to_dict(as_series=False) == {"spec": ["x", "y", "z"]}
    assert store.read(table("agents"), columns=["name"]).columns == ["name"]


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
