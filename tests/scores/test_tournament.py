"""Best-of: ratings that no order changes, circles told, a judge who follows the place found out."""

import math
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from agent_eval.errors import AgentEvalError
from agent_eval.judge.inputs.pairwise_verdicts import Winner, ask_both_ways
from agent_eval.scores.statistics.tournament import VERDICTS, Tournament, tournament


def verdict(first: str, second: str, winner: str | None, task: str = "t", **more: Any) -> dict[str, Any]:
    given = {"first": first, "second": second, "winner": winner}
    return {"task": task, "task_set": None, "judge": "m"} | given | more


def both(winner: str, loser: str, n: int) -> list[dict[str, Any]]:
    """The winner wins n tasks both ways round."""
    tasks = [f"{winner}{loser}{i}" for i in range(n)]
    turned = [verdict(loser, winner, "second", task) for task in tasks]
    return [verdict(winner, loser, "first", task) for task in tasks] + turned


def of(rows: list[dict[str, Any]]) -> Tournament:
    return tournament(pl.DataFrame(rows, schema=VERDICTS))


def strengths(result: Tournament) -> dict[str, float]:
    return dict(result.standings.select("agent_id", "strength").iter_rows())


def test_two_agents_have_the_strength_that_their_wins_give() -> None:
    # 7 of 10 to a. With d = θa − θb and the average in the middle, the likelihood's slope is
    # 7 − 10·σ(d) + ½ − σ(d/2) = 0
    result = of(both("a", "b", 7) + both("b", "a", 3))
    d = strengths(result)["a"] - strengths(result)["b"]
    assert 7 - 10 / (1 + math.exp(-d)) + 0.5 - 1 / (1 + math.exp(-d / 2)) == pytest.approx(0, abs=1e-6)
    counted = result.standings.select("agent_id", "rank", "wins", "losses", "ties").rows()
    assert counted == [("a", 1, 7, 3, 0), ("b", 2, 3, 7, 0)]


def test_strengths_are_those_of_the_highest_penalised_likelihood() -> None:
    from scipy.optimize import minimize

    won = {("a", "b"): 4, ("b", "a"): 1, ("a", "c"): 3, ("c", "a"): 2, ("b", "c"): 5}
    result = of([row for (w, lost), n in won.items() for row in both(w, lost, n)])

    def loss(theta: Any) -> float:
        value = dict(zip("abc", theta, strict=True))
        log = sum(n * math.log1p(math.exp(value[lost] - value[w])) for (w, lost), n in won.items())
        return log + sum((math.log1p(math.exp(v)) + math.log1p(math.exp(-v))) / 2 for v in theta)

    best = minimize(loss, [0.0, 0.0, 0.0], tol=1e-12).x
    centred = [v - sum(best) / 3 for v in best]
    assert list(dict(sorted(strengths(result).items())).values()) == pytest.approx(centred, abs=1e-4)


def test_an_agent_who_won_everything_has_a_rating_and_an_interval() -> None:
    row = of(both("a", "b", 20)).standings.row(0, named=True)
    assert row["agent_id"] == "a"
    assert math.isfinite(row["low"])
    assert row["low"] < row["strength"] < row["high"]


def test_more_tasks_narrow_the_interval() -> None:
    few, many = (of(both("a", "b", 2 * n) + both("b", "a", n)).standings for n in (2, 40))
    assert (many["high"] - many["low"]).max() < (few["high"] - few["low"]).min()  # type: ignore[operator]


ONE, OTHER = verdict("a", "b", "first"), verdict("b", "a", "second")
LOST = {"winner": None, "task": "lost"}


@pytest.mark.parametrize(
    ("rows", "wins", "ties", "n_changed", "n_one_way", "n_unscored"),
    [
        ([ONE, OTHER], 1, 0, 0, 0, 0),
        ([ONE, verdict("b", "a", "first")], 0, 1, 1, 0, 0),  # the place decided
        ([ONE, verdict("b", "a", "tie")], 0, 1, 0, 0, 0),
        ([ONE, ONE | {"task": "lost"}, OTHER | LOST], 0, 0, 0, 1, 1),
        ([row | {"judge": judge} for row in (ONE, OTHER) for judge in "mn"], 2, 0, 0, 0, 0),
        ([ONE, OTHER | {"judge": "n"}], 0, 0, 0, 2, 0),  # every judge counts for itself
    ],
)
def test_only_a_win_both_ways_round_by_one_judge_is_a_win(
    rows: list[dict[str, Any]], wins: int, ties: int, n_changed: int, n_one_way: int, n_unscored: int
) -> None:
    result = of(rows)
    counted = result.standings.filter(agent_id="a").select("wins", "losses", "ties").rows()
    assert counted in ([(wins, 0, ties)], [])
    assert result.standings["wins"].sum() == wins
    assert result.position_bias.n_changed == n_changed
    assert (result.n_one_way, result.n_unscored) == (n_one_way, n_unscored)
    if ties:
        assert (strengths(result), set(result.standings["rank"])) == ({"a": 0, "b": 0}, {1})


def test_a_circle_is_told() -> None:
    result = of(both("a", "b", 3) + both("b", "c", 3) + both("c", "a", 3) + both("a", "d", 1))
    assert result.cycles == (("a", "b", "c"),)
    assert not result.is_transitive
    assert of(both("a", "b", 3) + both("b", "c", 3) + both("a", "c", 1)).is_transitive


def test_a_judge_who_follows_the_place_is_found_and_said() -> None:
    result = of([verdict(*order, "first", f"t{i}") for i in range(12) for order in (("a", "b"), ("b", "a"))])
    bias = result.position_bias
    assert (bias.n_pairs, bias.n_changed, bias.n_first, bias.n_second) == (12, 12, 12, 0)
    assert bias.p_value == 2 / 2**12
    assert "Position bias: 12 of 12 pairs" in str(bias)
    assert "favours the first place" in str(bias)
    assert strengths(result) == {"a": 0, "b": 0}


def test_changes_that_go_both_ways_are_no_bias() -> None:
    tasks = [(place, f"{place}{i}") for i in range(6) for place in ("first", "second")]
    orders = (("a", "b"), ("b", "a"))
    bias = of([verdict(*order, *task) for task in tasks for order in orders]).position_bias
    assert (bias.n_first, bias.n_second, bias.is_biased) == (6, 6, False)
    assert "no sign of a position bias" in str(bias)


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([verdict("a", "a", "first")], "'a' meets itself"),
        ([verdict("a", "b", "a")], "winner is 'a'"),
        ([verdict("a", "b", "first"), verdict("a", "b", "second")], "'a' before 'b' twice"),
    ],
)
def test_verdicts_that_make_no_sense_are_refused_by_name(rows: list[dict[str, Any]], named: str) -> None:
    with pytest.raises(AgentEvalError, match=named):
        of(rows)


def test_no_verdicts_give_no_standings() -> None:
    assert of([]).standings.is_empty()
    assert of([]).wins.is_empty()


AGENTS = "abcd"
AGENT = st.sampled_from(AGENTS)
DRAWN = st.tuples(AGENT, AGENT, st.sampled_from(["first", "second", "tie", None]), st.integers(0, 3))
ROWS = st.lists(DRAWN, max_size=30, unique_by=lambda row: (row[0], row[1], row[3])).map(
    lambda rows: [verdict(a, b, w, f"t{i}") for a, b, w, i in rows if a != b]
)


@settings(max_examples=60)
@given(ROWS, st.permutations(AGENTS), st.randoms(use_true_random=False))
def test_the_result_is_the_same_for_every_order_of_rows_and_under_other_names(
    rows: list[dict[str, Any]], names: list[str], random: Random
) -> None:
    one, other = of(rows), of(random.sample(rows, len(rows)))
    assert_frame_equal(one.standings, other.standings, check_exact=True)
    assert_frame_equal(one.wins, other.wins, check_exact=True)
    assert (one.cycles, one.position_bias) == (other.cycles, other.position_bias)
    new = dict(zip(AGENTS, names, strict=True))
    other = of([row | {"first": new[row["first"]], "second": new[row["second"]]} for row in rows])
    assert {new[a]: s for a, s in strengths(one).items()} == pytest.approx(strengths(other), abs=1e-8)
    assert one.position_bias == other.position_bias
    assert sorted(map(len, one.cycles)) == sorted(map(len, other.cycles))


@settings(max_examples=40)
@given(ROWS)
def test_each_pair_turned_round_gives_the_same_ratings(rows: list[dict[str, Any]]) -> None:
    turn = {"first": "second", "second": "first", "tie": "tie", None: None}
    turned = [
        row | {"first": row["second"], "second": row["first"], "winner": turn[row["winner"]]} for row in rows
    ]
    one, other = of(rows), of(turned)
    assert_frame_equal(one.standings, other.standings, check_exact=True)
    bias, mirrored = one.position_bias, other.position_bias
    assert (bias.n_first, bias.n_second) == (mirrored.n_second, mirrored.n_first)


def longer(task: str, first: str, second: str) -> Winner:
    return "tie" if len(first) == len(second) else "first" if len(first) > len(second) else "second"


def test_every_pair_is_asked_both_ways_round_without_names() -> None:
    asked = []

    def ask(task: str, first: str, second: str) -> Winner:
        asked.append((task, first, second))
        return longer(task, first, second)

    answers = {"t": {"b": "xx", "a": "xxx"}, "u": {"a": "x", "c": "xx"}, "v": {"a": "alone"}}
    verdicts = ask_both_ways(answers, ask, judge="mock")
    assert asked == [("t", "xxx", "xx"), ("t", "xx", "xxx"), ("u", "x", "xx"), ("u", "xx", "x")]
    result = tournament(verdicts)
    # c beat a, and a beat b
    assert result.standings["agent_id"].to_list() == ["c", "a", "b"]


def test_a_biased_mock_judge_is_found_through_the_asking() -> None:
    answers = {f"t{i}": {"a": "x" * i, "b": "y", "c": "z"} for i in range(4)}
    result = tournament(ask_both_ways(answers, lambda task, first, second: "second", judge="mock"))
    assert result.position_bias.is_biased
    assert "favours the second place" in str(result.position_bias)
    assert set(strengths(result).values()) == {0}
