"""Metrics that measure themselves: answered by the rules judge, never by a model, and never fatal."""

import asyncio
from collections.abc import Sequence

from agent_eval.judge.protocol import NotApplicable, Question, Scored, Unscored, Verdict
from agent_eval.judge.rules import RulesJudge
from agent_eval.metrics.base import Measured, Metric
from agent_eval.metrics.metric_set import applicable
from agent_eval.transcripts.models import Conversation, Expected, Turn
from tests.judge.material import agent, conversation, user

OF = conversation(user("Hi"), agent("Hello."), user("And?"), agent("One two three."))


class Words(Metric):
    """Words of the judged turn's reply."""

    def measure(self, turns: Sequence[Turn], *_: object) -> Measured | None:
        n = len((turns[-1].agent_message or "").split())
        return Measured(f"{n} words", value=float(n), evidence=turns[-1].agent_message)


class Broken(Words):
    def measure(self, *_: object) -> Measured | None:
        raise KeyError("price")


class Undecided(Words):
    def measure(self, *_: object) -> Measured | None:
        return None


class BrokenCondition(Metric):
    def applies(self, turn: Turn, conversation: Conversation, expected: Expected | None) -> bool:
        raise ZeroDivisionError("0")


def made(kind: type[Metric], maximum: float = 100) -> Metric:
    anchors = {"0": "None.", "100": "Many."}
    return kind("words", "turn", "rating", "How many?", anchors, minimum=0, maximum=maximum)


def verdict(metric: Metric, turn_index: int = 1) -> Verdict:
    question = Question((OF,), (OF.turns()[: turn_index + 1],), turn_index, "hash", (metric,))
    return asyncio.run(RulesJudge().judge(question))[metric.name]


def test_its_own_measure_answers_for_the_judged_turn() -> None:
    for turn_index, n in ((0, 1.0), (1, 3.0)):
        found = verdict(made(Words), turn_index)
        assert isinstance(found, Scored)
        assert (found.value, found.answered_by) == (n, "rule")


def test_a_measure_that_fails_loses_one_judgment_and_says_why() -> None:
    found = verdict(made(Broken))
    assert isinstance(found, Unscored)
    assert (found.reason, "KeyError: 'price'" in found.detail) == ("judge_error", True)


def test_a_measure_off_its_own_scale_is_unscored() -> None:
    found = verdict(made(Words, maximum=2))
    assert isinstance(found, Unscored)
    assert "3; allowed: 0 to 2" in found.detail


def test_a_measure_that_cannot_decide_leaves_nothing_to_a_model() -> None:
    found = verdict(made(Undecided))
    assert isinstance(found, NotApplicable)
    assert not found.is_abstention


def test_a_condition_that_fails_is_told_by_the_row_and_not_lost() -> None:
    metric = made(BrokenCondition)
    assert applicable(metric, OF.turns()[1], OF, None)
    found = verdict(metric)
    assert isinstance(found, Unscored)
    assert "ZeroDivisionError" in found.detail


def test_a_custom_metric_without_a_measure_is_left_to_a_model() -> None:
    assert verdict(made(Metric)) == NotApplicable("needs a judge model", is_abstention=True)
