"""Plan the calls of a pass: ask every open question once, in few calls, in an order that reuses cached prefixes."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from agent_eval.judge.llm.spec import Mode
from agent_eval.judge.prompts import NO_BLINDED_TERMS, BlindedTerms, can_share_call
from agent_eval.judge.protocol import Question
from agent_eval.metrics.base import Metric
from agent_eval.metrics.findings import RatingFinding


@dataclass(frozen=True)
class QuestionSequence:
    """Hold questions that are asked in order: those on the turns and the whole of a conversation, or on a session."""

    questions: Sequence[Question]
    names: BlindedTerms = NO_BLINDED_TERMS
    findings: tuple[RatingFinding, ...] = ()


@dataclass(frozen=True)
class JudgeCall:
    """Hold the questions of one call: about a turn, a conversation or a session.

    The question about a conversation can share the call of its last turn.
    """

    questions: tuple[Question, ...]
    number: int = 0  # number of its sequence: lower numbers are sent first
    names: BlindedTerms = NO_BLINDED_TERMS
    findings: tuple[RatingFinding, ...] = ()
    repeat: int = 0  # number of the repeat, from 0

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Return the metrics that the call asks, in order."""
        return tuple(metric for question in self.questions for metric in question.metrics)

    @property
    def keys(self) -> dict[str, str]:
        """Return the question keys by metric name."""
        return {name: key for question in self.questions for name, key in question.keys.items()}

    def question_of(self, metric: str) -> Question:
        """Return the question that asks a metric."""
        return next(q for q in self.questions if metric in q.keys)


def plan(
    sequences: Sequence[QuestionSequence],
    answered: Container[str],
    mode: Mode = "one_call",
    is_shared: Callable[[Question], bool] | None = None,
) -> list[list[JudgeCall]]:
    """Return the calls of each sequence, the longest sequence first. Sequences without a call are omitted.

    Args:
        sequences: The questions. A key that occurs in several questions is asked only once.
        answered: Question keys that have an answer and need no call.
        mode: With per_metric, each metric is asked in its own call.
        is_shared: Function that returns whether the call of a conversation's last turn also asks about the whole
            conversation. By default, it does.
    """
    planned_keys: set[str] = set()
    planned: list[list[JudgeCall]] = []
    for sequence in sequences:
        calls: list[JudgeCall] = []
        for question in sequence.questions:
            fresh = [m for m in question.metrics if _is_new(question.keys[m.name], answered, planned_keys)]
            parts = [fresh] if mode == "one_call" else [[metric] for metric in fresh]
            for part in parts if fresh else ():
                _add(calls, question.about(part), sequence, mode, is_shared)
        if calls:
            planned.append(calls)
    planned.sort(key=len, reverse=True)
    return [
        [JudgeCall(c.questions, number, c.names, c.findings) for c in calls]
        for number, calls in enumerate(planned)
    ]


def _is_new(key: str, answered: Container[str], planned_keys: set[str]) -> bool:
    if key in answered or key in planned_keys:
        return False
    planned_keys.add(key)
    return True


def _add(
    calls: list[JudgeCall],
    question: Question,
    sequence: QuestionSequence,
    mode: Mode,
    is_shared: Callable[[Question], bool] | None,
) -> None:
    turn = calls[-1].questions[0] if calls and mode == "one_call" else None
    if turn is not None and can_share_call(turn, question) and (is_shared is None or is_shared(turn)):
        last = calls[-1]
        calls[-1] = JudgeCall((*last.questions, question), 0, sequence.names, sequence.findings)
    else:
        calls.append(JudgeCall((question,), 0, sequence.names, sequence.findings))
