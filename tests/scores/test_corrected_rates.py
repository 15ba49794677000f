"""Rates of agents corrected for the errors of their judge, by hand, and the reasons why one is not."""

import polars as pl
import pytest

from agent_eval.scores.calibration import judge_accuracies
from agent_eval.scores.corrected_rates import corrected_rates
from agent_eval.scores.statistics.corrected_rate import Accuracy
from tests.scores.test_calibration import frame_of, sampled, sides

KNOWN = Accuracy(0.9, 0.8, 1e-6, 1e-6, 0.0, 99)
JUDGED = ("1.3.0", "m", "gpt", "r")


def answers(values: list[float], n_clusters: int = 10, judge: str = "gpt") -> pl.DataFrame:
    """Two answers of each conversation, one after the other."""
    rows = [
        ("1.3.0", "a", "q", "m", judge, "r", f"c{i // 2}", f"s{i // 2 % n_clusters}", value)
        for i, value in enumerate(values)
    ]
    names = ("methodology_version", "agent_id", "quantity", "metric", "judge", "rubric_hash", "unit")
    return pl.DataFrame(rows, schema=[*names, "cluster", "value"], orient="row")


def test_a_rate_is_corrected_for_what_the_judge_misses_and_invents() -> None:
    # every second conversation is positive, of 20: (0.5 + 0.8 − 1) / (0.9 + 0.8 − 1)
    (row,) = corrected_rates(answers([1.0, 1.0, 0.0, 0.0] * 10, 20), {JUDGED: KNOWN}).to_dicts()
    assert (row["judge"], row["judge_rate"], row["correction_refused"]) == ("gpt", pytest.approx(0.5), None)
    assert row["corrected"] == pytest.approx(0.3 / 0.7)
    assert 0 < row["corrected_low"] < row["corrected"] < row["corrected_high"] < 1


def test_a_rate_is_a_mean_over_conversations_and_not_over_answers() -> None:
    longer = pl.concat([answers([1.0, 0.0] * 10), answers([1.0, 1.0]).with_columns(unit=pl.lit("c0"))])
    found = corrected_rates(longer, {JUDGED: KNOWN})
    assert found["judge_rate"].item() == pytest.approx((9 * 0.5 + 0.75) / 10)


@pytest.mark.parametrize(
    ("found", "known", "reason"),
    [
        (answers([1.0, 0.0] * 10, 4), KNOWN, "fewer than 5 sessions"),
        (pl.concat([answers([1.0] * 20), answers([0.0], judge="rule")]), KNOWN, "several judges or rubrics (gpt, rule)"),
        (answers([1.0, 0.0] * 10), "stale", "stale"),
        (answers([1.0, 0.0] * 10), Accuracy(0.5, 0.5, 0.01, 0.01, 0.0, 99), "not shown to be better than chance"),
    ],
)  # fmt: skip
def test_an_uncorrected_rate_says_why(found: pl.DataFrame, known: Accuracy | str, reason: str) -> None:
    (row,) = corrected_rates(found, {JUDGED: known}).to_dicts()
    assert row["corrected"] is None
    assert reason in row["correction_refused"]


def test_accuracies_are_those_of_judges_on_two_values_and_failure_labels() -> None:
    judge = ["repetition", "no failure"] * 10
    human = ["repetition", *["no failure"] * 3, "unsafe action"] * 4
    rows = sides("label", judge, human)
    foreign = [{**row, "judge": "import:x"} for row in rows if row["judge"] == "gpt"]
    of_both = [{**row, "agent_id": agent} for agent in ("a", "b") for row in [*rows, *foreign]]
    drawn = pl.concat(
        sampled([1.0] * 20, ["x"] * 20).with_columns(agent_id=pl.lit(agent)) for agent in ("a", "b")
    )
    (key,) = (found := judge_accuracies(frame_of(of_both), drawn))
    known = found[key]
    assert key == JUDGED
    assert isinstance(known, Accuracy)
    # of 8 failures 4 are at even places, and so are 6 of the 12 others
    assert (known.sensitivity, known.specificity, known.freedom) == pytest.approx((1 / 2, 1 / 2, 1))
    for few in (frame_of(rows), frame_of(of_both)):  # one agent; labels that no sheet drew
        assert "fewer than 2 other agents" in str(judge_accuracies(few)[JUDGED])
    other = judge_accuracies(frame_of(rows), sampled([1.0] * 20, ["x"] * 20, rubric="before"))
    assert "another rubric" in str(other[JUDGED])
    assert judge_accuracies(frame_of(sides("rating_1to5", [1, 2], [1, 2]))) == {}
