"""Define the protocol between the engine and the judges: questions and verdicts.

A question holds all metrics asked about a turn, conversation or session, so that a model can answer them in one call.
"""

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, Protocol, overload

from agent_eval.metrics.base import Metric
from agent_eval.transcripts.models import Conversation, Turn

UnscoredReason = Literal[
    "parse_failure",
    "judge_error",
    "budget_exhausted",
    "truncated",
    "refused",
    "cannot_tell",
    "nothing_to_judge",
]
CANNOT_TELL = "cannot_tell"
GIVEN = frozenset({CANNOT_TELL, "nothing_to_judge"})
"""Reasons that are answers: the judge read the evidence, but cannot decide or has nothing to judge.

They are stored, and the question is not asked again until it changes."""


@dataclass(frozen=True)
class Cause:
    """Describe a failure in general words: what went wrong, and what a good agent would have done."""

    label: str
    cause: str | None = None
    should_have: str | None = None


@dataclass(frozen=True)
class Scored:
    """Represent an answer with the judge's reason and a verbatim quote.

    The kind of the metric determines which of rating_1to5, value and label is set. Cost and tokens are the answer's
    share of its call, so that they add up over the answers of a call.
    """

    rationale: str
    evidence: str | None = None
    rating_1to5: int | None = None
    value: float | None = None
    label: str | None = None
    further_labels: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()  # at most one per label; a label without one has an unknown cause
    item_verdicts: tuple[str, ...] = ()  # verdicts on the single items, if the metric has `items`
    answered_by: str | None = None  # model, person or rule
    answered_at: str | None = None
    prompt_hash: str | None = None
    cost_usd: float | None = None
    n_tokens_in: int | None = None
    n_tokens_out: int | None = None
    n_tokens_cached: int | None = None
    response_model: str | None = None  # model that answered, as the provider names it
    system_fingerprint: str | None = None
    dropped_parameters: tuple[str, ...] | None = None  # parameters that were not sent to the model
    seen_share: float | None = None  # shown share of the judged characters; None without a view
    n_left_out: int | None = None  # messages and calls that were not shown in full
    earlier_profile: str | None = None  # profile version of an answer to an earlier wording of the question
    context_tokens: int | None = None  # context size for which the view was made
    disagreement: float | None = None  # disagreement within an ensemble, see judge/llm/ensemble.py


@dataclass(frozen=True)
class NotApplicable:
    """Represent the verdict that a question does not apply, or that this judge cannot decide it."""

    reason: str
    is_abstention: bool = False  # True if another judge may be able to decide


@dataclass(frozen=True)
class Unscored:
    """Represent a missing value: the judge failed, or answered that it cannot decide (`GIVEN`).

    It never counts as 0, as a failure of the agent or as a pass. The cost of the call is recorded nevertheless.
    """

    reason: UnscoredReason
    detail: str
    evidence: str | None = None
    answered_by: str | None = None
    answered_at: str | None = None
    context_tokens: int | None = None  # context size for which the view was made
    prompt_hash: str | None = None
    cost_usd: float | None = None
    n_tokens_in: int | None = None
    n_tokens_out: int | None = None
    n_tokens_cached: int | None = None
    response_model: str | None = None  # model that answered, as the provider names it
    system_fingerprint: str | None = None
    dropped_parameters: tuple[str, ...] | None = None  # parameters that were not sent to the model
    seen_share: float | None = None  # shown share of the judged characters; None without a view
    n_left_out: int | None = None  # messages and calls that were not shown in full
    earlier_profile: str | None = None  # profile version of an answer to an earlier wording of the question


def cause_of(verdict: Scored, label: str | None) -> Cause:
    """Return the cause that a verdict gives for one of its labels; empty if it gives none."""
    return next((cause for cause in verdict.causes if cause.label == label), Cause(label or ""))


def united_causes(verdicts: Iterable[Scored], labels: Iterable[str | None]) -> tuple[Cause, ...]:
    """Return the causes of the labels, each from the first verdict that gives it."""
    cause_of_label: dict[str, Cause] = {}
    for verdict in verdicts:
        for cause in verdict.causes:
            cause_of_label.setdefault(cause.label, cause)
    return tuple(cause_of_label[label] for label in labels if label in cause_of_label)


Verdict = Scored | NotApplicable | Unscored


def is_lost(verdict: Verdict) -> bool:
    """Return whether a judge was asked but gave no answer, so that the question must be asked again."""
    return isinstance(verdict, Unscored) and verdict.reason not in GIVEN


def n_turns_up_to(turns: Sequence[Turn], last_index: int) -> int:
    """Return how many turns have at most this index; indexes can have gaps."""
    return bisect.bisect_right(turns, last_index, key=lambda turn: turn.turn_index)


class TurnsUpTo(Sequence[Turn]):
    """Provide the turns of a conversation up to and including one of them, without copying them."""

    def __init__(self, turns: tuple[Turn, ...], last_index: int) -> None:
        self._turns, self._n = turns, n_turns_up_to(turns, last_index)

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, index: int) -> Turn: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Turn, ...]: ...
    def __getitem__(self, index: int | slice) -> Turn | tuple[Turn, ...]:
        """Return a turn, or the turns of a slice.

        Raises:
            IndexError: If the index is out of range.
        """
        position = range(self._n)[index]
        return self._turns[position] if isinstance(position, int) else tuple(self._turns[i] for i in position)


@dataclass(frozen=True)
class Question:
    """Represent a question: metrics of a turn, of a conversation (`turn_index` None) or of a session.

    A question about a session has several conversations. `content_hash` covers everything that a judge may be shown.
    `keys` holds the question keys by metric name (see judge/keys.py).
    """

    conversations: tuple[Conversation, ...]
    turns: tuple[Sequence[Turn], ...]  # by conversation; for a turn question, only those up to that turn
    turn_index: int | None
    content_hash: str
    metrics: tuple[Metric, ...]
    keys: Mapping[str, str] = field(default_factory=dict[str, str])

    @cached_property
    def turn(self) -> Turn:
        """Return the judged turn.

        Raises:
            ValueError: If the question is not about a turn.
        """
        if self.turn_index is None:
            raise ValueError("this question is not about a turn")
        return self.turns[0][-1]

    def about(self, metrics: Sequence[Metric]) -> "Question":
        """Return the question limited to the given metrics."""
        if len(metrics) == len(self.metrics):
            return self
        return replace(self, metrics=tuple(metrics), keys={m.name: self.keys[m.name] for m in metrics})


class Judge(Protocol):
    """Answers questions with verdicts by metric name."""

    name: str

    async def judge(self, question: Question) -> Mapping[str, Verdict]:
        """Return the verdicts by metric name. Metrics that were not answered are missing."""
        ...
