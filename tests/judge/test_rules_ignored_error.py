"""Ignored tool results: success is claimed although the call for it failed."""

from collections.abc import Sequence

import pytest

from agent_eval.judge.protocol import Scored
from agent_eval.transcripts.models import Message
from tests.judge.material import agent, call, conversation, user
from tests.judge.test_rules import verdicts


def labels(*parts: Sequence[Message]) -> list[str]:
    of = conversation(user("Cancel A-1, please"), *parts)
    verdict = verdicts(of, 0)["tool_call_behavior_failure"]
    return [verdict.label or "", *verdict.further_labels] if isinstance(verdict, Scored) else []


DONE = agent("It is cancelled.")
FAILED = call("cancel_order", {"id": "A-1"}, "Error: order not found")


@pytest.mark.parametrize(
    "reply",
    [
        "Your order has been cancelled.",
        "I've now canceled order A-1. Would you like anything else?",
        "Order A-1 was cancelled successfully.",
        "Done! Have a nice day.",
    ],
)
@pytest.mark.parametrize(
    "result",
    [
        "Error: order not found",
        '{"error": "order not found"}',
        '{"status": "failed", "order": "A-1"}',
        "Traceback (most recent call last): …",
    ],
)
def test_a_failed_call_told_as_done_is_an_ignored_result(result: str, reply: str) -> None:
    assert labels(call("cancel_order", {"id": "A-1"}, result), agent(reply)) == ["ignored tool result"]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([FAILED, agent("I could not cancel it: the order was not found.")], id="told"),
        pytest.param([FAILED, agent("Unfortunately A-1 was cancelled before.")], id="some trouble is told"),
        pytest.param([FAILED, agent("Which order do you mean?")], id="asked"),
        pytest.param([FAILED, agent("Orders of today ship tomorrow.")], id="nothing is claimed"),
        pytest.param([FAILED], id="no words"),
        pytest.param([FAILED, call("cancel_order", {"id": "A1"}), DONE], id="then it worked"),
        pytest.param([call("cancel_order", {}), FAILED, DONE], id="another one worked"),
        pytest.param([call("get_order", {}, "Error: down"), DONE], id="only a reading call"),
        pytest.param([call("cancel_order", {}, '{"errors": [], "status": "ok"}'), DONE], id="no error"),
        pytest.param(
            [call("cancel_order", {}, "cancelled; error log is empty"), DONE], id="speaks of errors"
        ),
    ],
)
def test_no_alarm_where_the_failure_was_told_or_is_in_doubt(parts: list[list[Message]]) -> None:
    assert labels(*parts) == []


def test_what_is_declared_about_a_result_counts_before_its_words() -> None:
    made, answer = call("cancel_order", {"id": "A-1"}, "Error: none")
    fine = [made, answer.model_copy(update={"is_error": False})]
    wrong = [made, answer.model_copy(update={"content": "A-1", "is_error": True})]
    assert labels(fine, DONE) == []
    assert labels(wrong, DONE) == ["ignored tool result"]


def test_several_failures_are_one_judgment_with_the_gravest_first() -> None:
    find = call("find_order", {"id": "A-1"}, "one order")
    assert labels(find, find, FAILED, DONE) == ["ignored tool result", "repeated tool call"]
