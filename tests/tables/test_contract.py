import polars as pl
import pytest

from agent_eval.tables import TABLES, Column, Table, TableMismatchError

TABLE = Table(
    "fruit",
    "one row per fruit",
    ("name",),
    (Column("name", pl.String, "Name", nullable=False), Column("weight_g", pl.Float64, "Weight, grams")),
)


def test_rows_get_every_column_and_null_where_nothing_is_said() -> None:
    frame = TABLE.frame([{"name": "apple"}])
    assert frame.to_dicts() == [{"name": "apple", "weight_g": None}]
    assert frame.schema == TABLE.schema


def test_conform_orders_columns_and_types_an_all_null_column() -> None:
    frame = TABLE.conform(pl.DataFrame({"weight_g": [None], "name": ["apple"]}))
    assert frame.schema == TABLE.schema


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (pl.DataFrame({"name": ["a"]}), "column 'weight_g' is missing"),
        (pl.DataFrame({"name": ["a"], "weight_g": [1.0], "x": [1]}), "column 'x' is not declared"),
        (pl.DataFrame({"name": ["a"], "weight_g": [1]}), "column 'weight_g' is Int64, expected Float64"),
        (
            pl.DataFrame({"name": [None], "weight_g": [1.0]}, schema=TABLE.schema),
            "column 'name' holds 1 nulls",
        ),
        (pl.DataFrame({"name": ["a", "a"], "weight_g": [1.0, 2.0]}), "2 rows share a key (name)"),
    ],
)
def test_a_frame_that_breaks_the_contract_is_refused_by_name(frame: pl.DataFrame, problem: str) -> None:
    with pytest.raises(TableMismatchError, match="fruit") as caught:
        TABLE.conform(frame)
    assert caught.value.problems == (problem,)


def test_every_stored_table_declares_a_key_and_a_partition_of_its_own_columns() -> None:
    for table in TABLES.values():
        assert table.key
        assert set(table.key) | set(table.partition) <= set(table.schema)
        assert table.conform(table.empty()).is_empty()
