"""Links of markdown pages: to partitions, runs and pages of the report, and to nothing that a transcript says."""

import polars as pl
import pytest

from agent_eval.report.asset_pages.pages import N_ROWS, ORDER, preview
from agent_eval.report.links import agent_page, partition_page, rating_page, row_page, run_page
from agent_eval.report.markdown import link, markdown_table
from agent_eval.report.names import Paths
from agent_eval.tables import TABLES, table


def test_addresses_are_those_of_the_ui_and_of_the_report() -> None:
    assert partition_page("leaderboard", "1.3.0") == "/assets/leaderboard?view=partitions&partition=1.3.0"
    assert partition_page("x", "a", "1.3.0") == "/assets/x?view=partitions&partition=a%7C1.3.0"
    assert run_page("12-ab") == "/runs/12-ab"
    assert agent_page("a", "1.3.0") == f"/report/{Paths('').agent('a', '1.3.0')}"
    assert agent_page("a", "1.3.0", "https://h/r/") == f"https://h/r/{Paths('').agent('a', '1.3.0')}"
    row = {"agent_id": "a", "conversation_id": "c", "turn_index": 3, "target": "U2"}
    row |= {"methodology_version": "1.3.0"}
    assert row_page(row) == f"/report/{Paths('').conversation('a', 'c', 3)}"
    assert row_page(row | {"conversation_id": None}) is None
    assert rating_page(row | {"turn_index": None}) == f"/report/{Paths('').conversation('a', 'c')}"
    assert rating_page(row | {"conversation_id": None}) == f"{agent_page('a', '1.3.0')}#U2"


@pytest.mark.parametrize("address", ["javascript:alert(1)", "//evil.test", "/graphql", "data:x", "", None])
def test_only_addresses_of_our_own_become_links(address: str | None) -> None:
    assert link("a|b", address) == "a\\|b"


def test_a_linked_cell_stays_one_cell_and_the_address_is_no_column() -> None:
    frame = pl.DataFrame({"id": ["](/runs/x) |", "b"], "n": [1, 2], "page": ["/runs/1", None]})
    lines = markdown_table(frame, links={"id": "page"}).split("\n")
    assert lines[0] == "| id | n |"
    assert lines[2] == "| [\\]\\(/runs/x\\) \\|](</runs/1>) | 1 |"
    assert lines[3] == "| b | 2 |"


@pytest.mark.parametrize("name", ORDER)
def test_a_preview_is_sorted_by_columns_that_the_table_has(name: str) -> None:
    assert name in TABLES
    empty = table(name).empty()
    assert empty.sort(*ORDER[name]).height == 0
    blank = pl.DataFrame({c: [None, None] for c in empty.columns}, schema=empty.schema)
    assert blank.sort(*ORDER[name], nulls_last=True).height == 2


def test_a_preview_shows_what_was_lost_then_the_lowest_ratings_each_with_its_turn() -> None:
    contract = table("turn_judgments")
    rows = contract.frame(
        {
            "methodology_version": "1.3.0", "agent_id": "a", "conversation_id": f"c{i}", "turn_index": i,
            "metric": "helpfulness", "status": "unscored" if i == 7 else "scored",
            "rating_1to5": None if i == 7 else 5 - i % 5,
        }
        for i in range(20)
    )  # fmt: skip
    lines = preview(contract, rows).split("\n")[2:]
    assert [line.split("|")[2].strip() for line in lines] == ["7", "14", "19", "4", "9"]  # by id
    assert len(lines) == N_ROWS
    assert f"[c7](</report/{Paths('').conversation('a', 'c7', 7)}>)" in lines[0]


def test_the_newest_sessions_and_changes_come_first() -> None:
    sessions = table("sessions").frame(
        {"agent_id": "a", "session_id": day, "session_date": day}
        for day in ("2026-01-02", "2026-03-01", "2025-12-31")
    )
    assert [line.split("|")[1].strip() for line in preview(table("sessions"), sessions).split("\n")[2:]] == [
        "2026-03-01", "2026-01-02", "2025-12-31",
    ]  # fmt: skip
