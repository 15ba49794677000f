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
from tests.clusters.rows import BEHAVIOUR, PLACE, TOOL, VERSION, judgment, judgments
from tests.untyped import any_table

AGENTS = table("agents").frame([{"agent_id": "new", "baseline": "old"}, {"agent_id": "old"}])
REGISTRY = table("error_registry").frame(
    {"cluster_id": f"E-{i}", "label": "repetition", "title": f"t{i}", "severity": "medium"} for i in range(6)
)
OF_SIDE = ("n_turns", "rate_per_100_turns")
SEEN = ["cluster_id", "trend", *OF_SIDE, *(f"baseline_{name}" for name in OF_SIDE)]
RUN = {"methodology_version": VERSION, "is_current": True, "metrics": BEHAVIOUR}


def rates(
    agent_id: str, run: str | None = None, date: str | None = None, turns: int = 100, **clusters: int
) -> pl.DataFrame:
    """A run of single-turn conversations: `E1=5` is cluster E-1 on five of them."""
    common: dict[str, Any] = RUN | {"agent_id": agent_id, "benchmark_id": run or agent_id, "run_date": date}
    total = {**common, "n_conversations": turns, "n_turns": turns, "sum_squares": turns}
    rows = [
        {**common, "cluster_id": f"E-{name[1:]}", "n_turns": n, "sum_squares": n, "sum_products": n}
        for name, n in clusters.items()
    ]
    return table("error_rates").frame([total, *rows] if turns else rows)


def trends(
    *sides: pl.DataFrame, agents: pl.DataFrame = AGENTS, registry: pl.DataFrame = REGISTRY
) -> pl.DataFrame:
    return error_trends(any_table(pl.concat(sides)), any_table(agents), any_table(registry))


def test_clusters_are_new_gone_or_compared_and_merged_ones_as_one() -> None:
    merged = REGISTRY.with_columns(merged_into=pl.when(pl.col("cluster_id") == "E-1").then(pl.lit("E-2")))
    as_one = trends(rates("new", E1=3), rates("old", E2=4), registry=merged)
    assert as_one.select(SEEN).rows() == [("E-2", "unchanged", 3, 3.0, 4, 4.0)]
    actual = trends(rates("new", E1=3, E2=1), rates("old", E2=4, E3=5))
    assert actual.select(SEEN).rows() == [
        ("E-1", "new", 3, 3.0, 0, 0.0),
        ("E-2", "unchanged", 1, 1.0, 4, 4.0),
        ("E-3", "gone", 0, 0.0, 5, 5.0),
    ]
    assert actual.select("agent_id", "baseline_agent_id", "title").row(0) == ("new", "old", "t1")


@pytest.mark.parametrize(
    ("here", "there", "said"),
    [
        ({"E1": 20, "E2": 80}, {"E1": 60, "E2": 30}, [("improved", True), ("regressed", True)]),
        ({}, {"E1": 1, "E2": 30}, [("gone", False), ("gone", True)]),
    ],
)
def test_a_trend_says_whether_it_may_be_chance(
    here: dict[str, Any], there: dict[str, Any], said: list[tuple[str, bool]]
) -> None:
    actual = trends(rates("new", turns=1000, **here), rates("old", turns=1000, **there))
    assert actual.select("trend", "is_significant").rows() == said


def test_an_agent_that_nobody_judged_has_mended_nothing_and_nothing_is_new_beside_it() -> None:
    assert trends(rates("old", E1=5)).select(SEEN).rows() == [("E-1", "unknown", 0, None, 5, 5.0)]
    assert trends(rates("new", E1=5)).select(SEEN).rows() == [("E-1", "unknown", 5, 5.0, 0, None)]
    by_rules = trends(
        rates("new", turns=0, E1=0), rates("old", E2=5)
    )  # which look for no more than they find
    unknown = ("unknown", None, None)
    columns = ("cluster_id", "trend", "p_value", "q_value")
    assert by_rules.select(columns).rows() == [("E-1", *unknown), ("E-2", *unknown)]
    other = rates("old", E1=1).with_columns(methodology_version=pl.lit("1.2.0"))
    versions = trends(rates("new", E1=1), other).select("methodology_version", "trend")
    assert versions.rows() == [("1.2.0", "unknown"), (VERSION, "unknown")]


def test_without_a_baseline_the_run_before_is_compared() -> None:
    dated = [("second", "2026-02-01"), ("first", "2026-01-01"), ("zero", None)]
    sides = [rates("old", run, day, **{f"E{i}": 1}) for i, (run, day) in enumerate(dated, start=1)]
    actual = trends(*sides, agents=AGENTS.clear())
    columns = ("cluster_id", "trend", "benchmark_id", "baseline_benchmark_id")
    assert actual.select(columns).rows() == [
        ("E-1", "new", "second", "first"),
        ("E-2", "gone", "second", "first"),
    ]


def test_one_run_and_no_baseline_have_no_trend() -> None:
    agents = table("agents").frame([{"agent_id": "new", "baseline": "new"}])
    assert_frame_equal(trends(rates("new", E1=1), agents=agents), table("error_trends").empty())


def test_any_run_can_be_asked_for() -> None:
    both = pl.concat(rates("a", f"r{i}", f"2026-0{i}-01", **{f"E{i}": 1}) for i in (1, 2, 3))
    wanted = since_run(both, "r1")
    assert wanted.select("benchmark_id", "baseline_benchmark_id").rows() == [("r3", "r1")]
    assert compared(both, wanted, REGISTRY)["cluster_id"].to_list() == ["E-1", "E-3"]
    assert earlier_runs(both)["baseline_benchmark_id"].to_list() == ["r2"]


def test_q_is_p_times_clusters_over_rank_from_the_largest_down() -> None:
    here, there = rates("new", turns=1000, E1=20, E2=30, E3=33), rates("old", turns=1000, E1=60, E2=50, E3=30)
    actual = trends(here, there)
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
        PLACE | {"conversation_id": name, "benchmark_id": name[0], "is_admitted": n > 0}
        for name, n in lengths.items()
    )
    sessions = table("sessions").frame(
        {"agent_id": "a", "session_id": name, "benchmark_id": name[0], "session_date": f"2026-01-0{i + 1}"}
        for i, name in enumerate(lengths)
    )
    return transcripts, sessions


def seen_on(*places: tuple[str, int]) -> pl.DataFrame:
    """Failures of cluster E-1 on these turns of conversations."""
    return pl.DataFrame(
        PLACE | {"conversation_id": name, "turn_index": turn, "cluster_id": "E-1"} for name, turn in places
    )


def test_sums_are_over_conversations_and_only_turns_that_others_than_rules_judged() -> None:
    labels = ("repetition", "repetition", "no failure")
    rows = judgments(
        *(judgment(label, conversation_id="r1", turn_index=t) for t, label in enumerate(labels)),
        judgment("no failure", conversation_id="r2"),
        judgment("repetition", conversation_id="r2", turn_index=1, judge="rule"),
        judgment("no failure", TOOL, conversation_id="r2", turn_index=1),
    )
    places = (("r1", 0), ("r1", 1), ("r2", 1))
    found = seen_on(*places)
    made_in = runs(*of_conversations(r1=3, r2=2))
    actual = error_rates(found, rows, made_in, REGISTRY, table("error_rates").empty())
    of_metric = actual.filter(pl.col("metrics") == BEHAVIOUR)
    columns = ("cluster_id", "n_conversations", "n_turns", "sum_squares", "sum_products", "run_date")
    assert of_metric.select(columns).rows() == [
        (None, 2, 4, 10, None, date(2026, 1, 2)),  # 3 turns and 1: 9 + 1
        ("E-1", None, 2, 4, 6, date(2026, 1, 2)),  # both in r1: 2² and 2 × 3
    ]
    both = actual.filter(metrics=f"{BEHAVIOUR}+{TOOL}")
    assert both["n_turns"].to_list() == [5]


def test_a_run_that_was_superseded_stays_for_comparison() -> None:
    earlier = rates("a", "first", "2026-01-01", E1=2)
    transcripts, sessions = of_conversations(second=1)
    rows = judgments(judgment("no failure", conversation_id="second"))
    nothing = pl.DataFrame(schema={**table("failures").schema})
    actual = error_rates(nothing, rows, runs(transcripts, sessions), REGISTRY, earlier)
    of_cluster = actual.filter(pl.col("cluster_id") == "E-1").select("benchmark_id", "is_current")
    assert of_cluster.rows() == [("first", False)]
    again = error_rates(nothing, rows, runs(transcripts, sessions), REGISTRY, actual)
    assert_frame_equal(again, actual)
    assert compared(actual, earlier_runs(actual), REGISTRY)["trend"].to_list() == ["gone"]
