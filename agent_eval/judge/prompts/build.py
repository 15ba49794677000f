"""Build prompts: one call asks all metrics of a question, and starts with a prefix that many calls share.

A prompt has two messages, because some chat templates accept no other order. The system message has the task and the
rubrics, and is equal for all calls of a run. The user message has the record, which grows turn by turn, followed by a
short paragraph with the metrics asked.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from pydantic import JsonValue

from agent_eval.judge.prompts import words
from agent_eval.judge.prompts.attachments import TOKENS_PER_IMAGE, Attachments, attachments_shown
from agent_eval.judge.prompts.blind import NO_BLINDED_TERMS, BlindedTerms
from agent_eval.judge.prompts.fence import code, fenced, line
from agent_eval.judge.prompts.forms import rubric, schema_of, schema_text, skeleton_text
from agent_eval.judge.prompts.question_code import question_code
from agent_eval.judge.prompts.record import BYTES_PER_TOKEN, Line, data_line, size_of
from agent_eval.judge.prompts.view import View, ViewLimits, turn_view, whole_view
from agent_eval.judge.protocol import Question
from agent_eval.metrics.base import GOAL_MISSED, Metric
from agent_eval.metrics.findings import RatingFinding, bearing_on
from agent_eval.metrics.metric_set import expected_of
from agent_eval.transcripts.attachments import Attachment
from agent_eval.transcripts.models import Conversation, Turn

SCHEMA_NAME = "verdicts"
DEFAULT_LIMITS = ViewLimits()
_TIGHT = 4  # rubrics that exceed a quarter of a context may be limited to those asked
_SMALL = 32_000  # context size in tokens below which rubrics may leave too little room for a record
_LONGEST_SAID, _SHORTEST_SAID = 1_600, 20  # characters of a reason or quote when windows are merged
Messages = tuple[Mapping[str, str], ...]
"""Chat messages, each with `role` and `content`."""


@dataclass(frozen=True)
class Prompt:
    """Hold the messages of a call, the schema of its reply, and the data for reading the reply."""

    messages: Messages
    schema: Mapping[str, JsonValue]  # strict JSON schema of the reply
    name: str  # name of the schema
    metrics: tuple[Metric, ...]  # in the order of the reply
    prompt_hash: str  # hash of messages and schema, for provenance; not part of a key
    turns: tuple[Turn, ...] = field(default=(), repr=False)  # turns in which quotes are looked up
    names: BlindedTerms = NO_BLINDED_TERMS
    seen_share: float = 1.0  # shown share of the judged characters (of its own part, for a window)
    n_left_out: int = 0  # messages and calls that are not shown in full
    n_windows: int = 1  # number of windows for which the same questions are asked
    attachments: tuple[Attachment, ...] = field(default=(), repr=False)  # sent after the text
    rung: int = 0  # first of the client's FORMS in which the reply may be requested
    question_code: str | None = None  # code that the reply repeats; None if the keys of the reply identify it

    @property
    def n_images(self) -> int:
        """Return the number of images among the attachments."""
        return sum(attachment.kind == "image" for attachment in self.attachments)

    def with_skeleton(self, messages: Messages) -> Messages:
        """Return the messages with the form of the reply added as text, for servers that accept no schema."""
        return self.with_request(messages, words.FORM.format(skeleton=skeleton_text(self.schema)))

    def with_request(self, messages: Messages, text: str) -> Messages:
        """Return the messages with a text added to the request. The line with the question's code stays the last one."""
        *before, last = messages
        if self.question_code is None:
            return (*before, {**last, "content": f"{last['content']}\n{text}"})
        request, _, of_code = last["content"].rpartition("\n")
        return (*before, {**last, "content": f"{request}\n{text}\n{of_code}"})


def can_share_call(turn: Question, conversation: Question) -> bool:
    """Return whether a question about a conversation can share the call of the last judged turn.

    It can if no turn follows and no injected error is recorded, because a turn must be judged without knowledge of
    later events, but a conversation with all of its data.
    """
    only = conversation.conversations[0]
    return (
        turn.turn_index is not None
        and turn.conversations[0].conversation_id == only.conversation_id
        and turn.turn_index == conversation.turns[0][-1].turn_index
        and only.injected_error is None
    )


def has_room_for_all(question: Question, limits: ViewLimits) -> bool:
    """Return whether the whole conversation up to a turn is likely to fit into the record of the turn's question.

    The number of characters of the texts is compared with the size of the record, without the surrounding JSON.
    """
    if limits.first_turn(len(question.turns[0]) - 1):
        return False
    return n_characters([question]) <= limits.room_beside(
        system_prompt(question.metrics), schema_text(question.metrics)
    )


def n_characters(questions: Sequence[Question]) -> int:
    """Return the number of characters of the texts in a complete record of the questions."""
    first = questions[0]
    messages = [message for turns in first.turns for turn in turns for message in turn.messages]
    size = sum(len(message.content or "") for message in messages)
    size += sum(len(conversation.policy or "") for conversation in first.conversations)
    return size + sum(len(str(call.arguments)) for message in messages for call in message.tool_calls)


def in_parts(questions: Sequence[Question], limits: ViewLimits) -> list[tuple[Question, ...]]:
    """Divide the questions of a call among several calls if their rubrics do not fit into a small context.

    The metrics are divided evenly and in order. The number of calls is the smallest with which each call has room for
    the record in a quarter of the context, or for the whole record if it is shorter.
    """
    pairs = [(question, metric) for question in questions for metric in question.metrics]
    record = n_characters(questions) if limits.context_tokens < _SMALL else 0
    parts = [pairs]
    for n in range(1, len(pairs) + 1):
        size = -(-len(pairs) // n)
        parts = [pairs[i : i + size] for i in range(0, len(pairs), size)]
        rubrics = [tuple(metric for _, metric in part) for part in parts]
        if all(limits.has_room_beside(system_prompt(m), schema_text(m), record=record) for m in rubrics):
            break
    return [
        tuple(
            question.about(metrics_of_question)
            for question in questions
            if (metrics_of_question := [metric for of, metric in part if of is question])
        )
        for part in parts
    ]


def shared_rubrics(metrics: Iterable[Metric]) -> tuple[Metric, ...]:
    """Return the metrics whose rubrics calls about turns share: turn and conversation metrics that models answer.

    A metric about missed goals has calls of its own, which come later.
    """
    return tuple(
        m for m in metrics if m.grain != "session" and not m.is_measured and m.applies_when != GOAL_MISSED
    )


def build_prompt(
    questions: Sequence[Question],
    *,
    secret: bytes,
    metrics: Sequence[Metric] | None = None,
    names: BlindedTerms = NO_BLINDED_TERMS,
    findings: Sequence[RatingFinding] = (),
    limits: ViewLimits = DEFAULT_LIMITS,
    window: int = 0,
) -> Prompt:
    """Return the prompt that asks all metrics of the questions in one call.

    Args:
        questions: One question about a turn; a question about a turn and the question about its conversation (see
            `can_share_call`); or one or more questions about the same conversation or session (U1–U6, the criteria of
            a scenario).
        secret: Key of the code in the marks: one per project, not known outside it.
        metrics: All metrics whose rubrics are in the system message, including those asked, so that the message is
            equal for all calls of a run (see `shared_rubrics`). By default, and if it lacks a metric that is asked, only
            the metrics asked, as for rubric ratings and in an audit with one call per metric. The default also applies if the record does not fit into
            a small context together with all rubrics.
        names: Names of the judged agent to hide.
        findings: Findings of the session's judgments, for rubric ratings. The record includes those on the shown
            conversations that affect the metrics asked, with the tests that the conversations serve.
        limits: Limits on what the model can be shown.
        window: Number of the window, from 0, if the record is divided into `n_windows` windows.

    Raises:
        ValueError: If the questions cannot share a call.
    """
    first = questions[0]
    whole = questions[1:] if first.turn_index is not None else questions
    _check(first, whole)
    asked_metrics = tuple(metric for question in questions for metric in question.metrics)
    rubrics = asked_metrics if metrics is None or not {*asked_metrics} <= {*metrics} else tuple(metrics)
    is_tight = rubrics != asked_metrics and size_of(system_prompt(rubrics)) > limits.room_beside() // _TIGHT
    if is_tight and (window or not _fits(rubrics, asked_metrics, limits)):
        rubrics = asked_metrics
    system = system_prompt(rubrics)
    schema, schema_hash = schema_of(asked_metrics)
    room = limits.room_beside(system, schema_text(asked_metrics))
    attached = _attachments(first, whole, names, limits, room)
    room -= sum(a.kind == "image" for a in attached.shown) * TOKENS_PER_IMAGE * BYTES_PER_TOKEN
    view = _view(first, whole, names, findings, limits, room, window, attached.lines)
    request = _request(questions) + attached.request
    messages: Messages = (
        {"role": "system", "content": system},
        {"role": "user", "content": fenced(view.lines, _code(first, secret)) + request},
    )
    messages, of_question = _with_code(messages, secret, schema_hash, attached.shown)
    prompt = Prompt(
        messages=messages,
        schema=schema,
        name=SCHEMA_NAME,
        metrics=asked_metrics,
        prompt_hash=prompt_hash(messages, schema_hash, attached.shown),
        question_code=of_question,
        turns=tuple(turn for conversation_turns in first.turns for turn in conversation_turns),
        names=names,
        seen_share=view.seen_share,
        n_left_out=view.n_left_out,
        n_windows=view.n_windows,
        attachments=attached.shown,
    )
    if is_tight and not window and (view.seen_share < 1 or view.n_windows > 1):
        return build_prompt(questions, secret=secret, names=names, findings=findings, limits=limits)
    return prompt


def _fits(rubrics: tuple[Metric, ...], asked_metrics: tuple[Metric, ...], limits: ViewLimits) -> bool:
    """Return whether the rubrics and a short record fit into the context."""
    return limits.has_room_beside(system_prompt(rubrics), schema_text(asked_metrics), record=0)


def merge_prompt(
    prompts: Sequence[Prompt],
    verdicts: Sequence[Mapping[str, JsonValue]],
    metrics: Sequence[Metric],
    secret: bytes,
    limits: ViewLimits = DEFAULT_LIMITS,
) -> Prompt:
    """Return the prompt that asks again for ratings and values, given the verdicts on each window of a record.

    Args:
        prompts: Prompts of the windows, in order.
        verdicts: Verdicts on each window by metric: the answer, its reason and its quote.
        metrics: The metrics to ask again.
        secret: Key of the code in the marks.
        limits: Limits of the model. If the verdicts do not fit, those of other metrics are omitted first; then reasons
            and quotes are shortened.
    """
    first, asked_metrics = prompts[0], tuple(metrics)
    request = words.MERGE.format(n=len(prompts), metrics=", ".join(m.name for m in asked_metrics))
    room = limits.room_beside(first.messages[0]["content"], request, str(schema_of(asked_metrics)[0]))
    lines, longest = _merged_lines(verdicts), _LONGEST_SAID
    if _size(lines) > room:
        names = {metric.name for metric in asked_metrics}
        verdicts = [{name: verdict for name, verdict in of.items() if name in names} for of in verdicts]
        lines = _merged_lines(verdicts)
    while _size(lines) > room and longest:
        longest = longest // 2 if longest > _SHORTEST_SAID else 0
        lines = _merged_lines(verdicts, longest)
    mark = code(secret, *(prompt.prompt_hash for prompt in prompts))
    messages: Messages = (first.messages[0], {"role": "user", "content": fenced(lines, mark) + request})
    schema, schema_hash = schema_of(asked_metrics)
    messages, of_question = _with_code(messages, secret, schema_hash)
    return replace(
        first,
        messages=messages,
        question_code=of_question,
        schema=schema,
        metrics=asked_metrics,
        prompt_hash=prompt_hash(messages, schema_hash),
        seen_share=min(sum(prompt.seen_share for prompt in prompts), 1.0),
        n_left_out=sum(prompt.n_left_out for prompt in prompts),
        n_windows=1,
        attachments=(),
    )


def _with_code(
    messages: Messages, secret: bytes, schema_hash: str, attachments: Sequence[Attachment] = ()
) -> tuple[Messages, str]:
    """Return the messages with the question's code in the last line, and the code."""
    *before, last = messages
    of_question = question_code(secret, prompt_hash(messages, schema_hash, attachments))
    text = f"{last['content']}\n{words.CODE.format(code=of_question)}"
    return (*before, {**last, "content": text}), of_question


def _size(lines: Sequence[str]) -> int:
    return sum(map(size_of, lines))


def _merged_lines(verdicts: Sequence[Mapping[str, JsonValue]], longest: int | None = None) -> list[str]:
    """Return a line per window, with texts of at most `longest` characters. If it is 0, only answers are included."""
    return [
        line({"window": i, "verdicts": {name: _shortened(answer, longest) for name, answer in part.items()}})
        for i, part in enumerate(verdicts, start=1)
    ]


def _shortened(answer: JsonValue, longest: int | None) -> JsonValue:
    if longest is None or not isinstance(answer, dict):
        return answer
    if not longest:
        return answer.get("answer")
    return {
        key: text[:longest] + "…" if isinstance(text, str) and len(text) > longest else text
        for key, text in answer.items()
    }


def prompt_hash(messages: Messages, schema_hash: str, attachments: Sequence[Attachment] = ()) -> str:
    """Return a hash (32 hex digits) of everything that is sent: messages, schema and attachments."""
    state = hashlib.blake2b(schema_hash.encode(), digest_size=16)
    for message in messages:
        content = message["content"].encode("utf-8", "surrogatepass")
        state.update(f"\n{message['role']} {len(content)}\n".encode() + content)
    for attachment in attachments:
        state.update(f"\n{attachment.reference}".encode("utf-8", "surrogatepass"))
    return state.hexdigest()


@lru_cache(maxsize=64)
def system_prompt(metrics: tuple[Metric, ...]) -> str:
    """Return the system message: the task, the format of the record, and the rubrics in order."""
    return "\n\n".join([words.TASK, words.RUBRICS, *map(rubric, metrics)])


def _check(first: Question, whole: Sequence[Question]) -> None:
    ids = {tuple(c.conversation_id for c in q.conversations) for q in (first, *whole)}
    if len(ids) != 1 or any(question.turn_index is not None for question in whole):
        raise ValueError("one call asks about one turn, one conversation or one session")
    if first.turn_index is not None and not all(can_share_call(first, question) for question in whole):
        raise ValueError(
            "another turn follows this one: ask the question about the conversation in a separate call"
        )


def _view(
    first: Question,
    whole: Sequence[Question],
    names: BlindedTerms,
    findings: Sequence[RatingFinding],
    limits: ViewLimits,
    room: int,
    window: int,
    attached: Sequence[Line],
) -> View:
    """Return the record of the questions within the available room."""
    if first.turn_index is not None:
        after = [*attached, *_expected_line(first, names, room // 5)]
        return turn_view(first.conversations[0], first.turns[0], names, limits, room, after, window)
    is_session = _is_session(whole)
    extra_lines = [*attached, *_findings_line(first, whole, names, findings, is_session, room // 5)]
    conversation_parts: list[tuple[Conversation, Sequence[Turn], tuple[int | str, ...], Sequence[Line]]] = []
    share = room // len(first.conversations)
    for i, (conversation, turns) in enumerate(zip(first.conversations, first.turns, strict=True), start=1):
        tests = {t for f in findings if f.conversation_id == conversation.conversation_id for t in f.tests}
        error = conversation.injected_error
        behind = [] if error is None else [data_line("injected_error", error, names, share // 4)]
        conversation_parts.append((conversation, turns, (i, *sorted(tests)) if is_session else (), behind))
    return whole_view(conversation_parts, names, room, extra_lines, window)


def _is_session(whole: Sequence[Question]) -> bool:
    return any(metric.grain == "session" for question in whole for metric in question.metrics)


def _attachments(
    first: Question, whole: Sequence[Question], names: BlindedTerms, limits: ViewLimits, room: int
) -> Attachments:
    """Return the attachments of the shown turns. For a turn, earlier turns beyond the limit are excluded."""
    if first.turn_index is None:
        is_session = _is_session(whole)
        return attachments_shown(
            first.turns, names, limits.kinds, room, limits.withheld, is_session=is_session
        )
    turns = first.turns[0]
    start = limits.first_turn(len(turns) - 1)
    visible_turns = [*turns[:1], *turns[start:]] if start else turns
    return attachments_shown([visible_turns], names, limits.kinds, room, limits.withheld)


def _findings_line(
    first: Question,
    whole: Sequence[Question],
    names: BlindedTerms,
    findings: Sequence[RatingFinding],
    is_session: bool,
    most: int,
) -> list[Line]:
    bearing = _bearing(whole, findings)
    numbers = {c.conversation_id: i for i, c in enumerate(first.conversations, start=1)}
    finding_values: list[JsonValue] = [
        f.shown(numbers.get(f.conversation_id) if is_session else None) for f in bearing
    ]
    return [data_line("findings", finding_values, names, most)] if finding_values else []


def _bearing(whole: Sequence[Question], findings: Sequence[RatingFinding]) -> list[RatingFinding]:
    """Return the findings on the shown conversations that affect any of the metrics asked, without duplicates."""
    ids = {c.conversation_id for question in whole for c in question.conversations}
    own_findings = [f for f in findings if f.conversation_id in ids]
    bearing_findings = {f for q in whole for m in q.metrics for f in bearing_on(m.name, own_findings)}
    return [f for f in findings if f in bearing_findings]


def _expected_line(question: Question, names: BlindedTerms, most: int) -> list[Line]:
    expected = expected_of(question.turn.turn_index, question.conversations[0].expected)
    if expected is None or not any(m.applies_when == "has_expected_answer" for m in question.metrics):
        return []
    return [data_line("expected_answer", expected.answer, names, most)]


def _code(question: Question, secret: bytes) -> str:
    """Return the code of the marks, which depends on the conversation, or on all conversations of a session."""
    begun = [
        [c.conversation_id, c.goal, [m.content for m in turns[0].messages] if turns else []]
        for c, turns in zip(question.conversations, question.turns, strict=True)
    ]
    return code(secret, *begun)


def _request(questions: Sequence[Question]) -> str:
    """Return the request that follows the record and names the metrics asked."""
    subjects: dict[str, list[str]] = {}
    for question in questions:
        for metric in question.metrics:
            of_whole = words.OF_SESSION if metric.grain == "session" else words.OF_CONVERSATION
            subject = of_whole if question.turn_index is None else words.OF_TURN
            subjects.setdefault(subject, []).append(metric.name)
    turn_index = questions[0].turn_index
    sentences = (s.format(turn_index=turn_index, metrics=", ".join(names)) for s, names in subjects.items())
    return words.AFTER_RECORD.format(subjects=" ".join(sentences))
