"""What a rate rests on, and its worst and best case: nothing leaves the denominator unseen."""

from math import comb
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_eval.scores.composite.leaderboard import leaderboard
from agent_eval.scores.composite.score import CompositeTables, composite_scores
from agent_eval.scores.reliability.over_tasks import Alike
from agent_eval.scores.reliability.pass_rates import reliability, reliability_leaderboard, trial_outcomes
from agent_eval.scores.reliability.refused import refused_records
from agent_eval.scores.reliability.shortfall import shortfall
from agent_eval.scores.reliability.trials import TrialTables
from agent_eval.scores.reliability.worst_and_best import worst_and_best
from agent_eval.scores.statistics.compare import compare, task_values
from agent_eval.tables import table
from tests.scores.builders import METHODOLOGIES, judgment
from tests.scores.test_compare import NO_SESSIONS
from tests.untyped import any_table

PAIR = {"methodology_version": "1.3.0", "agent_id": "a"}
HARNESS = {"outcome_class": "harness_error"}
COUNTS = ("n_planned", "n_known", "n_harness_errors", "n_unknown", "n_refused", "refused_sessions")
Row = dict[str, Any]


def trials(task: str, *outcomes: bool | str | None, **more: Any) -> list[Row]:
    """Trials of one task: correct, not, unknown, or 'harness' where the harness failed."""
    counts = {"n_turns": 1, "n_user_messages": 1, "tests": [], "is_admitted": True}
    fixed = PAIR | counts | {"session_id": "s", "benchmark_id": "s", "task_id": task, "task_set": "set"}
    return [
        fixed
        | {"conversation_id": f"{task}-{i}"}
        | (HARNESS if outcome == "harness" else {"outcome_correct": outcome})
        | more
        for i, outcome in enumerate(outcomes)
    ]


def each(n: int, *outcomes: bool | str | None, start: int = 0, **more: Any) -> list[Row]:
    """The same trials of n tasks."""
    return [row for i in range(start, start + n) for row in trials(f"t{i}", *outcomes, **more)]


def refusals(n: int, session: str | None = "s", agent: str = "a", **more: Any) -> list[Row]:
    return [
        {"agent_id": agent, "session_id": session, "file": "f", "line": i + 1, "reason": "bad"} | more
        for i in range(n)
    ]


def known(rows: list[Row], errors: list[Row] | None = None, goals: list[Row] | None = None) -> TrialTables:
    return TrialTables(
        table("transcripts").frame(rows),
        table("conversations").frame(rows),
        table("tool_correctness").empty(),
        table("conversation_judgments").frame(goals or []),
        table("turn_judgments").empty(),
        table("import_errors").frame(errors or []),
    )


def made(rows: list[Row], errors: list[Row] | None = None, **more: Any) -> pl.DataFrame:
    return reliability(known(rows, errors), **more)


def test_a_rate_says_what_was_planned_known_lost_and_refused() -> None:
    rows = [*trials("t", True, False, None, "harness"), *trials("u", True)]
    (row,) = made(rows, refusals(2), ks=[1]).to_dicts()
    assert [row[name] for name in COUNTS] == [7, 3, 1, 1, 2, ["s: 2"]]
    # t: 1 of 2, u: 1 of 1; worst 1/4 and 1/2, as one refused record failed u and one another task; best 3/4, 1, 1, 1
    assert row["pass_hat_k"] == pytest.approx((1 / 2 + 1) / 2)
    assert row["pass_hat_k_worst"] == pytest.approx((1 / 4 + 1 / 2 + 0) / 3)
    assert row["pass_hat_k_best"] == pytest.approx((3 / 4 + 1 + 2) / 4)
    assert shortfall(row) == (
        "3 of 7 planned trials known: 1 lost to the harness, 1 of unknown outcome, 2 refused at import (s: 2)"
    )


def test_where_every_trial_is_known_worst_and_best_are_the_estimate() -> None:
    rows = [*trials("t", True, False, True), *trials("u", False, False, True), *trials("v", True)]
    for row in made(rows, estimators=["unbiased", "plug_in", "bayesian"]).to_dicts():
        for name in ("pass_at_k", "pass_hat_k"):
            assert row[f"{name}_worst"] == pytest.approx(row[name]) == row[f"{name}_best"]
        assert shortfall(row) is None


def test_a_trial_that_the_harness_lost_is_no_failure_whatever_a_judge_says_of_it() -> None:
    goals = [{**judgment("t-0", "goal_completion", 0.0), "agent_id": "a"}]
    found = trial_outcomes(known(trials("t", "harness", True), goals=goals)).sort("conversation_id")
    wanted = [(None, None, True), (True, "outcome", False)]
    assert found.select("is_correct", "source", "is_harness_error").rows() == wanted


def test_a_task_that_only_the_harness_shortened_is_in_the_worst_and_best_case_of_the_largest_k() -> None:
    # long: 4 of 4; short: 3 known failures and one lost: with 4 trials pass^4 is 0 either way
    rows = [*trials("long", *[True] * 4), *trials("short", False, False, False, "harness")]
    row = made(rows, ks=[4]).to_dicts()[0]
    assert (row["pass_hat_k"], row["excluded_tasks"]) == (0.5, ["short"])
    assert "the 1 tasks with enough known trials give 1.000" in row["interval"]
    assert (row["pass_hat_k_worst"], row["pass_hat_k_best"]) == (0.5, 0.5)


Outcome = st.sampled_from([True, False, None, "harness"])


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.lists(st.lists(Outcome, min_size=1, max_size=5), min_size=1, max_size=6), st.integers(0, 3), st.data()
)
def test_the_truth_lies_between_worst_and_best_for_each_k_on_its_own(
    tasks: list[list[bool | str | None]], n_refused: int, data: st.DataObject
) -> None:
    rows = [row for i, outcomes in enumerate(tasks) for row in trials(f"t{i}", *outcomes)]
    found = made(rows, refusals(n_refused)).to_dicts()
    truth = [[o if isinstance(o, bool) else data.draw(st.booleans()) for o in of] for of in tasks]
    for _ in range(n_refused):  # of a task that is there, or of another one
        at = data.draw(st.integers(0, len(truth)))
        truth = [*truth, []] if at == len(truth) else truth
        truth[at] = [*truth[at], data.draw(st.booleans())]
    alone = [row for row in found for row in made(rows, refusals(n_refused), ks=[row["k"]]).to_dicts()]
    assert alone == found
    for row in found:
        k = row["k"]
        enough = [of for of in truth if len(of) >= k]
        true_hat = sum(comb(sum(of), k) / comb(len(of), k) for of in enough) / len(enough)
        true_at = sum(1 - comb(len(of) - sum(of), k) / comb(len(of), k) for of in enough) / len(enough)
        for name, true in (("pass_hat_k", true_hat), ("pass_at_k", true_at)):
            assert row[f"{name}_worst"] - 1e-9 <= true <= row[f"{name}_best"] + 1e-9
            if row[name] is not None:
                assert row[f"{name}_worst"] - 1e-9 <= row[name] <= row[f"{name}_best"] + 1e-9


def test_lost_trials_of_failing_tasks_give_no_better_rank() -> None:
    sure = [*each(9, *[True] * 4, agent_id="sure"), *each(1, *[False] * 4, start=9, agent_id="sure")]
    lossy = each(6, *[True] * 4, agent_id="lossy")
    lossy += each(4, True, True, False, "harness", start=6, agent_id="lossy")
    board = reliability_leaderboard(any_table(made(sure + lossy, ks=[1, 4]))).filter(estimator="unbiased")
    rows = {(row["agent_id"], row["k"]): row for row in board.to_dicts()}
    assert (rows["lossy", 4]["pass_hat_k"], rows["lossy", 4]["rank"]) == (0.6, 2)
    assert (rows["sure", 4]["pass_hat_k"], rows["sure", 4]["rank"]) == (0.9, 1)
    assert rows["sure", 1]["rank"] == 1
    assert rows["lossy", 1]["pass_hat_k"] <= rows["lossy", 1]["pass_hat_k_best"] == pytest.approx(0.9)


def test_by_default_the_largest_k_is_one_that_half_of_the_tasks_reach() -> None:
    # one task was run a fifth time: pass^2..4 over all tasks but the short one, not pass^5 over a single task
    rows = [*trials("a", *[True] * 5), *trials("b", *[True] * 4), *trials("c", *[False] * 4)]
    found = made([*rows, *trials("d", True)])
    wanted = [(1, 4, 0), *((k, 3, 1) for k in (2, 3, 4))]
    assert found.select("k", "n_tasks", "n_tasks_excluded").rows() == wanted
    assert found["pass_at_1"].to_list() == [3 / 4] * 4


def test_an_assessment_that_open_trials_could_turn_is_unknown_and_says_why() -> None:
    [sure] = made(each(4, True, True)).filter(k=2).to_dicts()
    assert (sure["assessment"], sure["reason"]) == ("reliable", None)
    rows = [*each(2, True, True, "harness", "harness"), *each(2, True, True, start=2)]
    [row] = made(rows, ks=[2]).to_dicts()
    # worst: 2 of 4 in two tasks, pass@2 = 1 - 1/6, pass^2 = 1/6: (5/6 + 1)/2 = 0.917, neither high nor low
    assert row["assessment"] == "unknown"
    assert row["reason"] == (
        "assessment is unknown: 4 of 12 trials are not known; between (not rated) at worst, reliable at best"
    )


def board(**agents: list[Row]) -> dict[str, Row]:
    rows = pl.concat(made([row | {"agent_id": name} for row in of]) for name, of in agents.items())
    return {row["agent_id"]: row for row in reliability_leaderboard(any_table(rows)).filter(k=1).to_dicts()}


def test_a_rank_that_open_trials_could_turn_is_unknown_with_the_ranks_they_allow() -> None:
    found = board(
        first=trials("t", *[True] * 9, False),
        second=[*trials("t", *[True] * 5, *[False] * 3, None, None)],
        third=trials("t", *[True] * 6, *[False] * 4),
        last=trials("t", *[False] * 10),
    )
    ranks = {name: (row["rank"], row["rank_low"], row["rank_high"]) for name, row in found.items()}
    # second is 5/8; worst 5/10, best 7/10, around third's 6/10
    assert ranks == {"first": (1, 1, 1), "second": (None, 2, 3), "third": (None, 2, 3), "last": (4, 4, 4)}
    assert found["first"]["reason"] is None
    assert "allow ranks 2 to 3" in found["third"]["reason"]


def test_an_agent_without_an_estimate_makes_no_other_rank_unknown() -> None:
    found = board(known=trials("t", True), other=trials("t", False), unjudged=trials("t", None))
    assert {name: row["rank"] for name, row in found.items()} == {"known": 1, "other": 2, "unjudged": None}


def test_refused_records_are_counted_by_session_and_task_set_where_the_session_counts() -> None:
    rows = [*trials("t", True), *trials("u", True, session_id="retail", task_set="retail")]
    rows += trials("v", True, session_id="old", is_admitted=False)
    more = "1,234 more records were refused; the first 10,000 are told"
    errors = [*refusals(3), *refusals(2, "retail"), *refusals(4, "old"), *refusals(1, None, file="g")]
    errors += refusals(1, "s", file="h", reason="the same as record 3, which was imported")
    errors += refusals(1, "s", file="i", line=0, reason=more)
    errors += refusals(1, "s", file="j", line=0, reason="the file contains no conversation")
    errors += refusals(7, "s", agent="other")
    found = refused_records(table("import_errors").frame(errors), table("transcripts").frame(rows))
    assert found.select("task_set", "n_refused", "refused_sessions").rows() == [
        ("retail", 3, ["no session: 1", "retail: 2"]),
        ("set", 1237, ["s: 1237"]),
    ]


def scored(rows: list[Row], goals: list[Row], errors: list[Row]) -> pl.DataFrame:
    session = {"agent_id": "a", "session_id": "s", "benchmark_id": "s", "methodology_versions": ["any"]}
    given = {
        "transcripts": rows,
        "sessions": [session],
        "conversations": rows,
        "conversation_judgments": [{**goal, "agent_id": "a"} for goal in goals],
        "import_errors": errors,
    }
    frames: dict[str, Any] = {name: table(name).frame(of) for name, of in given.items()}
    frames |= {name: table(name).empty() for name in ("universal_scores", "domain_scores")}
    return composite_scores(CompositeTables(**frames), METHODOLOGIES)


def on_board(scores: pl.DataFrame, rates: pl.DataFrame) -> Row:
    """The row of the agent on the leaderboard."""
    agents = table("agents").frame([{"agent_id": "a"}])
    return leaderboard(any_table(scores), agents, any_table(rates)).to_dicts()[0]


def test_goal_completion_and_pass_at_1_on_the_board_carry_their_counts_and_cases() -> None:
    rows = [*trials("t", True, False, "harness"), *trials("u", None)]
    goals = [judgment("t-0", "goal_completion", 1.0), judgment("t-1", "goal_completion", 0.0)]
    errors = refusals(1)
    row = on_board(scored(rows, goals, errors), made(rows, errors))
    # goals: 1 of 2 known, 5 planned
    assert [row[f"goal_completion{end}"] for end in ("", "_worst", "_best")] == [0.5, 0.2, 0.8]
    assert (row["n_goal_completion"], row["n_goal_unknown"]) == (2, 1)
    # pass@1: t is 1 of 2; of 3, u and the refused one 0 or 1
    assert row["pass_at_1"] == 0.5
    assert row["pass_at_1_worst"] == pytest.approx((1 / 3 + 0 + 0) / 3)
    assert row["pass_at_1_best"] == pytest.approx((2 / 3 + 1 + 1) / 3)
    assert [row[name] for name in COUNTS] == [5, 2, 1, 1, 1, ["s: 1"]]


def test_trials_of_a_session_that_was_declared_invalid_are_lost_to_the_harness_and_not_gone() -> None:
    invalid = {"is_admitted": False, "reason": "harness failure: it broke", "session_id": "b"}
    other = {"is_admitted": False, "reason": "superseded by c", "session_id": "old"}
    rows = [
        *trials("t", True),
        *trials("u", True),
        *trials("t", False, **invalid),
        *trials("u", False, **other),
    ]
    rows = [row | {"conversation_id": f"{row['session_id']}-{row['task_id']}"} for row in rows]
    row = made(rows, ks=[1]).to_dicts()[0]
    assert [row[name] for name in COUNTS[:3]] == [3, 2, 1]
    assert (row["pass_at_1"], row["pass_at_1_worst"], row["pass_at_1_best"]) == (1.0, 0.75, 1.0)
    shown = scored(rows, [], []).select("n_conversations", "n_planned", "n_harness_errors")
    assert shown.row(0) == (2, 3, 1)


def test_an_agent_of_which_every_record_was_refused_is_on_the_board_of_its_session() -> None:
    (row,) = scored([], [], refusals(40)).filter(methodology_version="1.3.0").to_dicts()
    assert (row["agent_id"], row["composite_score"], row["status"]) == ("a", None, "not_applicable")
    assert row["missing"] == ["no conversation: all 40 records were refused at import"]
    assert shortfall(row) == "0 of 40 planned trials known: 40 refused at import (s: 40)"
    assert scored([], [], refusals(40, "unknown-session")).is_empty()


def test_trials_without_a_task_are_named_beside_the_rate_that_leaves_them_out() -> None:
    rows = [*trials("t", True), *trials("u", False, task_id=None)]
    row = on_board(scored(rows, [], []), made(rows))
    assert (row["pass_at_1"], row["n_planned"], row["n_known"]) == (1.0, 2, 1)
    assert made(rows, ks=[1])["n_without_task"].to_list() == [1]
    apart = "; 1 without one, which count in no pass rate"
    assert shortfall(row) == f"1 of 1 planned trials with a task id known{apart}"
    lost = row | {"n_planned": 5, "n_harness_errors": 2, "n_unknown": 1}
    because = ": 2 lost to the harness, 1 of unknown outcome"
    assert shortfall(lost) == f"1 of 4 planned trials with a task id known{because}{apart}"


def test_a_board_of_rows_of_an_earlier_release_keeps_its_pass_at_1() -> None:
    rows = trials("t", True, False)
    new = ("pass_at_1", "pass_at_1_worst", "pass_at_1_best", "n_tasks_known", "n_planned", "n_known")
    old = made(rows).with_columns(pl.lit(None, table("reliability").schema[name]).alias(name) for name in new)
    row = on_board(scored(rows, [], []), old)
    assert (row["pass_at_1"], row["n_tasks"], row["n_known"]) == (0.5, 1, None)


def compared(ours: list[Row], theirs: list[Row], errors: list[Row] | None = None) -> Row:
    sides = [row | {"agent_id": name} for name, rows in (("a", ours), ("b", theirs)) for row in rows]
    tables = known(sides, errors)
    judged = tables.turn_judgments, tables.conversation_judgments
    values = task_values(trial_outcomes(tables), tables.conversations, *judged, unasked=())
    refused = refused_records(any_table(tables.import_errors), tables.transcripts)
    (row,) = compare("a", "b", NO_SESSIONS, values, refused).filter(quantity="pass@1").to_dicts()
    return row


def of_tasks(n: int, right: int) -> list[Row]:
    return [*each(right, True), *each(n - right, False, start=right)]


def test_a_comparison_that_stands_in_worst_and_best_case_keeps_its_verdict() -> None:
    row = compared(of_tasks(20, 18), [*of_tasks(19, 0), *trials("t19", "harness")])
    assert (row["verdict"], row["reason"]) == ("a better", None)
    assert (row["n"], row["difference"], row["difference_worst"]) == (19, 18 / 19, 17 / 20)
    assert (row["other_n_planned"], row["other_n_known"], row["other_n_harness_errors"]) == (20, 19, 1)
    assert (row["other_value_worst"], row["other_value_best"]) == (0, 1 / 20)


def test_a_comparison_that_lost_trials_could_turn_is_unknown_and_says_why() -> None:
    lossy = [*of_tasks(10, 0), *each(10, "harness", start=10)]
    assert compared(of_tasks(20, 20), lossy)["verdict"] == "a better"
    weak = compared(of_tasks(20, 14), [*each(4, True), *each(16, None, start=4)])
    assert weak["verdict"] == "unknown"
    assert "16 of 20 trials of b are not known" in weak["reason"]
    assert weak["verdict_worst"] != weak["verdict_best"]


def test_an_agent_without_a_known_trial_is_compared_by_its_bounds() -> None:
    row = compared(of_tasks(12, 10), each(12, "harness"))
    names = ("verdict", "value", "other_value", "difference")
    assert [row[name] for name in names] == ["unknown", 10 / 12, None, None]
    assert (row["n"], row["other_value_worst"], row["other_value_best"]) == (0, 0, 1)
    assert row["reason"] == "too few trials are known of both: 12 of 12 trials of b are not"


def test_refused_records_can_turn_a_comparison() -> None:
    ours, theirs = of_tasks(12, 10), of_tasks(12, 2)
    assert compared(ours, theirs)["verdict"] == "a better"
    row = compared(ours, theirs, refusals(9, agent="b"))
    assert (row["verdict"], row["other_n_refused"], row["other_n_planned"]) == ("unknown", 9, 21)
    assert "9 of 21 trials of b are not known" in row["reason"]


def test_failures_of_interactions_do_not_decide_a_session_whose_rewards_tell_no_success() -> None:
    rows = [*trials("t", None, None, outcome_reward=0.8), *trials("u", None)]
    rows += trials("v", None, session_id="other")
    tools = table("tool_correctness").frame(
        {**PAIR, "conversation_id": name, "status": "scored", "is_correct": False}
        for name in ("t-0", "u-0", "v-0")
    )
    outcomes = trial_outcomes(known(rows)._replace(tool_correctness=tools))
    found = dict(outcomes.select("conversation_id", "is_correct").iter_rows())
    assert found == {"t-0": None, "t-1": None, "u-0": None, "v-0": False}


@pytest.mark.parametrize(
    ("k", "estimator", "is_given"),
    [(4, "bayesian", False), (1, "bayesian", True), (4, "pooled", True), (4, "unbiased", True)],
)
def test_the_range_of_hierarchical_pass_hat_k_is_not_claimed(k: int, estimator: str, is_given: bool) -> None:
    """A passed trial more of a mixed task lowers it: four of four and one of four give less than four and none."""
    tasks = [Alike(4, 4, 0, 0, 1, ()), Alike(4, 0, 0, 1, 1, ())]
    found = worst_and_best(tasks, k, estimator, k if estimator == "unbiased" else 1, 0)
    assert (found["pass_hat_k_worst"] is not None) == (found["pass_hat_k_best"] is not None) == is_given
    assert found["pass_at_k_worst"] is not None
    if is_given:
        assert found["pass_hat_k_worst"] <= found["pass_hat_k_best"]  # type: ignore[operator]
    known = [Alike(4, 4, 0, 0, 1, ()), Alike(4, 0, 0, 0, 1, ())]
    row = worst_and_best(known, k, estimator, k if estimator == "unbiased" else 1, 0)
    assert row["pass_hat_k_worst"] == row["pass_hat_k_best"] is not None


@pytest.mark.parametrize("n_refused", [1, 64, 65, 300])
def test_refused_records_beside_many_passed_tasks_lower_the_worst_case_by_their_own_share(
    n_refused: int,
) -> None:
    tasks = [Alike(400, 400, 0, 0, 1000, ())]
    found = worst_and_best(tasks, 2, "unbiased", 2, n_refused)
    assert found["pass_at_k_worst"] == pytest.approx(1000 / (1000 + n_refused))
    assert found["pass_at_k_best"] == 1
