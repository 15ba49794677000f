"""Define a metric: a question with a grain, a kind of answer, a rubric, and the turns that it applies to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agent_eval.formats.hashing import digest
from agent_eval.transcripts.models import Conversation, Expected, Turn
from agent_eval.transcripts.outcomes import HARNESS_FAILED, UNEXPLAINED

Grain = Literal["turn", "conversation", "session"]
Kind = Literal["rating", "label", "value"]
Condition = Literal[
    "always",
    "has_tool_calls",
    "has_tools",
    "has_expected_answer",
    "has_policy",
    "has_earlier_turns",
    "goal_missed",
]
Severity = Literal["low", "medium", "high", "critical"]
Answer = Literal["rating_1to5", "value", "label"]

GOAL_MISSED: Condition = "goal_missed"
OF_CONVERSATIONS: tuple[Condition, ...] = (GOAL_MISSED,)
"""Conditions about conversations; the others are about turns, and `always` about both."""
NO_FAILURE = "no failure"
SEVERITIES: tuple[Severity, ...] = ("low", "medium", "high", "critical")
DEFAULT_SEVERITY: Severity = "medium"  # for failure labels without a severity
QUESTION_CODE = "question_code"
"""Key of a reply's code (`judge/prompts/question_code.py`); no metric can have this name."""
NO_REPLY = "no reply in this turn"
ENDED = "ended"
"""Reason for skipping the last turn if it has no message of the agent or only calls."""
NO_TURNS = "the conversation has no turns"
HARNESS_ERROR = HARNESS_FAILED
UNEXPLAINED_ERROR = UNEXPLAINED
NEEDS_MODEL = "needs a judge model"
"""Reason for a missing answer to a metric that applies: all judges that were asked abstained."""
NEEDS_MULTIMODAL = "needs a multimodal judge"
"""Reason for a missing answer that depends on an image, audio or a file that the judge model cannot read."""
NOT_FETCHED = "an attachment is given by URL, path or id only, and is never fetched"
NOT_SENDABLE = "an attachment has a type or size that is not sent to judges"
UNANSWERED = (NEEDS_MODEL, NEEDS_MULTIMODAL, NOT_FETCHED, NOT_SENDABLE)
"""Reasons for a missing answer that people or another judge model could give."""


@dataclass(frozen=True)
class Measured:
    """Hold the result of a metric's `measure`; only the value that the metric's `answer` names is set."""

    rationale: str
    rating_1to5: int | None = None
    value: float | None = None
    label: str | None = None
    further_labels: tuple[str, ...] = ()
    evidence: str | None = None  # a verbatim quote


@dataclass(frozen=True)
class Items:
    """Describe the items that a judge lists one by one, such as claims.

    The answer is computed from the items' verdicts. It is the share of items with the first verdict (undefined
    without items), or the rating that `rating` returns.
    """

    name: str  # key of the list in a reply
    each: str  # description of an item
    verdicts: tuple[str, ...]
    has_severity: bool = False
    rating: Callable[[Sequence[str]], int] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Metric:
    """Define a metric.

    `anchors` describes each rating (5 to 1, or some points of another scale), each label, or both ends of the
    values. A rating is an integer from 1 to 5, or any real number from `minimum` to `maximum` if these are given.
    A label is a key of `anchors`, or a key of `by_rule`, whose labels only rules and people assign. A value is a
    number from 0 to 1, and 0 or 1 if `is_binary`.

    `applies` and `measure` can be overridden. Models are not asked about a metric that overrides `measure`.
    """

    name: str
    grain: Grain
    kind: Kind
    question: str
    anchors: Mapping[str, str] = field(hash=False)
    notes: str = ""
    applies_when: Condition = "always"
    severities: Mapping[str, Severity] = field(default_factory=dict[str, Severity], hash=False)
    by_rule: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)  # not asked of models
    minimum: float | None = None
    maximum: float | None = None
    is_binary: bool = False
    items: Items | None = None  # set if the answer is computed from items
    is_ruled: bool = False  # always decided by a rule
    best: str = ""  # meaning of the highest answer, if the name suggests the opposite; not part of the rubric
    version: str = ""  # increment it if the results of `measure` change, because code is not hashed

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels that a model can give, with 'no failure' first; empty for other kinds of metrics."""
        return tuple(self.anchors) if self.kind == "label" else ()

    @property
    def all_labels(self) -> tuple[str, ...]:
        """Return `labels` and the labels in `by_rule`."""
        return (*self.labels, *self.by_rule)

    @property
    def described(self) -> dict[str, str]:
        """Return the description of each of `all_labels` and of each point of a scale."""
        return {**self.anchors, **self.by_rule}

    @property
    def is_failure(self) -> bool:
        """Return whether the labels, except 'no failure', are failures of the agent."""
        return self.kind == "label" and NO_FAILURE in self.anchors

    @property
    def answer(self) -> Answer:
        """Return the column that holds the answer; a rating on a custom scale is stored as a `value`."""
        if self.kind == "rating" and self.minimum is None:
            return "rating_1to5"
        return "label" if self.kind == "label" else "value"

    @property
    def scale(self) -> tuple[float, float] | None:
        """Return the lowest and highest answer; None for labels."""
        if self.kind == "label":
            return None
        if self.minimum is not None and self.maximum is not None:
            return self.minimum, self.maximum
        return (1.0, 5.0) if self.kind == "rating" else (0.0, 1.0)

    @property
    def rubric_hash(self) -> str:
        """Return a hash that changes only if the rubric's text or the form of the answer changes."""
        rubric_fields: dict[str, object] = {
            "minimum": self.minimum,
            "maximum": self.maximum,
            "version": self.version or None,
        }
        if self.items is not None:
            rubric_fields["items"] = [self.items.name, self.items.each, *self.items.verdicts]
        form = {name: fact for name, fact in rubric_fields.items() if fact is not None}
        return digest(
            "rubric",
            *(self.name, self.grain, self.kind, self.question, dict(self.anchors), self.notes),
            *([form] if form else []),
        )

    @property
    def is_measured(self) -> bool:
        """Return whether a rule or an overridden `measure` gives the answer instead of a model."""
        return self.is_ruled or type(self).measure is not Metric.measure

    def severity_of(self, label: str) -> Severity:
        """Return the severity of a failure label; medium if the metric does not define it."""
        return self.severities.get(label, DEFAULT_SEVERITY)

    def applies(self, turn: Turn, conversation: Conversation, expected: Expected | None) -> bool:
        """Return whether a turn metric applies to a turn with a reply; `expected` is the turn's ground truth."""
        return self.why_not(turn, conversation, expected) is None

    def why_not(self, turn: Turn, conversation: Conversation, expected: Expected | None) -> str | None:
        """Return why a turn does not meet the condition `applies_when`; None if it does.

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
        """Compute the answer; None if it cannot be decided. Override this method to measure without a model.

        The method can also be `async def measure(self, turns, conversation, expected, judge)`. In this case,
        `await judge.ask(metric)` asks the judge models about another metric of the same turn or conversation.
        The method is called again with each answer, so it must not have side effects.

        Args:
            turns: The turns up to and including the judged turn, or all turns for a conversation metric.
            conversation: The conversation with goal, profile, knowledge and tools. Do not use its messages,
                which include later turns.
            expected: The ground truth of the judged turn, or of the whole conversation for a conversation metric.
        """
        return None


@dataclass(frozen=True)
class BuiltIn:
    """Declare a built-in metric; its module lists it in `BUILT_IN`.

    Labels of a metric with `is_failure` are clustered. Rules register themselves with `judge.rules.finding.decides`.
    """

    metric: Metric
    order: int  # position among the questions
    is_on_request: bool = False  # asked only if the setting `metrics` names it
    is_of_silence: bool = (
        False  # a rule decides it in a turn in which the agent should have replied but did not
    )
    is_of_calls: bool = False  # also about the calls of a turn that ended the conversation
    people: str = (
        ""  # how people answer it, in docs/sessions.md; by default, derived from the kind of the metric
    )
