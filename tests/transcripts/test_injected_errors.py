"""An injected error is believed only if something says what was wrong."""

from typing import Any

import pytest

from agent_eval.transcripts.injected_errors import describes_error

NOTHING: tuple[Any, ...] = (
    None, {}, [], "", " \u200b", False, True, 0, 1, 404, "true", "yes", "-", "?", "none", "None.", "N/A", "n/a",
    "no", "null", "error", "Error injection", "An error was injected.", "No error was injected.", "no errors",
    "No error was injected into the payment tool.", "There was no injected error in this session.", "not applicable",
    "No deliberate fault was introduced by the evaluator", "Nothing was injected", "We didn't inject anything here",
    "The error was not injected; the database was up", "none (a normal conversation)", "N/A: see the manual run",
    "No, the customer only asks for the price.", "without any injected fault", "Kein Fehler", "TODO", "unknown", "TBD",
    {"kind": None}, {"kind": "none"}, [{"at": ""}], {"injected": True}, {"error": True, "turn": 3}, {"turn_index": 2},
    {"injected": False, "kind": "timeout"}, {"is_injected": "no", "tool": "get_order"}, {"description": "No error was injected"},
    {"status": 0}, {"error": {"injected": True}}, {"isInjected": True}, {"recovered": True}, {"timeout": False},
    "Es wurde kein Fehler eingefügt.", "нет ошибки", "エラーなし", "没有错误", "geen",
    "1", "42", "none was needed", "Nothing is wrong", "see transcript", "See above.", "xxx", "foo", "Lorem ipsum",
    "Nothing went wrong", "No problems occurred.", "Everything worked fine",
    "To be filled in by Mira", "will be added", "see the ticket", "See session notes.", "ditto", "the usual one", {"status": 200},
    {"http_status": 302.0}, {"status": "ok", "message": "success"}, "The agent was not given any error",
    {"note": "The user was never shown an error."}, "lorem ipsum dolor sit amet",
)  # fmt: skip
DESCRIBED: tuple[Any, ...] = (
    "The log file is missing", "unknown ticket", "the same order twice", {"errno": 110}, {"latency_ms": 300}, {"status": 418},
    "The agent was not given the date", "None of the three ids exist", "true where a date is expected", "An unknown order",
    "Nothing happens after the call", "All calls time out", "Everything the tool returns is null",
    "503", {"status": "404"}, "Nothing was returned by the tool", "empty message", "x", "a broken date", "timeout", "The order number is impossible.", "The date does not exist.", "Order not found",
    "No such file error was injected into read_file", "No response from the API", "None of the tools responds",
    "The tool returns nothing, without an error", "No. 1042 is not an order", "Error 503", "Ein Fehler im Datum",
    "An error was injected into the result of get_order", "get_order returned an empty list", "期日が存在しない",
    "the result of the tool is null", {"kind": {"at": ["D1"]}}, {"status": 503}, {"http_status_code": 500.0},
    {"tool_unavailable": True}, {"malformedJson": True}, {"timeout": True}, {"latency_ms": 30000}, {"delay": 30},
    "Нет ответа от сервера", "没有库存", "Es wurde ein falsches Datum genannt.",
    {"injected": True, "kind": "timeout"}, ["", "a closed account"], {"where": "first user message", "value": "31 June"},
)  # fmt: skip


@pytest.mark.parametrize("value", NOTHING, ids=repr)
def test_presence_and_denial_are_no_description(value: Any) -> None:
    assert not describes_error(value)


@pytest.mark.parametrize("value", DESCRIBED, ids=repr)
def test_what_says_what_was_wrong_is_a_description(value: Any) -> None:
    assert describes_error(value)
