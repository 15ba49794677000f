"""Words of a board: each cell says what is known, why a value is missing, and what a lead is worth."""

import datetime as dt
import io
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from agent_eval.commands.results.leaderboard import _table
from agent_eval.methodology import Registry
from agent_eval.report import board as words
from agent_eval.tables import table

ROW: dict[str, Any] = {"methodology_version": "1.3.0", "agent_id": "a", "name": "Ada", "template": "t"}
ROW |= {"rank": 1, "rank_low": 1, "rank_high": 1, "low": 70.0, "high": 80.04, "interval_method": "t"}
ROW |= {"n_sessions": 5, "composite_exact": "151/2", "composite_score": 75.5, "raw_composite_score": 75.5}
ROW |= {"universal_0to100": 80.0, "domain_0to100": None, "repeatability_penalty": 10.0}
ROW |= {"smallest_detectable": 4.25, "status": "published", "judge": "rule", "missing": [], "disputed": []}
ROW |= {"repeatability_tested": True, "hallucination_passed": True, "u3_scope": "multi_turn"}
ROW |= {"is_pareto": False, "lead_points": 3.04, "lead_survives_point": True}


def board(*changes: dict[str, Any]) -> pl.DataFrame:
    return table("leaderboard").frame([ROW | change for change in changes])


@pytest.mark.parametrize(
    ("changes", "badge"),
    [
        ({"repeatability_tested": False}, "repeatability not tested"),
        ({"repeatability_tested": None}, "repeatability ?"),
        ({"hallucination_passed": False}, "hallucination FAILED"),
        ({"hallucination_passed": None}, "hallucination ?"),
        ({"u3_scope": None}, "U3 scope ?"),
        ({"u3_scope": "single_turn"}, "U3 single turn"),
        ({"disputed": ["U2"]}, "disputed"),
        ({"is_pareto": True}, "Pareto front"),
        ({"is_pareto": True, "rank": 2, "lead_points": None}, "Pareto front"),
    ],
)
def test_each_disclosure_has_its_badge(changes: dict[str, Any], badge: str) -> None:
    assert badge in words.badges(ROW | changes)
    assert badge not in words.badges(ROW)
    # an agent that has no other beside it is on no front
    assert "Pareto front" not in words.badges(ROW | {"is_pareto": True, "lead_points": None})


@pytest.mark.parametrize(
    ("of", "changes", "said"),
    [
        (words.composite, {}, "75.5"),
        (words.composite, {"composite_exact": "1301/20", "raw_composite_score": 65.05}, "65.1"),  # half up
        (words.composite, {"composite_exact": None, "raw_composite_score": 54.149}, "(54.1 raw)"),
        (words.composite, {"composite_exact": None, "raw_composite_score": None}, "–"),
        (words.rank, {}, "1"),
        (words.rank, {"rank_high": 3}, "1 (1–3)"),
        (words.rank, {"rank_low": None, "rank_high": None}, "1"),
        (words.rank, {"rank": None}, "–"),
        (words.interval, {}, "70.0–80.0"),
        (words.interval, {"interval_method": "bounded"}, "70.0–80.0 (any spread)"),
        (words.interval, {"interval_method": "t_near_end"}, "70.0–80.0 (spread not seen)"),
        (words.interval, {"low": None, "high": None, "n_sessions": 1}, "n = 1, none"),
    ],
)
def test_a_composite_a_rank_and_an_interval_say_what_is_known(
    of: Callable[[dict[str, Any]], str], changes: dict[str, Any], said: str
) -> None:
    assert of(ROW | changes) == said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "the lead survives a one-point change of one rating."),
        ({"lead_survives_point": False}, "the lead does not survive a one-point change of one rating."),
        ({"rank_high": 2}, "the lead may be due to chance: the rank ranges overlap."),
        (
            {"rank_low": None, "low": None},
            "the lead may be due to chance: an interval needs several sessions.",
        ),
    ],
)
def test_a_lead_is_said_to_be_more_than_chance_only_where_it_is(changes: dict[str, Any], said: str) -> None:
    assert words.leads(board(changes)) == [f"Ada leads t by 3.0 points; {said}"]


def test_ranges_do_not_overlap_where_the_others_have_none() -> None:
    others = {"agent_id": "b", "rank": 2, "low": None, "high": None, "lead_points": None}
    expected = "Ada leads t by 3.0 points; the lead may be due to chance: others have no interval."
    assert words.leads(board({"rank_high": 2}, others)) == [expected]
    assert words.leads(board({"rank_high": 2}, others, {"template": "u", "rank": 2})) == [expected]


def test_agents_that_share_the_first_rank_are_all_named() -> None:
    tied = {"lead_points": 0.0}
    rows = board(tied, tied | {"agent_id": "b", "name": None})
    assert words.leads(rows) == ["Ada and b share the first rank of t."]
    rows = board(tied, tied | {"name": "Ben"}, tied | {"name": "Cy"})
    assert words.leads(rows) == ["Ada, Ben and Cy share the first rank of t."]


def test_of_each_template_one_lead_is_named_and_none_of_a_single_agent() -> None:
    rows = board({}, {"agent_id": "b"}, {"template": "u", "lead_points": None}, {"rank": 2, "agent_id": "c"})
    assert len(words.leads(rows)) == 1


def test_readable_cells_are_texts_and_unknown_ones_are_no_numbers() -> None:
    shown = words.readable(board({}, {"name": None, "template": None, "repeatability_penalty": None}))
    first, second = shown.to_dicts()
    assert (first["agent"], first["U"], first["D"], first["penalty"]) == ("Ada", "80.0", "–", "−10")
    assert (second["agent"], second["template"], second["penalty"]) == ("a", "–", "?")
    assert set(shown.dtypes) == {pl.String}
    assert words.readable(board().clear()).columns == shown.columns


def test_no_cell_of_a_row_of_unknowns_is_the_word_none() -> None:
    """As in the boards of earlier releases, which lack the columns that were added since."""
    unknown = {column.name: None for column in table("leaderboard").columns if column.nullable}
    (cells,) = words.readable(board(unknown)).rows()
    assert [cell for cell in cells if cell is None or "None" in cell] == []


DATED = {"n_sessions": 8, "session_dates": [dt.date(2026, 1, day) for day in range(1, 9)]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (DATED, None),
        (DATED | {"n_sessions": 9}, "9 sessions, without a date each, so they do not show whether"),
        ({"n_sessions": 7}, "7 sessions, too few to show whether a session depends on the one before"),
        ({"n_sessions": 1, "low": None}, None),
    ],
)
def test_an_interval_that_takes_sessions_as_independent_says_so(
    changes: dict[str, Any], said: str | None
) -> None:
    lines = words.outcomes(board(changes))
    assert lines == [] if said is None else lines[0].startswith(f"Ada: {said}")


def test_judgments_on_part_of_the_evidence_are_counted_and_the_least_share_is_rounded_down() -> None:
    seen = {"n_seen_in_part": 12, "n_judged": 1340, "least_seen_share": 0.41999}
    (said,) = words.outcomes(board(DATED | seen))
    assert said == "Ada: 12 of 1,340 judgments were made on part of the evidence, at least 41.9 % of it"
    (said,) = words.outcomes(board(DATED | seen | {"least_seen_share": 0.0008}))
    assert said.endswith("part of the evidence, some on less than 0.1 % of it")
    assert words.outcomes(board(DATED | {"n_seen_in_part": 0})) == []


@pytest.mark.parametrize(("old", "said"), [("151/2", "75.5 → 76.0"), ("76/1", "76.0"), (None, "– → 76.0")])
def test_a_change_shows_both_sides_and_an_unchanged_value_once(old: str | None, said: str) -> None:
    change = {
        "changed_at": dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC), "methodology_version": "1.3.0", "agent_id": "a",
        "old_composite_exact": old, "new_composite_exact": "76/1", "old_rank": None, "new_rank": 2,
        "new_status": "published", "cause": "session added", "cause_agents": ["a", "b"],
    }  # fmt: skip
    (shown,) = words.readable_changes(table("board_changes").frame([change])).to_dicts()
    assert (shown["composite"], shown["when (UTC)"], shown["rank"]) == (said, "2026-01-02 03:04", "– → 2")
    assert (shown["status"], shown["cause"]) == ("not on the board → published", "session added of b")


def test_a_superseded_version_names_and_links_the_current_one() -> None:
    registry = Registry.read(None)
    notes = words.superseded_notes(map(registry.get, ("1.0.0", "1.3.0")), "leaderboard")
    assert set(notes) == {"1.0.0"}
    assert "superseded by" in notes["1.0.0"]
    assert "[1.3.0](/assets/leaderboard?view=partitions&partition=1.3.0)" in notes["1.0.0"]


def test_the_page_of_a_board_links_each_agent_and_escapes_its_name() -> None:
    named = {"name": "<b>|x", "missing": ["U4: no injected error"]}
    page = words.board_page(board(DATED | named), "1.3.0")
    assert "<b>" not in page
    assert "/assets/composite_scores?view=partitions&partition=a%7C1.3.0" in page
    assert "missing: U4: no injected error" in page
    assert "incomplete evidence" not in page


def test_each_column_has_a_heading_and_text_and_a_new_one_is_on_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for heading, text in words.BOARD.items():
        assert heading.strip() == heading != ""
        assert text(ROW | {"cost_usd_per_conversation": None}) != "None", heading
    monkeypatch.setitem(words.BOARD, "tier", lambda row: f"{row['agent_id']} is gold")
    screen = Console(width=300, file=io.StringIO())
    screen.print(_table("board", board({})))
    assert isinstance(screen.file, io.StringIO)
    assert " tier" in screen.file.getvalue()
    assert "a is gold" in screen.file.getvalue()
