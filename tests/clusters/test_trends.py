import math
from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from agent_eval.clusters.rates import error_rates, runs
from agent_eval.clusters.trends import compared, earlier_runs, error_trends, score_test, since_run, wilson
from agent_eval.tables import table
from tests.clusters.rows import BEHAVIOUR, TOOL, VERSION, judgment, judgments
from tests.untyped import any_table

AGENTS = table("agents").frame([{"agent_id": "new", "baseline": "old"}, {"agent_id": "old"}])
REGISTRY = table("error_registry").frame(
    {"cluster_id": f"E-{i}", "label": "repetition", "title": f"t{i}", "severity": "medium"} for i in range(6)
)
SEEN = (
    "cluster_id",
    "trend",
    "n_turns",
    "rate_per_100_turns",
    "baseline_n_turns",
    "baseline_rate_per_100_turns",
)


def rates(
    agent_id: str, run: str | None = None, date: str | None = None, turns: int = 100, **clusters: int
) -> pl.DataFrame:
    """A run of single-turn conversations: `E1=5` is cluster E-1 on five of them."""
    place = {
        "methodology_version": VERSION,
        "agent_id": agent_id,
        "benchmark_id": run or agent_id,
        "run_date": date,
    }
    common = {**place, "is_current": True, "metrics": BEHAVIOUR}
    total = {**common, "n_conversations": turns, "n_turns": turns, "sum_squares": turns}
    rows = [
        {**common, "cluster_id": f"E-{name[1:]}", "n_turns": n, "sum_squares": n, "sum_products": n}
        for name, n in clusters.items()
    ]
    return table("error_rates").frame([total, *rows] if turns else rows)


def trends(*sides: pl.DataFrame, agents: pl.DataFrame = AGENTS) -> pl.DataFrame:
    return error_trends(any_table(pl.concat(sides)), any_table(agents), REGISTRY)


def test_clusters_are_new_gone_or_compared() -> None:
    actual = trends(rates("new", E1=3, E2=1), rates("old", E2=4, E3=5))
    assert actual.select(SEEN).rows() == [
        ("E-1", "new", 3, 3.0, 0, 0.0),
        ("E-2", "unchanged", 1, 1.0, 4, 4.0),
        ("E-3", "gone", 0, 0.0, 5, 5.0),
    ]
    assert actual.select("agent_id", "baseline_agent_id", "title").row(0) == ("new", "old", "t1")


def test_what_is_surely_less_is_improved_and_surely_more_regressed() -> None:
    actual = trends(rates("new", turns=1000, E1=20, E2=80), rates("old", turns=1000, E1=60, E2=30))
    assert actual.select("trend", "is_significant").rows() == [("improved", True), ("regressed", True)]


def test_a_cluster_that_is_gone_says_whether_that_may_be_chance() -> None:
    actual = trends(rates("new", turns=1000), rates("old", turns=1000, E1=1, E2=30))
    assert actual.select("trend", "is_significant").rows() == [("gone", False), ("gone", True)]


def test_an_agent_that_nobody_judged_has_mended_nothing_and_nothing_is_new_beside_it() -> None:
    assert trends(rates("old", E1=5)).select(SEEN).rows() == [("E-1", "unknown", 0, None, 5, 5.0)]
    assert trends(rates("new", E1=5)).select(SEEN).rows() == [("E-1", "unknown", 5, 5.0, 0, None)]


def test_where_only_rules_saw_a_cluster_the_trend_is_unknown() -> None:
    actual = trends(rates("new", turns=0, E1=0), rates("old", E2=5))
    assert actual.select("cluster_id", "trend", "p_value", "q_value").rows() == [
        ("E-1", "unknown", None, None),
        ("E-2", "unknown", None, None),
    ]


def test_versions_are_not_compared_with_each_other() -> None:
    other = rates("old", E1=1).with_columns(methodology_version=pl.lit("1.2.0"))
    actual = trends(rates("new", E1=1), other)
    assert actual.select("methodology_version", "trend").rows() == [
        ("1.2.0", "unknown"),
        (VERSION, "unknown"),
    ]


def test_without_a_baseline_the_run_before_is_compared() -> None:
    sides = [
        rates("old", "second", "2026-02-01", E1=1),
        rates("old", "first", "2026-01-01", E2=1),
        rates("old", "zero", None, E3=1),
    ]
    actual = trends(*sides, agents=AGENTS.clear())
    assert actual.select("cluster_id", "trend", "benchmark_id", "baseline_benchmark_id").rows() == [
        ("E-1", "new", "second", "first"),
        ("E-2", "gone", "second", "first"),
    ]


def test_one_run_and_no_baseline_have_no_trend() -> None:
    agents = table("agents").frame([{"agent_id": "new", "baseline": "new"}])
    assert_frame_equal(trends(rates("new", E1=1), agents=agents), table("error_trends").empty())


def test_any_run_can_be_asked_for() -> None:
    both = pl.concat(
        [
            rates("a", "r1", "2026-01-01", E1=1),
            rates("a", "r2", "2026-02-01", E2=1),
            rates("a", "r3", "2026-03-01", E3=1),
        ]
    )
    wanted = since_run(both, "r1")
    assert wanted.select("benchmark_id", "baseline_benchmark_id").rows() == [("r3", "r1")]
    assert compared(both, wanted, REGISTRY)["cluster_id"].to_list() == ["E-1", "E-3"]
    assert earlier_runs(both)["baseline_benchmark_id"].to_list() == ["r2"]


def test_merged_clusters_are_compared_as_one() -> None:
    merged = REGISTRY.with_columns(merged_into=pl.when(pl.col("cluster_id") == "E-1").then(pl.lit("E-2")))
    actual = error_trends(any_table(pl.concat([rates("new", E1=3), rates("old", E2=4)])), AGENTS, merged)
    assert actual.select(SEEN).rows() == [("E-2", "unchanged", 3, 3.0, 4, 4.0)]


def test_q_is_p_times_clusters_over_rank_from_the_largest_down() -> None:
    actual = trends(
        rates("new", turns=1000, E1=20, E2=30, E3=33), rates("old", turns=1000, E1=60, E2=50, E3=30)
    )
    p = actual["p_value"].to_list()
    assert p == sorted(p)
    assert actual["q_value"].to_list() == pytest.approx([3 * p[0], 1.5 * p[1], p[2]])


def test_independent_turns_are_the_two_proportion_test() -> None:
    # 60 and 30 of 1000: pooled 0.045, z = 0.03 / sqrt(0.045 × 0.955 × 2 / 1000) = 3.236, p = 0.00121
    effect, p = outcome_of((60, 30), [(1, 1)] * 90 + [(0, 1)] * 1910, (1000, 1000))
    assert effect == pytest.approx(1.0, abs=1e-3)
    assert p == pytest.approx(0.00123, abs=3e-5)  # on Student's t with 1998 degrees of freedom


def test_turns_that_go_together_count_less() -> None:
    # conversations of ten turns that fail throughout or not at all: ten turns are worth one
    alike = [(10, 10)] * 9 + [(0, 10)] * 191
    effect, p = outcome_of((60, 30), alike, (1000, 1000))
    assert effect == pytest.approx(10, rel=0.01)
    assert p > 0.2


def outcome_of(
    failing: tuple[int, int], conversations: Sequence[tuple[int, int]], turns: tuple[int, int]
) -> tuple[float, float]:
    y, m = np.array(conversations).T

    def one(value: float) -> Any:
        return np.array([float(value)])

    effect, p = score_test(
        (one(failing[0]), one(failing[1])), (one(turns[0]), one(turns[1])), one((y * y).sum()), one((y * m).sum()),
        one((m * m).sum()), one(len(conversations)),
    )  # fmt: skip
    return float(effect[0]), float(p[0])


def test_two_conversations_are_no_evidence() -> None:
    assert math.isnan(outcome_of((1, 0), [(1, 5), (0, 5)], (5, 5))[1])


def test_wilson_bounds_are_those_of_the_book() -> None:
    # 10 of 100: 0.0552 to 0.1744 (Newcombe 1998); a design effect of 4 leaves 25 turns
    low, high = wilson(np.array([10.0, 10.0]), np.array([100.0, 100.0]), np.array([1.0, 4.0]))
    assert (low[0], high[0]) == pytest.approx((0.0552, 0.1744), abs=1e-4)
    assert low[1] < low[0] < high[0] < high[1]


@pytest.mark.slow
@given(
    st.dictionaries(st.sampled_from(["E1", "E2", "E3"]), st.integers(1, 50), max_size=3), st.integers(0, 50)
)
def test_bounds_hold_the_rate_and_chances_are_chances(here: dict[str, int], there: int) -> None:
    actual = trends(rates("new", None, None, 60, **here), rates("old", turns=60, E1=there, E2=1))
    assert actual.filter(
        ~pl.col("p_value").is_between(0, 1) | (pl.col("q_value") < pl.col("p_value") - 1e-12)
    ).is_empty()
    for prefix in ("", "baseline_"):
        rate, low, high = (
            pl.col(f"{prefix}{name}") for name in ("rate_per_100_turns", "rate_low", "rate_high")
        )
        assert actual.filter((rate < low - 1e-9) | (rate > high + 1e-9)).is_empty()


def of_conversations(**lengths: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Transcripts and sessions: each conversation in a run of its own name's first letter."""
    transcripts = table("transcripts").frame(
        {
            "methodology_version": VERSION,
            "agent_id": "a",
            "conversation_id": name,
            "benchmark_id": name[0],
            "is_admitted": n > 0,
        }
        for name, n in lengths.items()
    )
    sessions = table("sessions").frame(
        {"agent_id": "a", "session_id": name, "benchmark_id": name[0], "session_date": f"2026-01-0{i + 1}"}
        for i, name in enumerate(lengths)
    )
    return transcripts, sessions


def test_sums_are_over_conversations_and_only_turns_that_others_than_rules_judged() -> None:
    rows = judgments(
        *(
            judgment("repetition" if t < 2 else "no failure", conversation_id="r1", turn_index=t)
            for t in range(3)
        ),
        judgment("no failure", conversation_id="r2"),
        judgment("repetition", conversation_id="r2", turn_index=1, judge="rule"),
        judgment("no failure", TOOL, conversation_id="r2", turn_index=1),
    )
    found = pl.DataFrame(
        {
            "methodology_version": [VERSION] * 3, "agent_id": ["a"] * 3, "conversation_id": ["r1", "r1", "r2"],
            "turn_index": [0, 1, 1], "cluster_id": ["E-1"] * 3,
        }
    )  # fmt: skip
    actual = error_rates(
        found, rows, runs(*of_conversations(r1=3, r2=2)), REGISTRY, table("error_rates").empty()
    )
    of_metric = actual.filter(pl.col("metrics") == BEHAVIOUR)
    assert of_metric.select(
        "cluster_id", "n_conversations", "n_turns", "sum_squares", "sum_products", "run_date"
    ).rows() == [
        (None, 2, 4, 10, None, date(2026, 1, 2)),  # 3 turns and 1: 9 + 1
        ("E-1", None, 2, 4, 6, date(2026, 1, 2)),  # both in r1: 2² and 2 × 3
    ]
    both = actual.filter(pl.col("metrics").str.contains("+", literal=True))
    assert both["n_turns"].to_list() == [5]


def test_a_run_that_was_superseded_stays_for_comparison() -> None:
    earlier = rates("a", "first", "2026-01-01", E1=2)
    transcripts, sessions = of_conversations(second=1)
    rows = judgments(judgment("no failure", conversation_id="second"))
    nothing = pl.DataFrame(schema={**table("failures").schema})
    actual = error_rates(nothing, rows, runs(transcripts, sessions), REGISTRY, earlier)
    assert actual.filter(pl.col("cluster_id") == "E-1").select("benchmark_id", "is_current").rows() == [
        ("first", False)
    ]
    again = error_rates(nothing, rows, runs(transcripts, sessions), REGISTRY, actual)
    assert_frame_equal(again, actual)
    assert compared(actual, earlier_runs(actual), REGISTRY)["trend"].to_list() == ["gone"]
