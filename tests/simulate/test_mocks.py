"""Tool mocks: every kind, and that results depend on the conversation alone."""

from typing import Any

import pytest
from pydantic import ValidationError

from agent_eval.judge.run_sync import run_sync
from agent_eval.simulate.mocks import ConversationMocks, Mock, MockFailureError, ToolResult
from tests.simulate import toys


def mocks(mock: dict[str, Any] | None, *, seed: int = 0, unmocked: Any = "error") -> ConversationMocks:
    of = {"t": None if mock is None else Mock.model_validate(mock)}
    return ConversationMocks(
        of, unmocked, {"nested": {"n": 0}}, "c", seed, lambda name: getattr(toys, name.partition(":")[2])
    )


def answers(made: ConversationMocks, *arguments: Any, name: str = "t") -> list[str]:
    """Return the results of calls with these arguments; errors begin with '!'."""

    async def all_of() -> list[ToolResult | None]:
        return [await made.answer(name, given, 0) for given in arguments]

    return [("!" if r.is_error else "") + r.text if r else "left" for r in run_sync(all_of())]


ORDERS = {
    "table": [
        {"arguments": {"id": 1}, "constant": {"state": "sent"}},
        {"arguments": {}, "error": "no such order"},
    ]
}


@pytest.mark.parametrize(
    ("mock", "calls", "results"),
    [
        ({"constant": None}, [{}], ["null"]),
        ({"constant": "text"}, [{}, {}], ["text", "text"]),
        (
            ORDERS,
            [{"id": 1, "more": 2}, {"id": "1"}, {}],
            ['{"state": "sent"}', "!no such order", "!no such order"],
        ),
        (
            {"table": [{"arguments": {"id": 1}, "constant": 1}]},
            [{"id": 2}],
            ["!No entry matches these arguments."],
        ),
        ({"sequence": [{"error": "down"}, {"constant": 2}]}, [{}, {}, {}], ["!down", "2", "2"]),
        ({"error": "boom"}, [{}], ["!boom"]),
        ({"python": "m:missing"}, [{}], ["!KeyError: order 7"]),
        ({"constant": 1}, ["{not json", [1]], ["!The arguments are not a JSON object.", "1"]),
        (
            {"sequence": [{"python": "m:count"}, {"constant": 0}]},
            [{"name": "a"}],
            ['{"seen": ["a"], "n": 1, "call": 0}'],
        ),
        (None, [{}], ["!Tool 't' is not available."]),
    ],
)
def test_each_kind_of_mock_answers(mock: dict[str, Any] | None, calls: list[Any], results: list[str]) -> None:
    assert answers(mocks(mock), *calls) == results


def test_a_tool_that_does_not_exist_is_an_error_that_names_the_tools() -> None:
    assert answers(mocks({"constant": 1}), {}, name="u") == ["!Tool 'u' does not exist. Tools: t."]
    assert answers(mocks(None, unmocked="pass"), {}) == ["left"]


def test_random_results_are_those_of_the_seed() -> None:
    drawn = {"random": [{"constant": i} for i in range(100)]}
    assert answers(mocks(drawn), *[{}] * 9) == answers(mocks(drawn), *[{}] * 9)
    assert answers(mocks(drawn), *[{}] * 9) != answers(mocks(drawn, seed=1), *[{}] * 9)


def test_a_mock_with_a_bug_is_the_harness_s() -> None:
    with pytest.raises(MockFailureError, match="m:broken: ZeroDivisionError"):
        answers(mocks({"python": "m:broken"}), {})


@pytest.mark.parametrize(
    "mock", [{}, {"constant": 1, "error": "x"}, {"sequence": []}, {"python": "os.system"}, {"latency_ms": 1}]
)
def test_a_mock_is_of_exactly_one_kind(mock: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Mock.model_validate(mock)
