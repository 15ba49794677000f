"""Drift of a judge model: which turns are asked again, and what equal, shifted and random answers amount to."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from agent_eval.judge.audits.drift import label_kappa, latest_drift, weighted_kappa
from agent_eval.judge.audits.sampling import audit_sample
from agent_eval.judge.llm.calls import QuestionSequence
from agent_eval.judge.protocol import Question
from agent_eval.metrics.metric_set import DEFAULT
from agent_eval.tables import table
from agent_eval.transcripts.models import Conversation, Message

TALK = Conversation(conversation_id="c", messages=(Message(role="user", content="hi"),))
HELPFULNESS, COHERENCE = DEFAULT.get("helpfulness"), DEFAULT.get("coherence")


def question(name: str, turn_index: int | None) -> Question:
    keys = {m.name: f"{name}-{turn_index}-{m.name}" for m in (HELPFULNESS, COHERENCE)}
    return Question(
        (TALK,), (TALK.turns(),), turn_index, f"{name}-{turn_index}", (HELPFULNESS, COHERENCE), keys
    )


def sequence(name: str, n_turns: int) -> QuestionSequence:
    return QuestionSequence([*(question(name, i) for i in range(n_turns)), question(name, None)])


def keys_of(sequences: dict[str, list[QuestionSequence]]) -> set[str]:
    return {key for of in sequences.values() for t in of for q in t.questions for key in q.keys.values()}


def test_every_agent_gives_a_turn_before_any_gives_a_second() -> None:
    sequences = {"a": [sequence("x", 5)], "b": [sequence("y", 5), sequence("z", 5)]}
    sample = audit_sample(sequences, keys_of(sequences), 2)
    assert {unit.questions[0].content_hash[0] for unit in sample} & {"x"}
    assert {unit.questions[0].content_hash[0] for unit in sample} & {"y", "z"}


def test_the_sample_is_fixed_and_grows_by_turns() -> None:
    sequences = {"a": [sequence("x", 4), sequence("y", 4)], "b": [sequence("z", 4)]}
    turned = {agent: list(reversed(of)) for agent, of in reversed(sequences.items())}
    answered = keys_of(sequences)
    small, large = (audit_sample(sequences, answered, size) for size in (3, 6))
    assert [u.questions[0].content_hash for u in large][:3] == [u.questions[0].content_hash for u in small]
    assert audit_sample(turned, answered, 6) == large
    assert len(audit_sample(sequences, answered, 100)) == 12  # all turns; the wholes go with their last


def test_only_what_was_answered_is_asked_again() -> None:
    sample = audit_sample({"a": [sequence("x", 2)]}, {"x-1-coherence", "x-None-helpfulness"}, 9)
    assert [[(q.turn_index, list(q.keys)) for q in unit.questions] for unit in sample] == [
        [(1, ["coherence"]), (None, ["helpfulness"])]
    ]
    assert replace(sample[0], questions=[]) == QuestionSequence([])


ratings = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=2, max_size=20)


@given(ratings)
def test_kappa_is_that_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    before, after = map(list, zip(*pairs, strict=True))
    ours = weighted_kappa(before, after)
    if ours is None:
        assert len({*before, *after}) == 1
    else:
        assert ours == pytest.approx(
            cohen_kappa_score(before, after, weights="quadratic", labels=[1, 2, 3, 4, 5])
        )
    if len({*before, *after}) > 1:
        words = [str(x) for x in before], [str(x) for x in after]
        assert label_kappa(*words) == pytest.approx(cohen_kappa_score(*words))


def test_kappa_of_one_word_or_of_nothing_is_undefined() -> None:
    assert label_kappa(["a", "a"], ["a", "a"]) is None
    assert weighted_kappa([4, 4], [4, 4]) is None
    assert weighted_kappa([], []) is None
    assert label_kappa([], []) is None


def answer(
    audit: str, key: str, metric: str, before: dict[str, object], after: dict[str, object]
) -> dict[str, object]:
    said: dict[str, object] = {"verdict_before": json.dumps(before), "verdict": json.dumps(after)}
    said |= {"content_hash": key, "turn_index": 0}
    return {"audit_id": audit, "cache_key": key, "metric": metric, "model": "m"} | said


def test_the_latest_audit_counts_and_units_are_not_mixed() -> None:
    rows = [
        answer("2026-01", "old", "helpfulness", {"rating_1to5": 5}, {"rating_1to5": 1}),
        answer("2026-02", "a", "helpfulness", {"rating_1to5": 5}, {"rating_1to5": 4}),
        answer("2026-02", "b", "helpfulness", {"rating_1to5": 3}, {"rating_1to5": 3}),
        answer("2026-02", "c", "goal_completion", {"value": 0.0}, {"value": 1.0}),
        answer("2026-02", "d", "agent_behavior_failure", {"label": "no failure"}, {"label": "repetition"}),
    ]
    found = {
        row["metric"]: row for row in latest_drift(table("judge_audits").frame(rows)).iter_rows(named=True)
    }
    assert (found["helpfulness"]["n"], found["helpfulness"]["share_equal"]) == (2, 0.5)
    assert found["helpfulness"]["mean_difference"] == -0.5
    # means 4 and 3.5, variances 1 and 0.25: by chance 1 + 0.25 + 0.25 = 1.5; seen (1 + 0) / 2; 1 − 1/3
    assert found["helpfulness"]["kappa"] == pytest.approx(2 / 3)
    assert found["goal_completion"]["mean_difference"] == 1.0
    assert found["agent_behavior_failure"]["mean_difference"] is None
    assert (found["all"]["n"], found["all"]["n_equal"], found["all"]["mean_difference"]) == (4, 1, -0.5)
    assert latest_drift(table("judge_audits").empty()).is_empty()


def test_the_limits_of_drift_are_those_of_means_over_turns() -> None:
    # one answer per turn: the jackknife of a mean is its standard error
    changes = [0, 0, 1, 0, -1, 0, 0, 2]
    rows = [
        answer("2026-02", f"k{i}", "helpfulness", {"rating_1to5": 3}, {"rating_1to5": 3 + change})
        for i, change in enumerate(changes)
    ]
    found = latest_drift(table("judge_audits").frame(rows)).row(0, named=True)
    low, high = stats.t.interval(0.95, 7, loc=np.mean(changes), scale=stats.sem(changes))
    assert (found["mean_difference_low"], found["mean_difference_high"]) == pytest.approx((low, high))
    # 5 of 8 equal
    low, high = stats.t.interval(0.95, 7, loc=5 / 8, scale=stats.sem([1] * 5 + [0] * 3))
    clopper = stats.binomtest(5, 8).proportion_ci(0.95, method="exact")
    expected = max(low, clopper.low), min(high, clopper.high)
    assert (found["share_equal_low"], found["share_equal_high"]) == pytest.approx(expected)


def test_answers_on_one_turn_are_one_cluster() -> None:
    def limits(turns: list[int]) -> tuple[float, float]:
        rows = [
            answer("2026-02", f"k{i}", f"m{i}", {"rating_1to5": 3}, {"rating_1to5": 3 + turn % 2})
            | {"content_hash": f"c{turn}"}
            for i, turn in enumerate(turns)
        ]
        found = latest_drift(table("judge_audits").frame(rows)).filter(metric="all").row(0, named=True)
        return found["mean_difference_low"], found["mean_difference_high"]

    apart, together = limits(list(range(20))), limits([i // 5 for i in range(20)])
    assert together[1] - together[0] > 2 * (apart[1] - apart[0])


def test_turns_that_all_agree_leave_room_for_what_they_miss() -> None:
    rows = [
        answer("2026-02", f"k{i}", "helpfulness", {"rating_1to5": 2 + i % 3}, {"rating_1to5": 2 + i % 3})
        for i in range(20)
    ]
    found = latest_drift(table("judge_audits").frame(rows)).row(0, named=True)
    missed = 1 - 0.025 ** (1 / 20)
    assert found["share_equal_low"] == pytest.approx(1 - missed)
    assert found["mean_difference_high"] == pytest.approx(missed)
    assert 0.6 < found["kappa_low"] < found["kappa_high"] == 1
