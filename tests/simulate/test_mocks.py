"""Tool mocks: every kind, and that results depend on the conversation alone."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agent_eval.judge.run_sync import run_sync
from agent_eval.simulate.mocks import ConversationMocks, Mock, MockFailureError, ToolResult
from tests.simulate import toys


def mocks(mock: dict[str, Any] | None, *, seed: int = 0, unmocked: Any = "error") -> ConversationMocks:
    of = {"t": None if mock is None else Mock.model_validate(mock)}
    return ConversationMocks(
        of, unmocked, STATE, "c", seed, lambda name: getattr(toys, name.partition(":")[2])
    )


def answers(made: ConversationMocks, *arguments: Any, name: str = "t") -> list[str]:
    """Return the results of calls with these arguments; errors begin with '!'."""

    async def all_of() -> list[ToolResult | None]:
        return [await made.answer(name, given, 0) for given in arguments]

    return [("!" if r.is_error else "") + r.text if r else "left" for r in run_sync(all_of())]


STATE: dict[str, Any] = {
    "nested": {"n": 0},
    "a": {"7": {"n": 1}},
    "tables": {
        "t": [{"k": "x", "n": 1}, {"k": "x", "n": 4}, {"k": "y", "n": 2}, {"k": "y", "n": 3}],
        "u": [{"k": "x", "v": 9}],
    },
    "files": {"f.py": "def  f():\n    eval(x)"},
    "tests": [
        {"name": "has", "file": "f.py", "contains": ["def f()"]},
        {"name": "lacks", "file": "f.py", "lacks": ["eval("]},
        {"name": "gone", "file": "g.py", "error": "E"},
    ],
}


QUERY_KEYS = ["table", "join", "by", "where", "column", "op", "value", "group_by", "aggregates", "function", "columns",
              "order_by", "limit"]  # fmt: skip


def state(do: str, at: str = "a", **more: object) -> dict[str, Any]:
    return {"state": {"do": do, "at": at, **more}}


DOINGS = [
    state("get", key="id"), state("put", key="id"), state("put", key="id", value="value"), state("update", key="id"),
    state("delete", key="id"), state("update", at="files", key="id"), state("query", at="tables"), state("test", at="files"),
]  # fmt: skip
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
        (
            state("get", key="id"),
            [{"id": "7"}, {"id": 8}, {}],
            ['{"n": 1}', "!LookupError: a has no '8'", "!ValueError: argument 'id' is missing"],
        ),
        (
            state("put", key="id", once=True),
            [{"id": "9", "x": 1}, {"id": "9"}],
            ['{"stored": "9"}', "!ValueError: '9' in a exists already; nothing was changed"],
        ),
        (state("put"), [{"x": 1}, {"x": 2}], ['{"stored": "a-2"}', '{"stored": "a-3"}']),
        (state("update", key="id"), [{"id": "7", "m": 2}, {"id": "7"}], ['{"n": 1, "m": 2}'] * 2),
        (
            state("delete", key="id"),
            [{"id": "7"}, {"id": "7"}],
            ['{"deleted": "7"}', "!LookupError: a has no '7'"],
        ),
        (state("list"), [{}], ['["7"]']),
        (
            state("query", at="tables"),
            [
                {
                    "table": "t",
                    "where": [{"column": "n", "op": ">", "value": 1}],
                    "group_by": ["k"],
                    "aggregates": [{"function": "sum", "column": "n"}, {"function": "count"}],
                    "order_by": "-k",
                }
            ],
            ['[{"k": "y", "sum_n": 5, "count": 2}, {"k": "x", "sum_n": 4, "count": 1}]'],
        ),
        (
            state("query", at="tables"),
            [
                {
                    "table": "t",
                    "join": {"table": "u", "by": "k"},
                    "columns": ["n", "v"],
                    "order_by": "n",
                    "limit": 2,
                }
            ],
            ['[{"n": 1, "v": 9}, {"n": 4, "v": 9}]'],
        ),
        (
            state("test", at="files"),
            [{}],
            [
                '{"n_passed": 1, "n_failed": 2, "failed": [{"test": "lacks", "error": "AssertionError"}, {"test": "gone", "error": "E"}]}'
            ],
        ),
        (None, [{}], ["!Tool 't' is not available."]),
    ],
)
def test_each_kind_of_mock_answers(mock: dict[str, Any] | None, calls: list[Any], results: list[str]) -> None:
    assert answers(mocks(mock), *calls) == results


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from(["t", "u", "k", "n", "x", "=", "sum", "-n", "7"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(QUERY_KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from([*QUERY_KEYS, "id"]), JSON, max_size=6), st.sampled_from(DOINGS))
def test_no_argument_of_an_agent_makes_a_mock_with_state_fail(arguments: dict[str, Any], doing: Any) -> None:
    """Whatever an agent passes, the harness does not fail, and the state of the scenario is untouched."""
    before = json.dumps(STATE)
    answers(mocks(doing), arguments, {"table": "t"} | arguments)
    assert json.dumps(STATE) == before


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
