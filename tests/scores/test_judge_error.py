"""Composites that people rated in part: the row says so, and its interval includes the judge's error."""

from typing import Any

import polars as pl
import pytest

from agent_eval.report import board as words
from agent_eval.scores.composite.judge_error import with_judge_error
from agent_eval.scores.composite.leaderboard import leaderboard, pairwise_comparisons
from agent_eval.scores.statistics.compare import compare
from agent_eval.scores.statistics.compared_values import session_values
from agent_eval.tables import table
from tests.scores.builders import METHODOLOGIES
from tests.scores.test_compare import NO_TASKS
from tests.scores.test_leaderboard import row
from tests.untyped import any_table

PAIR = {"methodology_version": "1.3.0", "agent_id": "a"}
NO_PARTS = tuple(any_table(table(name).empty()) for name in ("universal_scores", "domain_scores"))
SESSIONS = [70.0, 74.0, 78.0]


def ratings(u_people: int, u_judge: int, d_people: int, d_judge: int) -> pl.DataFrame:
    counts = {("U1", "human"): u_people, ("U2", "gpt"): u_judge, ("D1", "human"): d_people, ("D2", "gpt"): d_judge}  # fmt: skip
    rows = [PAIR | {"target": t, "judge": j, "n": n} for (t, j), n in counts.items() if n]
    return pl.DataFrame(rows)


def bias(low: float | None, high: float | None, metric: str = "U2", **changes: Any) -> dict[str, Any]:
    row = {
        "methodology_version": "1.3.0",
        "metric": metric,
        "judge": "gpt",
        "n": 10,
        "n_conversations": 10,
        "n_raters": 1,
    }
    return row | {"mean_bias_low": low, "mean_bias_high": high, "reference": "people"} | changes  # fmt: skip


def scored(of: pl.DataFrame, *calibration: dict[str, Any]) -> pl.DataFrame:
    rows = [
        row(agent, f"{at}/1", n_sessions=3, session_scores=[s - 74 + at for s in SESSIONS], raw_composite_exact=f"{at}/1", repeatability_penalty=0.0, point_0to100=1.3, judge="gpt + human")
        for agent, at in (("a", 74), ("b", 71))
    ]  # fmt: skip
    frame = any_table(table("composite_scores").frame(rows))
    return with_judge_error(frame, of, table("judge_calibration").frame(calibration), METHODOLOGIES)


def board(scores: pl.DataFrame, interval: Any = "auto") -> dict[str, Any]:
    agents, reliability = (any_table(table(name).empty()) for name in ("agents", "reliability"))
    return leaderboard(any_table(scores), agents, reliability, interval=interval).row(0, named=True)


@pytest.mark.parametrize(
    ("of", "calibration", "error"),
    [
        # 20 points × (0.4 × 3/6 + 0.6 × 10/15) × 0.5 / 1.96
        (ratings(3, 3, 5, 10), [bias(-0.2, 0.5)], 20 * 0.6 * 0.5 / 1.96),
        # pooled by labels: (10 × 0.5 + 30 × 0.1) / 40
        (ratings(3, 3, 5, 10), [bias(-0.1, 0.5), bias(-0.1, 0.1, "D2", n=30)], 20 * 0.6 * 0.2 / 1.96),
        (ratings(6, 0, 0, 15), [bias(-0.4, 0.1, "D2")], 20 * 0.6 * 0.4 / 1.96),
        (ratings(3, 3, 5, 10), [bias(None, None)], None),
        (ratings(3, 3, 5, 10), [bias(-0.2, 0.5, is_stale=True)], None),
        (ratings(3, 3, 5, 10), [bias(-0.2, 0.5, judge="other"), bias(-0.2, 0.5, "U3")], None),
        (ratings(3, 3, 5, 10), [bias(-0.2, 0.5, reference="declared outcomes")], None),
        (ratings(6, 0, 15, 0), [bias(-0.2, 0.5)], None),
        (ratings(0, 6, 0, 15), [bias(-0.2, 0.5)], None),
    ],
)
def test_the_judges_error_is_its_bias_times_its_share_of_a_mixed_composite(
    of: pl.DataFrame, calibration: list[dict[str, Any]], error: float | None
) -> None:
    found = scored(of, *calibration)["judge_error_0to100"].to_list()
    assert found == [error if error is None else pytest.approx(error, rel=1e-3), None]


@pytest.mark.parametrize("interval", ["auto", "t", "bounded"])
def test_a_mixed_row_says_so_and_has_a_wider_interval_at_the_same_rank(interval: str) -> None:
    alone, mixed = scored(ratings(0, 6, 0, 15)), scored(ratings(3, 3, 5, 10), bias(-0.2, 0.5))
    before, after = board(alone, interval), board(mixed, interval)
    assert after["low"] < before["low"] < before["high"] < after["high"]
    assert (
        (after["rank"], after["composite_score"]) == (before["rank"], before["composite_score"]) == (1, 74.0)
    )
    assert words.mixed_ratings(before) is None
    assert words.mixed_ratings(after) == (
        "8 of 21 ratings by people; the interval includes the judge's error on the rest (± 6.0 points)"
    )
    unknown = board(scored(ratings(3, 3, 5, 10)), interval)
    assert (unknown["low"], unknown["high"]) == (before["low"], before["high"])
    assert (
        words.mixed_ratings(unknown)
        == "8 of 21 ratings by people; the judge's error on the rest is not known"
    )
    values = (session_values(any_table(of), *NO_PARTS) for of in (alone, mixed))
    apart, wider = (compare("a", "b", of, NO_TASKS)["high"][0] for of in values)
    assert wider > apart
    first, second = (pairwise_comparisons(any_table(of), "t")["p_value"][0] for of in (alone, mixed))
    assert second > first
