"""Boards over time: what is a change, what is its cause, and what a board showed on a day."""

from typing import Any

import polars as pl
import pytest

from agent_eval.formats.timestamps import parse_timestamp, seconds
from agent_eval.scores.composite.history import (
    CAUSES,
    board_at,
    board_changes,
    new_history,
    seeded,
    with_inputs,
)
from agent_eval.tables import table

V = "1.3.0"
MON, TUE, WED = (f"2026-03-0{day}T12:00:00+00:00" for day in (2, 3, 4))


def row(agent: str, composite: int | None = 70, rank: int | None = 1, **changes: Any) -> dict[str, Any]:
    """A row of table leaderboard."""
    known = {"methodology_version": V, "agent_id": agent, "name": agent.title(), "template": "support_v1"}
    exact, status = (None, "incomplete") if composite is None else (f"{composite}/1", "published")
    scores = {"rank": rank, "composite_score": composite, "composite_exact": exact, "status": status}
    counts = {"n_sessions": 1, "n_goal_completion": 0, "judge": "recorded", "missing": []}
    return known | scores | counts | changes


def board(*rows: dict[str, Any]) -> pl.DataFrame:
    return table("leaderboard").frame(rows)


def inputs(*agents: str, version: str = V, **changed: str) -> pl.DataFrame:
    """board_inputs of some agents; `changed`: other hashes for all of them."""
    same = dict.fromkeys(CAUSES, "as before")
    return table("board_inputs").frame(
        {"methodology_version": version, "agent_id": agent, **same, **changed} for agent in agents
    )


def history(*boards: tuple[str, pl.DataFrame]) -> pl.DataFrame:
    """board_history after these boards were made, each at its time."""
    held = table("board_history").empty()
    for at, made in boards:
        versions = pl.DataFrame({"methodology_version": [V]})
        held = pl.concat([held, new_history(made, held, versions, at=at)])
    return held


def changes(
    old: pl.DataFrame, new: pl.DataFrame, now: pl.DataFrame, before: pl.DataFrame
) -> list[dict[str, Any]]:
    made = board_changes(new, history((MON, old)), now, before, at=TUE)
    return table("board_changes").conform(made).to_dicts()


def test_a_board_that_is_made_again_adds_nothing() -> None:
    same = board(row("a"), row("b", None, None))
    assert history((MON, same), (TUE, same)).height == 2
    assert changes(same, same, inputs("a", "b", sessions_hash="new"), inputs("a", "b")) == []


@pytest.mark.parametrize(("column", "cause"), CAUSES.items())
def test_the_cause_is_the_input_that_differs(column: str, cause: str) -> None:
    [change] = changes(board(row("a", 70)), board(row("a", 60)), inputs("a", **{column: "new"}), inputs("a"))
    assert (change["cause"], change["cause_agents"]) == (cause, ["a"])
    assert (change["old_composite"], change["new_composite"]) == (70, 60)
    assert (change["old_composite_exact"], change["new_composite_exact"]) == ("70/1", "60/1")
    assert change["old_status"] == change["new_status"] == "published"
    assert change["changed_at"] == parse_timestamp(TUE)


def test_several_causes_are_all_named() -> None:
    now = inputs("a", sessions_hash="new", judge_hash="new")
    [change] = changes(board(row("a", 70)), board(row("a", None, None)), now, inputs("a"))
    assert change["cause"] == "session + judge"
    assert (change["old_rank"], change["new_rank"], change["new_status"]) == (1, None, "incomplete")


def test_a_rank_that_others_moved_names_them_and_their_cause() -> None:
    old = board(row("a", 70), row("b", 60, 2), row("c", 90, template="other_v1"))
    new = board(row("a", 70, 2), row("b", 80, 1), row("c", 10, template="other_v1"))
    now = pl.concat([inputs("a"), inputs("b", ratings_hash="new"), inputs("c", code_version="new")])
    found = {c["agent_id"]: c for c in changes(old, new, now, inputs("a", "b", "c"))}
    assert (found["a"]["cause"], found["a"]["cause_agents"]) == ("rating", ["b"])
    assert (found["a"]["old_rank"], found["a"]["new_rank"]) == (1, 2)
    assert (found["b"]["cause"], found["b"]["cause_agents"]) == ("rating", ["b"])
    assert found["c"]["cause"] == "code"


def test_an_agent_that_comes_and_one_that_goes_are_changes_by_their_sessions() -> None:
    old, new = board(row("a"), row("b", 60, 2)), board(row("b", 60, 1), row("c"))
    found = changes(old, new, inputs("b", "c"), inputs("a", "b"))
    names = ("agent_id", "old_status", "new_status", "cause", "cause_agents")
    assert sorted([c[name] for name in names] for c in found) == [
        ["a", "published", None, "session", ["a"]],
        ["b", "published", "published", "session", ["a", "c"]],
        ["c", None, "published", "session", ["c"]],
    ]


NOT_KEPT = inputs("a").with_columns(sessions_hash=pl.lit(None, dtype=pl.String))


@pytest.mark.parametrize(
    ("old", "now", "before", "cause"),
    [
        (None, inputs("a"), inputs("a"), "judge"),
        (70, inputs("a"), inputs(), "code"),
        (70, inputs("a", judge_hash="new"), NOT_KEPT, "judge"),
    ],
    ids=["equal inputs: a judge answered now", "a release that kept no inputs", "an input was not kept"],
)
def test_where_no_input_differs_the_cause_is_what_is_left(
    old: int | None, now: pl.DataFrame, before: pl.DataFrame, cause: str
) -> None:
    [change] = changes(board(row("a", old)), board(row("a", 60)), now, before)
    assert change["cause"] == cause


def test_a_first_board_of_a_version_is_no_change() -> None:
    other = board(row("a") | {"methodology_version": "1.2.0"})
    assert changes(board(row("a")), pl.concat([board(row("a")), other]), inputs("a"), inputs("a")) == []


def test_the_board_of_a_day_is_the_last_one_made_by_then() -> None:
    monday = board(row("a", 70), row("b", 60, 2))
    tuesday = board(row("a", 70, 2, judge="human"), row("b", 80, 1))
    wednesday = board(row("b", 80, 1))
    held = history((MON, monday), (TUE, tuesday), (WED, wednesday))
    assert held.height == 2 + 2 + 1  # on Wednesday one left and the other stayed as it was
    for at, made in ((MON, monday), (TUE, tuesday), (WED, wednesday)):
        assert board_at(held, seconds(at)).sort("agent_id").equals(made)
    assert board_at(held.reverse(), seconds(TUE)).sort("agent_id").equals(tuesday)
    assert board_at(held, seconds("2026-03-01")).is_empty()
    back = history((MON, monday), (TUE, wednesday), (WED, monday))
    assert board_at(back, seconds(WED)).sort("agent_id").equals(monday)


def test_a_board_of_an_earlier_release_is_the_first_state_of_its_history() -> None:
    stored = board(row("a"))
    first = seeded(stored, table("board_history").empty(), {V: MON})
    assert board_at(first, seconds(MON)).equals(stored)
    assert seeded(stored, first, {V: TUE}).is_empty()


def test_scores_name_what_they_were_made_from() -> None:
    scores = table("composite_scores").frame(
        [row("b") | {"n_sessions": 1, "warnings": [], "n_conversations": 1}, row("a") | {"warnings": []}]
    )
    made = with_inputs(scores, inputs("a", "b", judge_hash="x"))
    assert made.columns == scores.columns
    assert made.select("agent_id", "judge_hash").rows() == [("b", "x"), ("a", "x")]
