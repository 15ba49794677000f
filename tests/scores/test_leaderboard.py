"""The board: ranks on exact composites, ties shared, the unpublished below."""

from fractions import Fraction
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from agent_eval.scores.leaderboard import MixedVersionsError, competition_ranks, leaderboard, one_version
from agent_eval.tables import table
from tests.scores.builders import SLUG


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
    return {
        "methodology_version": "1.3.0",
        "agent_id": agent,
        "task_set": "airline",
        "k": 1,
        "estimator": "unbiased",
        "n_tasks": 10,
        "pass_at_k": value,
    } | changes


def board(
    rows: list[dict[str, Any]],
    passes: list[dict[str, Any]] | None = None,
    names: dict[str, str] | None = None,
) -> pl.DataFrame:
    agents = [{"agent_id": agent, "name": name} for agent, name in (names or {}).items()]
    made = leaderboard(
        table("composite_scores").frame(rows),
        table("agents").frame(agents),
        table("reliability").frame(passes or []),
    )
    return table("leaderboard").conform(made)


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
    rows = [
        row("zero", None),
        row("provisional", "99/1", status="provisional", missing=["u3_scope: not disclosed"]),
        row("best", "60/1"),
        row("lost", None, status="invalid"),
    ]
    made = board(rows)
    assert made["agent_id"].to_list() == ["best", "provisional", "zero", "lost"]
    assert made["rank"].to_list() == [1, None, None, None]
    assert made["missing"].to_list()[1] == ["u3_scope: not disclosed"]


def test_ranks_are_within_a_template_and_an_overall_rank_stands_beside() -> None:
    rows = [
        row("a", "90/1"),
        row("b", "70/1"),
        row("x", "80/1", template="research_v1"),
        row("n", None, template=None),
    ]
    made = board(rows)
    assert ranks(made) == {"a": 1, "b": 2, "x": 1, "n": None}
    assert ranks(made, "rank_overall") == {"a": 1, "b": 3, "x": 2, "n": None}
    assert made["agent_id"].to_list() == ["a", "b", "x", "n"]  # by template, none last


def test_without_an_interval_the_rank_range_is_the_rank() -> None:
    made = board([row("a", "90/1"), row("b", None)])
    assert made["rank_low"].to_list() == made["rank_high"].to_list() == [None, None]
    assert made["low"].to_list() == made["high"].to_list() == [None, None]


def test_versions_are_ranked_apart_in_semantic_order() -> None:
    rows = [
        row("a", "80/1", methodology_version="1.10.0"),
        row("a", "90/1", methodology_version="1.2.0"),
        row("b", "85/1", methodology_version="1.10.0"),
    ]
    made = board(rows)
    assert made.select("methodology_version", "agent_id", "rank").rows() == [
        ("1.2.0", "a", 1),
        ("1.10.0", "b", 1),
        ("1.10.0", "a", 2),
    ]


def test_names_come_from_the_agents_and_fall_back_to_the_id() -> None:
    made = board([row("a", "90/1"), row("b", "80/1")], names={"a": "Lumen Support"})
    assert made["name"].to_list() == ["Lumen Support", "b"]


def test_ties_stand_in_the_order_of_their_names() -> None:
    made = board([row("a", "90/1"), row("b", "90/1")], names={"a": "Zeta", "b": "Alpha"})
    assert made["name"].to_list() == ["Alpha", "Zeta"]


def test_pass_at_1_is_shown_for_a_single_task_set() -> None:
    made = board([row("a", "90/1"), row("b", "80/1")], [pass_row("a", 0.5), pass_row("a", 0.9, k=2)])
    assert made.select("pass_at_1", "n_tasks").rows() == [(0.5, 10), (None, None)]


@pytest.mark.parametrize(
    "other",
    [pass_row("a", 0.9, task_set="retail"), pass_row("a", 0.9, task_set="retail", k=2)],
)
def test_pass_at_1_over_several_task_sets_is_not_one_number(other: dict[str, Any]) -> None:
    made = board([row("a", "90/1")], [pass_row("a", 0.5), other])
    assert made["pass_at_1"].to_list() == [None]


def test_another_estimator_is_not_pass_at_1() -> None:
    made = board([row("a", "90/1")], [pass_row("a", 0.5, estimator="bayesian")])
    assert made["pass_at_1"].to_list() == [None]


def test_no_scores_give_an_empty_board() -> None:
    assert board([]).equals(table("leaderboard").empty())


def test_a_view_that_mixes_versions_is_refused_unless_asked_for() -> None:
    mixed = board([row("a", "90/1"), row("a", "80/1", methodology_version="1.10.0")])
    with pytest.raises(MixedVersionsError, match=r"1\.3\.0, 1\.10\.0"):
        one_version(mixed)
    single = mixed.filter(pl.col("methodology_version") == "1.3.0")
    assert one_version(single).equals(single)
    assert one_version(mixed.clear()).is_empty()


VALUES = st.lists(st.fractions(0, 100, max_denominator=3), max_size=8)


@given(VALUES)
def test_a_rank_is_one_more_than_the_number_of_better_values(values: list[Fraction]) -> None:
    assert competition_ranks(values) == [1 + sum(other > value for other in values) for value in values]


@settings(max_examples=30, deadline=None)
@given(VALUES, st.randoms(use_true_random=False))
def test_row_order_never_matters(values: list[Fraction], random: Random) -> None:
    rows = [row(f"agent-{i}", f"{v.numerator}/{v.denominator}") for i, v in enumerate(values)]
    rows.append(row("late", None))
    shuffled = random.sample(rows, len(rows))
    assert_frame_equal(board(rows), board(shuffled), check_exact=True)
