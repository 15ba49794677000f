"""Drift of a judge model: which turns are asked again, and what equal, shifted and random answers amount to."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
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
    place, metrics = f"{name}-{turn_index}", (HELPFULNESS, COHERENCE)
    keys = {m.name: f"{place}-{m.name}" for m in metrics}
    return Question((TALK,), (TALK.turns(),), turn_index, place, metrics, keys)


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
    [unit] = audit_sample({"a": [sequence("x", 2)]}, {"x-1-coherence", "x-None-helpfulness"}, 9)
    asked = [(q.turn_index, list(q.keys)) for q in unit.questions]
    assert asked == [(1, ["coherence"]), (None, ["helpfulness"])]
    assert replace(unit, questions=[]) == QuestionSequence([])


ratings = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=2, max_size=20)


@given(ratings)
@example([(4, 4), (4, 4)])
def test_kappa_is_that_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    before, after = map(list, zip(*pairs, strict=True))
    words = [str(x) for x in before], [str(x) for x in after]
    weighted, of_words = weighted_kappa(before, after), label_kappa(*words)
    if len({*before, *after}) == 1:  # undefined
        assert (weighted, of_words) == (None, None)
    else:
        expected = cohen_kappa_score(before, after, weights="quadratic", labels=[1, 2, 3, 4, 5])
        assert weighted == pytest.approx(expected)
        assert of_words == pytest.approx(cohen_kappa_score(*words))


def test_kappa_of_nothing_is_undefined() -> None:
    assert (weighted_kappa([], []), label_kappa([], [])) == (None, None)


def answer(
    key: str,
    before: object,
    after: object,
    metric: str = "helpfulness",
    kind: str = "rating_1to5",
    **more: str,
) -> dict[str, object]:
    said: dict[str, object] = {
        "verdict_before": json.dumps({kind: before}),
        "verdict": json.dumps({kind: after}),
    }
    said |= {"audit_id": "2026-02", "cache_key": key, "metric": metric, "model": "m"}
    return said | {"content_hash": key, "turn_index": 0} | more


def drift_of(*rows: dict[str, object]) -> dict[str, dict[str, Any]]:
    """Metric → its row."""
    found = latest_drift(table("judge_audits").frame(rows))
    return {row["metric"]: row for row in found.iter_rows(named=True)}


def test_the_latest_audit_counts_and_units_are_not_mixed() -> None:
    found = drift_of(
        answer("old", 5, 1, audit_id="2026-01"),
        answer("a", 5, 4),
        answer("b", 3, 3),
        answer("c", 0.0, 1.0, "goal_completion", "value"),
        answer("d", "no failure", "repetition", "agent_behavior_failure", "label"),
    )
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
    found = drift_of(*(answer(f"k{i}", 3, 3 + change) for i, change in enumerate(changes)))["helpfulness"]
    low, high = stats.t.interval(0.95, 7, loc=np.mean(changes), scale=stats.sem(changes))
    assert (found["mean_difference_low"], found["mean_difference_high"]) == pytest.approx((low, high))
    # 5 of 8 equal
    low, high = stats.t.interval(0.95, 7, loc=5 / 8, scale=stats.sem([1] * 5 + [0] * 3))
    clopper = stats.binomtest(5, 8).proportion_ci(0.95, method="exact")
    expected = max(low, clopper.low), min(high, clopper.high)
    assert (found["share_equal_low"], found["share_equal_high"]) == pytest.approx(expected)


def test_answers_on_one_turn_are_one_cluster() -> None:
    def limits(turns: list[int]) -> tuple[float, float]:
        answers = (answer(f"k{i}", 3, 3 + t % 2, f"m{i}", content_hash=f"c{t}") for i, t in enumerate(turns))
        found = drift_of(*answers)["all"]
        return found["mean_difference_low"], found["mean_difference_high"]

    apart, together = limits(list(range(20))), limits([i // 5 for i in range(20)])
    assert together[1] - together[0] > 2 * (apart[1] - apart[0])


def test_turns_that_all_agree_leave_room_for_what_they_miss() -> None:
    found = drift_of(*(answer(f"k{i}", 2 + i % 3, 2 + i % 3) for i in range(20)))["helpfulness"]
    missed = 1 - 0.025 ** (1 / 20)
    assert found["share_equal_low"] == pytest.approx(1 - missed)
    assert found["mean_difference_high"] == pytest.approx(missed)
    assert 0.6 < found["kappa_low"] < found["kappa_high"] == 1
