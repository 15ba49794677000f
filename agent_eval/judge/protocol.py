"""The small protocol between those who ask and those who answer.

One question holds every metric that is asked about one thing, so that a model can answer them in one call.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
"""Reasons that are answers: the judge read the evidence, and says that it does not decide, or holds nothing to judge.
They are stored, and not asked again until the question changes."""


@dataclass(frozen=True)
class Scored:
    """A value with the judge's reason and a verbatim quote. Which of the values is set is the metric's kind.

    Cost and tokens are this answer's share of its call, so that they add up over the answers of a call.
    """

    rationale: str
    evidence: str | None = None
    rating_1to5: int | None = None
    value: float | None = None
    label: str | None = None
    further_labels: tuple[str, ...] = ()
    item_verdicts: tuple[str, ...] = ()  # on what was listed, where the metric has `items`
    answered_by: str | None = None  # model, person or rule
    answered_at: str | None = None
    prompt_hash: str | None = None
    cost_usd: float | None = None
    n_tokens_in: int | None = None
    n_tokens_out: int | None = None
    n_tokens_cached: int | None = None
    response_model: str | None = None  # as the provider names the model that answered
    system_fingerprint: str | None = None
    dropped_parameters: tuple[str, ...] | None = None  # that the model was asked without
    seen_share: float | None = None  # of the characters of what is judged; None: nobody was shown a view
    n_left_out: int | None = None  # messages and calls that were not shown whole
    context_tokens: int | None = None  # that the view was made for
    disagreement: float | None = None  # of an ensemble, see judge/ensemble.py


@dataclass(frozen=True)
class NotApplicable:
    """The question does not arise here, or this judge cannot decide it."""

    reason: str
    is_abstention: bool = False  # the judge cannot decide; another might


@dataclass(frozen=True)
class Unscored:
    """No value: a failure of the judge, or its answer that it cannot tell (`GIVEN`).

    Never 0, never a failure of the agent, never a pass. What it cost was paid all the same.
    """

    reason: UnscoredReason
    detail: str
    evidence: str | None = None
    answered_by: str | None = None
    answered_at: str | None = None
    context_tokens: int | None = None  # that the view was made for
    prompt_hash: str | None = None
    cost_usd: float | None = None
    n_tokens_in: int | None = None
    n_tokens_out: int | None = None
    n_tokens_cached: int | None = None
    response_model: str | None = None  # as the provider names the model that answered
    system_fingerprint: str | None = None
    dropped_parameters: tuple[str, ...] | None = None  # that the model was asked without
    seen_share: float | None = None  # of the characters of what is judged; None: nobody was shown a view
    n_left_out: int | None = None  # messages and calls that were not shown whole


Verdict = Scored | NotApplicable | Unscored


def is_lost(verdict: Verdict) -> bool:
    """Whether a judge was asked and gave no answer, so that it is to be asked again."""
    return isinstance(verdict, Unscored) and verdict.reason not in GIVEN


class TurnsUpTo(Sequence[Turn]):
    """The first turns of a conversation, not copied: the questions of a long one share their turns."""

    def __init__(self, turns: tuple[Turn, ...], n: int) -> None:
        self._turns, self._n = turns, min(n, len(turns))

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, index: int) -> Turn: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Turn, ...]: ...
    def __getitem__(self, index: int | slice) -> Turn | tuple[Turn, ...]:
        """Return a turn, or those of a slice.

        Raises:
            IndexError: If there is no such turn.
        """
        held = range(self._n)[index]
        return self._turns[held] if isinstance(held, int) else tuple(self._turns[i] for i in held)


@dataclass(frozen=True)
class Question:
    """Metrics asked about one turn, one conversation (`turn_index` None) or a whole session (several conversations).

    `content_hash` covers all that may be seen; `keys` are the question keys by metric name (judge/keys.py).
    """

    conversations: tuple[Conversation, ...]
    turns: tuple[Sequence[Turn], ...]  # per conversation; for a turn question nothing after that turn
    turn_index: int | None
    content_hash: str
    metrics: tuple[Metric, ...]
    keys: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def turn(self) -> Turn:
        """The turn that is judged; only for turn questions."""
        if self.turn_index is None:
            raise ValueError("this question is not about a turn")
        return self.turns[0][self.turn_index]

    def about(self, metrics: Sequence[Metric]) -> "Question":
        """The same question with only some of its metrics."""
        if len(metrics) == len(self.metrics):
            return self
        return replace(self, metrics=tuple(metrics), keys={m.name: self.keys[m.name] for m in metrics})


class Judge(Protocol):
    """Answers questions. Verdicts are by metric name; a metric that is left out was not answered."""

    name: str

    async def judge(self, question: Question) -> Mapping[str, Verdict]: ...
