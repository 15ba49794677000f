"""Errors of unknown cause in rates: the point counts what the source declares, worst to best covers both causes."""

from math import comb
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_eval
from agent_eval.errors import InputError
from agent_eval.judge.protocol import NotApplicable
from agent_eval.judge.rules.declared import declared_outcome
from agent_eval.scores.reliability.shortfall import shortfall
from agent_eval.scores.reliability.trials import interaction_outcomes, trial_outcomes
from agent_eval.scores.statistics.compare import task_values
from agent_eval.scores.tools.assertions import assertion_results
from agent_eval.scores.tools.expected_calls import expected_calls
from agent_eval.tables import table
from agent_eval.transcripts.models import Conversation
from tests.scores.builders import judgment
from tests.scores.test_bounds import known, made, scored, trials
from tests.transcripts.making import conversation
from tests.untyped import any_table

DECLARED: dict[str, Any] = {"outcome_class": "unexplained_error", "outcome_correct": False}
OPEN: dict[str, Any] = {"outcome_class": "unexplained_error", "outcome_correct": None}
Row = dict[str, Any]


def crashed(task: str, *outcomes: bool | str) -> list[Row]:
    """Trials of one task: correct, failed, or crashed for an unknown cause with (`declared`) or without (`open`) a verdict."""
    of: dict[str, Row] = {"declared": DECLARED, "open": OPEN}
    return [
        row | of.get(str(outcome), {})
        for row, outcome in zip(trials(task, *(o is True for o in outcomes)), outcomes, strict=True)
    ]


def test_a_declared_failure_by_an_error_of_unknown_cause_counts_and_is_covered_by_the_range() -> None:
    rows = [*crashed("t", True, "declared", False, False), *crashed("u", "declared")]
    [row] = made(rows, ks=[1]).to_dicts()
    assert (row["pass_hat_k"], row["pass_hat_k_worst"], row["pass_hat_k_best"]) == (1 / 8, 1 / 8, 3 / 4)
    assert (row["pass_at_1"], row["pass_at_1_worst"], row["pass_at_1_best"]) == (1 / 8, 1 / 8, 3 / 4)
    assert (row["n_planned"], row["n_known"], row["n_unknown"], row["n_unexplained_errors"]) == (5, 5, 0, 2)
    assert shortfall(row) == (
        "5 of 5 planned trials known; 2 ended in errors of unknown cause, counted as declared (worst to best case covers "
        "a failure of the harness)"
    )


def test_a_crash_without_a_verdict_is_unknown_whatever_a_judge_says_of_it() -> None:
    rows = crashed("t", True, "open")
    goals = [{**judgment("t-1", "goal_completion", 0.0), "agent_id": "a"}]
    found = trial_outcomes(known(rows, goals=goals)).sort("conversation_id")
    wanted = [(True, False, False), (None, False, True)]
    assert found.select("is_correct", "is_harness_error", "is_unexplained_error").rows() == wanted
    row = made(rows, ks=[1]).to_dicts()[0]
    assert (row["pass_hat_k"], row["pass_hat_k_worst"], row["pass_hat_k_best"]) == (1.0, 0.5, 1.0)
    assert (row["n_unknown"], row["n_unexplained_errors"]) == (1, 1)


CRASHES = st.lists(st.sampled_from([True, False, "declared", "open"]), min_size=1, max_size=4)


@given(st.lists(CRASHES, min_size=1, max_size=4), st.data())
def test_the_range_contains_each_attribution_of_errors(
    tasks: list[list[bool | str]], data: st.DataObject
) -> None:
    rows = [row for i, outcomes in enumerate(tasks) for row in crashed(f"t{i}", *outcomes)]
    # a trial that the harness lost is left out (None), or passed or failed if it had been run
    causes = st.sampled_from([True, False, None])
    truth = [[o if isinstance(o, bool) else data.draw(causes) for o in of] for of in tasks]
    run = [[bool(o) for o in of] for of in truth]
    left_out = [[o for o in of if o is not None] for of in truth]
    for row in made(rows, ks=[1, 2, 3, 4], estimators=["unbiased"]).to_dicts():
        k = row["k"]
        for filled in (left_out, run):
            enough = [of for of in filled if len(of) >= k]
            if not enough or (filled != run and k > 1):
                continue
            hat = sum(comb(sum(of), k) / comb(len(of), k) for of in enough) / len(enough)
            at = sum(1 - comb(len(of) - sum(of), k) / comb(len(of), k) for of in enough) / len(enough)
            assert row["pass_hat_k_worst"] - 1e-9 <= hat <= row["pass_hat_k_best"] + 1e-9
            assert row["pass_at_k_worst"] - 1e-9 <= at <= row["pass_at_k_best"] + 1e-9


def test_a_comparison_and_the_board_count_the_crash_in_their_best_case() -> None:
    rows = [*crashed("t", True, "declared"), *crashed("u", False)]
    of = known(rows)
    judged = of.turn_judgments, of.conversation_judgments
    values = task_values(trial_outcomes(of), of.conversations, *judged, unasked=()).filter(quantity="pass@1")
    counted = values.select("value", "worst", "best", "n_unexplained_errors")
    assert counted.rows() == [(0.5, 0.5, 1.0, 1), (0.0, 0.0, 0.0, 0)]
    goals = [judgment(name, "goal_completion", float(name == "t-0")) for name in ("t-0", "t-1", "u-0")]
    row = scored(rows, goals, []).to_dicts()[0]
    assert [row[f"goal_completion{end}"] for end in ("", "_worst", "_best")] == [1 / 3, 1 / 3, 2 / 3]
    assert (row["n_unexplained_errors"], row["n_harness_errors"], row["n_goal_unknown"]) == (1, 0, 0)


def test_goal_completion_does_not_ask_about_a_crash_without_a_verdict() -> None:
    left_open, declared = (
        declared_outcome(Conversation.model_validate(conversation("c", outcome=given | {"error": "boom"})))
        for given in ({}, {"reward": 0.0})
    )
    assert isinstance(left_open, NotApplicable)
    assert getattr(declared, "value", None) == 0.0


def test_an_assertion_that_fails_after_a_crash_of_unknown_cause_is_unknown() -> None:
    expected = '[{"turn_index": null, "tools": [{"name": "refund", "arguments": {}}], "answer": null}]'
    rows = [row | {"expected": expected} for row in crashed("t", False, "declared", "open")]
    tables = known(rows)
    found = assertion_results(
        tables.transcripts, tables.conversations, any_table(table("tool_calls").empty())
    )
    assert found.sort("conversation_id")["result"].to_list() == ["failed", "unknown", "unknown"]


def test_a_k_beyond_all_tasks_says_so() -> None:
    one_each = [*trials("a", True), *trials("b", False), *trials("c", True)]
    one, four = made(one_each, ks=[1, 4]).to_dicts()
    assert (one["pass_hat_k"], one["n_tasks"], one["reason"]) == (2 / 3, 3, None)
    assert (four["pass_hat_k"], four["n_tasks"], four["interval"]) == (None, 0, four["reason"])
    assert four["reason"] == "no estimate: k is 4, but no task has more than 1 trial with a known outcome"


OUTCOMES = st.lists(st.sampled_from([True, False, None]), min_size=1, max_size=4)


@settings(max_examples=15)
@given(st.lists(OUTCOMES, min_size=1, max_size=4))
def test_any_set_of_k_gives_the_rows_of_each_k_alone(tasks: list[list[bool | None]]) -> None:
    rows = [row for i, outcomes in enumerate(tasks) for row in trials(f"t{i}", *outcomes)]
    alone = {k: made(rows, ks=[k]).to_dicts() for k in (1, 2, 4)}
    for ks in ([1, 2], [1, 4], [2, 4], [1, 2, 4]):
        assert made(rows, ks=ks).to_dicts() == [row for k in ks for row in alone[k]]


def of_frame(task_id: list[Any], is_correct: list[Any], ks: list[int] | None = None) -> list[Row]:
    types = {"task_id": pl.String, "is_correct": pl.Boolean}
    given = pl.DataFrame({"task_id": task_id, "is_correct": is_correct}, schema=types)
    return agent_eval.reliability_of(given, ks).to_dicts()


def test_reliability_of_counts_unknown_trials_and_rows_without_a_task() -> None:
    row = of_frame(["t"] * 4, [True, None, None, None])[0]
    assert (row["pass_hat_k"], row["n_trials"], row["n_unknown"]) == (1.0, 1, 3)
    assert (row["pass_hat_k_worst"], row["pass_hat_k_best"]) == (0.25, 1.0)
    assert row["reason"] == "3 of 4 trials are of unknown outcome"
    row = of_frame(["t", None, None], [True, False, True])[0]
    assert (row["pass_hat_k"], row["n_trials"], row["n_without_task"]) == (1.0, 1, 2)
    assert row["reason"] == "2 without a task id count in no estimate"
    row = of_frame(["t", "u"], [None, None])[0]
    assert (row["k"], row["pass_hat_k"], row["pass_hat_k_worst"], row["pass_hat_k_best"]) == (1, None, 0, 1)
    assert row["reason"].startswith("no estimate: no trial has a known outcome; 2 of 2")


def test_reliability_of_gives_each_k_what_it_gives_alone() -> None:
    given = ["a", "b", "b"], [False, True, True]
    both = of_frame(*given, [1, 2])
    assert both[:1] == of_frame(*given, [1])
    named = [(row["pass_hat_k"], row["n_tasks"], row["reason"]) for row in both]
    assert named == [(0.5, 2, None), (1.0, 1, None)]
    with pytest.raises(InputError, match="no task has more than 2"):
        of_frame(*given, [1, 4])


def test_ground_truth_is_what_its_json_says_and_not_how_it_is_written() -> None:
    words = '[{"turn_index": 0, "answer": "write \\"tools\\": [] into the file"}]'
    escaped = '[ { "turn_index" : 0, "\\u0061nswer" : "yes", "\\u0074ools" : [ {"name": "find", "arguments": {}} ] } ]'
    rows = [
        row | {"expected": text} for row, text in zip(trials("t", None, None), (words, escaped), strict=True)
    ]
    calls = expected_calls(table("conversations").frame(rows), table("tool_calls").empty())
    assert calls.select("conversation_id", "name").rows() == [("t-1", "find")]
    scores = [judgment(f"t-{i}", "answer_correctness", 1.0, turn_index=0, agent_id="a") for i in (0, 1)]
    tables = known(rows)._replace(turn_judgments=any_table(table("turn_judgments").frame(scores)))
    answered = interaction_outcomes(tables, tools_count=False)
    assert answered.select("conversation_id", "is_correct").rows() == [("t-0", True), ("t-1", True)]
