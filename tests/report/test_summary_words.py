"""Words of an agent's summary: units, intervals, and what is lacking."""

from collections.abc import Callable
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
OF_M = RATE | {"quantity": "m"}
BY_TASK = {"clustered_by": "task or conversation"}
MONEY = RATE | {"quantity": COST, "scale_high": None, "mean": 0.01234}


@pytest.mark.parametrize(
    ("of", "row", "said"),
    [
        # a mean has the unit of its scale
        (value_of, RATE, "45.7 %"),
        (value_of, RATING, "3.25"),
        (value_of, MONEY, "$0.0123"),
        (value_of, RATE | {"mean": None}, "–"),
        # an interval is given, or the reason why there is none
        (interval_of, RATE, "40.0 % to 50.0 %"),
        (interval_of, RATE | {"mean": None}, "–"),
        (interval_of, RATE | {"low": None}, "none: only one session"),
        (interval_of, RATE | {"low": None} | BY_TASK, "none: only one task or conversation"),
        (interval_of, RATE | {"low": None, "clustered_by": None}, "none: only one cluster"),
        # a quantity is named with its scale
        (name_of, RATE, "success rate"),
        (name_of, RATING | {"quantity": "tone_of_voice"}, "tone of voice (1 to 5, 5 = best)"),
        (name_of, RATING | {"quantity": "user_frustration"}, "user frustration (1 to 5, 5 = none)"),
        (name_of, RATING | {"quantity": "anger", "scale_low": 0.0, "scale_high": 10.0}, "anger (0 to 10)"),
        (name_of, MONEY, "cost per conversation"),
        (name_of, RATE | {"quantity": f"{FAILURE_RATE}agent_behavior"}, "turns with agent behavior"),
        # what is lacking is counted
        (answers_of, RATE, "1,200 known"),
        (answers_of, RATE | {"n_unscored": 3}, "1,200 known, 3 unknown"),
        (answers_of, OF_M | {"n_scored": 0, "n_unasked": 40}, "no judge asked (40)"),
        (answers_of, OF_M | {"n_unscored": 30, "unscored_share": 0.0244}, "1,200, 30 unscored (2.4 %)"),
        (answers_of, OF_M | {"n_unasked": 7}, "1,200, 7 not asked"),
    ],
)
def test_a_figure_is_worded(of: Callable[[dict[str, Any]], str], row: dict[str, Any], said: str) -> None:
    assert of(row) == said


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
