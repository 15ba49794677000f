"""U1–U6: exact means over sessions, and what is missing by name."""

from fractions import Fraction
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from agent_eval.errors import InputError
from agent_eval.scores.composite.universal import universal_scores
from agent_eval.scores.statistics.exact import from_text
from agent_eval.tables import table
from tests.scores.builders import METHODOLOGIES, one, rating, ratings, unrated

FIVES = (5, 5, 5, 5, 5, 5)


def scored(rows: list[dict[str, Any]]) -> pl.DataFrame:
    frame = universal_scores(table("rubric_ratings").frame(rows), METHODOLOGIES)
    return table("universal_scores").conform(frame)


def test_the_sum_of_six_over_thirty() -> None:
    # 5 + 4 + 3 + 5 + 4 + 2 = 23; 23 / 30 × 100 = 230 / 3
    row = one(scored(ratings((5, 4, 3, 5, 4, 2))))
    assert row["universal_exact"] == "230/3"
    assert row["universal_0to100"] == pytest.approx(76.667, abs=1e-3)
    assert [row[f"u{i}"] for i in range(1, 7)] == [5, 4, 3, 5, 4, 2]
    assert (row["n_sessions"], row["judges"], row["n_unscored"], row["missing"]) == (1, ["recorded"], 0, [])


def test_sessions_are_averaged_exactly() -> None:
    # U1 = (5 + 4 + 4) / 3 = 13/3, the others 4: (13/3 + 20) / 30 × 100 = 730/9
    rows = [
        row for s, u1 in (("a", 5), ("b", 4), ("c", 4)) for row in ratings((u1, 4, 4, 4, 4, 4), session_id=s)
    ]
    row = one(scored(rows))
    assert row["universal_exact"] == "730/9"
    assert row["u1"] == pytest.approx(13 / 3)
    assert row["n_sessions"] == 3


def test_a_missing_dimension_gives_no_score_and_is_named_with_its_session_if_there_are_several() -> None:
    row = one(scored(ratings((5, 4, 3, None, 4, 2))))
    assert (row["universal_0to100"], row["universal_exact"], row["u4"], row["u1"]) == (None, None, None, 5)
    assert row["missing"] == ["U4: not rated"]
    rows = [*ratings(FIVES, session_id="a"), *ratings((5, 5, 5, None, 5, 5), session_id="b")]
    row = one(scored([r for r in rows if (r["target"], r["session_id"]) != ("U6", "b")]))
    assert row["missing"] == ["U4 (session b): not rated", "U6 (session b): no rating"]
    assert row["u4"] is None  # not the mean of the sessions that have it


@pytest.mark.parametrize("status", ["unscored", "invalid"])
def test_a_rating_lost_to_judge_or_harness_is_counted_and_never_zero(status: str) -> None:
    lost = rating("U2", None, status=status, reason="judge_error: no reply")
    rows = [r for r in ratings(FIVES) if r["target"] != "U2"] + [lost]
    row = one(scored(rows))
    assert (row["n_unscored"], row["u2"], row["universal_exact"]) == (1, None, None)
    assert row["missing"] == ["U2: judge_error: no reply"]


@pytest.mark.parametrize("value", [0, 6, None])
def test_a_scored_row_off_the_scale_is_quarantined(value: int | None) -> None:
    rows = [r for r in ratings(FIVES) if r["target"] != "U1"]
    row = one(scored([*rows, rating("U1", value, status="scored")]))
    assert (row["n_unscored"], row["u1"]) == (1, None)
    assert "off the scale" in row["missing"][0]


def test_two_effective_ratings_of_one_part_are_refused_by_name() -> None:
    rows = [*ratings(), rating("U3", 2, judge="human")]
    with pytest.raises(InputError, match=r"'lumen'.*session_id 'a'.*target 'U3'"):
        scored(rows)


def test_an_agent_without_a_session_lacks_all_six() -> None:
    row = one(scored(unrated()))
    assert row["missing"] == [f"U{i}: no session is declared for this version" for i in range(1, 7)]
    assert (row["n_sessions"], row["judges"], row["n_unscored"]) == (0, [], 0)


def test_rows_without_a_session_or_effect_say_nothing_and_judges_are_named_once_and_sorted() -> None:
    rows = [r | {"judge": "rule" if r["target"] == "U5" else "human"} for r in ratings(FIVES)]
    row = one(scored([*unrated(), *rows, rating("U3", 1, judge="model", is_effective=False)]))
    assert (row["universal_exact"], row["missing"], row["n_sessions"]) == ("100/1", [], 1)
    assert row["judges"] == ["human", "rule"]


def test_pairs_are_kept_apart_and_no_ratings_give_no_rows() -> None:
    rows = [*ratings(FIVES), *ratings((1,) * 6, methodology_version="1.2.0"), *ratings(agent_id="other")]
    found = scored(rows).select("methodology_version", "agent_id", "universal_exact").rows()
    wanted = [("1.2.0", "lumen", "20/1"), ("1.3.0", "lumen", "100/1"), ("1.3.0", "other", "80/1")]
    assert sorted(found) == wanted
    assert scored([]).equals(table("universal_scores").empty())


def test_a_version_that_was_not_given_is_named() -> None:
    with pytest.raises(InputError, match=r"'9\.9\.9'.*Passed: 1\.0\.0"):
        scored(ratings(methodology_version="9.9.9"))


SESSIONS = st.lists(st.tuples(*[st.integers(1, 5)] * 6), min_size=1, max_size=4)


@settings(max_examples=30, deadline=None)
@given(SESSIONS, st.randoms(use_true_random=False))
def test_row_order_never_matters(sessions: list[tuple[int, ...]], random: Random) -> None:
    rows = [row for i, values in enumerate(sessions) for row in ratings(values, session_id=f"s{i}")]
    shuffled = rows.copy()
    random.shuffle(shuffled)
    assert_frame_equal(scored(rows), scored(shuffled), check_exact=True)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(SESSIONS, st.data())
def test_one_better_rating_raises_the_score_exactly(
    sessions: list[tuple[int, ...]], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(sessions) - 1))
    dimension = data.draw(st.integers(0, 5))
    lower, higher = list(sessions[at]), list(sessions[at])
    lower[dimension], higher[dimension] = 3, 4

    def score(values: list[int]) -> Fraction:
        changed = [*sessions[:at], values, *sessions[at + 1 :]]
        rows = [row for i, v in enumerate(changed) for row in ratings(v, session_id=f"s{i}")]
        return from_text(one(scored(rows))["universal_exact"])

    assert score(higher) - score(lower) == Fraction(100, 30 * len(sessions))
    assert 20 <= score(lower) <= 100
