"""What rows must keep beyond their types."""

import polars as pl

from agent_eval.tables import TABLES, table
from agent_eval.tables.rules import PARENTS, off_scale, orphans, quarantined, strays

TURN = {"methodology_version": "1.3.0", "agent_id": "a", "conversation_id": "c", "turn_index": 0}
RATED = TURN | {"metric": "helpfulness", "judge": "m", "status": "scored", "is_effective": True}


def judgments(*ratings: int | None) -> pl.DataFrame:
    return table("turn_judgments").frame(
        RATED | {"turn_index": i, "rating_1to5": r} for i, r in enumerate(ratings)
    )


def test_a_rating_off_its_scale_is_set_aside_and_says_what_stood_there() -> None:
    rows, aside = quarantined(table("turn_judgments"), judgments(5, 9, None, 0))
    assert rows.select("rating_1to5", "status", "unscored_reason").rows() == [
        (5, "scored", None),
        (None, "invalid", "rating_1to5 was 9, allowed are 1 to 5"),
        (None, "scored", None),
        (None, "invalid", "rating_1to5 was 0, allowed are 1 to 5"),
    ]
    assert aside["rating_1to5"].to_list() == [9, 0]
    assert off_scale(table("turn_judgments"), rows).is_empty()


def test_a_table_without_ratings_has_nothing_to_set_aside() -> None:
    scores = table("universal_scores").frame([{"agent_id": "a", "universal_0to100": 140.0}])
    rows, aside = quarantined(table("universal_scores"), scores)
    assert rows.equals(scores)
    assert aside.is_empty()


def test_a_score_off_its_scale_is_found_and_nan_lies_on_none() -> None:
    scores = table("universal_scores").frame(
        {"agent_id": str(value), "universal_0to100": value} for value in (0.0, 100.0, 100.1, -0.1, float("nan"), None)
    )  # fmt: skip
    assert off_scale(table("universal_scores"), scores)["agent_id"].to_list() == ["100.1", "-0.1", "nan"]


def test_a_judgment_of_a_turn_that_is_not_there_is_an_orphan() -> None:
    turns = table("turns").frame([{"agent_id": "a", "conversation_id": "c", "turn_index": 0}])
    assert orphans(table("turn_judgments"), judgments(5, 4), {"turns": turns})["turn_index"].to_list() == [1]
    assert orphans(table("turn_judgments"), judgments(5, 4), {}).is_empty()


def test_a_rating_of_a_whole_session_is_no_orphan() -> None:
    rating = {"methodology_version": "1.3.0", "agent_id": "a", "session_id": "s", "target": "U1"}
    rows = table("rubric_ratings").frame([rating, rating | {"conversation_id": "gone"}])
    found = orphans(table("rubric_ratings"), rows, {"transcripts": table("transcripts").empty()})
    assert found["conversation_id"].to_list() == ["gone"]


def test_a_row_of_another_version_is_a_stray() -> None:
    wanted = pl.DataFrame({"agent_id": ["a"], "methodology_version": ["1.2.0"]})
    assert strays(judgments(5), wanted).height == 1
    assert strays(judgments(5), wanted.with_columns(methodology_version=pl.lit("1.3.0"))).is_empty()


def test_every_parent_is_a_table_that_has_the_columns_of_its_children() -> None:
    for child, (parent, columns) in PARENTS.items():
        assert set(columns) <= set(TABLES[child].schema), child
        assert set(columns) <= set(TABLES[parent].schema), child
