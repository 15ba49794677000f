"""What a metric is: a question with a grain, a kind of answer, a rubric, and where it arises."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agent_eval.formats.hashing import digest
from agent_eval.transcripts.models import Conversation, Expected, Turn
from agent_eval.transcripts.outcomes import HARNESS_FAILED

Grain = Literal["turn", "conversation", "session"]
Kind = Literal["rating", "label", "value"]
Condition = Literal[
    "always", "has_tool_calls", "has_tools", "has_expected_answer", "has_policy", "has_earlier_turns"
]
Severity = Literal["low", "medium", "high", "critical"]
Answer = Literal["rating_1to5", "value", "label"]

NO_FAILURE = "no failure"
SEVERITIES: tuple[Severity, ...] = ("low", "medium", "high", "critical")
DEFAULT_SEVERITY: Severity = "medium"  # of a failure label that says nothing else
NO_REPLY = "no reply in this turn"
ENDED = "ended"
"""Why a turn is not judged: it is the last one and holds no message of the agent, or nothing but calls."""
NO_TURNS = "the conversation has no turns"
HARNESS_ERROR = HARNESS_FAILED
NEEDS_MODEL = "needs a judge model"
"""Why a metric that arises has no answer: whoever was asked abstained."""


@dataclass(frozen=True)
class Measured:
    """What a metric's own `measure` found; which of the three answers is set is the metric's `answer`."""

    rationale: str
    rating_1to5: int | None = None
    value: float | None = None
    label: str | None = None
    further_labels: tuple[str, ...] = ()
    evidence: str | None = None  # a verbatim quote


@dataclass(frozen=True)
class Items:
    """What a judge lists one by one; the answer follows from the verdicts, without the judge.

    It is the share of items with the first verdict (undefined without an item), or the rating that `rating` gives.
    """

    name: str  # key of the list in a reply
    each: str  # what one item is
    verdicts: tuple[str, ...]
    has_severity: bool = False
    rating: Callable[[Sequence[str]], int] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Metric:
    """One thing that is measured.

    `anchors` holds the words for each rating (5..1, or some points of another scale), each label, or each end of
    a value. A rating is an integer 1–5, or any real number from `minimum` to `maximum` where these are given; a
    label is one of `anchors`' keys, or of `by_rule`, which only a rule gives; a value lies in [0, 1], and is 0 or 1 where `is_binary`.

    `applies` and `measure` may be overridden; a metric with a `measure` of its own is never put to a model.
    """

    name: str
    grain: Grain
    kind: Kind
    question: str
    anchors: Mapping[str, str] = field(hash=False)
    notes: str = ""
    applies_when: Condition = "always"
    severities: Mapping[str, Severity] = field(default_factory=dict[str, Severity], hash=False)
    by_rule: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)  # not put to a model
    minimum: float | None = None
    maximum: float | None = None
    is_binary: bool = False
    items: Items | None = None  # of an answer that is derived by rule from what a judge lists
    is_ruled: bool = False  # a rule decides it, always: no model is asked
    version: str = ""  # raise it when `measure` gives other answers: code has no hash of its own

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels that a judge may give; empty for other kinds. Failure labels have 'no failure' first."""
        return tuple(self.anchors) if self.kind == "label" else ()

    @property
    def all_labels(self) -> tuple[str, ...]:
        """`labels`, and those that only a rule gives."""
        return (*self.labels, *self.by_rule)

    @property
    def is_failure(self) -> bool:
        """Whether its labels, all but 'no failure', are failures of the agent."""
        return self.kind == "label" and NO_FAILURE in self.anchors

    @property
    def answer(self) -> Answer:
        """The column that holds the answer: a rating on a scale of its own is a `value`."""
        if self.kind == "rating" and self.minimum is None:
            return "rating_1to5"
        return "label" if self.kind == "label" else "value"

    @property
    def scale(self) -> tuple[float, float] | None:
        """Lowest and highest answer; None for labels."""
        if self.kind == "label":
            return None
        if self.minimum is not None and self.maximum is not None:
            return self.minimum, self.maximum
        return (1.0, 5.0) if self.kind == "rating" else (0.0, 1.0)

    @property
    def rubric_hash(self) -> str:
        """Changes when the words or the answer's form change, and only then."""
        given: dict[str, object] = {
            "minimum": self.minimum,
            "maximum": self.maximum,
            "version": self.version or None,
        }
        if self.items is not None:
            given["items"] = [self.items.name, self.items.each, *self.items.verdicts]
        form = {name: fact for name, fact in given.items() if fact is not None}
        return digest(
            "rubric",
            *(self.name, self.grain, self.kind, self.question, dict(self.anchors), self.notes),
            *([form] if form else []),
        )

    @property
    def is_measured(self) -> bool:
        """Whether a rule or the metric's own `measure` decides: then no model is asked."""
        return self.is_ruled or type(self).measure is not Metric.measure

    def severity_of(self, label: str) -> Severity:
        """How grave a failure label is; medium where the metric does not say."""
        return self.severities.get(label, DEFAULT_SEVERITY)

    def applies(self, turn: Turn, conversation: Conversation, expected: Expected | None) -> bool:
        """Whether a turn metric arises on a turn that has a reply; `expected` is the turn's ground truth."""
        return self.why_not(turn, conversation, expected) is None

    def why_not(self, turn: Turn, conversation: Conversation, expected: Expected | None) -> str | None:
        """Why its condition, `applies_when`, is not met by a turn; None where it is.

        Only calls by the agent count as its tool calls.
        """
        has_calls = any(call.requestor == "assistant" for call in turn.tool_calls)
        if self.applies_when == "has_tool_calls" and not has_calls:
            return "no tool call in this turn"
        if self.applies_when == "has_tools" and not has_calls and not conversation.tools:
            return "no tool call, and no tool known to be available"
        if self.applies_when == "has_expected_answer" and (expected is None or expected.answer is None):
            return "no expected answer"
        if self.applies_when == "has_policy" and conversation.policy is None:
            return "no policy of the agent is known"
        if self.applies_when == "has_earlier_turns" and turn.turn_index == 0:
            return "the first turn: nothing was said before"
        return None

    def measure(
        self, turns: Sequence[Turn], conversation: Conversation, expected: Expected | None
    ) -> Measured | None:
        """The answer, computed; None where it cannot be decided. Override it to measure without a model.

        It may be `async def measure(self, turns, conversation, expected, judge)`: then `await judge.ask(metric)` asks the
        judge models another metric about the same turn or conversation. It is run again with each answer, so it has no
        effects of its own.

        Args:
            turns: For a turn metric the turns up to and with the judged one; for a conversation metric all.
            conversation: Goal, profile, knowledge and tools. Its messages go on after the judged turn: leave them.
            expected: The ground truth of the judged turn; for a conversation metric that of the whole.
        """
        return None
