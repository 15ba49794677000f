"""Trajectory assertions: four modes, three ways to compare arguments, against trying all matchings."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval.errors import AgentEvalError
from agent_eval.scores.tools.trajectory import Mode, match

MODES: tuple[Mode, ...] = ("strict", "contains", "unordered", "within")


def call(name: str, how: str | None = None, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments} | ({"match": how} if how else {})


def holds(calls: list[dict[str, Any]], expected: list[dict[str, Any]]) -> dict[str, bool]:
    return {mode: match(calls, expected, mode=mode).matched for mode in MODES}


A, B = call("a"), call("b")


@pytest.mark.parametrize(
    ("expected", "held"),
    [
        (call("f", x=1), False),  # exact without a word: y was not expected
        (call("f", "exact", x=1, y=2), True),
        (call("f", "partial", x=1), True),
        (call("f", "partial", x=1, z=0), False),
        (call("f", "partial", x=2), False),
        (call("f", "ignore", x=9), True),
        (call("f"), True),  # no arguments: they are not looked at
        (call("f", "exact"), False),
        ({"name": "f"}, True),
    ],
)
def test_arguments_are_compared_as_asked(expected: dict[str, Any], held: bool) -> None:
    assert match([call("f", x=1, y=2)], [expected]).matched == held


def test_what_was_expected_and_what_happened_is_told() -> None:
    calls = [call("search", q="b"), call("book", id=2), call("login"), call("wipe")]
    found = match(calls, [call("login"), call("search", q="b"), call("book", id=1)], forbidden=["wipe"])
    assert not found.matched
    assert (found.missing, found.extra, found.forbidden) == (("book",), ("book", "wipe"), ("wipe",))
    assert found.out_of_order == ("search",)
    assert found.found == (True, True, False)
    assert found.diff.splitlines() == [
        '~ search(q="b"): out of order, expected as number 2, called as number 1',
        "+ book(id=2): not expected",
        "  login()",
        "! wipe(): forbidden",
        "- book(id=1): not called so; id is 2, expected 1",
    ]


def test_a_forbidden_call_fails_every_mode_and_a_forbidden_argument_only_its_own_calls() -> None:
    for mode in MODES:
        assert not match([A], [A], mode=mode, forbidden=["a"]).matched
        assert match([A], [A], mode=mode, forbidden=["b"]).matched
    pay = [call("pay", amount=5)]
    assert match(pay, pay, forbidden=[call("pay", amount=500)]).forbidden == ()
    assert match(pay, pay, forbidden=[call("pay", "partial", amount=5)]).forbidden == ("pay",)


def test_order_is_no_fact_where_it_does_not_count() -> None:
    assert match([B, A], [A, B], mode="unordered").out_of_order == ()
    assert len(match([B, A], [A, B], mode="contains").out_of_order) == 1


@pytest.mark.parametrize(
    ("how", "used", "held"),
    [
        ("ignore", "anything", True),
        ({"regex": "(?i)par.*"}, "Paris", True),
        ({"regex": "Par"}, "Paris", False),  # the whole text must match
        ({"regex": "Par|Paris"}, "Paris", True),
        ({"regex": "a"}, "a\nb", False),
        ({"regex": "(a+)+b"}, "a" * 9_000, False),  # takes longer than the universe where a matcher goes back
        ({"tolerance": 0.5}, 10.5, True),
        ({"tolerance": 0.5}, 10.6, False),
        ({"tolerance": 0.5}, "10", False),
        ({"tolerance": 0}, True, False),
        ("subset", {"a": 1, "b": 2}, False),
    ],
)
def test_single_arguments_may_be_compared_in_their_own_way(how: Any, used: Any, held: bool) -> None:
    expected = call("f", x=10) | {"compare": {"x": how}}
    assert match([call("f", x=used)], [expected]).matched == held


def test_a_subset_is_found_at_every_depth() -> None:
    expected = call("f", x={"who": {"id": 1}, "tags": ["a", "a"]}) | {"compare": {"x": "subset"}}
    used = {"tags": ["b", "a", "a"], "who": {"id": 1.0, "name": "n"}}
    assert match([call("f", x=used)], [expected]).matched
    assert not match([call("f", x={"tags": ["a"], "who": {"id": 1}})], [expected]).matched


def compared(how: object) -> dict[str, Any]:
    return call("f", x=1) | {"compare": {"x": how}}


REFUSED: list[tuple[dict[str, Any], str]] = [
    (call("f", "nearly", x=1), "match is 'nearly'"),
    (compared({"tolerance": -1}), r"compare\.x"),
    (compared({"tolerance": float("nan")}), r"compare\.x"),
    (compared({"regex": "("}), "is not a supported regex"),
    (compared({"regex": "a)|(b"}), "is not a supported regex"),
    (compared({"regex": "(?=a)b"}), "look-around"),
    (compared({"regex": "(((a{99}){99}){99}){99}"}), "is not a supported regex"),
    (compared("roughly"), "Allowed: 'ignore', 'subset'"),
    (call("f", x=1) | {"compare": ["x"]}, "compare is a list"),
    ({"arguments": {}}, "expected call 0 has no name"),
]


@pytest.mark.parametrize(("expected", "named"), REFUSED)
def test_an_expectation_that_makes_no_sense_is_refused_by_its_place(expected: Any, named: str) -> None:
    with pytest.raises(AgentEvalError, match=named):
        match([A], [expected])


def test_an_unknown_mode_is_refused_with_the_known_ones() -> None:
    with pytest.raises(AgentEvalError, match="strict, contains, unordered, within"):
        match([A], [A], mode="loosely")  # type: ignore[arg-type]


ARGUMENTS = st.dictionaries(st.sampled_from("xy"), st.integers(0, 1), max_size=2)
CALLS = st.lists(st.fixed_dictionaries({"name": st.sampled_from("fg"), "arguments": ARGUMENTS}), max_size=4)
EXPECTED = CALLS.flatmap(
    lambda calls: st.tuples(*(st.sampled_from(["exact", "partial", "ignore"]) for _ in calls)).map(
        lambda hows: [c | {"match": how} for c, how in zip(calls, hows, strict=True)]
    )
)


def fits(want: dict[str, Any], made: dict[str, Any]) -> bool:
    if want["name"] != made["name"]:
        return False
    have, asked = made["arguments"], want["arguments"]
    if want["match"] == "exact":
        return bool(have == asked)
    return want["match"] == "ignore" or all(name in have and have[name] == asked[name] for name in asked)


def by_trying_all(calls: list[dict[str, Any]], expected: list[dict[str, Any]]) -> dict[str, bool]:
    """The four rules, word for word."""
    n, m = len(calls), len(expected)
    in_order = any(
        all(fits(e, calls[j]) for e, j in zip(expected, places, strict=True))
        for places in itertools.combinations(range(n), m)
    )
    return {
        "strict": n == m and in_order,
        "contains": in_order,
        "unordered": n == m and any(
            all(fits(e, calls[j]) for e, j in zip(expected, order, strict=True))
            for order in itertools.permutations(range(n))
        ),
        "within": all(any(fits(e, c) for e in expected) for c in calls),
    }  # fmt: skip


@given(CALLS, EXPECTED)
def test_every_mode_says_what_trying_all_matchings_says(calls: Any, expected: Any) -> None:
    assert holds(calls, expected) == by_trying_all(calls, expected)


@given(CALLS, EXPECTED, st.sampled_from(MODES))
def test_every_call_is_told_once(calls: Any, expected: Any, mode: Mode) -> None:
    found = match(calls, expected, mode=mode)
    assert len(found.missing) == found.found.count(False)
    if mode != "within":
        assert len(calls) - len(found.extra) == len(expected) - len(found.missing)
    assert len(found.diff.splitlines()) == len(calls) + len(found.missing)


def test_a_long_argument_is_cut_in_the_diff() -> None:
    (line,) = match([call("f", x="a" * 58)], [call("f", x="b" * 59)]).diff.splitlines()[:1]
    assert f'"{"a" * 58}"' in line
    assert f'"{"b" * 58}…' in match([], [call("f", x="b" * 59)]).diff
