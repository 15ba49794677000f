"""Derive findings from a session's judgments, as evidence for rubric ratings and as bounds on them.

The judge profile (metrics/profile.py) defines which findings affect which ratings; this module applies it. The
functions have no side effects.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import JsonValue

from agent_eval.metrics.base import NO_FAILURE
from agent_eval.metrics.profile import (
    BEARS_ON,
    CAPS,
    CHECKS,
    GUIDES,
    INFORMED_BY,
    INFORMED_WITHIN,
    Cap,
    Check,
    Scope,
)
from agent_eval.transcripts.models import Conversation, Turn

TRANSCRIPT = "transcript"  # used as the metric of findings that are facts of the transcript
NO_OUTPUT = "no output"
CRASH = "crash"
GOOD = frozenset({"4", "5"})  # ratings that need no explanation

_WHERE: dict[Scope, str] = {
    "anywhere": "",
    "standardised_task": " in the standardised task",
    "error_injection": " in a conversation with an injected error",
    "last_reply": " in the last reply",
}


@dataclass(frozen=True)
class RatingFinding:
    """Hold a fact about a conversation or one of its turns, from a judgment or the transcript."""

    metric: str
    finding: str  # a label, or a rating or value as text, e.g. '4' or '0.5'
    conversation_id: str
    turn_index: int | None = None  # None for the whole conversation
    tests: frozenset[str] = frozenset()  # required tests that the conversation serves
    is_last_reply: bool = False  # whether its turn is the last one with a reply
    reason: str = ""

    def shown(self, number: int | None) -> dict[str, JsonValue]:
        """Return the finding as data for a judge; `number` is the conversation's position in its session."""
        where: dict[str, JsonValue] = {} if number is None else {"conversation": number}
        if self.turn_index is not None:
            where["turn"] = self.turn_index
        why: dict[str, JsonValue] = (
            {"reason": self.reason} if self.reason and self.finding not in GOOD else {}
        )
        return {**where, "metric": self.metric, "finding": self.finding, **why}


def target_of(name: str) -> str:
    """Return the target that a rubric metric rates, e.g. 'U1', or 'accuracy' for 'D2.correctness'."""
    criterion = name.rpartition(".")[2]
    return BEARS_ON.get(criterion, name)


def checks_of(name: str) -> tuple[Check, ...]:
    """Return the yes/no questions that precede a rubric metric's rating."""
    return CHECKS.get(target_of(name), ())


def rules_of(name: str) -> list[str]:
    """Return the profile's rules for a rubric metric, one text per rule; empty for other metrics."""
    target = target_of(name)
    lines = [GUIDES[target]] if target in GUIDES else []
    lines += [
        f"Answer first, true or false: {c.name}: {c.question} If not: at most {c.at_most}."
        for c in checks_of(name)
    ]
    if INFORMED_BY.get(target):
        source_names = ", ".join(INFORMED_BY[target])
        lines.append(
            f"Findings of {source_names}{_WHERE[_within(target)]} are evidence; weigh them, do not copy them."
        )
    bounds = (f"at most {c.at_most} where {_in_words(c)}" for c in CAPS if c.target == target)
    if bounds_text := "; ".join(bounds):
        lines.append(f"Bounds: {bounds_text}.")
    return lines


def bearing_on(name: str, findings: Iterable[RatingFinding]) -> list[RatingFinding]:
    """Return the findings that are shown to a judge of this rubric metric; 'no failure' is not a finding."""
    target = target_of(name)
    bearing_metrics = {*INFORMED_BY.get(target, ()), *(cap.metric for cap in CAPS if cap.target == target)}
    bearing_findings = [f for f in findings if f.metric in bearing_metrics and f.finding != NO_FAILURE]
    return [f for f in bearing_findings if _counts(f, _within(target), bearing_findings)]


def apply_caps(name: str, rating: int, findings: Sequence[RatingFinding]) -> tuple[int, str]:
    """Return the rating within the judge profile's bounds, and a sentence that explains a changed rating, else ''.

    Args:
        name: The name of the rubric metric, e.g. 'U1' or 'D2.accuracy'.
        rating: The judge's rating, 1–5.
        findings: All findings of the session for U1–U6, or of the conversation for a criterion.
    """
    target = target_of(name)
    met = [cap for cap in CAPS if cap.target == target and _is_met(cap, findings)]
    lowest = min((cap.at_most for cap in met), default=rating)
    if lowest >= rating:
        return rating, ""
    why = "; ".join(_in_words(cap) for cap in met if cap.at_most < rating)
    return lowest, f"Rated {rating}, bounded at {lowest}: {why}."


def facts_of(
    conversation: Conversation, turns: Sequence[Turn], tests: frozenset[str]
) -> Iterator[RatingFinding]:
    """Yield facts of a transcript: 'no output' if the agent never replied, and 'crash' if it crashed.

    A crash is a message of the agent that is marked as an error, or a conversation without any reply or call.
    """
    replies = [m for turn in turns for m in turn.messages if m.role == "assistant"]
    of_conversation = RatingFinding(TRANSCRIPT, NO_OUTPUT, conversation.conversation_id, tests=tests)
    if not any(m.content for m in replies):
        yield of_conversation
    if not any(turn.has_reply for turn in turns) or any(m.is_error for m in replies):
        yield replace(of_conversation, finding=CRASH)


def findings_of(
    rows: Iterable[Mapping[str, object]], tests: Mapping[str, frozenset[str]], last_replies: Mapping[str, int]
) -> list[RatingFinding]:
    """Return the findings of judged turns and conversations.

    Args:
        rows: Effective, scored rows of turn_judgments and conversation_judgments for one agent and version.
        tests: The required tests that each conversation serves, by conversation id.
        last_replies: The index of the last turn with reply "replied", by conversation id.
    """
    return [
        _finding(row, answer, tests, last_replies.get(str(row["conversation_id"])))
        for row in rows
        for answer in _answers(row)
    ]


def _finding(
    row: Mapping[str, object], answer: str, tests: Mapping[str, frozenset[str]], last_reply: int | None
) -> RatingFinding:
    name, turn_index = str(row["conversation_id"]), row.get("turn_index")
    return RatingFinding(
        metric=str(row["metric"]),
        finding=answer,
        conversation_id=name,
        turn_index=turn_index if isinstance(turn_index, int) else None,
        tests=tests.get(name, frozenset()),
        is_last_reply=turn_index is not None and turn_index == last_reply,
        reason=str(row.get("rationale") or ""),
    )


def _answers(row: Mapping[str, object]) -> Iterator[str]:
    """Yield the answers of a row as texts: the rating, the value or each label."""
    further = row.get("further_labels")
    answer_fields = [row.get("rating_1to5"), row.get("value"), row.get("label")]
    for answer in [*answer_fields, *(further if isinstance(further, list) else [])]:
        if isinstance(answer, int | float):
            yield f"{answer:g}"
        elif answer is not None:
            yield str(answer)


def _is_met(cap: Cap, findings: Sequence[RatingFinding]) -> bool:
    return any(
        f.metric == cap.metric and f.finding == cap.finding and _counts(f, cap.within, findings)
        for f in findings
    )


def _counts(finding: RatingFinding, within: Scope, findings: Sequence[RatingFinding]) -> bool:
    """Return whether a finding is in the scope in which it counts."""
    if within == "anywhere":
        return True
    if within == "error_injection":
        return within in finding.tests
    has_task = any("standardised_task" in f.tests for f in findings)
    is_of_task = "standardised_task" in finding.tests or not has_task
    return is_of_task and (within == "standardised_task" or finding.is_last_reply)


def _within(target: str) -> Scope:
    return INFORMED_WITHIN.get(target, "anywhere")


def _in_words(cap: Cap) -> str:
    what = (
        f"the record shows {cap.finding!r}"
        if cap.metric == TRANSCRIPT
        else f"{cap.metric} is {cap.finding!r}"
    )
    return f"{what}{_WHERE[cap.within]}"
