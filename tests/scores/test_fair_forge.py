"""The profile fair-forge gives the figures of Fair Forge's own tool score."""

from random import Random
from typing import Any

import pytest

from agent_eval.errors import AgentEvalError
from agent_eval.scores.tools.correctness import ASPECTS, ToolCorrectness, tool_correctness
from agent_eval.transcripts.models import Expected
from tests.scores.test_tools import call, made, scored, truth
from tests.scores.test_tools import judged as judgment

Trace = list[dict[str, Any]]


def restated(used: Trace, expected: Trace, *, ordered: bool, declared: bool) -> dict[str, float]:
    """The four aspects, in plain Python, from the description of the source's `_evaluate_tool_correctness`."""
    names_used, names_expected = {c["name"] for c in used}, {c["name"] for c in expected}
    union = names_used | names_expected
    parameters, sequence = [], []
    for name in sorted(names_expected):
        of_used = [c for c in used if c["name"] == name]
        of_expected = [c for c in expected if c["name"] == name]
        if not of_used:
            parameters.append(0.0)
            sequence.append(0.0)
            continue
        first = of_used[0]["arguments"]
        for at, wanted in enumerate(of_expected):
            keys = set(wanted["arguments"]) | set(first)
            hits = [wanted["arguments"].get(key) == first.get(key) for key in keys]
            parameters.append(sum(hits) / len(hits) if keys else 1.0)
            step = of_used[at]["step"] if at < len(of_used) else None
            sequence.append(float(wanted["step"] == step))
    return {
        "selection": len(names_used & names_expected) / len(union) if union else 1.0,
        "parameters": sum(parameters) / len(parameters) if parameters else 0.0,
        "sequence": (sum(sequence) / len(sequence) if sequence else 0.0) if ordered else 1.0,
        "utilisation": float(declared),
    }


def test_four_hundred_random_cases_have_the_figures_of_the_source() -> None:
    random = Random(4)

    def trace(least: int) -> Trace:
        n = random.randint(least, 5)
        steps = random.choice([list(range(1, n + 1)), [random.randint(1, 4) for _ in range(n)]])
        return [
            call(random.choice("fgh"), {k: random.choice([0, 1, 1.0, True, None, "a", [1]]) for k in "xyz" if random.random() < 0.5})
            | {"step": step}
            for step in steps
        ]  # fmt: skip

    for _ in range(400):
        used, expected = trace(1), trace(0)
        ordered, declared, threshold = random.random() < 0.7, random.random() < 0.5, random.random()
        raw = [random.random() for _ in ASPECTS]
        scale = random.choice([sum(raw), 4.0])  # the source does not normalise
        weights = random.choice([None, {a: w / scale for a, w in zip(ASPECTS, raw, strict=True)}])
        wanted = restated(used, expected, ordered=ordered, declared=declared)
        overall = sum((weights or dict.fromkeys(ASPECTS, 0.25))[a] * wanted[a] for a in ASPECTS)
        score = tool_correctness(
            used, expected, profile="fair-forge", sequence_matters=ordered, results_used=declared, weights=weights, threshold=threshold
        )  # fmt: skip
        assert {a: vars(score)[a] for a in ASPECTS} == pytest.approx(wanted, abs=1e-12)
        assert score.overall == pytest.approx(overall, abs=1e-12)
        assert abs(overall - threshold) < 1e-9 or score.is_correct is (overall >= threshold)


def fair_forge(used: Trace, expected: Trace, **more: Any) -> ToolCorrectness:
    return tool_correctness(used, expected, profile="fair-forge", **more)


def test_order_matters_unless_the_call_says_otherwise_and_positions_are_the_steps() -> None:
    used, expected = [call("b"), call("a")], [call("a"), call("b")]
    assert fair_forge(used, expected).overall == 0.75
    assert fair_forge(used, expected, sequence_matters=False).overall == 1
    assert tool_correctness(used, expected).sequence == 1


def test_where_it_differs_from_the_standard_profile() -> None:
    # names are a set, and each expected call is compared with the first call of its tool
    used, expected = [call("f", x=1), call("f", x=2)], [call("f", x=1), call("f", x=2)]
    assert (fair_forge(used * 2, expected).selection, fair_forge(used, expected).parameters) == (1, 0.5)
    # a wrong tool has points for the declared use alone, or with free order for the order too
    wrong = fair_forge([call("delete")], [call("get")], sequence_matters=False)
    assert (wrong.sequence, wrong.utilisation, wrong.overall) == (1, 1, 0.5)


def test_without_a_used_tool_there_is_no_score_and_without_a_declaration_no_use() -> None:
    score = fair_forge([], [call("f")])
    assert (score.status, score.overall, score.is_correct) == ("unscored", None, None)
    assert score.reason == "the profile fair-forge gives no score if no tool was used"
    assert fair_forge([call("f")], [call("f")], results_used=None).utilisation == 0
    assert fair_forge([], []).status == "not_applicable"


def test_weights_above_one_in_sum_and_an_unknown_profile_are_refused() -> None:
    with pytest.raises(AgentEvalError, match="sum to 4"):
        fair_forge([call("f")], [call("f")], weights=dict.fromkeys(ASPECTS, 1))
    with pytest.raises(AgentEvalError, match="profile"):
        tool_correctness([], [], profile="fair_forge")  # type: ignore[arg-type]


def test_the_table_uses_declarations_and_positions_under_the_profile() -> None:
    tools = [call("f"), call("g")]
    entry = {"turn_index": 0, "tools": tools, "tool_sequence_matters": True, "results_used": False}
    calls = [made(0, "g"), made(0, "f", call_index=1)]
    (row,) = scored([truth(entry)], calls, [], profile="fair-forge").iter_rows(named=True)
    assert (row["sequence"], row["utilisation"], row["overall"], row["is_correct"]) == (0, 0, 0.5, False)
    assert row["unknown_aspects"] == []
    (row,) = scored([truth(entry | {"results_used": True})], calls, []).iter_rows(named=True)
    assert (row["sequence"], row["utilisation"], row["overall"]) == (0.5, 1, 0.875)


@pytest.mark.parametrize(
    ("declared", "judged", "utilisation"), [(True, 0.0, 0), (True, None, 1), (None, None, None)]
)
def test_an_effective_judgment_comes_before_the_declaration(
    declared: bool | None, judged: float | None, utilisation: float | None
) -> None:
    entry = {"turn_index": 0, "tools": [call("f")], "results_used": declared}
    rows = [] if judged is None else [judgment(0, judged)]
    assert scored([truth(entry)], [made(0, "f")], rows)["utilisation"].to_list() == [utilisation]


def test_an_entry_without_a_declaration_is_written_as_before() -> None:
    assert "results_used" not in Expected(turn_index=0, answer="a").model_dump(mode="json")
