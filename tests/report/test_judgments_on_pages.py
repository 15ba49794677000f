"""Judgments as a page groups them: equal words once, values with a tone, gaps with their reason."""

from typing import Any

import pytest

from agent_eval.report.html.judgments import gaps, in_versions, opinions, value_of

ROW: dict[str, Any] = {
    "metric": "helpfulness", "judge": "m", "judge_model": "x", "rationale": "why", "evidence": "quote", "status": "scored",
    "is_effective": True, "decided_by": None, "versions": ["1.2.0", "1.3.0"], "rating_1to5": 4, "label": None,
    "further_labels": None, "value": None, "unscored_reason": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "text", "tone"),
    [
        ({}, "4 / 5", "r4"),
        ({"rating_1to5": None, "label": "no failure"}, "no failure", "good"),
        ({"rating_1to5": None, "label": "loop", "further_labels": ["unsafe"]}, "loop + unsafe", "bad"),
        ({"rating_1to5": None, "value": 1.0}, "yes", "good"),
        ({"rating_1to5": None, "value": 0.0}, "no", "bad"),
        ({"rating_1to5": None, "value": 0.12345}, "0.123", "plain"),
        ({"rating_1to5": None}, "no value", "unknown"),
    ],
)
def test_a_value_is_a_text_with_a_tone(changes: dict[str, Any], text: str, tone: str) -> None:
    found = value_of(ROW | changes)
    assert (found.metric, found.text, found.tone) == ("helpfulness", text, tone)


def test_equal_words_of_one_judge_are_shown_once_and_what_counts_comes_first() -> None:
    other = ROW | {"metric": "verbosity", "rating_1to5": 2}
    silent = ROW | {"is_effective": False, "rationale": "else", "evidence": None}
    found = opinions([silent, ROW, other], 2, {"quote": 3})
    assert [[value.metric for value in opinion.values] for opinion in found] == [
        ["helpfulness", "verbosity"], ["helpfulness"],
    ]  # fmt: skip
    assert [opinion.mark for opinion in found] == [3, None]
    assert found[0].row["judge"] == "m"


@pytest.mark.parametrize(
    "changes", [{"judge": "n"}, {"rationale": "x"}, {"evidence": "y"}, {"decided_by": "human"}, {"versions": ["1.3.0"]}]
)  # fmt: skip
def test_judgments_that_differ_in_judge_words_or_versions_stay_apart(changes: dict[str, Any]) -> None:
    assert len(opinions([ROW, ROW | changes], 2, {})) == 2


def test_what_has_no_value_is_one_line_per_reason_and_judge() -> None:
    lost = ROW | {"status": "unscored", "unscored_reason": "timeout", "rationale": None}
    found = gaps([ROW, lost, lost, lost | {"metric": "verbosity"}, lost | {"unscored_reason": None}])
    assert [(gap.metrics, gap.status, gap.reason) for gap in found] == [
        (("helpfulness", "verbosity"), "unscored", "timeout"),
        (("helpfulness",), "unscored", "no reason given"),
    ]


@pytest.mark.parametrize(
    ("versions", "n", "said"),
    [
        (["1.2.0", "1.3.0"], 2, ""),
        (["1.3.0"], 2, "under 1.3.0"),
        (["1.10.0", "1.9.0"], 3, "under 1.9.0, 1.10.0"),
    ],
)
def test_versions_are_named_in_order_unless_it_is_all(versions: list[str], n: int, said: str) -> None:
    assert in_versions(versions, n) == said
