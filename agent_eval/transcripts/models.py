"""Define the native form of sessions and conversations, and split conversations into turns."""

import bisect
import datetime
import itertools
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from html import unescape
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    NonNegativeInt,
    StringConstraints,
    TypeAdapter,
    ValidationInfo,
    field_validator,
    model_validator,
)

from agent_eval.formats.json_text import loads
from agent_eval.formats.python_literal import NOTE, read_dict
from agent_eval.formats.timestamps import check_date
from agent_eval.methodology.models import Version
from agent_eval.transcripts.attachments import Attachment, attachment_of, attachments_of, flattened
from agent_eval.transcripts.outcomes import CLASSES, OutcomeBasis, OutcomeClass, completed, contradiction

TurnIndex = Annotated[int, Field(ge=0, lt=2**31)]
SLOTS = ("D1", "D2", "D3", "D4", "D5")

Scenario = Literal["D1", "D2", "D3", "D4", "D5", "standardised_task", "hallucination", "error_injection"]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=128)]
"""An id that is safe as a folder name and in a partition key: no `|`, no `/`, no leading dot."""

Reply = Literal["replied", "no reply", "ended", "none due"]
"""Result of a turn, judged after its last user message. replied: the agent wrote a message, or made calls before a
later turn. no reply: the agent's message is empty, or there is none although the conversation or the user went on.
ended: the last turn has a single user message and no message of the agent, or only calls. none due: the last user
message is empty or contains calls, so no reply was expected."""

OPERATOR = frozenset({"system", "developer"})
"""Roles of the agent's operator."""

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_IGNORABLE = re.compile(  # Default_Ignorable_Code_Point characters of other Unicode categories, and noncharacters
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\ufdd0-\ufdef\ufffe\uffff"
    "\U000e0100-\U000e0fff]"
)
REASONING_TAGS = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
"""Reasoning of a model within its text."""
_NO_WORDS = re.compile(
    r"""
    \s*(?:
        traceback\ \(most\ recent\ call\ last\):
        | (?: null | undefined | \[object\ object\] | \[(?:done|end|stop)\] | \#\#\#\s?stop\s?\#\#\# | </?s> | assistant:
            | [\[(<]\s*(?:empty|blank|no)\ (?:content|text|message|reply|response)\s*[\])>]
            | (?:loading|thinking|typing|processing|generating)\s?(?:\.{3}|…)
            | \{\{\s*(?:content|text|message|reply|response)\s*\}\}
            | \{\s*(?:"role":\s*"assistant",\s*)?"(?:content|text|message|reply|response)":\s*(?:""|null|\[\])\s*\}
        )\s*$
    )
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""A text that a program wrote instead of a reply."""
_EMPTY_MARKUP = re.compile(
    r"<(p|div|span)>(?:\s|<br\s*/?>)*</\1> | ```\w*\s*``` | <\|[^<>|]*\|>", re.IGNORECASE | re.VERBOSE
)
"""Elements of HTML and blocks of code that hold nothing, and special tokens of models."""
_TOKEN_LIMIT = frozenset({"length", "max_tokens", "max_output_tokens", "max_completion_tokens"})


def id_key(conversation_id: str) -> str:
    """Return the id in Unicode's composed form (NFC), so that equivalent ids compare as equal."""
    return unicodedata.normalize("NFC", conversation_id)


_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_FILLERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and signs that are shown as nothing."""


def is_blank(text: str | None) -> bool:
    """Return whether a string is None or shows nothing: spaces, invisible characters and comments of HTML."""
    if text and "<!--" in text:
        text = _COMMENT.sub("", text)
    return not text or all(c.isspace() or c in _FILLERS or not c.isprintable() for c in text)


Measured = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False, strict=True)]
"""A cost or a time, bounded so that sums remain finite."""


SessionRun = Annotated[
    str, BeforeValidator(lambda run: str(run) if type(run) is int else run), StringConstraints(min_length=1)
]
"""Name or number of a run."""


class Frozen(BaseModel):
    """Forbid changes and unknown keys in derived models; the error for an unknown key contains the key."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class ToolCall(Frozen):
    """Represent one call of a tool and its result."""

    name: str
    arguments: JsonValue = Field(default_factory=dict)  # a string if the call's arguments are not JSON
    result: str | None = None  # None when no answer was recorded
    is_error: bool | None = None  # None when unknown
    requestor: Literal["assistant", "user"] = "assistant"
    note: str | None = None  # how the arguments were parsed if they were not JSON


def _arguments(value: object) -> object:
    """Return arguments as an object; a string is parsed as JSON, and kept unchanged if it is not JSON.

    Nested JSON strings are parsed completely, so that a round trip (write and read) changes nothing.
    """
    while isinstance(value, str):
        try:
            value = loads(value) if value.strip() else {}
        except ValueError:
            return value
    return {} if value is None else value


def _literal_read(value: Any) -> Any:
    """Parse arguments in the syntax of a Python dict, and note this in the call; return other calls unchanged."""
    if not isinstance(value, dict) or not isinstance(value.get("arguments"), str):
        return value
    arguments = _arguments(value["arguments"])
    read = read_dict(arguments) if isinstance(arguments, str) else None
    return {**value, "arguments": arguments} if read is None else {**value, "arguments": read, "note": NOTE}


class MessageToolCall(Frozen):
    """Represent a tool call in a message; both OpenAI's nested form and the flat form are accepted."""

    id: str | None = None
    name: str
    arguments: Annotated[JsonValue, BeforeValidator(_arguments)] = Field(default_factory=dict)
    note: str | None = None  # how the arguments were parsed if they were not JSON

    @model_validator(mode="before")
    @classmethod
    def _flatten(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("function"), dict):
            function = value["function"]
            value = {
                "id": value.get("id"),
                "name": function.get("name"),
                "arguments": function.get("arguments"),
            }
        return _literal_read(value)


def tokens_of(usage: Mapping[str, JsonValue]) -> tuple[int | None, int | None]:
    """Return the tokens of the prompt and of the reply in a message's usage, by either name; None if unknown."""
    kinds = (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))
    n_in, n_out = (
        next((n for key in keys if isinstance(n := usage.get(key), int) and not isinstance(n, bool)), None)
        for keys in kinds
    )
    return n_in, n_out


def _text(value: object) -> object:
    """Join text parts ([{type: text, text: …}, …]) into one string; other parts become [kind] or [type]."""
    return "\n".join(map(_part, flattened(value))) if isinstance(value, list) else value


def _part(part: object) -> str:
    if not isinstance(part, dict):
        return str(part)
    if (attachment := attachment_of(part)) is not None:
        return attachment.placeholder
    text = part.get("text")
    return text if isinstance(text, str) else f"[{part.get('type', 'part')}]"


MOST_MESSAGES, MOST_BYTES = 14_000, 45_000_000
"""Limits of a conversation, with its metadata; one at both limits is judged by rules in less than 1.5 GB."""


def too_large(n_bytes: int, n_messages: int) -> str | None:
    """Return why a conversation is rejected for its size, or None; `n_bytes` is the length of its JSON text."""
    if n_messages <= MOST_MESSAGES and n_bytes <= MOST_BYTES:
        return None
    return (
        f"the conversation has {n_messages:,} messages and {n_bytes / 1_000_000:,.1f} MB; allowed: {MOST_MESSAGES:,} "
        f"messages and {MOST_BYTES // 1_000_000} MB, so that 1.5 GB of memory are enough to judge it. Divide it into several "
        "conversations, or shorten the results of tools"
    )


class Message(Frozen):
    """Represent one message in OpenAI's chat form."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[str | None, BeforeValidator(_text)] = None
    name: str | None = None
    tool_calls: tuple[MessageToolCall, ...] = ()
    tool_call_id: str | None = None
    is_error: bool | None = None
    timestamp: str | None = None
    latency_ms: Measured | None = None
    usage: dict[str, JsonValue] | None = None
    cost_usd: Measured | None = None
    finish_reason: str | None = None  # stop reason of the model, as in the source; None when unknown
    attachments: tuple[Attachment, ...] | None = None  # each has a placeholder in the content

    @property
    def is_cut_off(self) -> bool:
        """Return whether the token limit ended the message, according to the provider's stop reason."""
        return self.finish_reason is not None and self.finish_reason.casefold() in _TOKEN_LIMIT

    @property
    def is_empty(self) -> bool:
        """Return whether the message has no text, no calls and no attachments."""
        return not self.tool_calls and not self.attachments and is_blank(self.content)

    @property
    def says_something(self) -> bool:
        """Return whether the message has a call, an attachment, or a letter, digit or symbol other than punctuation.

        Reasoning in tags, comments of HTML, markup that holds nothing, letters that are shown as nothing, an empty value
        written as a word, e.g. null, and a text of a program, e.g. a traceback or "(no content)", say nothing.
        """
        signs = _COMMENT.sub("", REASONING_TAGS.sub("", self.content or ""))
        signs = _EMPTY_MARKUP.sub("", unescape(signs) if "&" in signs else signs)
        signs = "" if _NO_WORDS.match(signs) else signs
        is_text = any((c.isalnum() or unicodedata.category(c)[0] == "S") and c not in _FILLERS for c in signs)
        return bool(self.tool_calls or self.attachments) or is_text

    @model_validator(mode="before")
    @classmethod
    def _calls_and_attachments(cls, value: Any) -> Any:
        """Read null as no calls, and the attachments in the parts of the content."""
        if isinstance(value, dict) and value.get("tool_calls", ()) is None:
            value = {**value, "tool_calls": ()}
        if not isinstance(value, dict) or value.get("attachments") is not None:
            return value
        attachments = attachments_of(value.get("content"))
        return {**value, "attachments": attachments} if attachments else value


class Expected(Frozen):
    """Define the ground truth for one turn, or for the whole conversation if `turn_index` is None."""

    turn_index: TurnIndex | None = None
    tools: tuple[dict[str, JsonValue], ...] | None = (
        None  # None: calls are not part of the ground truth; (): no calls are expected
    )
    tool_sequence_matters: bool = False
    results_should_be_used: bool | None = None
    results_used: bool | None = Field(default=None, exclude_if=lambda value: value is None)
    """Whether the results reached the answer, if the source declares it; it is written only if it is known."""
    answer: str | None = None
    assertions: tuple[JsonValue, ...] = ()


EXPECTED: TypeAdapter[tuple[Expected, ...]] = TypeAdapter(
    tuple[Expected, ...], config=ConfigDict(defer_build=True)
)
"""Type adapter for the column `expected` of the `conversations` table."""


class Outcome(Frozen):
    """Represent the known result of a conversation. Unknown is None, never 0.

    A string with the name of a class is parsed as an outcome of that class.
    """

    correct: bool | None = None
    reward: Annotated[float, Field(allow_inf_nan=False, strict=True)] | None = None
    source: str | None = None
    error: str | None = None  # the error that ended the run, if any
    outcome_class: OutcomeClass | None = None  # None: derived from `correct`
    basis: OutcomeBasis | None = None  # what the outcome was derived from; importers state it

    @model_validator(mode="before")
    @classmethod
    def _completed(cls, value: Any) -> Any:
        fields = {"outcome_class": value} if isinstance(value, str) and value in CLASSES else value
        return completed(fields) if isinstance(fields, dict) else fields

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if problem := contradiction(self.outcome_class, self.correct):
            raise ValueError(problem)
        return self

    @property
    def classified(self) -> OutcomeClass:
        """Return the outcome class, which is derived from `correct` if it is not given."""
        if self.outcome_class is not None:
            return self.outcome_class
        return "unknown" if self.correct is None else "passed" if self.correct else "failed"

    @property
    def is_crash(self) -> bool:
        """Return whether an error ended the run that counts against the agent: its own, or one with a declared failure."""
        if self.classified == "agent_error":
            return True
        return self.correct is False and bool(self.error) and self.classified != "harness_error"

    @property
    def is_said(self) -> bool:
        """Return whether any part of the result is known: a class, a reward or an error."""
        return self.classified != "unknown" or self.reward is not None or bool(self.error)


class Intervention(Frozen):
    """Represent an intervention by a human, which U5 counts."""

    turn_index: TurnIndex | None = None
    kind: Literal["confirmation", "correction", "help", "blocked"]  # blocked: the agent needs guidance
    note: str | None = None


class Turn(Frozen):
    """Represent one or more adjacent user messages and what follows them, up to the next user message.

    `turn_index` is the number of user messages before the turn, so indexes have gaps where messages are adjacent.
    """

    turn_index: NonNegativeInt
    user_message: str | None  # several messages are separated by an empty line
    agent_message: str | None  # None if there is no reply
    has_reply: bool  # whether the assistant wrote a message or made a call after the user message
    reply: Reply
    messages: tuple[Message, ...]
    tool_calls: tuple[ToolCall, ...]
    latency_ms: float | None


class Conversation(Frozen):
    """Represent one conversation with the user's goal, the messages and the outcome."""

    conversation_id: Annotated[str, StringConstraints(min_length=1, max_length=512)]
    task_id: str | None = None
    task_family: (
        Annotated[str, StringConstraints(min_length=1, max_length=512), AfterValidator(id_key)] | None
    ) = None
    trial: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    scenario: Scenario | None = None
    goal: str | None = None
    profile: str | None = None
    knowledge: tuple[str, ...] = ()
    tools: tuple[dict[str, JsonValue], ...] | None = None  # None: unknown; (): no interventions
    messages: tuple[Message, ...]  # empty only if an outcome, a reward or an error is known
    expected: tuple[Expected, ...] = ()
    outcome: Outcome = Outcome()
    interventions: tuple[Intervention, ...] | None = None  # None: not recorded; (): no tools
    injected_error: JsonValue = None
    source: str | None = None  # format, file, record and hash, written by importers
    metadata: dict[str, JsonValue] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _tools_of_metadata(cls, value: Any) -> Any:
        """Move the tools that an importer stored in the metadata to the field `tools`."""
        if not isinstance(value, dict) or value.get("tools") is not None:
            return value
        metadata = value.get("metadata")
        tools = metadata.get("tools") if isinstance(metadata, dict) else None
        if isinstance(tools, list) and tools and all(isinstance(tool, dict) for tool in tools):
            return {**value, "tools": tools}
        return value

    @field_validator("expected", "interventions", mode="after")
    @classmethod
    def _of_turns(cls, value: tuple[Any, ...] | None, info: ValidationInfo) -> tuple[Any, ...] | None:
        """Assign an entry that names any user message of a turn to the turn; its answer is added to that of the turn."""
        if not any(entry.turn_index for entry in value or ()):
            return value
        messages = info.data.get("messages", ())
        starts = [index for index, _ in _starts(messages)]
        n_indexes = n_turn_indexes(len(messages), sum(m.role == "user" for m in messages))
        turns = {i: starts[bisect.bisect_right(starts, i) - 1] for i in range(n_indexes)}
        moved = {i: at for i, at in turns.items() if at != i and any(e.turn_index == i for e in value or ())}
        if not moved:
            return value
        placed = [
            entry.model_copy(update={"turn_index": moved.get(entry.turn_index, entry.turn_index)})
            for entry in value or ()
        ]
        return tuple(_with_joined_answers(placed, {*moved.values()}))

    @property
    def n_requests(self) -> int:
        """Return the number of user messages with a word or symbol, a call or an attachment.

        A message that the user sends again before the agent has said or done anything counts once.
        """
        spoken = [m for m in self.messages if m.role not in OPERATOR and m.says_something]
        return sum(
            m.role == "user" and not (before and before.role == "user" and before.content == m.content)
            for before, m in zip([None, *spoken], spoken, strict=False)
        )

    @property
    def n_replies(self) -> int:
        """Return the number of replies: messages of the agent with a word or symbol, a call or an attachment.

        A greeting before the first user message that says something, and a message that is marked as an error, are not
        replies. Without such a user message, the goal or the instructions must say what the agent was to do.
        """
        user_positions = (i for i, m in enumerate(self.messages) if m.role == "user" and m.says_something)
        has_task = not is_blank(self.goal) or self.policy is not None
        start = next(user_positions, 0 if has_task else len(self.messages))
        replies = (m for m in self.messages[start:] if m.role == "assistant" and not m.is_error)
        return sum(m.says_something for m in replies)

    @property
    def policy(self) -> str | None:
        """Return `metadata.policy` and the system and developer messages before the first user message."""
        metadata_policy = self.metadata.get("policy")
        texts = [metadata_policy] if isinstance(metadata_policy, str) else []
        for message in self.messages:
            if message.role not in OPERATOR:
                break
            if message.content and message.content not in texts:
                texts.append(message.content)
        return "\n\n".join(text for text in texts if not is_blank(text)) or None

    @model_validator(mode="after")
    def _is_a_trial(self) -> Self:
        if not self.messages and not self.outcome.is_said:
            raise ValueError("messages is empty, and there is no outcome, reward or error")
        return self

    def problem(self) -> str | None:
        """Return the reason why a file with this conversation is rejected although the model accepts it, or None.

        The model accepts such a conversation because a store may contain data that an earlier release accepted.
        """
        return self._unprintable_id() or self._misplaced_intervention()

    def _unprintable_id(self) -> str | None:
        if self.conversation_id.isascii() and self.conversation_id.isprintable():
            return None
        bad = [
            sign
            for sign in self.conversation_id
            if unicodedata.category(sign) in _INVISIBLE or _IGNORABLE.match(sign)
        ]
        if not bad:
            return None
        return (
            f"conversation_id {ascii(self.conversation_id)[:80]} contains the invisible character U+{ord(bad[0]):04X}; "
            "control, zero-width and direction characters are not allowed"
        )

    def _misplaced_intervention(self) -> str | None:
        indexes = [(i, entry.turn_index) for i, entry in enumerate(self.interventions or ())]
        n_users = sum(1 for m in self.messages if m.role == "user") if indexes else 0
        allowed = n_turn_indexes(len(self.messages), n_users)
        for i, index in indexes:
            if index is not None and index >= allowed:
                turns = "1 turn" if self.n_turns == 1 else f"{self.n_turns} turns"
                last = f"; allowed: 0 to {allowed - 1}, or null" if allowed else "; allowed: null"
                return f"interventions[{i}].turn_index is {index}, but the conversation has {turns}{last}"
        return None

    @property
    def n_turns(self) -> int:
        """Return the number of turns without building them."""
        return len(_starts(self.messages))

    def turns(self) -> tuple[Turn, ...]:
        """Return the turns. Messages before the first user message belong to turn 0.

        A conversation without a user message has one turn; a conversation without messages has none.
        """
        bounds = [*_starts(self.messages), (0, len(self.messages))]
        return tuple(
            _turn(index, self.messages[begin:end], is_last=end == len(self.messages))
            for (index, begin), (_, end) in itertools.pairwise(bounds)
        )


_Links = dict[
    Literal["D1", "D2", "D3", "D4", "D5"], Literal["standardised_task", "hallucination", "error_injection"]
]


def _with_false_premise(links: _Links) -> _Links:
    for slot, test in links.items():
        if test == "hallucination" and slot != "D4":
            raise ValueError(
                f"{slot} cannot serve as the hallucination test, only D4, which can have a false premise; "
                f"remove the link and hold the test in a conversation of its own"
            )
    return links


Links = Annotated[_Links, AfterValidator(_with_false_premise)]
"""The required test that a slot also serves as."""


class Session(Frozen):
    """Represent one benchmark session, as defined in session.yaml."""

    session_id: Slug | None = None  # if given, must equal the folder's name
    methodology_versions: Literal["any"] | tuple[str, ...]  # MAJOR.MINOR.PATCH, without duplicates
    benchmark_id: str | None = None  # default: the session's id
    date: datetime.date | None = None
    session_run: SessionRun | None = None  # distinguishes sessions of the same date
    evaluator: str | None = None
    u3_scope: Literal["single_message", "multi_turn"] | None = None
    repeatability_tested: bool | None = None
    links: Links = Field(default_factory=dict)
    task_set: str | None = None
    invalid_reason: str | None = None  # set if the harness failed; the session never counts against the agent
    notes: str | None = None

    @field_validator("invalid_reason", mode="after")
    @classmethod
    def _reason_given(cls, value: str | None) -> str | None:
        """Return null for a reason without text: an empty key does not make a session invalid."""
        return None if is_blank(value) else value

    @model_validator(mode="after")
    def _versions(self) -> Self:
        if not self.methodology_versions:
            raise ValueError(
                "methodology_versions is empty; list the versions it was run for, or write 'any'"
            )
        if self.methodology_versions != "any":
            _check_versions(self.methodology_versions)
        return self

    def future_date(self) -> str | None:
        """Return the reason why a file with this session is rejected although the model accepts it: a date to come."""
        try:
            if self.date is not None:
                check_date(self.date, "date")
        except ValueError as error:
            return str(error)
        return None


def _check_versions(versions: tuple[str, ...]) -> None:
    for version in versions:
        try:
            Version.parse(version)
        except ValueError as error:
            raise ValueError(
                f"methodology_versions: {error}; list such versions, or write any instead of the list"
            ) from None
    if repeated := sorted({v for v in versions if versions.count(v) > 1}):
        raise ValueError(
            f"methodology_versions names {', '.join(repeated)} more than once; name each version once"
        )


class Agent(Frozen):
    """Represent one entry of agents.yaml."""

    agent_id: Slug
    name: str | None = None
    category: str | None = None
    provider: str | None = None
    endpoint: dict[str, JsonValue] | None = None
    baseline: Slug | None = None
    policy: Annotated[str, StringConstraints(min_length=1, max_length=512)] | None = (
        None  # file with the rules given to the agent, relative to the data folder
    )


def _with_joined_answers(entries: Sequence[Any], joined: Collection[int]) -> Iterator[Any]:
    """Yield the entries; in a joined turn, the first one with an answer has the answers of all of them."""
    answers: dict[int, list[str]] = {index: [] for index in joined}
    for entry in entries:
        if entry.turn_index in answers and getattr(entry, "answer", None):
            answers[entry.turn_index].append(entry.answer)
    for entry in entries:
        if entry.turn_index in answers and getattr(entry, "answer", None):
            yield entry.model_copy(update={"answer": "\n\n".join(answers[entry.turn_index]) or None})
            answers[entry.turn_index].clear()
        else:
            yield entry


def n_turn_indexes(n_messages: int, n_user_messages: int) -> int:
    """Return the number of indexes that name a turn: one per user message, and at least one if there is a message."""
    return max(n_user_messages, min(n_messages, 1))


def _starts(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Return the index of each turn and the position of its first message.

    Messages before the first user message belong to turn 0. A user message begins a turn unless only messages of the
    operator are between it and the previous user message.
    """
    starts = [(0, 0)] if messages else []
    users = [i for i, m in enumerate(messages) if m.role == "user"]
    for index, (before, at) in enumerate(itertools.pairwise(users), start=1):
        if any(m.role not in OPERATOR for m in messages[before + 1 : at]):
            starts.append((index, at))
    return starts


def _turn(turn_index: int, messages: tuple[Message, ...], *, is_last: bool) -> Turn:
    at = next((i for i, m in enumerate(messages) if m.role == "user"), None)
    users = [m for m in messages if m.role == "user"]
    user_texts = [m.content for m in users if len(users) == 1 or not is_blank(m.content)]
    reply = [m for m in messages[0 if at is None else at + 1 :] if m.role == "assistant"]
    texts = [m.content for m in reply if m.content and not is_blank(m.content)]
    latencies = [m.latency_ms for m in reply]
    known_times = [value for value in latencies if value is not None]
    return Turn(
        turn_index=turn_index,
        user_message=user_texts[0] if len(user_texts) == 1 else "\n\n".join(filter(None, user_texts)) or None,
        agent_message="\n\n".join(texts) if texts else None,
        has_reply=bool(texts) or any(m.tool_calls for m in reply),
        reply=_reply(users, reply, is_last=is_last),
        messages=messages,
        tool_calls=tuple(_tool_calls(messages)),
        latency_ms=sum(known_times) if known_times and len(known_times) == len(latencies) else None,
    )


def _reply(users: Sequence[Message], reply: Sequence[Message], *, is_last: bool) -> Reply:
    """Return the result of a turn from its user messages and the agent's messages after them.

    The answer is the text after the agent's last call. An empty last message that is marked as an error is a
    crash: it ends the conversation, and the outcome accounts for it. An empty message without an error does not
    end the conversation.
    """
    answer = list(itertools.takewhile(lambda m: not m.tool_calls, reversed(reply)))
    if answer and all(m.is_empty for m in answer):
        return "ended" if is_last and answer[0].is_error else "no reply"
    if reply and not (is_last and all(is_blank(m.content) for m in reply)):
        return "replied"
    user_messages = [user for user in users if not user.is_empty]
    is_waiting = bool(user_messages) and not user_messages[-1].tool_calls
    is_repeated = sum(not user.tool_calls for user in user_messages) > 1
    if is_last and (reply or not is_waiting or not is_repeated):
        return "ended"
    return "no reply" if is_waiting else "none due"


def _tool_calls(messages: tuple[Message, ...]) -> Iterator[ToolCall]:
    """Yield calls with their results, in order.

    Results are matched by call id, else by position: the next tool message that belongs to no other call.
    """
    results = [m for m in messages if m.role == "tool"]
    calls = [(m.role, call) for m in messages for call in m.tool_calls]
    by_id = {m.tool_call_id: m for m in reversed(results) if m.tool_call_id}
    ids = {call.id for _, call in calls if call.id}
    unclaimed = [m for m in results if m.tool_call_id not in ids]
    for role, call in calls:
        answer = by_id.get(call.id) if call.id else None
        if answer is None and unclaimed and (call.id is None or not unclaimed[0].tool_call_id):
            answer = unclaimed.pop(0)
        yield ToolCall(
            name=call.name,
            arguments=call.arguments,
            result=answer.content if answer else None,
            is_error=answer.is_error if answer else None,
            requestor="user" if role == "user" else "assistant",
            note=call.note,
        )
