from typing import Any

import dagster as dg
import polars as pl
from polars.testing import assert_frame_equal

from agent_eval.clusters.trends import error_trends
from agent_eval.defs.assets.errors import error_trends as asset
from agent_eval.tables import table
from tests.clusters.rows import BEHAVIOUR, VERSION, judgment, judgments

AGENTS = table("agents").frame([{"agent_id": "new", "baseline": "old"}, {"agent_id": "old"}])


def cluster(agent_id: str, name: str, n_turns: int = 1, **more: Any) -> dict[str, Any]:
    counts = {"n_failures": n_turns, "n_turns": n_turns, "n_conversations": 1, "n_turns_eligible": 50}
    row = {"methodology_version": VERSION, "agent_id": agent_id, "cluster_id": name, "label": "repetition"}
    return {
        **row,
        "severity": "medium",
        **counts,
        "rate_per_100_turns": n_turns * 2.0,
        "examples": [],
        **more,
    }


def judged(*agents: str) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "methodology_version": VERSION,
            "agent_id": list(agents),
            "metric": BEHAVIOUR,
            "n_turns_eligible": 50,
        },
        schema_overrides={"agent_id": pl.String, "n_turns_eligible": pl.Int64},
    )


NOBODY = judged()


def trends(*rows: dict[str, Any], judged: pl.DataFrame = NOBODY) -> pl.DataFrame:
    return error_trends(table("error_clusters").frame(rows), AGENTS, judged)


def by_rules(agent_id: str, name: str) -> dict[str, Any]:
    return cluster(agent_id, name) | {"n_turns_eligible": None, "rate_per_100_turns": None}


SEEN = (
    "cluster_id",
    "trend",
    "n_turns",
    "rate_per_100_turns",
    "baseline_n_turns",
    "baseline_rate_per_100_turns",
)


def test_clusters_are_new_gone_or_seen_in_both() -> None:
    actual = trends(
        cluster("new", "E-1", 3), cluster("new", "E-2"), cluster("old", "E-2", 4), cluster("old", "E-3", 5)
    )
    assert actual.select(SEEN).rows() == [
        ("E-1", "new", 3, 6.0, 0, 0.0),
        ("E-2", "seen in both", 1, 2.0, 4, 8.0),
        ("E-3", "gone", 0, 0.0, 5, 10.0),
    ]
    assert actual.select("agent_id", "baseline_agent_id").unique().rows() == [("new", "old")]


def test_an_agent_that_nobody_judged_has_mended_nothing() -> None:
    actual = trends(cluster("old", "E-1", 5))
    assert actual.select(SEEN).rows() == [("E-1", "unknown", 0, None, 5, 10.0)]


def test_nothing_is_new_beside_a_baseline_that_nobody_judged() -> None:
    actual = trends(cluster("new", "E-1", 5))
    assert actual.select(SEEN).rows() == [("E-1", "unknown", 5, 10.0, 0, None)]


def test_an_agent_judged_without_a_failure_has_a_rate_of_zero() -> None:
    actual = trends(cluster("old", "E-1", 5), judged=judged("new"))
    assert actual.select(SEEN).rows() == [("E-1", "gone", 0, 0.0, 5, 10.0)]


def test_an_agent_judged_by_rules_alone_has_mended_nothing_and_as_a_baseline_makes_nothing_new() -> None:
    actual = trends(by_rules("new", "E-1"), cluster("old", "E-2", 5))
    assert actual.select(SEEN).rows() == [
        ("E-1", "new", 1, None, 0, 0.0),
        ("E-2", "unknown", 0, None, 5, 10.0),
    ]
    swapped = trends(cluster("new", "E-1", 5), by_rules("old", "E-2"))
    assert swapped.select("cluster_id", "trend").rows() == [("E-1", "unknown"), ("E-2", "gone")]


def test_an_unknown_rate_of_a_cluster_that_was_seen_is_no_zero() -> None:
    actual = trends(by_rules("new", "E-1"), by_rules("old", "E-1"), judged=judged("new", "old"))
    assert actual.select(SEEN).rows() == [("E-1", "seen in both", 1, None, 1, None)]


def test_the_asset_knows_from_the_judgments_who_mended_the_last_error() -> None:
    rows = table("error_clusters").frame([cluster("old", "E-1", 5)])
    said = judgments(judgment("no failure", agent_id="new"))
    made: list[Any] = [*asset(dg.build_asset_context(partition_key=VERSION), rows, said, AGENTS)]  # type: ignore[misc]
    assert isinstance(made[-1], dg.Output)
    assert made[-1].value.select(SEEN).rows() == [("E-1", "gone", 0, 0.0, 5, 10.0)]


def test_versions_are_not_compared_with_each_other() -> None:
    actual = trends(cluster("new", "E-1"), cluster("old", "E-1", methodology_version="1.2.0"))
    assert actual.select("methodology_version", "trend").rows() == [
        ("1.2.0", "unknown"),
        (VERSION, "unknown"),
    ]


def test_agents_without_a_baseline_or_with_themselves_as_one_have_no_trend() -> None:
    agents = table("agents").frame([{"agent_id": "new", "baseline": "new"}, {"agent_id": "old"}])
    rows = table("error_clusters").frame([cluster("new", "E-1"), cluster("old", "E-1")])
    assert_frame_equal(error_trends(rows, agents, NOBODY), table("error_trends").empty())


def test_two_agents_may_share_a_baseline_and_row_order_does_not_matter() -> None:
    agents = table("agents").frame([{"agent_id": name, "baseline": "old"} for name in ("x", "y")])
    rows = [cluster("x", "E-1"), cluster("y", "E-2"), cluster("old", "E-2")]
    actual = error_trends(table("error_clusters").frame(rows), agents, NOBODY)
    assert actual.select("agent_id", "cluster_id", "trend").rows() == [
        ("x", "E-1", "new"),
        ("x", "E-2", "gone"),
        ("y", "E-2", "seen in both"),
    ]
    assert_frame_equal(actual, error_trends(table("error_clusters").frame(rows[::-1]), agents[::-1], NOBODY))
