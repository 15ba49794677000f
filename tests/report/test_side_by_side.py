"""Agents side by side, and an agent over its sessions."""

from datetime import date
from typing import Any

import polars as pl

from agent_eval.methodology import Registry
from agent_eval.report.html.history import session_history
from agent_eval.report.html.side_by_side import MOST, side_by_side_page
from agent_eval.report.names import Paths
from agent_eval.tables import table

VERSION = "1.3.0"


def board_row(agent: str, **known: object) -> dict[str, object]:
    counts = {"n_sessions": 1, "n_conversations": 5, "judge": "model", "status": "published"}
    return {"methodology_version": VERSION, "agent_id": agent, **counts, **known}


def side_by_side(board: pl.DataFrame, *means: dict[str, object]) -> dict[str, Any]:
    summary = pl.DataFrame(means, schema=table("quality_summary").schema)
    return side_by_side_page(VERSION, Registry.read(None).get(VERSION), Paths(VERSION), board, summary)


def test_every_agent_has_a_column_and_what_is_unknown_is_no_number() -> None:
    board = pl.DataFrame(
        [board_row("a", rank=2, composite_score=70.0, composite_exact="70/1", u1=4.5), board_row("b", status="incomplete"), board_row("c", rank=1, composite_score=80.0, composite_exact="80/1")],
        schema=table("leaderboard").schema,
    )  # fmt: skip
    mean = {
        "quantity": "helpfulness",
        "mean": 4.0,
        "low": 3.5,
        "high": 4.5,
        "scale_low": 1.0,
        "scale_high": 5.0,
    }
    page = side_by_side(board, {"methodology_version": VERSION, "agent_id": "a", **mean})
    assert [name for name, _ in page["agents"]] == ["c", "a", "b"]
    figures = {f.name: f.values for _, rows in page["sections"] for f in rows}
    assert "universal" not in figures  # no agent has it
    assert [v and v[0] for v in figures["composite"]] == ["80.0", "70.0", None]
    assert figures["helpfulness (1 to 5, 5 = best)"] == [None, ("4.00", "3.50 to 4.50"), None]


def test_a_long_board_names_how_many_agents_are_left_out() -> None:
    rows = [board_row(f"a{i:03d}", rank=i, composite_score=50.0) for i in range(MOST + 5)]
    board = pl.DataFrame(rows, schema=table("leaderboard").schema)
    page = side_by_side(board)
    assert (len(page["agents"]), page["n_left_out"]) == (MOST, 5)


def test_sessions_are_in_order_of_their_dates_with_what_is_known_of_each() -> None:
    sessions = pl.DataFrame(
        {"session_id": ["x", "y", "z"], "session_date": [date(2026, 5, 2), date(2026, 5, 1), None]}
    )
    rows = [("c1", "x", True), ("c2", "x", None), ("c3", "y", False), ("c4", "z", None)]
    columns = ("conversation_id", "session_id", "outcome_correct")
    conversations = pl.DataFrame(rows, schema=columns, orient="row")
    transcripts = conversations.select("conversation_id", is_admitted=pl.col("conversation_id") != "c4")
    counts = [
        ("c1", 5, "judge", True, None, 1),
        ("c1", 3, "judge", False, True, 1),  # a sheet drew its part: people's label corrects means
        ("c1", 1, "human", True, False, 1),
        ("c1", 4, "judge", False, None, 1),  # a person decided its part
        ("c1", 2, "human", True, None, 1),
        ("c3", 2, "judge", True, None, 4),
    ]
    names = ("conversation_id", "rating_1to5", "judge", "is_effective", "is_counted", "n")
    ratings = pl.DataFrame(counts, schema=names, orient="row")
    failures = pl.DataFrame(
        {"conversation_id": ["c3"] * 3, "finding_id": ["a", "b", "b"], "failure_id": ["1", "2", "3"]}
    )
    composite = {"session_ids": ["x"], "session_scores": [80.0]}
    y, x = session_history(sessions, conversations, transcripts, ratings, failures, composite)
    assert (y.session_id, y.date, y.composite, y.n_correct, y.n_known) == ("y", date(2026, 5, 1), None, 0, 1)
    assert (x.composite, x.n_conversations, x.n_correct, x.n_known, x.mean_rating) == (80.0, 2, 1, 1, 4.0)
    assert (x.mean_by_people, y.mean_rating, y.mean_by_people) == (1.5, 2.0, None)
    assert (x.n_failures, y.n_failures) == (0, 2)
