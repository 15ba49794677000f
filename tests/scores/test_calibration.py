"""Judges beside people: which figures a metric has, by hand, and which answers are compared."""

import json
from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest

from agent_eval.scores.calibration import SAMPLING, judge_calibration
from agent_eval.tables import table


def said(judge: str, conversation: str, answer: Mapping[str, object], **row: object) -> dict[str, object]:
    given: dict[str, object] = {
        "methodology_version": "1.3.0", "agent_id": "a", "conversation_id": conversation, "metric": "m",
        "turn_index": None, "judge": judge, "judge_model": judge, "status": "scored", "criterion": None, "reply_length": None,
        "rubric_hash": "r", **dict.fromkeys(("rating_1to5", "value", "label")),
    }  # fmt: skip
    return {**given, **answer, **row}


def frame_of(rows: list[dict[str, object]]) -> pl.DataFrame:
    more = {"criterion": pl.String(), "reply_length": pl.Int64()}
    known = pl.Schema({**table("turn_judgments").schema, **more})
    types = {name: known[name] for name in rows[0]}
    return pl.DataFrame(rows, schema=types)


def compared(rows: list[dict[str, object]]) -> list[dict[str, Any]]:
    return judge_calibration(frame_of(rows)).to_dicts()


def sides(name: str, judge: list[Any], human: list[Any]) -> list[dict[str, object]]:
    by_judge = [said("gpt", f"c{i}", {name: answer}) for i, answer in enumerate(judge)]
    people = [said("human", f"c{i}", {name: answer}, judge_model="anna") for i, answer in enumerate(human)]
    return by_judge + people


def test_two_values_have_sensitivity_and_a_confusion_by_hand() -> None:
    # of 6 conversations people pass 4, the judge passes 3 of these and 1 of the others
    [row] = compared(sides("value", [1.0, 1.0, 1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]))
    assert (row["n"], row["n_conversations"], row["n_raters"], row["positive"]) == (6, 6, 1, "1")
    assert (row["sensitivity"], row["specificity"], row["base_rate"]) == pytest.approx((3 / 4, 1 / 2, 4 / 6))
    assert row["kappa"] == pytest.approx((4 / 6 - 20 / 36) / (16 / 36))
    assert row["mean_bias"] == pytest.approx(0.0)
    assert row["kappa_low"] < row["kappa"] < row["kappa_high"]
    assert row["weighted_kappa"] is None
    confusion = {(c["judge"], c["human"]): c["n"] for c in json.loads(row["confusion"])}
    assert confusion == {(1.0, 1.0): 3, (0.0, 1.0): 1, (1.0, 0.0): 1, (0.0, 0.0): 1}


def test_ratings_have_bias_and_a_weighted_kappa() -> None:
    [row] = compared(sides("rating_1to5", [2, 3, 5, 5], [1, 3, 4, 5]))
    assert row["mean_bias"] == pytest.approx(0.5)
    # variances 27/16 and 35/16, means 3.75 and 3.25; mean squared distance 1/2
    assert row["weighted_kappa"] == pytest.approx(1 - 0.5 / (27 / 16 + 35 / 16 + 0.25))
    assert (row["sensitivity"], row["positive"], row["kappa_low"]) == (None, None, None)  # four conversations


def test_failure_labels_are_found_or_not_whatever_their_kind() -> None:
    judge = ["repetition", "no failure", "unsafe action", "no failure"]
    [row] = compared(sides("label", judge, ["repetition", "repetition", "repetition", "no failure"]))
    assert (row["raw_agreement"], row["sensitivity"], row["specificity"]) == pytest.approx((1 / 2, 2 / 3, 1))
    assert (row["positive"], row["mean_bias"]) == ("failure", None)


def test_raters_are_compared_with_each_other_and_each_with_the_judge() -> None:
    rows = sides("rating_1to5", [4, 4, 2], [4, 5, 2])
    rows += [said("human", f"c{i}", {"rating_1to5": r}, judge_model="ben") for i, r in enumerate([4, 4])]
    gpt, human = compared(rows)
    assert (gpt["judge"], gpt["n"], gpt["n_raters"]) == ("gpt", 5, 2)
    assert gpt["raw_agreement"] == pytest.approx(4 / 5)
    assert (human["judge"], human["n"], human["n_raters"]) == ("human", 2, 2)
    assert human["raw_agreement"] == pytest.approx(1 / 2)


def test_only_answers_about_the_same_part_under_one_rubric_are_compared() -> None:
    rating = {"rating_1to5": 3}
    rows = [
        said("human", "c1", rating, turn_index=0, judge_model="anna"),
        said("gpt", "c1", rating, turn_index=1),
        said("gpt", "c2", rating, turn_index=0),
        said("gpt", "c1", rating, turn_index=0, status="unscored"),
        said("gpt", "c1", rating, turn_index=0, methodology_version="1.2.0"),
        said("import:gpt", "c1", rating, turn_index=0, rubric_hash=None),
        said("old", "c1", rating, turn_index=0, rubric_hash="before"),
    ]
    found = [(r["judge"], r["rubric_hash"], r["n"]) for r in compared(rows)]
    assert found == [("import:gpt", None, 1), ("old", "before", 1)]
    assert compared(rows[1:]) == []


def sampled(weights: list[float], strata: list[str], rubric: str = "r", rater: str = "anna") -> pl.DataFrame:
    fixed = {"methodology_version": "1.3.0", "agent_id": "a", "metric": "m", "rater": rater}
    rows = [
        fixed | {"conversation_id": f"c{i}", "weight": weight, "stratum": stratum, "label_rubric": rubric}
        for i, (weight, stratum) in enumerate(zip(weights, strata, strict=True))
    ]
    return pl.DataFrame(rows, schema=SAMPLING)


def test_labels_of_a_sheet_count_by_the_parts_that_they_represent() -> None:
    rows = sides("value", [1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 1.0])
    drawn = sampled([30.0, 30.0, 10.0, 10.0], ["x", "x", "y", "y"])
    (row,) = judge_calibration(frame_of(rows), drawn).to_dicts()
    # the judge is right in 30 + 10 of 80; of what people call 1 it finds 30 of 40
    assert (row["raw_agreement"], row["sensitivity"]) == pytest.approx((40 / 80, 30 / 40))
    assert (row["n"], row["n_weighted"], row["is_stale"]) == (4, 4, False)
    # the others were not drawn: weight 1
    (row,) = judge_calibration(frame_of(rows), drawn.head(1)).to_dicts()
    assert (row["raw_agreement"], row["n_weighted"]) == (pytest.approx(31 / 33), 1)


def test_two_raters_of_a_part_share_its_weight() -> None:
    rows = sides("value", [1.0, 1.0], [1.0, 0.0])
    rows += [said("human", "c0", {"value": 1.0}, judge_model="ben")]
    drawn = pl.concat([sampled([10.0, 10.0], ["x", "x"]), sampled([10.0], ["x"], rater="ben")])
    found = {row["judge"]: row for row in judge_calibration(frame_of(rows), drawn).to_dicts()}
    assert (found["gpt"]["n"], found["gpt"]["raw_agreement"]) == (3, pytest.approx(0.5))


def test_labels_under_another_rubric_are_stale() -> None:
    rows = sides("value", [1.0, 0.0], [1.0, 0.0])
    (row,) = judge_calibration(frame_of(rows), sampled([1.0, 1.0], ["x", "x"], rubric="before")).to_dicts()
    assert row["is_stale"] is True


def test_the_correlation_with_the_length_of_the_reply_is_that_of_ranks() -> None:
    rows = sides("rating_1to5", [1, 2, 4, 5], [5, 4, 4, 1])
    rows = [{**row, "reply_length": 10 ** (1 + i % 4)} for i, row in enumerate(rows)]
    (row,) = compared(rows)
    # people's ranks are 4, 2.5, 2.5, 1 against 1, 2, 3, 4
    assert row["length_correlation"] == pytest.approx(1.0)
    assert row["length_correlation_human"] == pytest.approx(-4.5 / (5 * 4.5) ** 0.5)
    (row,) = compared(sides("rating_1to5", [1, 2], [1, 2]))
    assert row["length_correlation"] is None  # of a whole conversation
