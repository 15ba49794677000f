"""Means over clusters, two agents without common tasks, and plans."""

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from agent_eval.scores.reliability.trials import TRIAL
from agent_eval.scores.statistics.clustered import (
    clustered_difference,
    clustered_mean,
    clustered_share,
    paired_by_cluster,
)
from agent_eval.scores.statistics.compare import compare
from agent_eval.scores.statistics.intervals import paired, share_mean, smallest_detectable, welch_multiple
from agent_eval.scores.statistics.plan import plan_one, plan_two
from agent_eval.scores.statistics.power import units_needed
from agent_eval.scores.statistics.unpaired import SCHEMA, clusters, conversation_values
from agent_eval.tables import table
from tests.scores.test_compare import NO_SESSIONS, NO_TASKS, of_sessions, of_tasks


@given(st.integers(2, 8), st.integers(1, 4), st.integers(0, 10_000))
def test_clusters_of_equal_size_have_the_t_of_their_means(n: int, size: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=(n, size))
    found = clustered_mean(values.ravel().tolist(), [str(i) for i in range(n) for _ in range(size)])
    assert found
    means = values.mean(axis=1)
    assert (found.mean, found.error) == pytest.approx((means.mean(), stats.sem(means)))
    assert found.freedom == pytest.approx(n - 1)
    difference = clustered_difference(found)
    assert (difference.low, difference.high) == pytest.approx(
        stats.t.interval(0.95, n - 1, loc=means.mean(), scale=stats.sem(means))
    )


def test_single_values_are_compared_as_by_welch() -> None:
    a, b = [1.0, 2.0, 4.0, 4.0], [0.0, 1.0, 1.0, 0.0, 2.0]
    sides = [clustered_mean(v, [str(i) for i in range(len(v))]) for v in (a, b)]
    assert sides[0]
    found = clustered_difference(sides[0], sides[1])
    assert found.p_value == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue)
    assert clustered_mean([1.0, 2.0], ["s", "s"]) is None


def test_fifty_tasks_in_ten_families_are_covered() -> None:
    # correlation 0.3 within a family: an interval over tasks covers about 70 %
    random = np.random.default_rng(8)
    family = np.repeat(np.arange(10), 5)
    held = 0
    for _ in range(2000):
        values = np.sqrt(0.3) * random.normal(size=10)[family] + np.sqrt(0.7) * random.normal(size=50)
        mean = clustered_mean(values.tolist(), family.astype(str).tolist())
        assert mean
        found = clustered_difference(mean)
        held += found.low is not None and found.high is not None and found.low <= 0 <= found.high
    assert 0.93 <= held / 2000 <= 0.97


def test_shares_over_families_are_covered() -> None:
    random = np.random.default_rng(8)
    names = np.repeat(np.arange(10), 5).astype(str).tolist()
    held = {"families": 0, "tasks": 0}
    for _ in range(2000):
        # mean 0.6; correlation 0.3 of two tasks' single trials
        values = random.binomial(1, np.repeat(random.beta(1.4, 0.93, 10), 5)).astype(float)
        over_families = clustered_share(values.tolist(), names, step=1)
        over_tasks = share_mean(float(values.mean()), float(values.var(ddof=1)), 50, step=1)
        for name, found in (("families", over_families), ("tasks", over_tasks)):
            assert found
            held[name] += found.low <= 1.4 / 2.33 <= found.high
    assert 0.93 <= held["families"] / 2000 <= 0.97
    assert held["tasks"] / 2000 < 0.85


def of_families(n_families: int, size: int) -> pl.DataFrame:
    tasks = of_tasks(a=[1] * (n_families * size), b=[0] * (n_families * size))
    return tasks.with_columns(family=pl.format("f{}", pl.int_range(pl.len()).over("agent_id") // size))


def test_families_are_flipped_as_wholes() -> None:
    found = only(compare("a", "b", NO_SESSIONS, of_families(7, 3)))
    assert (found["p_value"], found["n"], found["n_clusters"]) == (2 / 2**7, 21, 7)
    assert found["verdict"] == "a better"


def test_too_few_families_are_no_verdict() -> None:
    found = only(compare("a", "b", NO_SESSIONS, of_families(5, 10)))
    assert (found["verdict"], found["p_value"]) == ("unknown", None)
    assert found["reason"].startswith("too few families: 5")


def test_families_without_a_difference_are_seldom_told_apart() -> None:
    random = np.random.default_rng(3)
    names = np.repeat(np.arange(10), 5).astype(str).tolist()
    found = {"families": 0, "tasks": 0}
    for _ in range(1000):
        shared = np.sqrt(0.3) * random.normal(size=(2, 10)).repeat(5, axis=1)
        a, b = shared + np.sqrt(0.7) * random.normal(size=(2, 50))
        differences = (a - b).tolist()
        by_family = paired_by_cluster(differences, names)
        for name, made in (("families", by_family), ("tasks", paired(differences))):
            assert made.p_value is not None
            found[name] += made.p_value < 0.05
    assert found["families"] / 1000 <= 0.06
    assert found["tasks"] / 1000 > 0.12


def conversations(session_size: int = 0, **values: list[float]) -> pl.DataFrame:
    """Successes of agents, in one session or in sessions of a size."""
    rows = [
        ("1.3.0", a, f"s{i // session_size if session_size else ''}", f"{a}{i}", "success rate", v)
        for a, of in values.items()
        for i, v in enumerate(of)
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def over_conversations(given: pl.DataFrame) -> dict[str, Any]:
    return only(compare("a", "b", NO_SESSIONS, NO_TASKS, conversations=given))


def plan(counts: list[tuple[str, int, int]], wanted: float = 5, quantity: str = "pass@1") -> dict[str, Any]:
    """The plan of one agent from trials and successes of its tasks."""
    frame = pl.DataFrame(counts, schema=COUNTS, orient="row")
    return only(plan_one("a", NO_SESSIONS, frame, conversations(), wanted).filter(quantity=quantity))


def only(found: pl.DataFrame) -> dict[str, Any]:
    return found.row(0, named=True)


def test_agents_without_common_tasks_are_compared_over_conversations() -> None:
    given = conversations(a=[1.0] * 28 + [0.0] * 2, b=[1.0] * 10 + [0.0] * 20)
    found = over_conversations(given)
    assert (found["unit"], found["n"], found["role"]) == ("conversations", 30, "primary")
    assert found["verdict"] == "a better"
    assert found["reason"].startswith("this holds for these conversations: single session of a and b")
    few = over_conversations(conversations(a=[1, 1, 0.0], b=[0, 1, 0.0]))
    assert few["verdict"] == "not distinguishable"
    assert "needs about" in few["reason"]
    # common tasks are the better comparison
    both = compare("a", "b", NO_SESSIONS, of_tasks(a=[1] * 6, b=[0] * 6), conversations=given)
    assert set(both["unit"]) == {"tasks"}


def test_conversations_of_one_session_hang_together() -> None:
    apart, together = (
        over_conversations(conversations(size, a=[1.0] * 10 + [0.0] * 10, b=[1.0, 0.0] * 10))
        for size in (0, 5)
    )
    assert together["n_clusters"] == 4
    assert together["high"] - together["low"] > 1.5 * (apart["high"] - apart["low"])
    found = over_conversations(conversations(5, a=[1.0] * 20, b=[1.0] + [0.0] * 19))
    assert (found["verdict"], found["reason"]) == ("a better", None)


COUNTS = {"task_set": pl.String, "n": pl.Int64, "c": pl.Int64}


def test_a_plan_for_one_agent_has_the_chance_within_its_tasks() -> None:
    # 50 tasks of four trials, as often right as tau1: p(1 − p) without bias is 7.33 / 50; two such runs of four trials
    of = {0: 14, 1: 12, 2: 10, 3: 4, 4: 10}
    row = plan([("set", 4, c) for c, times in of.items() for _ in range(times)])
    error = np.sqrt(2 * (12 * 0.25 + 10 / 3 + 4 * 0.25) / 50 / 50 / 4)
    # the spread lies in 26 tasks: (16/16 + 10/12)² / (16/16² + 10/12²) = 25.5 of equal variance
    varying = (16 / 16 + 10 / 12) ** 2 / (16 / 16**2 + 10 / 12**2)
    assert row["smallest_detectable"] == pytest.approx(smallest_detectable(error, varying - 1))
    # of single runs: a quarter of the trials
    assert 2 * row["smallest_detectable"] == pytest.approx(0.21, abs=0.015)
    assert row["trials_needed"] == pytest.approx(4 * (row["smallest_detectable"] / 0.05) ** 2, abs=1)
    rows = plan_one("a", NO_SESSIONS, pl.DataFrame([("set", 4, 2)], COUNTS, orient="row"), conversations(), 5)
    assert rows["quantity"].to_list() == ["pass@1", "pass^2", "pass^3"]


def test_tasks_that_hardly_vary_make_no_plan() -> None:
    row = plan([("set", 3, 3)] * 6 + [("set", 3, 2)] * 2)
    assert (row["smallest_detectable"], row["n_needed"], row["trials_needed"]) == (None, None, None)
    assert row["reason"] == "trials of the same task differ in about 2 of 8 tasks; 8 are needed to plan with"


def test_a_plan_for_two_agents_says_why_it_has_no_number() -> None:
    counts = pl.DataFrame(schema=COUNTS | {"other_n": pl.Int64, "other_c": pl.Int64})
    for values, other, reason in (
        ([1.0] * 12, [0.0] * 12, "all 12 tasks differ by the same: no spread to plan with"),
        ([1.0, 0.5] * 2, [0.0] * 4, "fewer than 8 tasks differ, too few to plan with"),
    ):
        tasks = of_tasks(a=values, b=other)
        row = only(plan_two(compare("a", "b", of_sessions(), tasks), counts, 5))
        assert (row["smallest_detectable"], row["n_needed"], row["reason"]) == (None, None, reason)


def test_one_trial_per_task_makes_a_plan_only_if_eight_tasks_would_differ() -> None:
    # at a rate of 1/4 two equal agents differ in 3/8 of the tasks
    few, enough = (plan([("set", 1, int(i % 4 == 0)) for i in range(n)], 50) for n in (16, 24))
    assert few["smallest_detectable"] is None
    assert few["reason"] == "one trial per task: about 6 of 16 tasks would differ; 8 are needed to plan with"
    error = np.sqrt(2 * 3 / 16 / 24)
    assert enough["smallest_detectable"] == pytest.approx(smallest_detectable(error, 23))
    # fewer would do for 50 points by the table, but too few of them would differ
    assert enough["n_needed"] == 24


def test_the_planned_difference_is_found_in_80_of_100_simulations() -> None:
    random = np.random.default_rng(2)
    rates = random.choice([0.25, 0.5, 0.75], 60)
    shows = plan([("set", 8, int(c)) for c in random.binomial(8, rates)])["smallest_detectable"]
    moved = np.clip(rates - shows, 0, 1)
    ours, theirs = (random.binomial(8, p, (4000, 60)) / 8 for p in (rates, moved))
    found = stats.ttest_1samp(ours - theirs, 0, axis=1).pvalue < 0.05
    assert np.mean(found) == pytest.approx(0.8, abs=0.06)


def test_a_plan_for_sessions_and_for_two_agents_follows_their_spread() -> None:
    sessions = of_sessions(a=[80.0, 85.0, 90.0], b=[70.0, 75.0, 80.0])
    one = only(plan_one("a", sessions, pl.DataFrame(schema=COUNTS), conversations(), 5))
    rows = compare("a", "b", sessions, NO_TASKS)
    two = only(plan_two(rows, pl.DataFrame(schema=COUNTS | {"other_n": pl.Int64, "other_c": pl.Int64}), 5))
    expected = 5 * np.sqrt(2 / 3) * welch_multiple(2, 2, 0.5)
    assert one["smallest_detectable"] == two["smallest_detectable"] == pytest.approx(expected)
    # with n = 17 each 2.8 to 2.9 standard errors of 5 √(2/17) are 5 points
    assert one["n_needed"] == two["n_needed"] == 17


def test_clusters_of_which_one_holds_nearly_all_have_no_interval_and_no_p() -> None:
    most = clustered_mean([1.0] * 99 + [0.0], ["a"] * 99 + ["b"])
    even = clustered_mean([1.0, 0.0, 1.0, 1.0], list("abcd"))
    assert most is not None
    for compared in (clustered_difference(most, even), clustered_difference(most)):
        assert (compared.low, compared.p_value, compared.smallest_detectable) == (None, None, None)
    given = conversations(25, a=[1.0] * 99 + [0.0], b=[1.0, 0.0] * 50)
    split = given.with_columns(
        session_id=pl.when(agent_id="a", value=1).then(pl.lit("s0")).otherwise("session_id")
    )
    found = over_conversations(split)
    assert (found["verdict"], found["low"]) == ("unknown", None)
    assert found["reason"] == "nearly all conversations of a are in one session or task"
    planned = only(plan_one("a", NO_SESSIONS, pl.DataFrame(schema=COUNTS), split, 5))
    assert (planned["reason"], planned["n_needed"]) == (found["reason"], None)


def test_sessions_that_never_vary_and_differ_are_told_apart_by_the_exact_test() -> None:
    found = over_conversations(conversations(20, a=[1.0] * 160, b=[0.0] * 160))
    assert found["verdict"] == "a better"
    assert found["p_value"] == pytest.approx(2 / math.comb(16, 8))
    two = over_conversations(conversations(20, a=[1.0] * 40, b=[0.0] * 40))
    assert two["verdict"] == "not distinguishable"


def test_what_a_difference_needs_is_counted_in_sessions() -> None:
    few = units_needed(8, 0.46, 0.2, "unpaired")
    assert few is not None
    assert units_needed(160, 0.46, 0.2, "unpaired", 8) == 20 * few
    # at large numbers: 8 sessions' spread, with the normal's 2.80 standard errors instead of those of 14 degrees
    spread = 0.46 / welch_multiple(7, 7, 0.5) * math.sqrt(160)
    many = units_needed(160, 0.46, 0.05, "unpaired", 8)
    assert many == pytest.approx((2.80 * spread / 0.05) ** 2, rel=0.02)


def test_families_of_one_family_data_are_the_units_of_a_single_session() -> None:
    fixed = {"methodology_version": "1.3.0", "agent_id": "a", "session_id": "s"}
    outcomes = pl.DataFrame(
        fixed
        | {"conversation_id": f"c{i}", "task": f"t{i}", "task_family": f"f{i // 10}", "is_correct": i % 3 > 0}
        for i in range(40)
    )
    judged = table("turn_judgments").empty()
    metrics = outcomes.select(*TRIAL, quantity=pl.lit("m"), value=pl.lit(1.0)).clear()
    found = conversation_values(outcomes, metrics, judged, [], "no failure")
    assert sorted(set(clusters(found))) == ["f0", "f1", "f2", "f3"]
