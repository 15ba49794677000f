"""The table expected_calls: what a truth expects, and which call answers it."""

import json
from typing import Any

import polars as pl

from agent_eval.scores.tools.expected_calls import NO_USER, expected_calls
from agent_eval.tables import table


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def made(
    turn_index: int, call_index: int, name: str, requestor: str = "assistant", **arguments: Any
) -> dict[str, Any]:
    key = {"conversation_id": "c", "turn_index": turn_index, "call_index": call_index}
    return AGENT | key | {"name": name, "arguments": json.dumps(arguments), "requestor": requestor}


AGENT = {"agent_id": "a"}


def table_of(entries: list[dict[str, Any]], calls: list[dict[str, Any]], **more: Any) -> pl.DataFrame:
    counts = {"n_turns": 2, "n_user_messages": 2, "expected": json.dumps(entries)}
    conversation = AGENT | {"conversation_id": "c", "session_id": "s"} | counts | more
    return expected_calls(table("conversations").frame([conversation]), table("tool_calls").frame(calls))


def matched(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    return frame.select("name", "is_matched", "matched_turn_index", "matched_call_index").rows()


def test_each_expected_call_has_a_row_with_the_call_that_answers_it() -> None:
    tools = [call("f", x=1), call("f", x=2), call("g")]
    found = table_of([{"tools": tools}], [made(0, 0, "f", x=2), made(1, 0, "f", x=1)])
    assert matched(found) == [("f", True, 1, 0), ("f", True, 0, 0), ("g", False, None, None)]
    assert found["call_index"].to_list() == [0, 1, 2]
    assert found["arguments"].to_list() == ['{"x": 1}', '{"x": 2}', "{}"]


def test_a_call_answers_one_expected_call_only() -> None:
    found = table_of([{"tools": [call("f", x=1), call("f", x=1)]}], [made(0, 0, "f", x=1)])
    assert found["is_matched"].sum() == 1


def test_a_truth_of_a_turn_is_matched_within_its_turn() -> None:
    found = table_of([{"turn_index": 1, "tools": [call("f")]}], [made(0, 0, "f")])
    assert found.select("turn_index", "is_matched").rows() == [(1, False)]
    absent = table_of([{"turn_index": 7, "tools": [call("f")]}], [made(0, 0, "f")])
    note = "turn 7 is not there: the conversation has 2"
    assert absent.select("is_matched", "note").rows() == [(None, note)]


def test_further_arguments_matter_only_where_the_truth_says_exact() -> None:
    calls = [made(0, 0, "f", x=1, more=2)]
    assert table_of([{"tools": [call("f", x=1)]}], calls)["is_matched"].to_list() == [True]
    exact = call("f", x=1) | {"match": "exact"}
    assert table_of([{"tools": [exact]}], calls)["is_matched"].to_list() == [False]
    counted = exact | {"compare_args": ["x"]}
    found = table_of([{"tools": [counted]}], calls)
    assert found.select("is_matched", "compare_args").rows() == [(True, ["x"])]


def test_calls_of_the_user_answer_what_is_expected_of_the_user() -> None:
    tools = [call("toggle") | {"requestor": "user"}, call("toggle")]
    by_user = table_of([{"tools": tools}], [made(0, 0, "toggle", "user")])
    assert by_user.select("requestor", "is_matched").rows() == [("user", True), ("assistant", False)]
    by_agent = table_of([{"tools": tools}], [made(0, 0, "toggle")])
    assert by_agent.select("requestor", "is_matched").rows() == [("user", False), ("assistant", True)]


def test_where_no_user_takes_part_the_agent_acts_for_both_and_the_row_says_so() -> None:
    tools = [call("toggle") | {"requestor": "user"}]
    found = table_of([{"tools": tools}], [made(0, 0, "toggle")], n_user_messages=0)
    assert found.select("requestor", "is_matched", "note").rows() == [("user", True, NO_USER)]


def test_what_cannot_be_read_is_unknown_and_not_missed() -> None:
    unread = made(0, 0, "f") | {"arguments": json.dumps("x: 1")}
    found = table_of([{"tools": [call("f", x=1), call("g"), {"arguments": {}}]}], [unread])
    assert found["is_matched"].to_list() == [None, False, None]
    notes = ["the arguments of call 0 of turn 0 cannot be read", None, "expected call 0 has no name"]
    assert found["note"].to_list() == notes


def test_expected_arguments_in_the_text_of_a_python_dict_are_read_and_noted() -> None:
    found = table_of([{"tools": [{"name": "f", "arguments": "{'x': True}"}]}], [made(0, 0, "f", x=True)])
    assert found.select("is_matched", "arguments").rows() == [(True, '{"x": true}')]
    assert found["note"].to_list() == ["expected call 0 (f): arguments read as a Python literal"]


def test_the_sources_own_flags_stand_beside_and_only_where_they_are_of_every_call() -> None:
    tools = [call("f"), call("g")]
    both = table_of([{"tools": tools}], [made(0, 0, "f")], metadata='{"action_matches": [false, null]}')
    assert both.select("is_matched", "recorded_match").rows() == [(True, False), (False, None)]
    one = table_of([{"tools": tools}], [], metadata='{"action_matches": [true]}')
    assert one["recorded_match"].to_list() == [None, None]


def test_a_truth_that_names_no_calls_has_no_rows() -> None:
    assert table_of([{"answer": "42"}, {"tools": []}], [made(0, 0, "f")]).is_empty()
