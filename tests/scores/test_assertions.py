"""Assertions: what `expected` demands, held against the calls that were made."""

import json
from typing import Any

import polars as pl
import pytest

from agent_eval.scores.tools.assertions import assertion_results
from agent_eval.tables import table
from agent_eval.transcripts.outcomes import HARNESS_FAILED

AGENT = {"agent_id": "lumen", "conversation_id": "c"}
CALLS = (("find", {"id": 1, "verbose": True}), ("refund", {"id": 1}))


def held(*expected: dict[str, Any], calls: Any = CALLS, texts: Any = None, **changes: Any) -> pl.DataFrame:
    """Results for one conversation of two turns, one call in each."""
    said = {"session_id": "s", "n_turns": 2, "n_user_messages": 2, "is_admitted": True, "slot": "D1"}
    rows = [
        AGENT | said | {"methodology_version": v, "expected": json.dumps(expected)} | changes
        for v in ("1.2.0", "1.3.0")
    ]
    made = [
        AGENT
        | {"turn_index": i, "call_index": 0, "name": name, "requestor": "assistant"}
        | {"arguments": json.dumps(of)}
        for i, (name, of) in enumerate(calls)
    ]
    given = {"transcripts": rows, "conversations": rows[:1], "tool_calls": made}
    frames: list[Any] = [table(name).frame(of) for name, of in given.items()]
    if texts is not None:
        frames.append(
            table("turns").frame(
                AGENT | {"turn_index": i, "agent_message": text} for i, text in enumerate(texts)
            )
        )
    return assertion_results(*frames).filter(methodology_version="1.3.0")


def row(*expected: dict[str, Any], **given: Any) -> dict[str, Any]:
    found = held(*expected, **given)
    assert found.height == 1
    return found.row(0, named=True)


def whole(*tools: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"turn_index": None, "tools": list(tools)} | more


def test_expected_calls_hold_in_any_order_and_others_do_no_harm() -> None:
    found = row(whole({"name": "refund", "arguments": {"id": 1}}))
    assert (found["kind"], found["result"], found["reason"]) == ("tools", "passed", None)
    assert row(whole({"name": "refund"}, {"name": "find", "arguments": {"id": 1}}))["result"] == "passed"


def test_what_the_harness_broke_off_is_unknown_and_not_a_missing_call() -> None:
    wanted = whole({"name": "close"})
    assert row(wanted, outcome_class="agent_error")["result"] == "failed"
    found = row(wanted, outcome_class="harness_error")
    assert (found["result"], found["reason"]) == ("unknown", HARNESS_FAILED)


def test_their_order_counts_where_it_matters() -> None:
    wanted = whole({"name": "refund"}, {"name": "find"}, tool_sequence_matters=True)
    found = row(wanted)
    assert found["result"] == "failed"
    assert found["reason"].startswith("out of order: ")
    assert "~" in found["diff"]


def test_a_missing_call_is_told_with_how_the_nearest_one_differs() -> None:
    found = row(whole({"name": "refund", "arguments": {"id": 2}}))
    assert found["result"] == "failed"
    assert found["assertion"] == "calls refund"
    assert "- refund(id=2): not called so; id is 1, expected 2" in found["diff"]


def test_a_turn_is_held_against_its_own_calls() -> None:
    assert row({"turn_index": 0, "tools": [{"name": "find"}]})["result"] == "passed"
    assert row({"turn_index": 1, "tools": [{"name": "find"}]})["result"] == "failed"


def test_no_expected_tool_means_none_may_be_called() -> None:
    assert row(whole())["result"] == "failed"
    assert row(whole(), calls=())["result"] == "passed"
    assert held({"turn_index": None, "answer": "42"}).is_empty()


@pytest.mark.parametrize(
    ("assertion", "result"),
    [
        ({"mode": "strict", "tools": [{"name": "find"}, {"name": "refund"}]}, "passed"),
        ({"mode": "strict", "tools": [{"name": "find"}]}, "failed"),
        ({"mode": "contains", "tools": [{"name": "find"}]}, "passed"),
        ({"mode": "unordered", "tools": [{"name": "refund"}, {"name": "find"}]}, "passed"),
        ({"mode": "within", "tools": [{"name": "refund"}]}, "failed"),
        ({"forbidden": ["refund"]}, "failed"),
        ({"forbidden": ["delete"]}, "passed"),
        ({"mode": "sideways", "tools": []}, "unknown"),
        ({"tool": []}, "unknown"),
        ({"tools": "find"}, "unknown"),
        ({"mode": ["strict"], "tools": []}, "unknown"),
        ({"forbidden": [7]}, "unknown"),
        ({}, "unknown"),
        (7, "unknown"),
        ("The agent apologises.", "unknown"),
    ],
)
def test_an_assertion_passes_fails_or_cannot_be_told(assertion: object, result: str) -> None:
    found = row({"turn_index": None, "assertions": [assertion]})
    assert found["result"] == result
    assert (found["reason"] is None) == (result == "passed")


def test_words_are_unknown_until_somebody_judges_them() -> None:
    found = row({"turn_index": None, "assertions": ["The agent apologises."]})
    assert (found["kind"], found["assertion"]) == ("text", "The agent apologises.")


def test_a_turn_that_is_not_there_cannot_be_told() -> None:
    found = row({"turn_index": 7, "tools": []})
    assert (found["result"], found["reason"]) == ("unknown", "turn 7 is not there: the conversation has 2")


def test_every_demand_has_its_own_row_and_excluded_conversations_none() -> None:
    entry = {"turn_index": 0, "tools": [{"name": "find"}], "assertions": [{"forbidden": ["x"]}, "words"]}
    found = held(entry, {"turn_index": 1, "tools": [{"name": "refund"}]})
    wanted = [(0, 0, "tools"), (1, 0, "trajectory"), (2, 0, "text"), (3, 1, "tools")]
    assert found.select("assertion_index", "turn_index", "kind").rows() == wanted
    assert held(entry, is_admitted=False).is_empty()


@pytest.mark.parametrize(
    "demand", [{"mode": "contains"}, {"mode": "contains", "tools": []}, {"forbidden": []}]
)
def test_a_demand_that_requires_nothing_is_not_passed(demand: dict[str, Any]) -> None:
    found = row({"assertions": [demand]})
    assert found["result"] == "unknown"
    assert found["reason"] == "it requires nothing: contains needs tools or forbidden calls"
    assert row({"assertions": [demand | {"forbidden": ["delete"]}]})["result"] == "passed"


@pytest.mark.parametrize(
    ("required", "texts", "result"),
    [
        (["MONDAY", ["at  ten", "at nine"]], ["On Monday.", "At nine."], "passed"),
        (["Monday", ["ten", "eleven"]], ["On Monday.", "At nine."], "failed"),
        (["Monday"], [None, ""], "failed"),
        (["Monday"], None, "unknown"),
        ([[]], ["Monday"], "unknown"),
        ([["Monday", 1]], ["Monday"], "unknown"),
    ],
)
def test_required_texts_must_all_be_said(required: Any, texts: Any, result: str) -> None:
    found = row({"assertions": [{"required_text": required}]}, texts=texts)
    assert (found["kind"], found["result"], found["reason"] is None) == ("text", result, result == "passed")


@pytest.mark.parametrize(
    ("turn", "forbidden", "texts", "result"),
    [
        (None, ["we  GUARANTEE"], ["Hello.", "We guarantee\nit."], "failed"),
        (0, ["guarantee"], ["Hello.", "We guarantee it."], "passed"),
        (1, ["never", "it."], [None, "We guarantee it."], "failed"),
        (None, ["never"], [None, "We guarantee it."], "passed"),
        (None, ["never"], None, "unknown"),
        (None, [], ["Hello.", ""], "unknown"),
        (None, [" "], ["Hello.", ""], "unknown"),
        (None, "never", ["Hello.", ""], "unknown"),
    ],
)
def test_forbidden_texts_are_looked_for_in_what_the_agent_said(
    turn: int | None, forbidden: Any, texts: Any, result: str
) -> None:
    found = row({"turn_index": turn, "assertions": [{"forbidden_text": forbidden}]}, texts=texts)
    assert (found["kind"], found["result"]) == ("text", result)
    assert (found["reason"] is None) == (result == "passed")
