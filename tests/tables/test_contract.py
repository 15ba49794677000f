from datetime import UTC, date, datetime
from typing import get_args

import polars as pl
import pytest

from agent_eval.gates.finding import Result
from agent_eval.metrics.base import SEVERITIES
from agent_eval.scores.composite.score import Status
from agent_eval.scores.reliability.over_tasks import NEW_TASKS, THESE_TASKS
from agent_eval.scores.reliability.pass_rates import ESTIMATORS
from agent_eval.scores.reliability.ranking import NOT_RATED
from agent_eval.tables import (
    TABLES,
    Column,
    Table,
    TableMismatchError,
    UnknownTableError,
    table,
    vocabularies,
)
from agent_eval.tables.contract import DATE, DATES, TIME
from agent_eval.transcripts.outcomes import OutcomeClass

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
    for declared in TABLES.values():
        assert declared.key
        assert set(declared.key) | set(declared.partition) <= set(declared.schema)
        # else rows of different partitions could share a key; the id of a failure is a hash of partition and turn
        assert {*declared.partition} <= {*declared.key} or declared.name == "failures", declared.name
        assert declared.conform(declared.empty()).is_empty()


TYPED = Table(
    "answers",
    "one row per answer",
    ("status",),
    (
        Column("status", vocabularies.TOOL_STATUS, "Status", nullable=False),
        Column("judged_at", TIME, "When"),
        Column("severity", vocabularies.SEVERITY, "How severe"),
        Column("severity_rank", pl.Int64, "Its rank", rank_of="severity"),
        Column("session_date", DATE, "Date"),
        Column("session_dates", DATES, "Dates"),
    ),
)


def test_texts_become_words_times_in_utc_and_ranks() -> None:
    row = {
        "status": "scored", "judged_at": "2026-04-20T12:00:00+02:00", "severity": "critical",
        "session_date": "2026-04-20", "session_dates": ["2026-04-20", "2026-05-01"],
    }  # fmt: skip
    days = [date(2026, 4, 20), date(2026, 5, 1)]
    for made in (TYPED.frame([row]), TYPED.conform(pl.DataFrame([row]))):
        assert made.schema == TYPED.schema
        moment = datetime(2026, 4, 20, 10, tzinfo=UTC)
        assert made.rows() == [("scored", moment, "critical", 4, days[0], days)]


@pytest.mark.parametrize(
    ("column", "value", "allowed"),
    [
        ("status", "Scored", "allowed are 'not_applicable', 'scored', 'unscored'"),
        ("judged_at", "yesterday", "allowed are ISO 8601 times such as '2026-04-20T10:00:00Z'"),
        ("session_date", "yesterday", "allowed are ISO 8601 dates such as '2026-04-20'"),
        ("session_dates", ["spring"], "allowed are lists of ISO 8601 dates such as '2026-04-20'"),
    ],
)
def test_a_wrong_word_time_and_date_are_refused_by_column_value_and_what_is_allowed(
    column: str, value: object, allowed: str
) -> None:
    row = {
        "status": "scored", "judged_at": "2026-04-20", "severity": "low", "session_date": None, "session_dates": [],
        column: value,
    }  # fmt: skip
    for make in (TYPED.frame, lambda rows: TYPED.conform(pl.DataFrame(rows))):
        with pytest.raises(TableMismatchError) as caught:
            make([row])
        assert caught.value.problems == (f"column {column!r} holds {value!r}, {allowed}",)


def test_a_rank_counts_the_order_of_the_words_and_null_has_none() -> None:
    words = [*SEVERITIES, None]
    made = TYPED.frame({"status": "scored", "severity": word} for word in words)
    assert made["severity_rank"].to_list() == [1, 2, 3, 4, None]
    assert made.filter(pl.col("severity") >= "high")["severity"].to_list() == ["high", "critical"]


def test_vocabularies_are_those_of_the_code_that_writes_them() -> None:
    assert tuple(vocabularies.SEVERITY.categories) == SEVERITIES
    pairs = [
        (vocabularies.RESULT, get_args(Result)),
        (vocabularies.SCORE_STATUS, get_args(Status)), (vocabularies.ESTIMATOR, ESTIMATORS),
        (vocabularies.ESTIMAND, (NEW_TASKS, THESE_TASKS)), (vocabularies.OUTCOME_CLASS, get_args(OutcomeClass)),
    ]  # fmt: skip
    for vocabulary, words in pairs:
        assert set(vocabulary.categories) == set(words)
    assert NOT_RATED in vocabularies.ASSESSMENT.categories


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("name", 3, "column 'name' holds 3, allowed are texts"),
        ("name", "\ud800", "column 'name' holds '\\ud800', allowed are texts"),
        ("weight_g", "heavy", "column 'weight_g' holds 'heavy', allowed are numbers"),
        ("judged_at", 20260420, "holds 20260420, allowed are ISO 8601 times such as '2026-04-20T10:00:00Z'"),
        ("session_date", 20260420, "holds 20260420, allowed are ISO 8601 dates"),
        ("session_date", datetime(2026, 4, 20), "holds datetime.datetime(2026, 4, 20, 0, 0), allowed are ISO 8601 dates"),
        ("session_dates", "2026-04-20", "holds '2026-04-20', allowed are lists of ISO 8601 dates"),
        ("session_dates", [3], "holds 3, allowed are lists of ISO 8601 dates"),
        ("severity_rank", 2**70, f"holds {2**70}, allowed are integers"),
        ("wieght_g", 1.0, "column 'wieght_g' is not declared; did you mean 'weight_g'?"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_and_a_misspelt_column_are_named(
    column: str, value: object, problem: str
) -> None:
    of = TABLE if column in (*TABLE.schema, "wieght_g") else TYPED
    with pytest.raises(TableMismatchError, match=f"table '{of.name}'") as caught:
        of.frame([{column: value}])
    assert problem in str(caught.value)


def test_an_unknown_table_suggests_the_nearest() -> None:
    with pytest.raises(UnknownTableError, match=r"no table 'leaderbord'\. Did you mean 'leaderboard'"):
        table("leaderbord")


def test_every_column_named_for_a_time_or_a_day_has_such_a_type() -> None:
    named = ("_at", "_date", "_dates", "_seen", "day", "at")
    columns = [(of.name, name, dtype) for of in TABLES.values() for name, dtype in of.schema.items()]
    found = [column for column in columns if column[1] in named or column[1].endswith(named[:4])]
    assert [column for column in found if column[2] not in (TIME, DATE, DATES)] == []
    assert len(found) > 10
