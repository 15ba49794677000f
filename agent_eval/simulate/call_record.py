"""Keep the replies of conversations in progress, so that a killed run repeats at most the calls that were in flight."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue, TypeAdapter, ValidationError

from agent_eval.formats.hashing import digest
from agent_eval.formats.json_text import clean, dumps
from agent_eval.simulate.agents.replies import AgentReply

_REPLY: TypeAdapter[AgentReply] = TypeAdapter(AgentReply)


@dataclass(frozen=True)
class RecordedReply:
    """Hold a reply and the hash of its request (32 hex digits)."""

    request_hash: str
    reply: JsonValue


def _discard(line: bytes) -> None:
    """Record nothing."""


@dataclass
class CallRecord:
    """Hold the calls of one conversation in order: those that an earlier process made, and then its own.

    A reply is replayed only for an equal request at the same place, after replies that were all replayed.
    """

    conversation_id: str = ""
    earlier: Sequence[RecordedReply] = ()
    append: Callable[[bytes], None] = field(default=_discard, repr=False)
    n_calls: int = 0
    _previous: str = ""

    def request_hash(self, *parts: object) -> str:
        """Return the hash of the next request, which contains the requests before it."""
        self._previous = digest("request", self._previous, self.n_calls, parts)
        return self._previous

    def replay(self, request_hash: str) -> JsonValue:
        """Return the reply that an earlier process received at this place to an equal request; None if there is none."""
        recorded = self.earlier[self.n_calls] if self.n_calls < len(self.earlier) else None
        if recorded is None or recorded.request_hash != request_hash:
            self.earlier = ()
            return None
        self.n_calls += 1
        return recorded.reply

    def replay_agent(self, request_hash: str) -> AgentReply | None:
        """Return the agent's reply that an earlier process received, as `replay` does; None if it is damaged."""
        value = self.replay(request_hash)
        try:
            return None if value is None else _REPLY.validate_json(dumps(value))
        except ValidationError:
            self.reject()
            return None

    def reject(self) -> None:
        """Drop the reply that `replay` returned last and those after it, because it is damaged."""
        self.n_calls, self.earlier = self.n_calls - 1, ()

    def add(self, request_hash: str, reply: AgentReply | JsonValue) -> None:
        """Record a reply; a kill of the process no longer loses it when this returns."""
        value = _REPLY.dump_python(reply, mode="json") if isinstance(reply, AgentReply) else reply
        self._write({"at": self.n_calls, "request": request_hash, "reply": value})
        self.n_calls += 1

    def forget(self) -> None:
        """Drop all replies: the agent keeps a state, so that the conversation cannot be continued by another process."""
        self._write({"at": 0})
        self.n_calls, self.earlier = 0, ()

    def _write(self, values: Mapping[str, JsonValue]) -> None:
        text = clean(dumps({"conversation_id": self.conversation_id, **values}))
        self.append(text.encode())


def read_records(lines: Iterable[JsonValue]) -> dict[str, list[RecordedReply]]:
    """Return the replies of each conversation in order. A line at an earlier place replaces all that followed it."""
    replies: dict[str, list[RecordedReply]] = {}
    for line in lines:
        values = line if isinstance(line, dict) else {}
        at, request_hash = values.get("at"), values.get("request")
        of_conversation = replies.setdefault(str(values.get("conversation_id")), [])
        if not isinstance(at, int) or not 0 <= at <= len(of_conversation):
            continue  # a line before it was lost
        del of_conversation[at:]
        if isinstance(request_hash, str):
            of_conversation.append(RecordedReply(request_hash, values.get("reply")))
    return replies
