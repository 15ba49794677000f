"""The board: ranks on exact composites, ties shared, the unpublished below."""

from datetime import date
from fractions import Fraction
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from agent_eval.errors import InputError
from agent_eval.report import board as words
from agent_eval.scores.composite.leaderboard import (
    competition_ranks,
    leaderboard,
    one_version,
    pairwise_comparisons,
    penalty_what_if,
    rank_ranges,
)
from agent_eval.scores.statistics.clustered import serial_inflation
from agent_eval.scores.statistics.exact import to_text
from agent_eval.scores.statistics.intervals import Interval, Sample, bounded_mean, welch
from agent_eval.tables import table
from tests.scores.builders import METHODOLOGIES, SLUG


def row(agent: str, exact: str | None, **changes: Any) -> dict[str, Any]:
    """A row of composite_scores: published with its exact composite, incomplete without one."""
    return {
        "methodology_version": "1.3.0",
        "agent_id": agent,
        "template": SLUG,
        "n_sessions": 1,
        "composite_exact": exact,
        "composite_score": None if exact is None else float(Fraction(exact)),
        "n_goal_completion": 0,
        "judge": "recorded",
        "status": "published" if exact else "incomplete",
        "missing": [] if exact else ["U4: no injected error in the session"],
        "warnings": [],
    } | changes


def pass_row(agent: str, value: float, **changes: Any) -> dict[str, Any]:
    """A row of reliability at k = 1."""
    pair = {"methodology_version": "1.3.0", "agent_id": agent, "task_set": "airline"}
    return pair | {"k": 1, "estimator": "unbiased", "n_tasks": 10, "pass_at_k": value} | changes


def board(
    rows: list[dict[str, Any]],
    passes: list[dict[str, Any]] | None = None,
    names: dict[str, str] | None = None,
) -> pl.DataFrame:
    agents = [{"agent_id": agent, "name": name} for agent, name in (names or {}).items()]
    given = {"composite_scores": rows, "agents": agents, "reliability": passes or []}
    frames: dict[str, Any] = {name: table(name).frame(of) for name, of in given.items()}
    return table("leaderboard").conform(leaderboard(*frames.values()))


def ranks(made: pl.DataFrame, column: str = "rank") -> dict[str, int | None]:
    return dict(zip(made["agent_id"], made[column], strict=True))


def test_ties_share_a_rank_and_leave_a_gap() -> None:
    made = board([row("d", "70/1"), row("b", "80/1"), row("a", "90/1"), row("c", "80/1")])
    assert ranks(made) == {"a": 1, "b": 2, "c": 2, "d": 4}
    assert made["agent_id"].to_list() == ["a", "b", "c", "d"]


def test_ranks_are_taken_from_the_fraction_and_not_from_the_double() -> None:
    # 0.40 × 230/3 + 0.60 × 232/3 in doubles depends on the order of the sum; the fraction does not
    one, other = 0.4 * (230 / 3) + 0.6 * (232 / 3), (20 * 23 + 12 * 58) / 15
    rows = [row("a", "1156/15", composite_score=one), row("b", "1156/15", composite_score=other + 1e-13)]
    assert ranks(board(rows)) == {"a": 1, "b": 1}
    # and fractions that one double cannot tell apart are two ranks
    near = [row("a", "300000000000000001/3000000000000000"), row("b", "100/1")]
    assert near[0]["composite_score"] == near[1]["composite_score"]
    assert ranks(board(near)) == {"a": 1, "b": 2}


def test_only_published_rows_are_ranked_and_the_others_stand_below_with_their_reasons() -> None:
    provisional = row("provisional", "99/1", status="provisional", missing=["u3_scope: not disclosed"])
    made = board([row("zero", None), provisional, row("best", "60/1"), row("lost", None, status="invalid")])
    assert made["agent_id"].to_list() == ["best", "provisional", "zero", "lost"]
    assert made["rank"].to_list() == [1, None, None, None]
    assert made["missing"].to_list()[1] == ["u3_scope: not disclosed"]


def test_ranks_are_within_a_template_and_an_overall_rank_stands_beside() -> None:
    others = row("x", "80/1", template="research_v1"), row("n", None, template=None)
    made = board([row("a", "90/1"), row("b", "70/1"), *others])
    assert ranks(made) == {"a": 1, "b": 2, "x": 1, "n": None}
    assert ranks(made, "rank_overall") == {"a": 1, "b": 3, "x": 2, "n": None}
    assert made["agent_id"].to_list() == ["a", "b", "x", "n"]  # by template, none last


def sessions(agent: str, values: list[float], penalty: float = 0.0, **changes: Any) -> dict[str, Any]:
    """A published row from the raw composites of its sessions, which are whole numbers here."""
    raw = Fraction(int(sum(values)), len(values))
    given: dict[str, Any] = {
        "raw_composite_exact": to_text(raw),
        "repeatability_penalty": penalty,
        "n_sessions": len(values),
        "session_scores": [float(v) for v in values],
        "point_0to100": 4 / 3,
    }
    return row(agent, to_text(raw - int(penalty)), **given, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"session_scores": [70.0]},
        {"session_scores": [70.0, None, 90.0]},
        {"status": "provisional", "missing": ["u3_scope: not disclosed"]},
    ],
    ids=["one session", "a session that is not rated in full", "not published"],
)
def test_an_interval_needs_several_sessions_of_a_published_row(changes: dict[str, Any]) -> None:
    made = board([sessions("a", [70, 80, 90]) | changes]).row(0, named=True)
    assert (made["low"], made["high"], made["rank_low"], made["rank_high"]) == (None,) * 4
    if "status" in changes:
        assert (made["rank"], made["is_pareto"], made["lead_points"]) == (None,) * 3


def test_an_interval_is_over_sessions_and_moves_with_the_penalty() -> None:
    tested = board([sessions("a", [70, 80, 90])]).row(0, named=True)
    untested = board([sessions("a", [70, 80, 90], penalty=10.0)]).row(0, named=True)
    expected = bounded_mean(Sample(3, 80.0, 10.0), bounds=(20, 100), step=4 / 3)
    assert expected
    assert (tested["low"], tested["high"]) == pytest.approx(tuple(expected))
    assert (untested["low"], untested["high"]) == pytest.approx((expected.low - 10, expected.high - 10))


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([98, 99, 100], "bounded"),
        ([95.0] * 10, "t_near_end"),
        ([95.0] * 19, "t_near_end"),
        ([95.0] * 20, "t"),  # so many show how far others fall
        ([94, 99, 100], "t"),
        ([20, 24, 25], "bounded"),
        ([20, 100], "t"),
        ([70, 99, 100], "bounded"),
    ],
)
def test_sessions_that_are_all_near_one_end_are_marked(scores: list[float], expected: str) -> None:
    made = board([sessions("a", scores)])
    assert made["interval_method"].to_list() == [expected]
    assert ("(spread not seen)" in words.interval(made.row(0, named=True))) == (expected == "t_near_end")


INTERVALS = st.lists(
    st.none() | st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda t: Interval(min(t), max(t))),
    max_size=7,
)


@given(INTERVALS)
def test_a_rank_range_counts_the_intervals_wholly_above_and_below(intervals: list[Interval | None]) -> None:
    for mine, (low, high) in zip(intervals, rank_ranges(intervals), strict=True):
        if mine is None:
            assert (low, high) == (None, None)
            continue
        above = sum(other is not None and other.low > mine.high for other in intervals)
        below = sum(other is not None and other.high < mine.low for other in intervals)
        assert (low, high) == (1 + above, len(intervals) - below)


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(20, 100), min_size=2, max_size=4), min_size=1, max_size=5))
def test_a_rank_lies_in_its_range(values: list[list[int]]) -> None:
    rows = [sessions(f"agent-{i}", [float(v) for v in of_agent]) for i, of_agent in enumerate(values)]
    made = board(rows)
    assert (made["rank_low"] <= made["rank"]).all()
    assert (made["rank"] <= made["rank_high"]).all()
    assert (made["low"] <= made["composite_score"] + 1e-9).all()
    assert (made["composite_score"] <= made["high"] + 1e-9).all()


def test_a_lead_survives_when_it_is_larger_than_one_rating_point_of_either_agent() -> None:
    # one point moves 4/3 with one session, 4/9 with three: a lead of 1 outlives its own point, not that of b
    rows = [sessions("a", [81, 81, 81]), sessions("b", [80]), sessions("c", [78, 78, 78])]
    made = board(rows).select("agent_id", "lead_points", "lead_survives_point").rows()
    assert made == [("a", 1.0, False), ("b", 2.0, True), ("c", None, None)]


def test_a_shared_rank_is_no_lead() -> None:
    made = board([sessions("a", [80]), sessions("b", [80]), sessions("c", [70])])
    leads = made.select("lead_points", "lead_survives_point").rows()
    assert leads == [(0.0, False), (0.0, False), (None, None)]


def test_a_pareto_mark_weighs_score_against_cost_per_conversation() -> None:
    # 3, 1 and 2 a conversation: beaten is no better than cheap
    given = {"best": (90, 9.0, 3), "cheap": (80, 5.0, 5), "beaten": (80, 4.0, 2), "unknown": (70, None, 2)}
    given["twin"] = (90, 3.0, 1)
    rows = [sessions(name, [v], cost_usd=cost, n_conversations=n) for name, (v, cost, n) in given.items()]
    marks = ranks(board(rows), "is_pareto")
    assert marks == {"best": True, "cheap": True, "beaten": False, "unknown": None, "twin": True}


def test_ranks_without_the_penalty_stand_beside() -> None:
    made = board([sessions("a", [80]), sessions("b", [85], penalty=10.0)])
    assert made.select("agent_id", "rank", "rank_if_tested").rows() == [("a", 1, 2), ("b", 2, 1)]


@pytest.mark.parametrize(
    ("raw", "tested", "expected"),
    [(80.0, False, 70.0), (80.0, True, 80.0), (80.0, None, None), (5.0, False, 0.0)],
)
def test_a_later_penalty_is_a_what_if(raw: float, tested: bool | None, expected: float | None) -> None:
    known = {"raw_composite_score": raw, "repeatability_tested": tested, "methodology_version": "1.2.0"}
    made = penalty_what_if(board([row("a", f"{raw:.0f}/1", **known)]), METHODOLOGIES["1.3.0"])
    assert made["what_if_composite"].to_list() == [expected]


def pairs(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return table("pairwise_comparisons").conform(pairwise_comparisons(table("composite_scores").frame(rows)))


def test_every_two_agents_of_a_template_are_compared_and_corrected_for_their_number() -> None:
    given: dict[str, list[float]] = {"a": [90, 91, 92], "b": [90, 91, 92], "c": [60, 61, 62], "d": [75]}
    rows = [sessions(name, values) for name, values in given.items()]
    made = pairs([*rows, sessions("x", [50, 51], template="research_v1")])
    assert made.height == 6
    found = {(a, b): v for a, b, v in made.select("agent_id", "other_agent_id", "verdict").iter_rows()}
    assert found[("a", "b")] == "tie"
    assert found[("a", "c")] == found[("b", "c")] == "better"
    assert found[("a", "d")] == "unknown"
    known = made.drop_nulls("p_value")
    # three pairs have a p: the two small ones are tripled, then doubled but held up
    corrected = known.sort("agent_id", "other_agent_id")["p_holm"].to_list()
    assert corrected == pytest.approx([1.0, *[3 * min(known["p_value"])] * 2])


def test_a_comparison_tells_the_exact_difference_of_the_headlines() -> None:
    made = pairs([sessions("a", [80, 90], penalty=10.0), sessions("b", [80, 84])]).row(0, named=True)
    assert made["difference"] == 75 - 82
    reference = welch(Sample.of([70.0, 80.0]), Sample.of([80.0, 84.0]))
    assert (made["p_value"], made["low"], made["probability_better"]) == pytest.approx(
        (reference.p_value, reference.low, reference.probability_better)
    )


def test_versions_are_ranked_apart_in_semantic_order() -> None:
    given = [("a", "80/1", "1.10.0"), ("a", "90/1", "1.2.0"), ("b", "85/1", "1.10.0")]
    made = board([row(agent, exact, methodology_version=version) for agent, exact, version in given])
    ranked = made.select("methodology_version", "agent_id", "rank").rows()
    assert ranked == [("1.2.0", "a", 1), ("1.10.0", "b", 1), ("1.10.0", "a", 2)]


def test_names_come_from_the_agents_fall_back_to_the_id_and_order_ties() -> None:
    made = board([row("a", "90/1"), row("b", "80/1")], names={"a": "Lumen Support"})
    assert made["name"].to_list() == ["Lumen Support", "b"]
    made = board([row("a", "90/1"), row("b", "90/1")], names={"a": "Zeta", "b": "Alpha"})
    assert made["name"].to_list() == ["Alpha", "Zeta"]


def test_pass_at_1_is_shown_for_a_single_task_set() -> None:
    made = board([row("a", "90/1"), row("b", "80/1")], [pass_row("a", 0.5), pass_row("a", 0.9, k=2)])
    assert made.select("pass_at_1", "n_tasks").rows() == [(0.5, 10), (None, None)]


@pytest.mark.parametrize(
    "passes",
    [
        [pass_row("a", 0.5), pass_row("a", 0.9, task_set="retail")],
        [pass_row("a", 0.5), pass_row("a", 0.9, task_set="retail", k=2)],
        [pass_row("a", 0.5, estimator="bayesian")],
    ],
    ids=["several task sets", "another k of several task sets", "another estimator"],
)
def test_what_is_not_one_number_is_not_pass_at_1(passes: list[dict[str, Any]]) -> None:
    assert board([row("a", "90/1")], passes)["pass_at_1"].to_list() == [None]


def test_no_scores_give_an_empty_board() -> None:
    assert board([]).equals(table("leaderboard").empty())


def test_a_view_that_mixes_versions_is_refused_unless_asked_for() -> None:
    mixed = board([row("a", "90/1"), row("a", "80/1", methodology_version="1.10.0")])
    with pytest.raises(InputError, match=r"1\.3\.0, 1\.10\.0"):
        one_version(mixed)
    single = mixed.filter(pl.col("methodology_version") == "1.3.0")
    assert one_version(single).equals(single)
    assert one_version(mixed.clear()).is_empty()


VALUES = st.lists(st.fractions(0, 100, max_denominator=3), max_size=8)


@given(VALUES)
def test_a_rank_is_one_more_than_the_number_of_better_values(values: list[Fraction]) -> None:
    assert competition_ranks(values) == [1 + sum(other > value for other in values) for value in values]


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(VALUES, st.randoms(use_true_random=False))
def test_row_order_never_matters(values: list[Fraction], random: Random) -> None:
    rows = [row(f"agent-{i}", f"{v.numerator}/{v.denominator}") for i, v in enumerate(values)]
    rows.append(row("late", None))
    shuffled = random.sample(rows, len(rows))
    assert_frame_equal(board(rows), board(shuffled), check_exact=True)


@pytest.mark.parametrize(
    ("values", "inflates"),
    [
        ([70, 72, 74, 76, 78, 80, 82, 84], True),  # a drift
        ([70, 84, 71, 83, 70, 84, 71, 83], False),  # alternating
        ([70, 72, 74, 76, 78, 80, 82], False),  # too few to show it
        ([75] * 8, False),
    ],
)
def test_sessions_that_depend_on_the_one_before_widen_the_interval(
    values: list[float], inflates: bool
) -> None:
    assert (serial_inflation(values) > 1) == inflates
    if inflates:
        dates = [date(2026, 1, day + 1) for day in range(len(values))]
        dated = {**sessions("a", values), "session_dates": dates}
        wide, plain = (board([rows]).row(0, named=True) for rows in (dated, sessions("a", values)))
        assert wide["low"] < plain["low"] < plain["high"] < wide["high"]
