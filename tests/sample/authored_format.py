"""The form of tests/sample/authored/*.yaml: one agent with its sessions, transcripts and the verdicts on them."""

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field, JsonValue, StrictFloat, StrictInt, StringConstraints, model_validator

from agent_eval.metrics.builtin.coherence import COHERENCE
from agent_eval.metrics.builtin.faithfulness import FAITHFULNESS
from agent_eval.metrics.builtin.helpfulness import HELPFULNESS
from agent_eval.metrics.builtin.relevance import RELEVANCE
from agent_eval.metrics.builtin.verbosity import VERBOSITY
from agent_eval.transcripts.models import (
    Agent,
    Conversation,
    Expected,
    Frozen,
    Intervention,
    Message,
    MessageToolCall,
    Outcome,
    Scenario,
    Session,
    Slug,
)

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
OneToFive = Annotated[StrictInt, Field(ge=1, le=5)]
ZeroOrOne = Annotated[StrictInt, Field(ge=0, le=1)]
ZeroToOne = Annotated[StrictFloat | StrictInt, Field(ge=0, le=1)]
Rating = tuple[OneToFive, Text, Text]  # rating, rationale, quote
RATED = (HELPFULNESS, COHERENCE, RELEVANCE, FAITHFULNESS, VERBOSITY)
"""The metrics of `ratings`, in their order."""


class Call(Frozen):
    call: Text
    arguments: dict[str, JsonValue]
    result: str | None = None
    is_error: bool | None = None


class Failures(Frozen):
    agent: tuple[str, ...] = ()
    tool: tuple[str, ...] = ()


class AuthoredTurn(Frozen):
    user: Text | None
    reply: tuple[Text | Call, ...]
    latency_ms: Annotated[int, Field(ge=0)] | None = None
    why: Text | None = None
    quote: Text | None = None
    ratings: tuple[OneToFive, OneToFive, OneToFive, OneToFive, OneToFive] | None = None
    notes: dict[str, Text] = Field(default_factory=dict)
    failures: Failures = Failures()
    failure_why: Text | None = None
    failure_quote: Text | None = None
    answer_correctness: tuple[ZeroToOne, Text, Text] | None = None


class AuthoredConversation(Frozen):
    conversation_id: Text
    task_id: Text
    trial: int
    scenario: Scenario | None
    goal: Text
    profile: Text
    knowledge: tuple[Text, ...]
    tools: tuple[dict[str, JsonValue], ...]
    interventions: tuple[Intervention, ...] | None
    injected_error: JsonValue
    outcome: Outcome
    expected: tuple[Expected, ...] = ()
    cost_usd: Annotated[float, Field(ge=0)] | None = None
    turns: Annotated[tuple[AuthoredTurn, ...], Field(min_length=1)]
    goal_completion: tuple[ZeroOrOne, Text, Text] | None = None
    criteria: dict[str, Rating] | None = None

    def native(self) -> Conversation:
        """The conversation in the form of conversations.jsonl."""
        messages = [m for i, turn in enumerate(self.turns) for m in _messages(turn, i)]
        replies = [i for i, m in enumerate(messages) if m.role == "assistant"]
        if replies and self.cost_usd is not None:
            messages[replies[-1]] = messages[replies[-1]].model_copy(update={"cost_usd": self.cost_usd})
        shared = AuthoredConversation.model_fields.keys() & Conversation.model_fields.keys()
        return Conversation(messages=tuple(messages), **{name: getattr(self, name) for name in shared})


class AuthoredSession(Frozen):
    session_id: Slug
    session: Session
    ratings: dict[str, Rating] = Field(default_factory=dict)
    conversations: Annotated[tuple[AuthoredConversation, ...], Field(min_length=1)]


class AuthoredRating(Frozen):
    session_id: Text
    conversation_id: Text | None = None
    turn_index: StrictInt | None = None
    methodology_version: str = "any"
    target: Text
    criterion: Text | None = None
    rating_1to5: OneToFive
    rationale: str | None = None
    evidence: str | None = None
    rater: Text
    rated_at: str | None = None


class AuthoredAgent(Frozen):
    agent: Agent
    sessions: Annotated[tuple[AuthoredSession, ...], Field(min_length=1)]
    human_ratings: tuple[AuthoredRating, ...] = ()

    @model_validator(mode="after")
    def _unique_ids(self) -> Self:
        sessions = [s.session_id for s in self.sessions]
        conversations = [c.conversation_id for s in self.sessions for c in s.conversations]
        for name, ids in (("session_id", sessions), ("conversation_id", conversations)):
            if repeated := sorted({i for i in ids if ids.count(i) > 1}):
                raise ValueError(f"{name} used twice: {', '.join(repeated)}")
        return self


def _messages(turn: AuthoredTurn, turn_index: int) -> list[Message]:
    messages = [] if turn.user is None else [Message(role="user", content=turn.user)]
    shares = iter(_shares(turn.latency_ms, len(turn.reply)))
    for i, part in enumerate(turn.reply):
        latency = next(shares)
        if isinstance(part, str):
            messages.append(Message(role="assistant", content=part, latency_ms=latency))
            continue
        call_id = f"call_{turn_index}_{i}"
        call = MessageToolCall(id=call_id, name=part.call, arguments=part.arguments)
        messages.append(Message(role="assistant", tool_calls=(call,), latency_ms=latency))
        if part.result is not None:
            told = Message(role="tool", content=part.result, name=part.call, is_error=part.is_error)
            messages.append(told.model_copy(update={"tool_call_id": call_id}))
    return messages


def _shares(total: int | None, n: int) -> Sequence[int | None]:
    """A turn's latency spread over its replies in whole milliseconds: the sum is what was authored."""
    if total is None or n == 0:
        return [None] * n
    return [total // n] * (n - 1) + [total - total // n * (n - 1)]
