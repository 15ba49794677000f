"""The pages of assets in the Dagster UI."""

import base64
import re

import pytest

from agent_eval.report.asset_pages.pages import asset_pages
from agent_eval.scores.composite.leaderboard import leaderboard
from agent_eval.scores.statistics.distribution_free import IntervalMethod
from agent_eval.tables import table

COMPOSITE = {
    "methodology_version": "1.3.0",
    "agent_id": "a",
    "template": "t",
    "status": "published",
    "n_sessions": 5,
    "composite_exact": "80/1",
    "composite_score": 80.0,
    "repeatability_penalty": 0.0,
    "session_ids": ["s1", "s2", "s3", "s4", "s5"],
    "session_scores": [78.0, 79.0, 80.0, 81.0, 82.0],
    "point_0to100": 4 / 3,
    "missing": [],
    "warnings": [],
}


def picture(interval: IntervalMethod) -> str:
    scores = table("composite_scores").frame([COMPOSITE])
    partitions = scores.select("methodology_version", "agent_id")
    (page,) = asset_pages("composite_scores", scores, partitions, interval)
    data = re.search(r"base64,([A-Za-z0-9+/=]+)", page.texts["page"])
    assert data is not None
    return base64.b64decode(data[1]).decode()


@pytest.mark.parametrize("interval", ["auto", "t", "bounded"])
def test_the_page_of_a_composite_draws_the_interval_of_its_board(interval: IntervalMethod) -> None:
    scores = table("composite_scores").frame([COMPOSITE])
    board = leaderboard(scores, table("agents").empty(), table("reliability").empty(), None, interval)
    low, high = board.select("low", "high").row(0)
    # the axis takes 3.6 units for a point, from 190 on
    assert f"M{190 + 3.6 * low:.1f} 208H{190 + 3.6 * high:.1f}" in picture(interval)
