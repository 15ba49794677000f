"""Plan the calls of a pass: every open question once, in few calls, ordered to reuse cached prefixes."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from agent_eval.judge.llm.spec import Mode
from agent_eval.judge.prompts import NO_BLINDED_TERMS, BlindedTerms, can_share_call
from agent_eval.judge.protocol import Question
from agent_eval.metrics.base import Metric
from agent_eval.metrics.findings import RatingFinding


@dataclass(frozen=True)
class QuestionSequence:
    """Hold questions whose calls follow one another: a conversation's turns and its whole, or one session."""

    questions: Sequence[Question]
    names: BlindedTerms = NO_BLINDED_TERMS
    findings: tuple[RatingFinding, ...] = ()


@dataclass(frozen=True)
class JudgeCall:
    """Hold questions that are asked together: a turn's, and its conversation's if they can share the call."""

    questions: tuple[Question, ...]
    number: int = 0  # position in its sequence: lower numbers are sent first
    names: BlindedTerms = NO_BLINDED_TERMS
    findings: tuple[RatingFinding, ...] = ()
    repeat: int = 0  # number of the repeat

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Return the metrics asked, in order."""
        return tuple(metric for question in self.questions for metric in question.metrics)

    @property
    def keys(self) -> dict[str, str]:
        """Return metric name → question key."""
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
    """Return the calls of each sequence, in order, without empty sequences, the longest sequence first.

    Args:
        sequences: Unanswered questions; a key that occurs in several questions is asked by the first of them.
        answered: Keys that need no call.
        mode: With per_metric, each metric gets its own call.
        is_shared: Whether the call of a conversation's last turn also asks about the whole; None: it does.
    """
    seen: set[str] = set()
    planned: list[list[JudgeCall]] = []
    for sequence in sequences:
        calls: list[JudgeCall] = []
        for question in sequence.questions:
            fresh = [m for m in question.metrics if _is_new(question.keys[m.name], answered, seen)]
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


def _is_new(key: str, answered: Container[str], seen: set[str]) -> bool:
    if key in answered or key in seen:
        return False
    seen.add(key)
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
