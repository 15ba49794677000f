import itertools
import json
import math
import re
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from agent_eval.errors import AgentEvalError
from agent_eval.scores.tools.correctness import (
    ASPECTS,
    ToolCorrectness,
    tool_correctness,
    tool_correctness_table,
)
from agent_eval.tables import table
from tests.untyped import any_table

AGENT = {"agent_id": "a"}
PAIR = {"methodology_version": "1.3.0", **AGENT}


def call(name: str, arguments: Any = None, /, **parameters: Any) -> dict[str, Any]:
    return {"name": name, "arguments": parameters if arguments is None else arguments}


def aspects(score: ToolCorrectness) -> tuple[float | None, ...]:
    return score.selection, score.parameters, score.sequence, score.utilisation


def test_selection_is_the_jaccard_of_multisets_and_case_counts() -> None:
    # {a, a, b} against {a, b, B}: common a, b; together a, a, b, B
    used = [call("a"), call("a"), call("b")]
    expected = [call("a"), call("b"), call("B")]
    assert tool_correctness(used, expected).selection == 2 / 4


def test_overall_is_the_weighted_mean() -> None:
    # selection 1/2 (a of a, b), parameters 1/2 (x right, y on the missing call), sequence 1/2 (b missing), utilisation 0
    used, expected = [call("a", x=1)], [call("a", x=1), call("b", y=2)]
    score = tool_correctness(used, expected, results_used=False)
    assert aspects(score) == (0.5, 0.5, 0.5, 0)
    assert (score.overall, score.is_correct, score.band) == (0.375, False, "poor")
    weights = {"selection": 2, "utilisation": 1}  # (2 × 1/2 + 1 × 0) / 3
    assert tool_correctness(used, expected, results_used=False, weights=weights).overall == 1 / 3


@pytest.mark.parametrize(
    ("used", "expected", "equal"),
    [
        (1.0, 1, True),
        ([1, {"a": 2.0}], [1.0, {"a": 2}], True),
        (True, 1, False),
        (1, True, False),
        ([False], [0], False),
        ("1", 1, False),
        ("Paris", "paris", False),
        ([1, 2], [2, 1], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        (None, None, True),
        (2**53 + 1, float(2**53), False),
        (0.1 + 0.2, 0.3, False),
    ],
)
def test_arguments_are_compared_as_json(used: Any, expected: Any, equal: bool) -> None:
    assert tool_correctness([call("f", x=used)], [call("f", x=expected)]).parameters == equal


def test_arguments_given_as_json_text_are_read() -> None:
    assert tool_correctness([call("f", '{"x": 1}'), call("g", "")], [call("f", x=1), call("g")]).overall == 1
    assert tool_correctness([{"name": "f", "arguments": None}], [{"name": "f"}]).overall == 1


def test_arguments_given_as_the_text_of_a_python_dict_are_read_and_noted() -> None:
    score = tool_correctness([call("f", "{'x': True, 'y': None}")], [call("f", x=True, y=None)])
    assert (score.overall, score.is_correct) == (1, True)
    assert score.reason == "used call 0 (f): arguments read as a Python literal"
    stored = json.dumps("{'x': 1}")  # as tool_calls holds what was not JSON
    assert tool_correctness([call("f", stored)], [call("f", x=1)]).overall == 1
    assert tool_correctness([call("f", x=1)], [call("f", "{'x': 1}")]).overall == 1


def test_compare_args_says_which_arguments_count() -> None:
    def wanted(compare_args: Any) -> dict[str, Any]:
        return call("f", x=1, y=2) | {"compare_args": compare_args, "match": "exact"}

    used = [call("f", x=1, y=9, z=3)]
    assert tool_correctness(used, [wanted(["x"])]).parameters == 1  # y and z do not count
    assert tool_correctness(used, [wanted([])]).parameters == 1
    assert tool_correctness(used, [wanted(None)]).parameters == 0  # x is right, the extra z costs it
    assert tool_correctness(used, [wanted(["x", "z"])]).parameters == 0
    score = tool_correctness(used, [wanted("x")])
    assert score.status == "unscored"
    assert score.reason is not None
    assert score.reason.startswith("expected call 0 (f): compare_args is 'x', expected a list")


@pytest.mark.parametrize(
    ("used", "reason"),
    [
        ([call("f"), call("f", "{x: 1}")], r"used call 1 \(f\): arguments are not JSON"),
        ([call("f", "[1]")], "not a JSON object"),
        ([call("f", [1])], "not a JSON object"),
        ([{"arguments": {}}], "used call 0 has no name"),
        ([{"name": 7, "arguments": {}}], "used call 0 has no name"),
        (["f"], "used call 0 is a str"),
        ([call("f", x=object())], "not JSON"),
        ([call("f", "[" * 100_000)], "nested too deeply"),
    ],
)
def test_a_malformed_trace_is_unscored_with_its_reason(used: Any, reason: str) -> None:
    score = tool_correctness(used, [call("f")])
    assert (score.status, score.overall, score.is_correct, score.band) == ("unscored", None, None, None)
    assert score.reason is not None
    assert re.search(reason, score.reason)


def test_order_is_judged_on_the_expected_calls_only_when_it_matters() -> None:
    # a and b are swapped; the longest chain in order is b, c or a, c
    used, expected = [call("b"), call("x"), call("a"), call("c")], [call("a"), call("b"), call("c")]
    assert tool_correctness(used, expected).sequence == 1
    assert tool_correctness(used, expected, sequence_matters=True).sequence == 2 / 3


def test_a_missing_call_is_not_in_order_and_does_not_disturb_the_order_of_the_others() -> None:
    used, expected = [call("a"), call("c")], [call("a"), call("b"), call("c")]
    assert tool_correctness(used, expected, sequence_matters=True).sequence == 2 / 3
    assert tool_correctness(used, expected).sequence == 2 / 3


@pytest.mark.parametrize(
    ("used", "expected", "results_used", "overall", "is_correct", "status", "band"),
    [
        *(([], [call("f")], is_used, 0, False, "scored", "poor") for is_used in (True, False, None)),
        ([call("f")], [], True, 0, False, "scored", "poor"),
        ([], [], True, None, None, "not_applicable", None),
        ([call("f", x=1), call("g")], [call("f", x=1), call("g")], True, 1, True, "scored", "perfect"),
        ([call("f"), call("g")], [call("f")], True, 0.875, False, "scored", "good"),
        ([call("f")], [call("f"), call("g")], True, 0.625, False, "scored", "moderate"),
    ],
)
def test_a_trace_without_calls_or_with_some_has_its_status_and_band(
    used: Any, expected: Any, results_used: Any, overall: Any, is_correct: Any, status: str, band: str | None
) -> None:
    score = tool_correctness(used, expected, results_used=results_used)
    assert (score.overall, score.is_correct, score.status, score.band) == (overall, is_correct, status, band)


def test_overall_is_over_the_known_aspects_and_names_the_others() -> None:
    # selection 1/2, parameters 2/3, sequence 1/2, utilisation unknown: (1/2 + 2/3 + 1/2) / 3
    used, expected = [call("a", x=1, z=1)], [call("a", x=1, z=1), call("b", y=2)]
    score = tool_correctness(used, expected, results_used=None)
    assert score.overall == 5 / 9
    assert score.known_aspects == ("selection", "parameters", "sequence")
    assert score.unknown_aspects == ("utilisation",)
    assert (score.status, score.reason) == ("scored", "it is not known whether the results were used")


@pytest.mark.parametrize(
    ("threshold", "is_correct"),
    [
        (1.0, False),  # with perfect utilisation (1/2 + 1/2 + 1/2 + 1) / 4 = 0.625
        (0.63, False),
        (0.625, None),
        (0.375, None),  # the known three reach it, utilisation could still be 0
        (0.0, None),
    ],
)
def test_the_known_aspects_may_suffice_only_to_fail(threshold: float, is_correct: bool | None) -> None:
    used, expected = [call("a", x=1)], [call("a", x=1), call("b", y=2)]
    assert tool_correctness(used, expected, results_used=None, threshold=threshold).is_correct is is_correct


def test_without_any_known_weighted_aspect_there_is_no_overall() -> None:
    trace = [call("f", x=1)]
    score = tool_correctness(trace, trace, results_used=None, weights={"utilisation": 1})
    assert (score.overall, score.is_correct, score.status) == (None, None, "unscored")
    assert (score.known_aspects, score.unknown_aspects) == ((), ("utilisation",))


def test_an_aspect_without_a_weight_is_not_missed() -> None:
    trace = [call("f", x=1)]
    unknown = tool_correctness(trace, trace, results_used=None)
    assert aspects(unknown) == (1, 1, 1, None)
    assert (unknown.overall, unknown.is_correct, unknown.status) == (1, None, "scored")
    weights = {"selection": 1, "parameters": 1, "sequence": 1, "utilisation": 0}
    known = tool_correctness(trace, trace, results_used=None, weights=weights)
    assert (known.utilisation, known.overall, known.is_correct) == (None, 1, True)
    assert known.unknown_aspects == ()


def test_reaching_the_threshold_is_correct() -> None:
    used, expected = [call("a"), call("b")], [call("a")]  # selection 1/2, the rest 1: 0.875
    assert tool_correctness(used, expected, threshold=0.875).is_correct is True
    assert tool_correctness(used, expected, threshold=0.875 + 1e-10).is_correct is True
    assert tool_correctness(used, expected, threshold=0.876).is_correct is False


@pytest.mark.parametrize(
    ("weights", "named"),
    [
        ({"selection": math.nan}, "weight of selection is nan"),
        ({"selection": 2, "sequence": -1}, "weight of sequence is -1"),
        ({"parameters": math.inf}, "weight of parameters is inf"),
        ({"parameters": True}, "weight of parameters is True"),
        ({"parameters": "1"}, "weight of parameters is '1'"),
        ({"order": 1}, "'order'"),
        (dict.fromkeys(ASPECTS, 0), "All weights are 0"),
        ({}, "All weights are 0"),
    ],
)
def test_weights_that_give_no_mean_are_refused(weights: Any, named: str) -> None:
    with pytest.raises(AgentEvalError, match=named):
        tool_correctness([], [], weights=weights)


@pytest.mark.parametrize("threshold", [math.nan, -0.1, 1.1, True])
def test_an_impossible_threshold_is_refused(threshold: float) -> None:
    with pytest.raises(AgentEvalError, match=f"threshold is {threshold}"):
        tool_correctness([], [], threshold=threshold)


ARGUMENTS = st.dictionaries(st.sampled_from("xy"), st.sampled_from([0, 1, "a"]), max_size=2)
MADE = st.builds(call, st.sampled_from("fgh"), ARGUMENTS)
CALLS = st.lists(MADE, max_size=5)


@given(CALLS, CALLS, st.randoms(use_true_random=False))
def test_without_order_the_order_does_not_matter(used: Any, expected: Any, random: Any) -> None:
    shuffled = random.sample(used, len(used))
    assert tool_correctness(used, expected) == tool_correctness(shuffled, expected)


def reference(used: list[dict[str, Any]], expected: list[dict[str, Any]]) -> tuple[float, float, float]:
    """Selection, parameters and sequence by the words of their definitions: every choice is tried."""
    have, want = ([c["name"] for c in side] for side in (used, expected))
    common = sum(min(have.count(name), want.count(name)) for name in set(have))

    def right(i: int, j: int) -> int:
        hits = sum(used[j]["arguments"].get(k, "absent") == v for k, v in expected[i]["arguments"].items())
        return hits if expected[i]["arguments"] else 1

    def weight(i: int) -> int:
        return max(1, len(expected[i]["arguments"]))

    n_right, choices = 0, []
    for name in sorted(set(want) & set(have)):
        rows = [i for i, c in enumerate(expected) if c["name"] == name]
        columns = [j for j, c in enumerate(used) if c["name"] == name]
        size = min(len(rows), len(columns))
        totals = {
            chosen: max(
                sum(right(i, j) for i, j in zip(order, chosen, strict=True))
                for order in itertools.permutations(rows, size)
            )
            for chosen in itertools.combinations(columns, size)
        }
        n_right += max(totals.values())
        choices.append([chosen for chosen, total in totals.items() if total == max(totals.values())])

    def may_stand(i: int, j: int) -> bool:
        of_tool = [e for e, c in enumerate(expected) if c["name"] == expected[i]["name"]]
        return right(i, j) in (weight(i), max(right(e, j) for e in of_tool))

    n_in_order = min(
        (
            longest_chain(sorted(itertools.chain(*choice)), want, have, may_stand)
            for choice in itertools.product(*choices)
        ),
        default=0,
    )
    return (
        common / (len(have) + len(want) - common),
        n_right / sum(map(weight, range(len(expected)))),
        n_in_order / len(want),
    )


def longest_chain(columns: list[int], want: list[str], have: list[str], may_stand: Any) -> int:
    """The longest common subsequence, by its textbook recursion."""
    best = [[0] * (len(columns) + 1) for _ in range(len(want) + 1)]
    for i, c in itertools.product(range(len(want)), range(len(columns))):
        j = columns[c]
        is_pair = want[i] == have[j] and may_stand(i, j)
        best[i + 1][c + 1] = max(best[i][c + 1], best[i + 1][c], best[i][c] + is_pair)
    return best[-1][-1]


def test_two_thousand_random_traces_score_as_trying_all_matchings_does() -> None:
    random = Random(7)

    def trace() -> list[dict[str, Any]]:
        return [
            call(random.choice("fg"), **{k: random.choice("01") for k in "xy" if random.random() < 0.6})
            for _ in range(random.randint(1, 4))
        ]

    for _ in range(2000):
        used, expected, is_used = trace(), trace(), random.random() < 0.5
        score = tool_correctness(used, expected, sequence_matters=True, results_used=is_used)
        is_used = is_used and bool({c["name"] for c in used} & {c["name"] for c in expected})
        wanted = (*reference(used, expected), float(is_used))
        assert aspects(score) == pytest.approx(wanted, abs=1e-12), (used, expected)
        assert score.overall == pytest.approx(sum(wanted) / 4, abs=1e-12)


@pytest.mark.parametrize("how", [{"match": "ignore"}, {"compare_args": []}, {"compare": {"x": "ignore"}}])
def test_a_call_without_compared_arguments_weighs_as_much_as_one_argument(how: Any) -> None:
    expected = [call("a", x=1) | how, call("b", y=1)]
    assert tool_correctness([call("b", y=1)], expected).parameters == 1 / 2
    assert tool_correctness([call("b", y=1), call("a")], expected).parameters == 1
    assert tool_correctness([call("b", y=2), call("a")], expected).parameters == 1 / 2


@pytest.mark.parametrize("results_used", [True, None])
def test_without_an_expected_call_there_are_no_results_to_use(results_used: bool | None) -> None:
    score = tool_correctness([call("x")], [call("f")], results_used=results_used, weights={"utilisation": 1})
    assert (score.utilisation, score.overall, score.is_correct) == (0, 0, False)


HOW = st.fixed_dictionaries(
    {},
    optional={
        "match": st.sampled_from(["exact", "partial", "ignore"]),
        "compare_args": st.sampled_from([[], ["x"], ["x", "y"]]),
        "compare": st.dictionaries(
            st.sampled_from("xy"),
            st.sampled_from(["ignore", "subset", {"tolerance": 1}, {"regex": "[0a]"}]),
            max_size=2,
        ),
    },
)
WANTED = st.builds(lambda made, how: made | how, MADE, HOW)
WEIGHTS = st.fixed_dictionaries(
    {aspect: st.integers(0, 20).map(lambda n: n * 0.05) for aspect in ASPECTS}
).filter(lambda weights: any(weights.values()))
RULES = st.fixed_dictionaries(
    {
        "sequence_matters": st.booleans(),
        "weights": WEIGHTS,
        "results_used": st.sampled_from([True, False, None]),
    }
)


def n_calls(trace: list[dict[str, Any]], name: str) -> int:
    return sum(c["name"] == name for c in trace)


def parameters_of(used: list[dict[str, Any]], expected: list[dict[str, Any]]) -> float:
    return tool_correctness(used, expected).parameters or 0.0


def is_wrong(extra: dict[str, Any], used: list[dict[str, Any]], expected: list[dict[str, Any]]) -> bool:
    """A call of a tool that was not expected, or one more than expected with nothing that the others lack."""
    is_surplus = n_calls(used, extra["name"]) >= n_calls(expected, extra["name"])
    return is_surplus and parameters_of([*used, extra], expected) <= parameters_of(used, expected)


def most(score: ToolCorrectness) -> float:
    return 0.0 if score.overall is None else score.overall


@settings(max_examples=400)
@given(CALLS, st.lists(WANTED, min_size=1, max_size=5), RULES, MADE, st.integers(0, 9), st.integers(0, 9))
def test_no_wrong_call_and_no_lost_call_raises_the_score_or_an_aspect(
    used: Any, expected: Any, rules: Any, extra: Any, at: int, dropped: int
) -> None:
    before = tool_correctness(used, expected, **rules)
    at %= len(used) + 1
    changes = [[*used[:at], extra, *used[at:]]] if is_wrong(extra, used, expected) else []
    if used:
        left = list(used)
        gone = left.pop(dropped % len(used))["name"]
        if n_calls(used, gone) <= n_calls(expected, gone):
            changes += [left, [*left, call("never expected")]]
    for changed in changes:
        after = tool_correctness(changed, expected, **rules)
        assert most(after) <= most(before)
        assert after.band != "perfect" or before.band == "perfect"
        assert not (after.is_correct and before.is_correct is False)
        for old, new in zip(aspects(before), aspects(after), strict=True):
            assert old is None or new is None or 0 <= new <= old <= 1


@given(st.lists(WANTED, min_size=1, max_size=5), WEIGHTS, st.booleans())
def test_the_expected_calls_are_perfect_under_any_comparison(
    expected: Any, weights: Any, ordered: bool
) -> None:
    # 1 does not match the regex
    satisfied = [c for c in expected if {"regex": "[0a]"} not in c.get("compare", {}).values()]
    if satisfied:
        trace = [call(c["name"], c["arguments"]) for c in satisfied]
        score = tool_correctness(trace, satisfied, sequence_matters=ordered, weights=weights)
        assert (score.overall, score.is_correct, score.band) == (1, True, "perfect")


def test_many_repeated_calls_are_scored_quickly_and_never_above_fewer_of_them() -> None:
    expected = [call("f"), call("g")] * 20
    used = [call("f")] * 40 + [call("g")] * 20
    assert tool_correctness(used, expected, sequence_matters=True).sequence == 1 / 40 * 20
    assert (tool_correctness([call("f")] * 300, expected, sequence_matters=True).sequence or 0) == 0


@pytest.mark.parametrize(
    ("used", "expected", "how", "parameters"),
    [
        ({"x": 1, "y": 2, "more": 3}, {"x": 1, "y": 2}, "exact", 1 / 2),
        ({"x": 1, "y": 2, "more": 3}, {"x": 1, "y": 2}, "partial", 1),
        ({"x": 1}, {"x": 9}, "ignore", 1),  # where arguments are ignored, the call itself counts
        ({"x": 1}, {}, "exact", 0),
        ({"x": 1}, {}, None, 1),
        ({}, {"x": None}, None, 0),  # a missing argument is not null
    ],
)
def test_an_extra_argument_costs_a_right_one_only_where_exact_is_asked(
    used: Any, expected: Any, how: str | None, parameters: float
) -> None:
    wanted = call("f", expected) | ({"match": how} if how else {})
    assert tool_correctness([call("f", used)], [wanted]).parameters == parameters


def test_arguments_may_be_compared_by_tolerance_regex_and_subset_or_left_out() -> None:
    compare = {"a": {"tolerance": 0.1}, "b": {"regex": "[A-Z]{3}"}, "c": "subset", "d": "ignore"}
    expected = [call("f", a=1, b="", c=[1], d=1, e=1) | {"compare": compare}]
    # a, b and c are right, d does not count, e is missing: 3 of 4
    assert tool_correctness([call("f", a=1.05, b="JFK", c=[2, 1])], expected).parameters == 3 / 4
    assert tool_correctness([call("f", a=1.2, b="JFKX", c=[2], e=1)], expected).parameters == 1 / 4


def test_an_unreadable_comparison_leaves_only_its_interaction_unscored() -> None:
    score = tool_correctness([call("f", x=1)], [call("f", x=1) | {"compare": {"x": "about"}}])
    assert (score.status, score.overall) == ("unscored", None)
    assert score.reason is not None
    assert score.reason.startswith("expected call 0 (f): compare.x is 'about'. Allowed:")


def transcript(conversation_id: str = "c", **more: Any) -> dict[str, Any]:
    fixed = {"session_id": "s", "benchmark_id": "s", "tests": [], "n_turns": 1, "n_user_messages": 1}
    return {**PAIR, "conversation_id": conversation_id, **fixed, "is_admitted": True, **more}


def truth(*entries: dict[str, Any], conversation_id: str = "c") -> dict[str, Any]:
    return {**AGENT, "conversation_id": conversation_id, "expected": json.dumps(entries)}


def made(turn_index: int, name: str, arguments: str = "{}", **more: Any) -> dict[str, Any]:
    row = {**AGENT, "conversation_id": "c", "turn_index": turn_index, "call_index": 0}
    return {**row, "name": name, "arguments": arguments, "requestor": "assistant", **more}


def judged(turn_index: int, value: float | None, **more: Any) -> dict[str, Any]:
    row = {**PAIR, "conversation_id": "c", "turn_index": turn_index, "metric": "tool_result_utilisation"}
    return {**row, "value": value, "judge": "m", "status": "scored", "is_effective": True, **more}


def scored(
    truths: list[dict[str, Any]],
    calls: list[dict[str, Any]],
    judgments: list[dict[str, Any]],
    admitted: list[dict[str, Any]] | None = None,
    **more: Any,
) -> pl.DataFrame:
    return tool_correctness_table(
        table("transcripts").frame(admitted or [transcript()]),
        table("conversations").frame(truths),
        table("tool_calls").frame(calls),
        table("turn_judgments").frame(judgments),
        **more,
    )


def test_a_turn_is_scored_with_its_own_calls_and_its_judged_utilisation() -> None:
    expected = truth({"turn_index": 1, "tools": [call("f", x=1)]})
    calls = [made(0, "other"), made(1, "f", '{"x": 1}'), made(1, "f", call_index=1, requestor="user")]
    actual = scored([expected], calls, [judged(0, 0.0), judged(1, 1.0)])
    assert actual.select("turn_index", "overall", "is_correct", "status").rows() == [(1, 1.0, True, "scored")]


@pytest.mark.parametrize(
    "judgments",
    [
        [],
        [judged(0, None, status="unscored")],
        [judged(0, 1.0, is_effective=False)],
        [judged(0, 1.0, metric="helpfulness")],
        [judged(0, 1.0, methodology_version="1.2.0")],
    ],
)
def test_utilisation_that_was_not_judged_is_unknown(judgments: list[dict[str, Any]]) -> None:
    actual = scored([truth({"turn_index": 0, "tools": [call("f")]})], [made(0, "f")], judgments)
    columns = ("selection", "utilisation", "overall", "is_correct", "status")
    assert actual.select(columns).rows() == [(1.0, None, 1.0, None, "scored")]
    assert actual["known_aspects"].to_list() == [["selection", "parameters", "sequence"]]
    assert actual["unknown_aspects"].to_list() == [["utilisation"]]


def test_results_that_need_not_be_used_count_as_used() -> None:
    expected = truth({"turn_index": 0, "tools": [call("f")], "results_should_be_used": False})
    actual = scored([expected], [made(0, "f")], [judged(0, 0.0)])
    assert actual.select("utilisation", "overall").rows() == [(1.0, 1.0)]


def test_a_conversation_and_its_turns_have_rows_of_their_own() -> None:
    entries = {"tools": [call("f")]}, {"turn_index": 0, "tools": []}, {"turn_index": 1, "answer": "42"}
    actual = scored([truth(*entries)], [], []).select("turn_index", "overall", "status").rows()
    assert actual == [(None, 0.0, "scored"), (0, None, "not_applicable")]


def test_a_truth_without_a_turn_is_held_against_all_calls_in_order() -> None:
    expected = truth({"turn_index": None, "tools": [call("f"), call("g")], "tool_sequence_matters": True})
    calls = [made(1, "g"), made(0, "f")]
    actual = scored([expected], calls, [judged(0, 1.0), judged(1, 1.0)])
    assert actual.select("turn_index", "sequence", "overall").rows() == [(None, 1.0, 1.0)]


@pytest.mark.parametrize(
    ("values", "utilisation"), [((1.0, 1.0), 1.0), ((1.0, 0.0), 0.0), ((0.0, None), 0.0), ((1.0, None), None)]
)
def test_a_conversation_uses_its_results_when_every_turn_with_calls_does(
    values: tuple[float | None, ...], utilisation: float | None
) -> None:
    judgments = [judged(turn, value) for turn, value in enumerate(values) if value is not None]
    expected = truth({"tools": [call("f"), call("g")]})
    actual = scored([expected], [made(0, "f"), made(1, "g")], judgments)
    assert actual["utilisation"].to_list() == [utilisation]


def test_two_truths_about_one_turn_are_held_together() -> None:
    expected = truth({"turn_index": 0, "tools": [call("f")]}, {"turn_index": 0, "tools": [call("g")]})
    actual = scored([expected], [made(0, "f"), made(0, "g", call_index=1)], [judged(0, 1.0)])
    assert actual["overall"].to_list() == [1.0]


def test_versions_share_a_score_but_not_a_judgment() -> None:
    admitted = [transcript(), transcript(methodology_version="1.2.0")]
    expected = truth({"turn_index": 0, "tools": [call("f")]})
    judgments = [judged(0, 1.0), judged(0, 0.0, methodology_version="1.2.0")]
    actual = scored([expected], [made(0, "f")], judgments, admitted)
    assert actual.select("methodology_version", "overall").rows() == [("1.2.0", 0.75), ("1.3.0", 1.0)]


def test_arguments_that_are_not_json_leave_only_their_interaction_unscored() -> None:
    expected = truth({"turn_index": 0, "tools": [call("f")]}, {"turn_index": 1, "tools": [call("f")]})
    calls = [made(0, "f", json.dumps("x: 1")), made(1, "f")]
    actual = scored([expected], calls, [judged(0, 1.0), judged(1, 1.0)])
    assert actual["status"].to_list() == ["unscored", "scored"]
    assert actual["reason"].to_list() == ["used call 0 (f): arguments are not a JSON object", None]


def test_conversations_that_are_not_admitted_or_hold_no_expected_tools_have_no_rows() -> None:
    admitted = [transcript(), transcript("d", is_admitted=False), transcript("e")]
    truths = [
        truth({"turn_index": 0, "answer": "tools"}),
        truth({"turn_index": 0, "tools": [call("f")]}, conversation_id="d"),
        {**AGENT, "conversation_id": "e", "expected": None},
    ]
    assert_frame_equal(scored(truths, [], [], admitted), table("tool_correctness").empty())


def test_bad_weights_are_refused_also_where_nothing_is_to_score() -> None:
    nothing = [table(n).empty() for n in ("transcripts", "conversations", "tool_calls", "turn_judgments")]
    with pytest.raises(AgentEvalError, match="weight of selection is nan"):
        tool_correctness_table(*any_table(nothing), weights={"selection": math.nan})


def test_expected_calls_of_the_user_are_the_agents_only_where_no_user_takes_part() -> None:
    tools = [call("f"), call("g") | {"requestor": "user"}]
    expected = truth({"tools": tools})
    calls = [made(0, "f"), made(0, "g", call_index=1, requestor="user")]
    with_user = scored([expected | {"n_user_messages": 1}], calls, [judged(0, 1.0)])
    assert with_user["overall"].to_list() == [1.0]
    alone = [made(0, "f"), made(0, "g", call_index=1)]
    assert scored([expected | {"n_user_messages": 0}], alone, [judged(0, 1.0)])["overall"].to_list() == [1.0]
    only_users = truth({"tools": tools[1:]}) | {"n_user_messages": 1}
    assert scored([only_users], calls, []).is_empty()


def test_weights_and_threshold_reach_the_table() -> None:
    expected = truth({"turn_index": 0, "tools": [call("f"), call("g")]})
    actual = scored([expected], [made(0, "f")], [], weights={"selection": 1}, threshold=0.5)
    assert actual.select("overall", "is_correct").rows() == [(0.5, True)]
