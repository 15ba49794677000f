"""Raters who differ: nobody overrules another in silence."""

from typing import Any

import pytest

from agent_eval.judge.inputs.rater_rules import RaterRule, decide, decided_ratings, shown_answer
from tests.judge.material import Row, human, humans

Said = tuple[str, object] | tuple[str, object, str]


def rating(rater: str, answer: object, role: str | None = None) -> dict[str, Any]:
    """A rating by its answer: an integer is a rating, a float a value, a text its labels."""
    given: dict[str, Any] = dict.fromkeys(("rating_1to5", "value", "label", "further_labels"))
    if isinstance(answer, str):
        given["label"], *given["further_labels"] = answer.split("; ")
    else:
        given["value" if isinstance(answer, float) else "rating_1to5"] = answer
    return {"rater": rater, "role": role, **given}


A = "adjudicator"


@pytest.mark.parametrize(
    ("said", "rule", "counts", "decided_by", "dispute"),
    [
        # one rater, or raters who agree, need no rule
        ([("anna", 4)], "adjudicator", "anna", None, None),
        ([("anna", 4), ("ben", 4)], "adjudicator", "ben", None, None),
        ([("anna", "x; y"), ("ben", "y; x")], "adjudicator", "ben", None, None),
        # the default: only an adjudicator decides, whenever he rated
        ([("anna", 4), ("ben", 2)], "adjudicator", None, None, "anna 4, ben 2"),
        ([("anna", 4), ("ben", 2), ("dora", 3, A)], "adjudicator", "dora", "adjudicator dora: anna 4, ben 2, dora 3", None),
        ([("dora", 3, A), ("anna", 4), ("ben", 2)], "adjudicator", "dora", "adjudicator dora: anna 4, ben 2, dora 3", None),
        ([("anna", 4), ("dora", 3, A)], "latest", "dora", "adjudicator dora: anna 4, dora 3", None),
        # adjudicators who differ have not decided
        ([("dora", 3, A), ("emil", 4, A)], "adjudicator", None, None, "dora 3, emil 4"),
        ([("anna", 5), ("dora", 3, A), ("emil", 4, A)], "latest", "emil", "rule latest: anna 5, dora 3, emil 4", None),
        ([("anna", 5), ("dora", 3, A), ("emil", 3, A)], "adjudicator", "emil", "adjudicator dora and emil: anna 5, dora 3, emil 3", None),
        # the median is a rating that somebody gave: of two the lower
        ([("anna", 5), ("ben", 1), ("cy", 4)], "median", "cy", "rule median: anna 5, ben 1, cy 4", None),
        ([("anna", 5), ("ben", 2)], "median", "ben", "rule median: anna 5, ben 2", None),
        ([("anna", 1.0), ("ben", 0.0)], "median", "ben", "rule median: anna 1, ben 0", None),
        # of labels the median is what more raters say than anything else
        ([("anna", "x"), ("ben", "y"), ("cy", "x")], "median", "cy", "rule median: anna x, ben y, cy x", None),
        ([("anna", "x"), ("ben", "y")], "median", None, None, "anna x, ben y"),
        ([("anna", "x"), ("ben", "x; y")], "latest", "ben", "rule latest: anna x, ben x + y", None),
    ],
)  # fmt: skip
def test_what_counts_where_raters_differ(
    said: list[Said], rule: RaterRule, counts: str | None, decided_by: str | None, dispute: str | None
) -> None:
    found = decide([rating(*one) for one in said], rule)
    assert (None if found.counts is None else said[found.counts][0]) == counts
    assert (found.decided_by, found.dispute) == (decided_by, dispute)


def test_an_answer_is_shown_as_it_was_given() -> None:
    shown = [shown_answer(rating("kim", answer)) for answer in (4, 0.5, 1.0, "x", "x; y")]
    assert shown == ["4", "0.5", "1", "x", "x + y"]


def u1(rater: str, value: int, line: int, **more: object) -> Row:
    return human("U1", value, line=line, session_id="s1", rater=rater, **more)


def decided(*rows: Row, rule: RaterRule = "adjudicator") -> list[tuple[Any, ...]]:
    frame = decided_ratings(humans(*rows), ["1.2.0", "1.3.0"], rule).filter(methodology_version="1.3.0")
    return sorted(frame.select("rater", "rating_1to5", "is_effective", "dispute").rows())


def test_a_later_rating_replaces_only_the_raters_own() -> None:
    first, second, later = u1("anna", 4, 2), u1("ben", 2, 3), u1("anna", 3, 4)
    assert decided(first, second) == [("anna", 4, False, "anna 4, ben 2"), ("ben", 2, False, "anna 4, ben 2")]
    assert decided(first, second, later)[0] == ("anna", 3, False, "anna 3, ben 2")
    assert decided(first, second, u1("anna", 2, 4)) == [("anna", 2, True, None), ("ben", 2, False, None)]


def test_parts_are_decided_one_by_one() -> None:
    rows = [u1("anna", 4, 2), u1("ben", 2, 3), u1("ben", 5, 4) | {"target": "U2"}]
    assert [row[2] for row in decided(*rows)] == [False, False, True]


def test_a_rating_for_one_version_disputes_one_version() -> None:
    ratings = humans(u1("anna", 4, 2), u1("ben", 2, 3, methodology_version="1.3.0"))
    frame = decided_ratings(ratings, ["1.2.0", "1.3.0"], "adjudicator")
    effective = frame.filter("is_effective").select("methodology_version", "rater").rows()
    assert effective == [("1.2.0", "anna")]
