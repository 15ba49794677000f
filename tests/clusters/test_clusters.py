from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from agent_eval.clusters.cluster_registry import cluster_id, register
from agent_eval.clusters.clusters import error_clusters
from agent_eval.clusters.failures import failures
from agent_eval.tables import table
from tests.clusters.rows import MEMBERS, PLACE, REGISTRY, SPACE, TODAY, TOOL, call, calls, judgment, judgments

NOTHING = "no failure"
RATE = ("n_turns", "n_turns_eligible", "rate_per_100_turns")
TURNS, LABELS = st.integers(0, 5), st.sampled_from(["repetition", "unsafe action"])


def clusters(turn_judgments: pl.DataFrame, registry: pl.DataFrame | None = None) -> pl.DataFrame:
    """Clusters of failures without words: one per block."""
    silent = turn_judgments.with_columns(
        pl.lit(None, dtype=pl.String).alias(name) for name in ("rationale", "evidence")
    )
    found = failures(silent, calls(call("book")))
    grown = register(REGISTRY if registry is None else registry, MEMBERS, found, SPACE, seen_at=TODAY)
    return error_clusters(grown.failures, turn_judgments, grown.registry)


def test_a_cluster_is_counted_against_the_turns_its_metric_was_scored_on() -> None:
    # behaviour scored on four turns, the unscored fifth in neither count; tools scored on one
    rows = judgments(
        judgment("repetition", turn_index=10),
        judgment("repetition", turn_index=9, further_labels=["unsafe action"]),
        judgment("repetition", conversation_id="b"),
        judgment(NOTHING, turn_index=0),
        judgment(None, turn_index=1, status="unscored", unscored_reason="judge_error"),
        judgment("wrong tool", TOOL),
    )
    actual = clusters(rows).sort("title")
    counts = ("title", "n_failures", "n_turns", "n_conversations", "n_turns_eligible", "rate_per_100_turns")
    assert actual.select(counts).rows() == [
        ("repetition", 3, 3, 2, 4, 75.0),
        ("unsafe action", 1, 1, 1, 4, 25.0),
        ("wrong tool · book", 1, 1, 1, 1, 100.0),
    ]
    assert actual["severity"].to_list() == ["medium", "critical", "high"]
    assert actual["trend"].to_list() == [None] * 3
    assert actual["tool"].to_list() == [None, None, "book"]
    assert actual.select("first_seen", "last_seen").unique().rows() == [(TODAY, TODAY)]
    # by conversation, then by turn as a number
    assert actual["examples"][0].to_list() == ["b#0", "c#9", "c#10"]


def test_three_examples_are_enough() -> None:
    rows = judgments(*(judgment("repetition", turn_index=turn) for turn in range(5)))
    assert clusters(rows)["examples"].to_list() == [["c#0", "c#1", "c#2"]]


def test_merged_clusters_are_counted_as_one_over_both_metrics_turns() -> None:
    # false information and ignored tool result on the same turn are one turn of the merged cluster
    rows = judgments(
        judgment("false information"),
        judgment("ignored tool result", TOOL),
        judgment(NOTHING, turn_index=1),
        judgment(NOTHING, TOOL, turn_index=2),
    )
    target = cluster_id("false information", None)
    merged = {"cluster_id": cluster_id("ignored tool result", "book"), "label": "ignored tool result"}
    merged |= {"tool": "book", "severity": "high", "merged_into": target}
    made_up = {"cluster_id": target, "label": "false information", "severity": "critical", "title": "made up"}
    registry = table("error_registry").frame([made_up, merged])
    actual = clusters(rows, registry)
    counts = ("cluster_id", "title", "severity", "n_failures", "n_turns", "n_turns_eligible")
    assert actual.select(counts).rows() == [(target, "made up", "critical", 2, 1, 3)]
    assert actual["rate_per_100_turns"].to_list() == [pytest.approx(100 / 3)]


def test_agents_and_versions_are_counted_apart() -> None:
    rows = judgments(
        judgment("repetition"),
        judgment("repetition", agent_id="b"),
        judgment(NOTHING, agent_id="b", turn_index=1),
        judgment("repetition", methodology_version="1.2.0"),
    )
    pairs = clusters(rows).select("methodology_version", "agent_id", "rate_per_100_turns")
    assert pairs.rows() == [("1.2.0", "a", 100.0), ("1.3.0", "a", 100.0), ("1.3.0", "b", 50.0)]


def test_no_failures_give_an_empty_table() -> None:
    assert_frame_equal(clusters(judgments(judgment(NOTHING))), table("error_clusters").empty())


def test_a_failure_without_its_judgment_has_no_rate_and_one_that_was_compared_a_trend() -> None:
    rows = judgments(judgment("repetition"))
    grown = register(REGISTRY, MEMBERS, failures(rows, calls()), SPACE, seen_at=TODAY)
    unknown = error_clusters(grown.failures, rows.clear(), grown.registry).select(RATE)
    assert unknown.rows() == [(1, None, None)]
    compared = PLACE | {
        "cluster_id": grown.failures["cluster_id"].item(),
        "label": "repetition",
        "trend": "new",
    }
    trends = table("error_trends").frame([compared])
    assert error_clusters(grown.failures, rows, grown.registry, trends)["trend"].to_list() == ["new"]


def test_turns_are_eligible_that_another_than_a_rule_judged() -> None:
    def rates(*rows: dict[str, Any]) -> list[tuple[Any, ...]]:
        return clusters(judgments(*rows)).select(RATE).rows()

    # the rule found a repetition and said nothing on the other turns: nobody knows how many are free of it
    by_rule = judgment("repetition", judge="rule")
    silent = judgment(None, turn_index=1, judge="rule", status="not_applicable")
    lost = judgment(None, turn_index=2, status="unscored", unscored_reason="judge_error")
    assert rates(by_rule, silent, lost) == [(1, None, None)]
    # turns 0 and 1 judged by another, whose answer on turn 0 does not count beside the rule's
    for judge in ("recorded", "m", "human"):
        beside = judgment(NOTHING, judge=judge, is_effective=False)
        assert rates(by_rule, beside, judgment(NOTHING, turn_index=1, judge=judge)) == [(1, 2, 50.0)], judge
    # the model judged turns 0 and 1, and found one; rules found four more elsewhere: 1 of 2, not 5 of 2
    elsewhere = [by_rule | {"turn_index": turn} for turn in range(2, 6)]
    assert rates(judgment("repetition"), judgment(NOTHING, turn_index=1), *elsewhere) == [(5, 2, 50.0)]


def test_a_metric_that_only_rules_judged_is_unknown_beside_one_that_a_model_judged() -> None:
    rows = judgments(
        judgment("repetition"),
        judgment("repeated tool call", TOOL, judge="rule"),
        judgment(NOTHING, turn_index=1),
    )
    actual = clusters(rows).sort("title")
    assert actual.select("title", *RATE).rows() == [
        ("repeated tool call · book", 1, None, None),
        ("repetition", 1, 2, 50.0),
    ]


@pytest.mark.slow
@given(
    st.lists(st.tuples(TURNS, st.sampled_from(["rule", "m"]), LABELS, LABELS), unique_by=lambda row: row[:2])
)
def test_a_rate_is_between_0_and_100_or_unknown(found: list[tuple[int, str, str, str]]) -> None:
    by_rule = {turn for turn, judge, *_ in found if judge == "rule"}
    rows = judgments(
        *(
            judgment(label, turn_index=turn, judge=judge, further_labels=[more])
            | {"is_effective": judge == "rule" or turn not in by_rule}
            for turn, judge, label, more in found
        )
    )
    n_by_model = len({turn for turn, judge, *_ in found if judge == "m"})
    for _, n_eligible, rate in clusters(rows).select(RATE).iter_rows():
        assert n_eligible == (n_by_model or None)
        assert (rate is None) == (n_by_model == 0)
        assert rate is None or 0 <= rate <= 100
