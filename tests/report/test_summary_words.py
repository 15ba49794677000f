"""Words of an agent's summary: units, intervals, and what is lacking."""

from collections.abc import Callable
from typing import Any

import pytest

from agent_eval.report import quality as words
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
        (words.value_of, RATE, "45.7 %"),
        (words.value_of, RATING, "3.25"),
        (words.value_of, MONEY, "$0.0123"),
        (words.value_of, RATE | {"mean": None}, "–"),
        # an interval is given, or the reason why there is none
        (words.interval_of, RATE, "40.0 % to 50.0 %"),
        (words.interval_of, RATE | {"mean": None}, "–"),
        (words.interval_of, RATE | {"low": None}, "none: only one session"),
        (words.interval_of, RATE | {"low": None} | BY_TASK, "none: only one task or conversation"),
        (
            words.interval_of,
            RATE | {"low": None, "clustered_by": None},
            "none: only one session, task or conversation",
        ),
        # a quantity is named with its scale
        (words.name_of, RATE, "success rate"),
        (words.name_of, RATING | {"quantity": "tone_of_voice"}, "tone of voice (1 to 5, 5 = best)"),
        (words.name_of, RATING | {"quantity": "user_frustration"}, "user frustration (1 to 5, 5 = none)"),
        (
            words.name_of,
            RATING | {"quantity": "anger", "scale_low": 0.0, "scale_high": 10.0},
            "anger (0 to 10)",
        ),
        (words.name_of, MONEY, "cost per conversation"),
        (words.name_of, RATE | {"quantity": f"{FAILURE_RATE}agent_behavior"}, "turns with agent behavior"),
        # what is lacking is counted
        (words.answers_of, RATE, "1,200 known"),
        (words.answers_of, RATE | {"n_unscored": 3}, "1,200 known, 3 unknown"),
        (words.answers_of, OF_M | {"n_scored": 0, "n_unasked": 40}, "no judge asked (40)"),
        (words.answers_of, OF_M | {"n_unscored": 30, "unscored_share": 0.0244}, "1,200, 30 unscored (2.4 %)"),
        (words.answers_of, OF_M | {"n_unasked": 7}, "1,200, 7 not asked"),
    ],
)
def test_a_figure_is_worded(of: Callable[[dict[str, Any]], str], row: dict[str, Any], said: str) -> None:
    assert of(row) == said


def test_a_summary_is_read_from_success_to_cost_and_unknown_values_come_last() -> None:
    failures = RATE | {"quantity": f"{FAILURE_RATE}x"}
    unknown = RATE | {"mean": None}
    assert sorted([unknown, MONEY, failures, RATING, RATE], key=words.reading_order) == [
        RATE, RATING, failures, MONEY, unknown,
    ]  # fmt: skip


@pytest.mark.parametrize("column", HEADLINES)
def test_a_headline_has_the_scale_of_its_quantity(column: str) -> None:
    row = words.headline({column: 0.5, f"{column}_low": 0.4, f"{column}_high": 0.6}, column)
    assert (row["mean"], row["low"], row["high"]) == (0.5, 0.4, 0.6)
    assert words.is_rate(row) == column.endswith("rate")
    assert (row["scale_high"] is None) == column.startswith("cost")


def test_a_row_says_which_parts_people_decided_and_whether_a_judge_decided_the_rest() -> None:
    row = {
        "quantity": "goal_completion",
        "scale_low": 0.0,
        "scale_high": 1.0,
        "mean": 0.77,
        "low": 0.675,
        "high": 0.842,
    }
    row |= {"mean_of_judge": None, "n_labels_own": 7, "clustered_by": "session"}
    assert words.headline_interval(row) == "67.5 % to 84.2 %; 7 parts decided by people, the rest not checked"
    assert words.labels_text(row | {"judges": ["human", "rule"]}) == "7 parts decided by people"
    few = {"mean_of_judge": None, "n_labels_own": 0, "n_labels_drawn": 1}
    by_people: dict[str, float | None] = {f"success_rate{end}": None for end in ("", "_low", "_high")}
    by_people |= {"success_rate_labels_own": 7, "n_conversations": 7}
    assert words.labels_text(words.headline(by_people, "success_rate")) == "7 parts decided by people"
    rest = words.labels_text(words.headline(by_people | {"n_conversations": 8}, "success_rate"))
    assert rest == "7 parts decided by people, the rest not checked"
    assert words.labels_text(few) == "1 drawn label of people, too few to correct the judge"


@pytest.mark.parametrize(
    ("judges", "more", "by"),
    [
        (["human", "m"], {"n_labels_drawn": 3}, "m"),  # too few to correct the judge
        (["m"], {"n_labels_drawn": 30, "mean_of_judge": 0.5}, "human, m"),
        (["human", "m", "rule"], {"n_labels_own": 2}, "human, m, rule"),
        (["human"], {"n_labels_own": 2}, "human"),
        ([], {}, "–"),
    ],
)
def test_a_figure_is_by_those_who_gave_it(judges: list[str], more: dict[str, Any], by: str) -> None:
    unlabelled = {"n_labels_drawn": None, "n_labels_own": 0, "mean_of_judge": None}
    goal = RATE | unlabelled | more | {"quantity": "goal_completion", "judges": judges}
    success = goal | {"quantity": "success rate", "judges": ["goal_completion", "outcome"]}
    found = {row["quantity"]: row["by"] for row in words.read_rows([goal, success])}
    expected = f"{by}, declared outcome" if judges else "goal_completion, declared outcome"
    assert found == {"goal_completion": by, "success rate": expected}
    columns = {f"{column}{end}": None for column in words.HEADINGS for end in ("_labels_own", "_of_judge")}
    row = columns | {"judges": judges, "success_rate_labels_own": more.get("n_labels_own")}
    row |= {"success_rate_of_judge": more.get("mean_of_judge")}
    with_people = {"human"} & set(judges) if more.get("n_labels_own") or more.get("mean_of_judge") else set()
    assert set(words.log_judges(row)) == {*judges} - {"human"} | with_people
