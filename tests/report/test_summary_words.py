"""Words of an agent's summary: units, intervals, and what is lacking."""

from typing import Any

import pytest

from agent_eval.report.quality import (
    answers_of,
    headline,
    interval_of,
    is_rate,
    name_of,
    reading_order,
    value_of,
)
from agent_eval.scores.statistics.quality import COST, HEADLINES
from agent_eval.scores.statistics.unpaired import FAILURE_RATE, SUCCESS_RATE

RATE: dict[str, Any] = {
    "quantity": SUCCESS_RATE, "scale_low": 0.0, "scale_high": 1.0, "mean": 0.4567, "low": 0.4, "high": 0.5,
    "clustered_by": "session", "n_scored": 1200, "n_unscored": 0, "n_unasked": 0, "unscored_share": 0.0,
}  # fmt: skip
RATING = RATE | {"quantity": "helpfulness", "scale_low": 1.0, "scale_high": 5.0, "mean": 3.25}
MONEY = RATE | {"quantity": COST, "scale_high": None, "mean": 0.01234}


@pytest.mark.parametrize(
    ("row", "said"),
    [(RATE, "45.7 %"), (RATING, "3.25"), (MONEY, "$0.0123"), (RATE | {"mean": None}, "–")],
)
def test_a_mean_has_the_unit_of_its_scale(row: dict[str, Any], said: str) -> None:
    assert value_of(row) == said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "40.0 % to 50.0 %"),
        ({"mean": None}, "–"),
        ({"low": None}, "none: only one session"),
        (
            {"low": None, "clustered_by": "task or conversation"},
            "none: only one task or conversation",
        ),
        ({"low": None, "clustered_by": None}, "none: only one cluster"),
    ],
)
def test_an_interval_is_given_or_the_reason_why_there_is_none(changes: dict[str, Any], said: str) -> None:
    assert interval_of(RATE | changes) == said


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (RATE, "success rate"),
        (RATING | {"quantity": "tone_of_voice"}, "tone of voice (1 to 5, 5 = best)"),
        (RATING | {"quantity": "user_frustration"}, "user frustration (1 to 5, 5 = none)"),
        (RATING | {"quantity": "anger", "scale_low": 0.0, "scale_high": 10.0}, "anger (0 to 10)"),
        (MONEY, "cost per conversation"),
        (RATE | {"quantity": f"{FAILURE_RATE}agent_behavior"}, "turns with agent behavior"),
    ],
)
def test_a_quantity_is_named_with_its_scale(row: dict[str, Any], said: str) -> None:
    assert name_of(row) == said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "1,200 known"),
        ({"n_unscored": 3}, "1,200 known, 3 unknown"),
        ({"quantity": "m", "n_scored": 0, "n_unasked": 40}, "no judge asked (40)"),
        ({"quantity": "m", "n_unscored": 30, "unscored_share": 0.0244}, "1,200, 30 unscored (2.4 %)"),
        ({"quantity": "m", "n_unasked": 7}, "1,200, 7 not asked"),
    ],
)
def test_what_is_lacking_is_counted(changes: dict[str, Any], said: str) -> None:
    assert answers_of(RATE | changes) == said


def test_a_summary_is_read_from_success_to_cost_and_unknown_values_come_last() -> None:
    failures = RATE | {"quantity": f"{FAILURE_RATE}x"}
    unknown = RATE | {"mean": None}
    assert sorted([unknown, MONEY, failures, RATING, RATE], key=reading_order) == [
        RATE, RATING, failures, MONEY, unknown,
    ]  # fmt: skip


@pytest.mark.parametrize("column", HEADLINES)
def test_a_headline_has_the_scale_of_its_quantity(column: str) -> None:
    row = headline({column: 0.5, f"{column}_low": 0.4, f"{column}_high": 0.6}, column)
    assert (row["mean"], row["low"], row["high"]) == (0.5, 0.4, 0.6)
    assert is_rate(row) == column.endswith("rate")
    assert (row["scale_high"] is None) == column.startswith("cost")
