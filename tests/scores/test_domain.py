"""D1–D5: three criteria each, averaged exactly into the slot, then over sessions."""

from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from agent_eval.errors import InputError, NotFoundError
from agent_eval.methodology.models import SCENARIOS
from agent_eval.scores.composite.domain import domain_scores
from agent_eval.tables import table
from tests.scores.builders import CRITERIA, METHODOLOGIES, SLUG, one, rating, ratings, transcripts, unrated

FOURS = (4, 4, 4)


def scored(rows: list[dict[str, Any]], **changes: Any) -> pl.DataFrame:
    frame = domain_scores(
        table("rubric_ratings").frame(rows), table("transcripts").frame(transcripts(**changes)), METHODOLOGIES
    )
    return table("domain_scores").conform(frame)


def second(slot: str, *values: int | None, **changes: Any) -> list[dict[str, Any]]:
    """The ratings of a second conversation in a slot."""
    name = {"conversation_id": f"a-{slot}-second"}
    return [
        rating(slot, value, criterion=c, **name, **changes) for c, value in zip(CRITERIA, values, strict=True)
    ]


def test_each_scenario_is_its_sum_over_fifteen() -> None:
    # D1: 14/15 × 100 = 93.33; the others 12/15 × 100 = 80; ΣD = 62, 62/75 × 100 = 248/3
    row = one(scored(ratings(domain=((5, 4, 5), FOURS, FOURS, FOURS, FOURS))))
    assert row["d1"] == pytest.approx(1400 / 15)
    assert row["d2"] == 80
    assert (row["d1_c1"], row["d1_c2"], row["d1_c3"]) == (5, 4, 5)
    assert row["domain_exact"] == "248/3"
    assert (row["template"], row["criteria"], row["missing"]) == (SLUG, list(CRITERIA), [])


def test_two_questions_in_one_slot_give_half_points_exactly() -> None:
    # D2 twice: (5, 4, 5) and (4, 4, 3) → 4.5, 4, 4: 12.5/15 × 100; ΣD = 60.5, 60.5/75 × 100 = 242/3
    rows = ratings(domain=(FOURS, (5, 4, 5), FOURS, FOURS, FOURS))
    rows += second("D2", 4, 4, 3)
    row = one(scored(rows))
    assert (row["d2_c1"], row["d2_c2"], row["d2_c3"]) == (4.5, 4, 4)
    assert row["domain_exact"] == "242/3"


def test_a_slot_is_averaged_within_its_session_before_sessions_are() -> None:
    # session a holds D1 twice with 5 and 2 (mean 7/2), session b once with 5: (7/2 + 5) / 2 = 17/4, not 12/3
    rows = [r for s in ("a", "b") for r in ratings(domain=((5, 4, 4), *[FOURS] * 4), session_id=s)]
    rows += second("D1", 2, 4, 4)
    row = one(scored(rows))
    assert row["d1_c1"] == 4.25
    # ΣD = 17/4 + 8 + 48 = 241/4; 241/4 / 75 × 100 = 241/3
    assert row["domain_exact"] == "241/3"


def test_what_is_missing_gives_no_score_and_is_named() -> None:
    row = one(scored(ratings(domain=(FOURS, (4, None, 4), (None,) * 3, FOURS, FOURS))))
    assert row["missing"] == ["D2.completeness: not rated", "D3: not rated"]  # all three of D3 at once
    assert (row["d2"], row["d2_c1"], row["d2_c2"]) == (None, 4, None)
    assert (row["d1"], row["domain_0to100"], row["domain_exact"]) == (80, None, None)


def test_an_unrated_conversation_beside_a_rated_one_is_named_with_its_conversation() -> None:
    rows = ratings() + second("D5", None, None, None, status="unscored", reason="truncated")
    row = one(scored(rows))
    assert row["missing"] == ["D5 (conversation a-D5-second): truncated"]
    assert (row["n_unscored"], row["d5"], row["domain_exact"]) == (3, None, None)


def test_a_session_without_the_slot_is_named() -> None:
    rows = [*ratings(session_id="a"), *[r for r in ratings(session_id="b") if r["target"] != "D3"]]
    assert one(scored(rows))["missing"] == ["D3 (session b): no rating"]


def test_without_a_template_nothing_is_scored_and_every_scenario_is_named() -> None:
    none = {"status": "not_applicable", "reason": "no template", "session_id": None}
    row = one(scored([rating(d, None, **none) for d in SCENARIOS], template=None))
    assert (row["template"], row["criteria"], row["domain_0to100"]) == (None, [], None)
    assert row["missing"] == [f"{d}: no template" for d in SCENARIOS]
    assert row["n_unscored"] == 0


def test_an_agent_without_a_session_lacks_all_five() -> None:
    row = one(scored(unrated()))
    assert row["missing"] == [f"{d}: no session is declared for this version" for d in SCENARIOS]
    assert all(row[f"{d.lower()}_c1"] is None for d in SCENARIOS)


def test_two_effective_ratings_of_one_criterion_are_refused() -> None:
    again = rating("D4", 1, criterion="accuracy", conversation_id="a-D4", judge="human")
    with pytest.raises(InputError, match=r"'a-D4'.*'accuracy'"):
        scored([*ratings(), again])


def test_a_template_that_the_version_lacks_is_named() -> None:
    unknown = r"1\.3\.0 has no template 'cooking_v1'.*customer_service_v1"
    with pytest.raises(NotFoundError, match=unknown):
        scored(ratings(), template="cooking_v1")


TRIPLE = st.tuples(*[st.integers(1, 5)] * 3)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.tuples(*[TRIPLE] * 5), st.randoms(use_true_random=False))
def test_scores_stay_on_their_scale_and_row_order_never_matters(
    domain: tuple[tuple[int, int, int], ...], random: Random
) -> None:
    rows = ratings(domain=domain)
    shuffled = rows.copy()
    random.shuffle(shuffled)
    frame = scored(rows)
    assert_frame_equal(frame, scored(shuffled), check_exact=True)
    assert 20 <= one(frame)["domain_0to100"] <= 100
