import math
from functools import partial
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from agent_eval.errors import AgentEvalError
from agent_eval.scores.reliability.hierarchical import posterior_of_new_tasks
from agent_eval.scores.reliability.pass_rates import (
    Estimator,
    TrialTables,
    assessment,
    pass_at_k,
    pass_hat_k,
    reliability,
    reliability_leaderboard,
    trial_outcomes,
)
from agent_eval.scores.statistics.intervals import share_mean
from agent_eval.tables import table
from tests.untyped import any_table

ESTIMATORS: tuple[Estimator, ...] = ("unbiased", "plug_in")
PAIR = {"methodology_version": "1.3.0", "agent_id": "a"}


FIXED = {"session_id": "s1", "benchmark_id": "s1", "tests": [], "task_set": "airline", "is_admitted": True}


def trial(
    conversation_id: str, task_id: str | None, *, correct: bool | None = None, **more: Any
) -> dict[str, Any]:
    counts = {"n_turns": 1, "n_user_messages": 1}
    made = {"conversation_id": conversation_id, "task_id": task_id, "outcome_correct": correct}
    return PAIR | FIXED | counts | made | more


def runs(task: str, *outcomes: bool | None, **more: Any) -> list[dict[str, Any]]:
    """Trials of one task with these outcomes."""
    return [trial(f"{task}-{i}", task, correct=correct, **more) for i, correct in enumerate(outcomes)]


def transcripts(trials: list[dict[str, Any]]) -> pl.DataFrame:
    return table("transcripts").frame(trials)


def conversations(trials: list[dict[str, Any]]) -> pl.DataFrame:
    return table("conversations").frame(trials).unique(["agent_id", "conversation_id"], maintain_order=True)


def tools(*rows: dict[str, Any]) -> pl.DataFrame:
    return table("tool_correctness").frame({**PAIR, "status": "scored", **row} for row in rows)


def goals(*rows: dict[str, Any]) -> pl.DataFrame:
    default = {"metric": "goal_completion", "judge": "m", "status": "scored", "is_effective": True}
    return table("conversation_judgments").frame({**PAIR, **default, **row} for row in rows)


def known(trials: list[dict[str, Any]], *others: pl.DataFrame) -> TrialTables:
    """Of these trials; `others`: rows of tools, then of goals."""
    tool_rows, goal_rows = others or (tools(), goals())
    turns = table("turn_judgments").empty()
    return TrialTables(
        *map(any_table, (transcripts(trials), conversations(trials), tool_rows, goal_rows, turns))
    )


def of(trials: list[dict[str, Any]], **more: Any) -> pl.DataFrame:
    return reliability(known(trials), **more)


def source(
    conversation: dict[str, Any], tool_rows: pl.DataFrame, goal_rows: pl.DataFrame
) -> tuple[bool | None, str | None]:
    found = trial_outcomes(known([conversation], tool_rows, goal_rows))
    return found.select("is_correct", "source").row(0)


def test_unbiased_estimates_draw_without_putting_back() -> None:
    # C(3,3)/C(10,3) = 1/120 of the draws hold only wrong trials, C(7,3)/C(10,3) = 35/120 only right ones
    assert pass_at_k(10, 7, 3) == 119 / 120
    assert pass_hat_k(10, 7, 3) == 35 / 120


def test_plug_in_is_the_reference_formula_and_allows_more_attempts_than_trials() -> None:
    assert pass_at_k(10, 7, 3, estimator="plug_in") == pytest.approx(1 - 0.3**3)
    assert pass_hat_k(10, 7, 3, estimator="plug_in") == pytest.approx(0.343)
    assert pass_hat_k(2, 1, 3, estimator="plug_in") == 1 / 8
    with pytest.raises(AgentEvalError, match="n is 0"):
        pass_hat_k(0, 0, 1, estimator="plug_in")


@pytest.mark.parametrize(
    ("n", "c", "k", "named"),
    [
        (0, 0, 1, "n is 0"),
        (-1, 0, 1, "n is -1"),
        (4, 5, 1, "c is 5, but n is 4"),
        (4, -1, 1, "c is -1"),
        (4, 2, 0, "k is 0"),
        (4, 2, 5, "k is 5, but n is only 4"),
        (True, 1, 1, "n is True"),
        (4, False, 1, "c is False"),
        (4, 2, True, "k is True"),
        (4.0, 2, 1, "n is 4.0"),
        (4, 2.5, 1, "c is 2.5"),
        (4, 2, "1", "k is '1'"),
        (4, 2, math.nan, "k is nan"),
        (None, 2, 1, "n is None"),
    ],
)
def test_impossible_counts_are_refused_by_name(n: Any, c: Any, k: Any, named: str) -> None:
    for estimate in (pass_at_k, pass_hat_k):
        with pytest.raises(AgentEvalError, match=named):
            estimate(n, c, k)


def test_an_unknown_estimator_is_refused_with_the_known_ones() -> None:
    with pytest.raises(AgentEvalError, match="unbiased, plug_in"):
        pass_at_k(4, 2, 1, estimator="bayes")  # type: ignore[arg-type]
    with pytest.raises(AgentEvalError, match="unbiased, plug_in, bayesian, pooled"):
        of([], estimators=["bayes"])


@st.composite
def counts(draw: st.DrawFn) -> tuple[int, int, int]:
    n = draw(st.integers(1, 200))
    return n, draw(st.integers(0, n)), draw(st.integers(1, n))


@given(counts(), st.sampled_from(ESTIMATORS))
def test_estimates_are_ordered_and_mirrored(trials: tuple[int, int, int], estimator: Estimator) -> None:
    n, c, k = trials
    at, hat = (partial(estimate, estimator=estimator) for estimate in (pass_at_k, pass_hat_k))
    assert 0 <= hat(n, c, k) <= c / n <= at(n, c, k) <= 1
    assert at(n, c, 1) == hat(n, c, 1) == c / n
    assert at(n, c, k) == pytest.approx(1 - hat(n, n - c, k))  # at least one right = not all wrong
    if k < n:
        assert hat(n, c, k + 1) <= hat(n, c, k)
        assert at(n, c, k + 1) >= at(n, c, k)
    if c < n:
        assert hat(n, c + 1, k) >= hat(n, c, k)
        assert at(n, c + 1, k) >= at(n, c, k)


def test_estimates_are_means_over_tasks_with_enough_trials() -> None:
    rows = [*runs("easy", True, True), *runs("mixed", True, False), *runs("short", False)]
    rows[1]["session_id"] = "s2"
    counts = ("k", "n_tasks", "n_tasks_excluded", "n_trials", "n_successes", "pass_at_k", "pass_hat_k")
    # k = 1 over all three: (1 + 1/2 + 0)/3; k = 2 over easy and mixed, which have 2 trials: at (1 + 1)/2, hat (1 + 0)/2
    # = 0.5, not below it
    assert of(rows).select(*counts, "assessment").rows() == [
        (1, 3, 0, 5, 3, 0.5, 0.5, "single run"),
        (2, 2, 1, 4, 3, 1.0, 0.5, "between (not rated)"),
    ]
    # pass@1 of boards is over all three: (1 + 1/2 + 0)/3
    assert of(rows).select("pass_at_1", "n_tasks_known").unique().rows() == [(0.5, 3)]


def test_an_unknown_trial_leaves_the_denominator_and_is_counted() -> None:
    actual = of(runs("t", True, None)).select("k", "n_trials", "n_trials_unknown", "pass_hat_k")
    assert actual.rows() == [(1, 1, 1, 1.0)]


def test_an_agent_without_any_known_outcome_keeps_a_row_without_an_estimate() -> None:
    columns = ("k", "n_tasks", "n_tasks_excluded", "n_trials_unknown", "pass_at_k", "assessment")
    actual = of(runs("t", None)).select(*columns, "correctness_source")
    assert actual.rows() == [(1, 0, 1, 1, None, None, None)]


def test_only_admitted_conversations_count() -> None:
    rows = [trial("c1", "t", correct=True), trial("c2", "t", correct=False, is_admitted=False)]
    assert of(rows).select("k", "n_trials", "pass_hat_k").rows() == [(1, 1, 1.0)]
    assert_frame_equal(of(rows[1:]), table("reliability").empty())


def test_conversations_without_a_task_id_belong_to_no_task_set() -> None:
    rows = [trial("c1", None, correct=True), trial("c2", None, correct=False)]
    with_task = [*rows, trial("c3", "c1", correct=True)]
    assert of(with_task).select("k", "n_tasks", "tasks", "pass_hat_k").rows() == [(1, 1, ["c1"], 1.0)]
    assert of(rows).is_empty()


def test_a_missing_task_set_is_the_default_and_sets_are_kept_apart() -> None:
    rows = [trial("c1", "t", correct=True, task_set=None), trial("c2", "t", correct=False)]
    assert of(rows).select("task_set", "pass_hat_k").rows() == [("airline", 0.0), ("default", 1.0)]


def test_repeated_trial_numbers_are_separate_runs() -> None:
    # some sources write the task's number into `trial`
    rows = [trial(f"c{i}", "t7", correct=i < 3, trial=7) for i in range(4)]
    assert of(rows).filter(k=4).select("n_trials", "n_successes").rows() == [(4, 3)]


def test_k_stops_at_eight_unless_asked_for() -> None:
    rows = runs("t", *[True] * 10)
    assert of(rows)["k"].to_list() == list(range(1, 9))
    assert of(rows, ks=[10, 1, 10])["k"].to_list() == [1, 10]
    beyond = of(runs("t", True), ks=[2]).select("k", "n_tasks", "n_tasks_excluded", "pass_at_k")
    assert beyond.rows() == [(2, 0, 1, None)]


@pytest.mark.parametrize("k", [0, -1, True, 1.5])
@pytest.mark.parametrize("rows", [[], runs("t", True)], ids=["no trial", "a trial"])
def test_an_impossible_k_is_refused(k: Any, rows: list[dict[str, Any]]) -> None:
    with pytest.raises(AgentEvalError, match=f"k is {k}"):
        of(rows, ks=[k])


def test_a_declared_outcome_wins_over_tools_and_goal() -> None:
    tool_rows = tools({"conversation_id": "c", "is_correct": True})
    goal_rows = goals({"conversation_id": "c", "value": 1.0})
    assert source(trial("c", "t", correct=False), tool_rows, goal_rows) == (False, "outcome")


def test_correct_tools_in_every_interaction_make_a_trial_correct_and_one_wrong_one_does_not() -> None:
    right = {"conversation_id": "c", "turn_index": 0, "is_correct": True}
    wrong = {"conversation_id": "c", "turn_index": 1, "is_correct": False}
    idle = {"conversation_id": "c", "turn_index": 2, "status": "not_applicable"}
    goal_rows = goals({"conversation_id": "c", "value": 0.0})
    assert source(trial("c", "t"), tools(right, idle), goal_rows) == (True, "interactions")
    assert source(trial("c", "t"), tools(right, wrong), goal_rows) == (False, "interactions")


@pytest.mark.parametrize("status", ["unscored", "scored", "not_applicable"])
def test_interactions_that_are_not_all_scored_leave_it_to_the_goal(status: str) -> None:
    tool_rows = tools({"conversation_id": "c", "status": status, "is_correct": None})
    goal_rows = goals({"conversation_id": "c", "value": 1.0})
    assert source(trial("c", "t"), tool_rows, goal_rows) == (True, "goal_completion")


@pytest.mark.parametrize(
    "judgment",
    [
        {"value": None, "status": "unscored"},
        {"value": 1.0, "is_effective": False},
        {"value": 1.0, "metric": "politeness"},
        {"value": 1.0, "conversation_id": "other"},
    ],
)
def test_a_goal_that_was_not_judged_is_unknown(judgment: dict[str, Any]) -> None:
    assert source(trial("c", "t"), tools(), goals({"conversation_id": "c", **judgment})) == (None, None)


def test_the_sources_used_are_named_sorted() -> None:
    rows = [trial("c1", "t1", correct=True), trial("c2", "t2")]
    actual = reliability(known(rows, tools(), goals({"conversation_id": "c2", "value": 0.0})))
    assert actual["correctness_source"].to_list() == ["goal_completion + outcome"]


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"judge": "m", "value": 1.0}, "1 part decided by people, the rest not checked"),
        ({"judge": "human", "value": 1.0}, "2 parts decided by people"),
        ({"judge": "rule", "value": 0.0}, "1 part decided by people"),
        (None, "1 part decided by people"),  # its outcome is declared
    ],
)
def test_only_answers_of_a_judge_are_not_checked(others: dict[str, Any] | None, said: str) -> None:
    rows = [trial("c1", "t1"), trial("c2", "t2", correct=True if others is None else None)]
    by_people = {"conversation_id": "c1", "value": 0.0, "judge": "human", "judge_model": "anna"}
    further = [] if others is None else [{"conversation_id": "c2", **others}]
    actual = reliability(known(rows, tools(), goals(by_people, *further)))
    assert actual["labels"].to_list() == [said] * actual.height


def test_versions_are_judged_apart() -> None:
    rows = [trial("c", "t"), trial("c", "t", methodology_version="1.2.0")]
    actual = reliability(known(rows, tools(), goals({"conversation_id": "c", "value": 1.0})))
    assert actual.select("methodology_version", "pass_hat_k").rows() == [("1.2.0", None), ("1.3.0", 1.0)]


@pytest.mark.parametrize(
    ("k", "at", "hat", "words"),
    [
        (3, 0.96, 0.71, "reliable"),
        (3, 0.96, 0.70, "between (not rated)"),
        (3, 0.96, 0.50, "between (not rated)"),
        (3, 0.96, 0.49, "inconsistent"),
        (3, 0.95, 0.90, "between (not rated)"),
        (3, 0.70, 0.10, "between (not rated)"),
        (3, 0.1 + 0.6, 0.1, "between (not rated)"),  # 0.7 but for the last bit
        (3, 0.69, 0.69, "needs improvement"),
        (1, 1.00, 1.00, "single run"),
        (3, None, None, None),
    ],
)
def test_assessment_follows_its_bounds(k: int, at: Any, hat: Any, words: str | None) -> None:
    schema = {"k": pl.Int64, "pass_at_k": pl.Float64, "pass_hat_k": pl.Float64}
    row = pl.DataFrame([(k, at, hat)], schema=schema, orient="row")
    assert row.select(assessment()).item() == words


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.sampled_from("xyz"), st.sampled_from([True, False, None])), min_size=1, max_size=12
    ),
    st.randoms(use_true_random=False),
)
def test_row_order_does_not_matter(runs: list[tuple[str, bool | None]], random: Any) -> None:
    rows = [trial(f"c{i}", task, correct=correct) for i, (task, correct) in enumerate(runs)]
    shuffled = random.sample(rows, len(rows))
    assert_frame_equal(of(rows), of(shuffled), check_exact=True)


def test_ten_thousand_tasks_of_eight_trials_are_counted() -> None:
    ids = pl.DataFrame({"task": range(10_000)}).join(pl.DataFrame({"trial": range(8)}), how="cross")
    fixed = transcripts([trial("", None)]).drop("conversation_id", "task_id", "trial")
    names = {"conversation_id": pl.format("c{}-{}", "task", "trial"), "task_id": pl.format("t{}", "task")}
    many = ids.select("trial", **names).join(fixed, how="cross")
    # task i has i mod 9 successes: the mean share is 1/2 but for the last task of the cycle
    absent = conversations([trial("", None)]).drop("conversation_id", "outcome_correct")
    right = pl.col("trial") < pl.col("task") % 9
    declared = ids.select(**names, outcome_correct=right).drop("task_id").join(absent, how="cross")
    actual = reliability(known([])._replace(transcripts=any_table(many), conversations=any_table(declared)))
    # 1,111 full cycles of 0..8 (36 successes each), then one task with 0
    assert actual["n_successes"][0] == 1_111 * 36
    assert actual["pass_hat_k"][0] == pytest.approx(1_111 * 36 / 80_000)


def board(agent_id: str, hat: float | None, **more: Any) -> dict[str, Any]:
    counts = dict.fromkeys(["n_tasks", "n_tasks_excluded", "n_trials", "n_trials_unknown", "n_successes"], 1)
    row = {**PAIR, "agent_id": agent_id, "task_set": "airline", "k": 2, "estimator": "unbiased", **counts}
    return {**row, "pass_hat_k": hat, **more}


def test_the_board_shares_ranks_skips_after_ties_and_lists_the_unknown_last() -> None:
    rows = [board("d", 0.2), board("e", None), board("b", 0.1 + 0.2), board("c", 0.3), board("a", 0.9)]
    actual = reliability_leaderboard(table("reliability").frame(rows))
    assert actual.select("agent_id", "rank").rows() == [("a", 1), ("b", 2), ("c", 2), ("d", 4), ("e", None)]


def test_the_board_ranks_within_version_task_set_k_and_estimator() -> None:
    other = ({"k": 3}, {"task_set": "retail"}, {"methodology_version": "1.2.0"}, {"estimator": "plug_in"})
    rows = [board("a", 0.9), *(board("b", 0.1, **more) for more in other)]
    assert reliability_leaderboard(table("reliability").frame(rows))["rank"].to_list() == [1] * 5


def test_only_agents_that_have_tasks_in_common_are_ranked_together() -> None:
    # d shares nothing: perfect on a task of its own
    shares = {"a": (0.9, "12"), "b": (0.8, "23"), "c": (0.95, "32"), "d": (1.0, "7"), "e": (0.5, "8")}
    rows = [board(name, hat, tasks=list(tasks)) for name, (hat, tasks) in shares.items()]
    rows += [board("f", 0.6, tasks=["8"]), board("g", None, tasks=[])]
    found = reliability_leaderboard(table("reliability").frame(rows))
    assert found.select("agent_id", "rank", "task_group", "n_common_tasks").rows() == [
        *(("c", 1, 1, 1), ("f", 1, 2, 1), ("a", 2, 1, 1), ("e", 2, 2, 1), ("b", 3, 1, 1)),
        *(("d", None, None, None), ("g", None, None, None)),
    ]


def test_the_only_agent_with_an_estimate_is_first_and_an_empty_board_has_the_tables_columns() -> None:
    rows = [board("a", 0.9, tasks=["1"]), board("g", None, tasks=[])]
    assert reliability_leaderboard(table("reliability").frame(rows))["rank"].to_list() == [1, None]
    nothing = reliability_leaderboard(table("reliability").empty())
    assert_frame_equal(nothing, table("reliability_leaderboard").empty())


def test_the_tasks_of_an_estimate_are_named() -> None:
    found = of([*runs("x", True, True), *runs("y", None)], ks=[1, 2])
    assert found.select("k", "tasks", "excluded_tasks").rows() == [(1, ["x"], ["y"]), (2, ["x"], ["y"])]


def test_excluded_tasks_are_named_where_the_estimator_needs_more_trials() -> None:
    rows = [*runs("long", True, True), *runs("short", True)]
    made = of(rows, ks=[2], estimators=["unbiased", "plug_in", "bayesian"])
    told = made.select("estimator", "n_tasks", "n_tasks_excluded", "excluded_tasks").rows()
    assert told == [("bayesian", 2, 0, []), ("plug_in", 2, 0, []), ("unbiased", 1, 1, ["short"])]


def test_each_estimator_gives_its_own_estimate() -> None:
    # 1 of 2: drawing two without putting back is never all right, with putting back 1/4; Beta(2, 2): 2·3/(4·5)
    made = of(runs("t", True, False), ks=[2], estimators=["unbiased", "plug_in", "bayesian"])
    expected = [("bayesian", pytest.approx(6 / 20)), ("plug_in", 0.25), ("unbiased", 0.0)]
    assert made.select("estimator", "pass_hat_k").rows() == expected


def test_one_task_has_a_posterior_but_no_interval_over_tasks() -> None:
    rows = runs("t", *[True] * 7, *[False] * 3)
    made = of(rows, ks=[3], estimators=["unbiased", "bayesian"]).rows(named=True)
    bayesian, unbiased = made
    assert (unbiased["pass_at_k_low"], unbiased["interval"]) == (None, "one task: no interval")
    assert (round(bayesian["pass_at_k"], 3), round(bayesian["pass_at_k_low"], 3)) == (0.945, 0.773)
    assert bayesian["interval"].startswith("prior Beta(1, 1); covers these tasks again")
    assert bayesian["interval"].endswith("more data are needed")


def test_the_bayesian_row_is_hierarchical_and_the_pooled_one_takes_all_tasks_as_equally_hard() -> None:
    rows = [row for t in range(5) for row in runs(f"t{t}", *[i < t for i in range(4)])]
    bayesian, pooled = of(rows, ks=[2], estimators=["bayesian", "pooled"]).rows(named=True)
    expected = posterior_of_new_tasks({(4, c): 1 for c in range(5)}, 2).pass_hat_k
    assert (bayesian["pass_hat_k"], bayesian["pass_hat_k_low"]) == (expected.mean, expected.low)
    assert (bayesian["estimand"], pooled["estimand"]) == ("new tasks of this kind", "these tasks again")
    # 10 of 20 trials: Beta(11, 11): 11/22 × 12/23
    assert pooled["pass_hat_k"] == pytest.approx(11 / 22 * 12 / 23)
    assert (pooled["pass_hat_k_worst"], pooled["pass_hat_k_best"]) == (pooled["pass_hat_k"],) * 2


def in_families(n_families: int) -> list[dict[str, Any]]:
    """Tasks of one trial, two in each family; every other family is solved."""
    names = [(f"t{t}", t // 2) for t in range(2 * n_families)]
    return [row for name, of in names for row in runs(name, of % 2 == 0, task_family=f"f{of}")]


def test_the_interval_over_families_is_that_of_as_many_shares() -> None:
    unbiased, bayesian, pooled = (
        of(in_families(8), ks=[1], estimators=[name]).row(0, named=True)
        for name in ("unbiased", "bayesian", "pooled")
    )
    # eight families, four of them with both tasks solved: as eight single trials
    expected = share_mean(0.5, 0.25 * 8 / 7, 8, step=1 / 2)
    assert (unbiased["pass_hat_k_low"], unbiased["pass_hat_k_high"]) == pytest.approx(expected)
    assert unbiased["interval"] == "over 8 families of tasks; covers new tasks of this kind"
    assert bayesian["pass_hat_k_low"] is None
    assert "takes tasks as independent" in bayesian["interval"]
    assert pooled["pass_hat_k_low"] is not None
    few = of(in_families(4), ks=[1]).row(0, named=True)
    assert (few["pass_hat_k"], few["pass_hat_k_low"]) == (0.5, None)
    assert few["interval"] == "no interval: too few families, 4 of at least 5"


def test_one_trial_per_task_has_no_posterior_of_two_attempts() -> None:
    rows = [row for t in range(20) for row in runs(f"t{t}", True)]
    one, two = of(rows, ks=[1, 2], estimators=["bayesian"]).rows(named=True)
    assert one["pass_hat_k"] == pytest.approx(0.965, abs=5e-3)
    assert (two["pass_hat_k"], two["estimand"]) == (None, None)
    assert "not identified" in two["interval"]


def test_an_interval_over_tasks_is_that_of_their_estimates() -> None:
    rows = [row for t in range(5) for row in runs(f"t{t}", *[i < t for i in range(4)])]
    row = of(rows, ks=[1]).row(0, named=True)
    # shares 0, ¼, ½, ¾, 1: mean ½, variance 10/16/4
    expected = share_mean(0.5, 10 / 16 / 4, 5, step=1 / 4)
    assert (row["pass_hat_k_low"], row["pass_hat_k_high"]) == expected
    assert row["interval"] == "over tasks; covers new tasks of this kind"


def test_the_verdict_of_the_hallucination_test_alone_is_no_pass_rate() -> None:
    test = trial("h", "hallucination", correct=True, tests=["hallucination"])
    others = [trial(f"c{i}", f"t{i}") for i in range(7)]
    for trials in ([test], [test, *others]):
        [row] = reliability(known(trials)).to_dicts()
        assert (row["pass_at_k"], row["pass_at_1"], row["n_known"]) == (None, None, 0)
        assert (row["pass_at_k_worst"], row["pass_at_k_best"]) == (0.0, 1.0)
    # beside an outcome of a task, it is a task like the others
    [row] = reliability(known([test, trial("c", "t", correct=False)])).to_dicts()
    assert (row["pass_at_k"], row["n_known"]) == (0.5, 2)
