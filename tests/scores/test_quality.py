"""The summary of logs: means, rates and counts derived by hand, and which agents are logs."""

from typing import Any

import polars as pl
import pytest

from agent_eval.judge.sampling import NOT_SAMPLED, UNASKED
from agent_eval.scores.statistics.clustered import clustered_interval
from agent_eval.scores.statistics.compared_values import conversation_metrics, known_metrics
from agent_eval.scores.statistics.quality import (
    MetricFacts,
    answer_counts,
    by_rule,
    log_leaderboard,
    quality_summary,
)
from agent_eval.scores.statistics.unpaired import conversation_values
from agent_eval.tables import table

PAIR = {"methodology_version": "1.3.0", "agent_id": "bot"}
FAILURES = "agent_behavior_failure"
FACTS = MetricFacts(
    {"helpfulness": (1.0, 5.0), "goal_completion": (0.0, 1.0)}, [FAILURES], ["needs a judge model"]
)
KEYS = ("methodology_version", "agent_id", "conversation_id", "session_id", "task", "source")
OUTCOMES: dict[str, Any] = {**dict.fromkeys(KEYS, pl.String), "is_correct": pl.Boolean}


def judged(conversation: str, turn: int, metric: str, **answer: Any) -> dict[str, Any]:
    given = {"status": "scored", "judge": "model", "is_effective": True} | answer
    return {**PAIR, "conversation_id": conversation, "turn_index": turn, "metric": metric, **given}


def summary_of(
    judgments: list[dict[str, Any]],
    *,
    correct: dict[str, bool | None] | None = None,
    costs: dict[str, float] | None = None,
) -> dict[str, dict[str, Any]]:
    """Quantity → its row; every conversation is in a session of its first letter, by default of unknown outcome."""
    turns, whole = table("turn_judgments").frame(judgments), table("conversation_judgments").empty()
    correct = correct or {row["conversation_id"]: None for row in judgments}
    outcomes = pl.DataFrame(
        [
            {**PAIR, "conversation_id": c, "session_id": c[0], "is_correct": is_correct}
            | ({} if is_correct is None else {"source": "outcome"})
            for c, is_correct in correct.items()
        ],
        schema=OUTCOMES,
    )
    conversations = table("conversations").frame(
        {"agent_id": "bot", "conversation_id": c, "cost_usd": (costs or {}).get(c)} for c in correct
    )
    values = conversation_values(
        outcomes, known_metrics(conversation_metrics(turns, whole, UNASKED)), turns, [FAILURES], "no failure"
    )
    rows = quality_summary(values, outcomes, conversations, answer_counts(turns, whole, FACTS), FACTS)
    return {row["quantity"]: row for row in rows.to_dicts()}


def rated(conversation: str, *ratings: int, by: str = "model", start: int = 0) -> list[dict[str, Any]]:
    """The helpfulness of its turns."""
    return [
        judged(conversation, i, "helpfulness", rating_1to5=r, judge=by) for i, r in enumerate(ratings, start)
    ]


def open_question(
    conversation: str, turn: int = 0, metric: str = "helpfulness", reason: str = "needs a judge model"
) -> dict[str, Any]:
    return judged(conversation, turn, metric, judge="rule", status="not_applicable", unscored_reason=reason)


def test_a_mean_is_over_conversations_and_lost_answers_are_counted() -> None:
    lost = judged("b1", 1, "helpfulness", status="unscored", unscored_reason="parse_failure")
    answers = [*rated("a1", 5, 3), *rated("b1", 2), lost, open_question("b1", 2)]
    found = summary_of(answers, correct={"a1": True, "b1": None}, costs={"a1": 0.25})
    row = found["helpfulness"]
    assert (row["mean"], row["scale_low"], row["scale_high"]) == (3.0, 1.0, 5.0)  # ((5 + 3) / 2 + 2) / 2
    counts = ("n_conversations", "n_clusters", "n_scored", "n_unscored", "n_unasked")
    assert [row[n] for n in counts] == [2, 2, 3, 1, 1]
    assert (row["unscored_share"], row["clustered_by"]) == (0.25, "session")
    assert row["low"] < 3 < row["high"]
    success = found["success rate"]
    assert (success["mean"], success["n_scored"], success["n_unscored"]) == (1.0, 1, 1)
    assert success["low"] is None  # one conversation
    assert (found["cost_usd"]["mean"], found["cost_usd"]["n_unscored"]) == (0.25, 1)


def test_a_failure_rate_counts_only_turns_that_a_judge_other_than_a_rule_labelled() -> None:
    by_rule = {"judge": "rule", "label": "repetition"}
    found = summary_of(
        [
            judged("a1", 0, FAILURES, **by_rule),  # nobody else looked at this turn
            judged("a2", 0, FAILURES, label="no failure"),
            judged("a2", 1, FAILURES, **by_rule),
            judged("a2", 1, FAILURES, label="no failure", is_effective=False),
        ]
    )[f"failure rate: {FAILURES}"]
    assert (found["mean"], found["n_conversations"]) == (0.5, 1)
    assert (found["n_scored"], found["n_unasked"]) == (2, 1)


def test_answers_that_decide_the_success_rate_are_counted_too() -> None:
    goals = [judged(c, 0, "goal_completion", value=v) for c, v in (("a1", 1.0), ("b1", 0.0))]
    known: dict[str, bool | None] = {"a1": True, "b1": False}
    found = summary_of(goals, correct=known)
    assert (found["goal_completion"]["n_scored"], found["goal_completion"]["mean"]) == (2, 0.5)
    assert found["success rate"]["mean"] == 0.5


def test_without_any_answer_a_metric_has_no_mean_and_is_named() -> None:
    found = summary_of([open_question("a1")])
    assert set(found) == {"helpfulness"}
    assert (found["helpfulness"]["mean"], found["helpfulness"]["n_unasked"]) == (None, 1)


def test_an_interval_stays_on_its_scale_and_needs_two_clusters() -> None:
    names = [str(i) for i in range(100)]
    full = clustered_interval([1.0] * 100, names, bounds=(0.0, 1.0), point=1.0)
    assert full
    assert full.high == 1.0
    assert 0.95 < full.low < 0.975  # of 100 successes in 100: Clopper and Pearson's bound is 0.964
    costs = clustered_interval([0.0, 0.1], ["a", "b"], bounds=(0.0, None), point=1.0)
    assert costs
    assert costs.low == 0.0
    assert clustered_interval([1.0, 2.0], ["a", "a"], bounds=(1.0, 5.0), point=1.0) is None


def transcripts(slot: str | None) -> pl.DataFrame:
    ids = {"conversation_id": "c", "session_id": "s", "slot": slot, "is_admitted": True}
    return table("transcripts").frame([PAIR | ids])


@pytest.mark.parametrize(("slot", "agents"), [(None, ["bot"]), ("D1", [])])
def test_only_agents_without_slots_are_logs(slot: str | None, agents: list[str]) -> None:
    figures = {"mean": 4.0, "low": 3.0, "high": 4.5, "n_scored": 7, "n_unscored": 0, "n_unasked": 0}
    row = {**PAIR, "quantity": "helpfulness", "judges": ["m"], **figures}
    summary = table("quality_summary").frame([row])
    clusters = table("error_clusters").frame(
        {**PAIR, "cluster_id": c, "severity": s, "title": c, "n_turns": n}
        for c, s, n in (("often", "low", 9), ("severe", "critical", 1))
    )
    board = log_leaderboard(
        summary, clusters, transcripts(slot), table("agents").frame([{"agent_id": "bot"}])
    )
    assert board["agent_id"].to_list() == agents
    for row in board.to_dicts():
        assert (row["helpfulness_1to5"], row["helpfulness_1to5_low"], row["success_rate"]) == (4.0, 3.0, None)
        assert (row["top_cluster_id"], row["n_scored"], row["judges"]) == ("severe", 7, ["m"])


def test_answers_of_rules_are_no_mean_while_other_questions_are_open() -> None:
    """One silent turn of a hundred says nothing of the mean, in one conversation or in many."""
    silent = rated("a0", 1, by="rule")
    spread = [open_question(f"a{i}") for i in range(1, 100)]
    together = [open_question("a0", i) for i in range(1, 100)]
    for still_open in (spread, together):
        row = summary_of([*silent, *still_open])["helpfulness"]
        assert (row["mean"], row["low"], row["n_conversations"]) == (None, None, 0)
        assert (row["n_scored"], row["n_unasked"]) == (1, 99)
        assert by_rule(row) == "1 of 100 turns, by rule"
    # all turns were silent: nothing is open, so the mean is known
    known = summary_of([row for i in range(3) for row in rated(f"a{i}", 1, by="rule")])["helpfulness"]
    assert (known["mean"], by_rule(known)) == (1.0, None)


def test_answers_of_rules_count_only_in_conversations_that_a_judge_read_whole() -> None:
    by_rule = [row for c in ("a1", "a2", "a3") for row in rated(c, 1, by="rule")]
    read = [*rated("a1", 5, start=1), *rated("a2", 4, start=1)]
    row = summary_of([*by_rule, *read, open_question("a2", 2), open_question("a3", 1)])["helpfulness"]
    # a1 was read whole: (1 + 5) / 2 = 3; a2 not: 4; a3 only by a rule: unknown
    assert (row["mean"], row["n_conversations"]) == (3.5, 2)


def test_declared_values_count_because_either_value_can_be_declared() -> None:
    rows = [
        judged("a1", 0, "goal_completion", judge="rule", value=0.0),
        judged("a2", 0, "goal_completion", judge="rule", value=1.0),
        open_question("a3", metric="goal_completion"),
    ]
    row = summary_of(rows)["goal_completion"]
    assert (row["mean"], row["n_unasked"]) == (0.5, 1)


def test_answers_of_rules_outside_the_judged_sample_do_not_count() -> None:
    """Rules look at every conversation, so silent ones outside the sample would outweigh the judged ones."""
    silent = [row for i in range(9) for row in rated(f"b{i}", 1, by="rule")]
    left_out = [open_question(f"b{i}", 0, "coherence", NOT_SAMPLED) for i in range(9)]
    row = summary_of([*rated("a1", 5), *silent, *left_out])["helpfulness"]
    assert (row["mean"], row["n_conversations"]) == (5.0, 1)
