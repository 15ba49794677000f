"""Prompts: one call for every metric of a question, laid out so that its beginning is the same as often as possible.

Layout: [system: task and rubrics, equal for all calls of a run] [user: the record, growing turn by turn; then what is
asked, named in one short paragraph]. Two messages in strict alternation, because some chat templates take no other
order.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from pydantic import JsonValue

from agent_eval.judge.prompts import words
from agent_eval.judge.prompts.blind import NO_BLINDED_TERMS, BlindedTerms
from agent_eval.judge.prompts.fence import code, fenced
from agent_eval.judge.prompts.forms import rubric, schema_of
from agent_eval.judge.prompts.record import BOUND, LINE_BOUND, data_line, frame_line, turn_line, turn_lines
from agent_eval.judge.protocol import Question
from agent_eval.metrics.base import Metric
from agent_eval.metrics.findings import RatingFinding, bearing_on
from agent_eval.metrics.metric_set import expected_of
from agent_eval.transcripts.models import Turn

SCHEMA_NAME = "verdicts"
Messages = tuple[Mapping[str, str], ...]
"""Chat messages, each with `role` and `content`."""


@dataclass(frozen=True)
class Prompt:
    """One call: what is sent, the form of the reply, and what is needed to read it."""

    messages: Messages
    schema: Mapping[str, JsonValue]  # strict JSON schema of the reply
    name: str  # of the schema
    metrics: tuple[Metric, ...]  # in the order of the reply
    prompt_hash: str  # of messages and schema: provenance, no part of a key
    turns: tuple[Turn, ...] = field(default=(), repr=False)  # where quotes are sought
    names: BlindedTerms = NO_BLINDED_TERMS


def can_share_call(turn: Question, conversation: Question) -> bool:
    """Whether a conversation's question may ride in the call of its last judged turn.

    It may when nothing comes after that turn, and no injected error is on record: a turn is judged without
    hindsight, and a conversation with everything.
    """
    only = conversation.conversations[0]
    return (
        turn.turn_index is not None
        and turn.conversations[0].conversation_id == only.conversation_id
        and turn.turn_index + 1 == len(conversation.turns[0])
        and only.injected_error is None
    )


def shared_rubrics(metrics: Iterable[Metric]) -> tuple[Metric, ...]:
    """Those of a run's metrics whose rubrics open every call about turns: of turns and conversations, for a model."""
    return tuple(m for m in metrics if m.grain != "session" and not m.is_measured)


def build_prompt(
    questions: Sequence[Question],
    *,
    secret: bytes,
    metrics: Sequence[Metric] | None = None,
    names: BlindedTerms = NO_BLINDED_TERMS,
    findings: Sequence[RatingFinding] = (),
) -> Prompt:
    """The one call that asks every metric of the questions.

    Args:
        questions: One turn question; a turn question and then its conversation's (see `can_share_call`); or one or
            more questions about one conversation or one session (U1–U6, the criteria of a scenario).
        secret: Key of the code in the marks; the same for a whole project, known to nobody else.
        metrics: All metrics whose rubrics stand in the system message, so that it is the same for all calls of a
            run (`shared_rubrics`); those asked are among them. Default: only those asked, as for rubric ratings and
            in an audit with one call per metric.
        names: Names of the judged agent, to be withheld.
        findings: What the session's judgments found, for rubric ratings; those on the conversations shown that bear
            on what is asked stand in the record, with the tests that the conversations serve.

    Raises:
        ValueError: If the questions do not belong into one call.
    """
    first = questions[0]
    whole = questions[1:] if first.turn_index is not None else questions
    _check(first, whole)
    asked = tuple(metric for question in questions for metric in question.metrics)
    shown = tuple(asked if metrics is None else metrics)
    record = _record(first, whole, names, findings)
    messages: Messages = (
        {"role": "system", "content": system_prompt(shown)},
        {"role": "user", "content": fenced(record, _code(first, secret)) + _request(questions)},
    )
    schema, schema_hash = schema_of(asked)
    turns = tuple(turn for held in first.turns for turn in held)
    return Prompt(messages, schema, SCHEMA_NAME, asked, prompt_hash(messages, schema_hash), turns, names)


def prompt_hash(messages: Messages, schema_hash: str) -> str:
    """32 hex digits over all that is sent."""
    state = hashlib.blake2b(schema_hash.encode(), digest_size=16)
    for message in messages:
        content = message["content"].encode("utf-8", "surrogatepass")
        state.update(f"\n{message['role']} {len(content)}\n".encode() + content)
    return state.hexdigest()


@lru_cache(maxsize=64)
def system_prompt(metrics: tuple[Metric, ...]) -> str:
    """Task, grammar of the record, and the rubrics of the metrics in their order; the same bytes for equal metrics."""
    return "\n\n".join([words.TASK, words.RUBRICS, *map(rubric, metrics)])


def _check(first: Question, whole: Sequence[Question]) -> None:
    ids = {tuple(c.conversation_id for c in q.conversations) for q in (first, *whole)}
    if len(ids) != 1 or any(question.turn_index is not None for question in whole):
        raise ValueError("one call asks about one turn, one conversation or one session")
    if first.turn_index is not None and not all(can_share_call(first, question) for question in whole):
        raise ValueError(
            "something comes after this turn: ask the conversation's question in a call of its own"
        )


def _record(
    first: Question, whole: Sequence[Question], names: BlindedTerms, findings: Sequence[RatingFinding]
) -> list[str]:
    """The lines of the record."""
    if first.turn_index is not None:
        return _record_of_turn(first, names)
    is_session = any(metric.grain == "session" for question in whole for metric in question.metrics)
    found = _findings_line(first, whole, names, findings, is_session)
    room = (BOUND - LINE_BOUND) // len(first.conversations)
    lines: list[str] = []
    for i, (conversation, turns) in enumerate(zip(first.conversations, first.turns, strict=True), start=1):
        tests = {t for f in findings if f.conversation_id == conversation.conversation_id for t in f.tests}
        frame = frame_line(
            conversation, names, (i, *sorted(tests)) if is_session else (), min(LINE_BOUND, room // 3)
        )
        error = conversation.injected_error
        after = [] if error is None else [data_line("injected_error", error, names, room // 3)]
        used = sum(map(len, [frame, *after]))
        lines += [frame, *turn_lines(turns, names, room - used), *after]
    return [*lines, *found]


def _findings_line(
    first: Question,
    whole: Sequence[Question],
    names: BlindedTerms,
    findings: Sequence[RatingFinding],
    is_session: bool,
) -> list[str]:
    bearing = _bearing(whole, findings)
    numbers = {c.conversation_id: i for i, c in enumerate(first.conversations, start=1)}
    shown: list[JsonValue] = [
        f.shown(numbers.get(f.conversation_id) if is_session else None) for f in bearing
    ]
    return [data_line("findings", shown, names)] if shown else []


def _bearing(whole: Sequence[Question], findings: Sequence[RatingFinding]) -> list[RatingFinding]:
    """The findings on what is shown that bear on any of the metrics asked, each once, in their order."""
    ids = {c.conversation_id for question in whole for c in question.conversations}
    held = [f for f in findings if f.conversation_id in ids]
    wanted = {f for q in whole for m in q.metrics for f in bearing_on(m.name, held)}
    return [f for f in findings if f in wanted]


def _record_of_turn(question: Question, names: BlindedTerms) -> list[str]:
    conversation = question.conversations[0]
    *earlier, turn = question.turns[0]
    frame = frame_line(conversation, names)
    room = BOUND - len(frame) - 2 * LINE_BOUND  # the turn, and an expected answer
    lines = [frame, *turn_lines(earlier, names, room), turn_line(turn, names)]
    expected = expected_of(turn.turn_index, conversation.expected)
    if expected is not None and any(m.applies_when == "has_expected_answer" for m in question.metrics):
        lines.append(data_line("expected_answer", expected.answer, names))
    return lines


def _code(question: Question, secret: bytes) -> str:
    """The code of a conversation's marks, the same for all its turns; of a session's, from all conversations."""
    begun = [
        [c.conversation_id, c.goal, [m.content for m in turns[0].messages] if turns else []]
        for c, turns in zip(question.conversations, question.turns, strict=True)
    ]
    return code(secret, *begun)


def _request(questions: Sequence[Question]) -> str:
    """What is asked, in the words that come after the record."""
    subjects: dict[str, list[str]] = {}
    for question in questions:
        for metric in question.metrics:
            of_whole = words.OF_SESSION if metric.grain == "session" else words.OF_CONVERSATION
            subject = of_whole if question.turn_index is None else words.OF_TURN
            subjects.setdefault(subject, []).append(metric.name)
    turn_index = questions[0].turn_index
    said = (s.format(turn_index=turn_index, metrics=", ".join(names)) for s, names in subjects.items())
    return words.AFTER_RECORD.format(subjects=" ".join(said))
