"""The same sessions under 1.0.0 to 1.3.0, compared with rows that were computed by hand."""

from pathlib import Path
from typing import Any

import pytest

from tests.scores.sessions import VERSIONS, asked, only, rated, scored, write
from tests.scores.test_copies import session_of

BY_HAND: dict[str, tuple[Any, ...]] = {
    # 0.4 × 80 + 0.6 × 80 = 80, by version: status, raw, penalty, composite
    "not tested": (("published", 80, 0, 80),) * 3 + (("published", 80, 10, 70),),
    "tested": (("published", 80, 0, 80),) * 4,
    # 1.0.0 asks for no disclosure; 1.3.0 cannot know the penalty
    "not disclosed": (
        ("published", 80, 0, 80), ("provisional", 80, 0, 80), ("provisional", 80, 0, 80), ("provisional", 80, None, None)
    ),
    "claimed of one session": (
        ("published", 80, 0, 80), ("provisional", 80, 0, 80), ("provisional", 80, 0, 80), ("provisional", 80, None, None)
    ),
}  # fmt: skip
CLAIMS = {
    "not tested": (1, False),
    "tested": (3, True),
    "not disclosed": (1, None),
    "claimed of one session": (1, True),
}


@pytest.mark.parametrize("claim", BY_HAND)
def test_one_and_three_sessions_under_each_version(tmp_path: Path, claim: str) -> None:
    n, tested = CLAIMS[claim]
    names = [f"s{i}" for i in range(1, n + 1)]
    # the mean of 4, of 3, 4 and 5: in each part 4
    values = {1: (4,), 3: (3, 4, 5)}[n]
    for name in names:
        write(
            tmp_path,
            "ada",
            name,
            session_of(name),
            benchmark_id="run",
            date=f"2026-04-0{name[1]}",
            repeatability_tested=tested,
        )
    ratings = [row for name, value in zip(names, values, strict=True) for row in rated("ada", name, value)]
    found = scored(tmp_path, ratings, VERSIONS)
    rows = [only(found, version=version) for version in VERSIONS]
    shown = tuple(
        (row["status"], row["raw_composite_score"], row["repeatability_penalty"], row["composite_score"])
        for row in rows
    )
    assert shown == BY_HAND[claim]
    # the sessions' values: 3s are 60, 4s are 80, 5s are 100
    assert all(row["session_scores"] == [20.0 * value for value in values] for row in rows)


@pytest.mark.parametrize("second", [(2, 3, 3), (2, None, 3)], ids=["rated", "one criterion is not rated"])
def test_two_questions_of_one_scenario_are_averaged_under_each_version(
    tmp_path: Path, second: tuple[int | None, ...]
) -> None:
    # D1: (5 + 2)/2 + (4 + 3)/2 + (3 + 3)/2 = 10 of 15; D = (66 2/3 + 4 · 80)/5 = 77 1/3; 0.4 × 80 + 0.6 × 77 1/3 = 78.4
    more = asked("D1", "It is on its way.", "It will come on Friday.") | {"conversation_id": "more"}
    write(tmp_path, "ada", "s", [*session_of("ada"), more], repeatability_tested=False)
    ratings = rated("ada", "s", D1=(5, 4, 3))
    d1 = [row for row in ratings if row["target"] == "D1"]
    ratings += [
        row | {"conversation_id": "more", "rating_1to5": r, "line": 90 + i}
        for i, (row, r) in enumerate(zip(d1, second, strict=True))
        if r is not None
    ]
    for version, penalty in zip(VERSIONS, (0, 0, 0, 10), strict=True):
        row = only(scored(tmp_path, ratings, (version,)), version=version)
        if None in second:
            assert (row["status"], row["d1"], row["composite_score"]) == ("incomplete", None, None)
            continue
        assert (row["status"], row["d1"]) == ("published", pytest.approx(200 / 3))
        assert (row["raw_composite_score"], row["composite_score"]) == pytest.approx((78.4, 78.4 - penalty))
