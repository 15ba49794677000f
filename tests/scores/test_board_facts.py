"""What a row carries beside its scores, and which agents are on a board at all."""

from datetime import date
from typing import Any

import pytest

from agent_eval.scores.composite.leaderboard import leaderboard
from agent_eval.tables import table
from tests.scores.builders import METHODOLOGIES, composed, one, ratings, session, transcripts, unrated
from tests.untyped import any_table


def test_a_row_carries_its_dimensions_scenarios_sessions_and_the_hash_of_its_methodology() -> None:
    # D1 = (5 + 4 + 3)/15 × 100 = 80; the others (4 + 4 + 4)/15 × 100 = 80
    rated = ratings((1, 2, 3, 4, 5, 5), ((5, 4, 3), *((4, 4, 4),) * 4))
    told = session(session_date="2026-04-18", evaluator="Mira")
    row = one(composed(rated=rated, declared=[told]))
    assert [row[f"u{i}"] for i in range(1, 7)] == [1, 2, 3, 4, 5, 5]
    assert [row[f"d{i}"] for i in range(1, 6)] == pytest.approx([80] * 5)
    assert (row["session_dates"], row["evaluators"]) == ([date(2026, 4, 18)], ["Mira"])
    assert row["methodology_content_hash"] == METHODOLOGIES["1.3.0"].content_hash


def test_dates_and_evaluators_are_those_of_the_sessions_that_count() -> None:
    held = [*transcripts(), *transcripts(session="b"), *transcripts(session="late", is_admitted=False)]
    told = [
        session(session_date="2026-04-19", evaluator="Mira"),
        session("b", session_date="2026-04-18", evaluator="Mira"),
        session("late", session_date="2026-05-01", evaluator="Ida"),
    ]
    row = one(composed(held=held, declared=told, rated=[*ratings(), *ratings(session_id="b")]))
    assert (row["session_dates"], row["evaluators"]) == ([date(2026, 4, 18), date(2026, 4, 19)], ["Mira"])


def test_conversations_that_the_harness_lost_are_counted_by_session_or_by_class() -> None:
    held = [*transcripts(), *transcripts(("D1", "D2"), session="lost", is_admitted=False)]
    told = [session(), session("lost", invalid_reason="sandbox gone")]
    conversations = [
        {"agent_id": "lumen", "conversation_id": "a-D1", "session_id": "a", "outcome_class": "harness_error"},
        {"agent_id": "lumen", "conversation_id": "a-D2", "session_id": "a", "outcome_class": "agent_error"},
        {"agent_id": "lumen", "conversation_id": "lost-D1", "session_id": "lost", "outcome_class": "harness_error"},
    ]  # fmt: skip
    rows = [conversation_row(**c) for c in conversations]
    row = one(composed(held=held, declared=told, conversations=rows))
    assert row["n_harness_failures_dropped"] == 3  # lost-D1, lost-D2, a-D1


@pytest.mark.parametrize(
    ("versions", "has_entered"),
    [(["1.3.0"], True), (["any"], True), (["1.2.0"], False), (["1.2.0", "1.3.0"], True)],
)
def test_an_agent_enters_a_version_by_a_session_run_for_it(versions: list[str], has_entered: bool) -> None:
    scores = composed(rated=unrated(), declared=[session(methodology_versions=versions)])
    assert one(scores)["has_entered"] is has_entered
    board = leaderboard(any_table(scores), table("agents").empty(), table("reliability").empty())
    assert board["agent_id"].to_list() == (["lumen"] if has_entered else [])


def test_an_agent_whose_only_session_the_harness_lost_has_entered() -> None:
    scores = composed(rated=unrated(), declared=[session(invalid_reason="sandbox gone")])
    assert one(scores)["has_entered"] is True


def test_a_board_names_the_version_that_superseded_it() -> None:
    scores = composed()
    agents, reliability = table("agents").empty(), table("reliability").empty()
    for successor in ("2.0.0", None):
        board = leaderboard(any_table(scores), agents, reliability, {"1.3.0": successor})
        assert one(board)["superseded_by"] == successor


def conversation_row(**given: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("n_turns", "n_user_messages", "n_agent_messages", "n_tool_calls"), 1)
    return {**counts, "content_hash": "x", **given}
