"""Assemble one conversation from the model calls, tool runs and traces of a session.

Model calls repeat the history of the conversation; repeated messages are added only once.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from pydantic import JsonValue

from agent_eval.formats.hashing import canonical
from agent_eval.transcripts.importers.base import Fields, error_text, listed, without_nulls
from agent_eval.transcripts.importers.rules.branches import LEFT_OUT, WITHDRAWN
from agent_eval.transcripts.importers.rules.unread import UNREAD, not_read
from agent_eval.transcripts.importers.shared.dialects import native_messages, parsed
from agent_eval.transcripts.models import is_blank
from agent_eval.transcripts.outcomes import class_of_error

POLICY = "policy"
"""Key of `metadata`: instructions that the source stores separately from the messages."""
SOURCE_SCORES = "source_scores"
"""Key of `metadata`: scores in the source, a list of {name, value, …}."""
DECISIVE_STEP = "decisive_step"
"""Name of the score that holds a person's answer on where a run failed: the agent as value, the message, the reason."""
MESSAGE_INDEX = "message_index"
"""Key of a score: 0-based index of the message that it is about."""
MODELS = "models"
"""Key of `metadata`: the models that replied, in the order of their first reply."""
INSTRUCTING = ("system", "developer")
"""Roles of instructions, which a part may repeat anywhere."""
REASONING = "reasoning"
"""Key of `metadata`: the model's reasoning, a list of {message_index, text}; not shown to judges."""
OUT_OF_PLACE = "messages stand before known ones in the history of a later model call only, and are omitted"
RECOVERED = "recovered_errors"
"""Key of `metadata`: the errors after which the conversation went on."""


@dataclass
class Thread:
    """Build a conversation incrementally: messages, instructions, tools and metadata."""

    messages: list[Fields] = field(default_factory=list[Fields])
    policy: list[str] = field(default_factory=list[str])
    tools: dict[bytes, dict[str, JsonValue]] = field(default_factory=dict[bytes, dict[str, JsonValue]])
    models: dict[str, None] = field(default_factory=dict[str, None])
    metadata: dict[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    failure: tuple[str, str] | None = (
        None  # what ended the conversation: the place in the source, and the error
    )
    recovered: list[str] = field(default_factory=list[str])  # errors after which the conversation went on
    n_withdrawn: int = 0  # messages of branches that the person went back from
    n_out_of_place: int = 0  # new messages that a later model call has before known ones
    _keys: list[bytes] = field(default_factory=list[bytes])
    _places: dict[bytes, list[int]] = field(default_factory=dict[bytes, list[int]])  # positions of each key
    _instructions: set[bytes] = field(default_factory=set[bytes])  # keys of system and developer messages
    _waiting: dict[str, list[dict[str, JsonValue]]] = field(
        default_factory=dict[str, list[dict[str, JsonValue]]]
    )
    _answered: Counter[object] = field(default_factory=Counter[object])
    _called: Counter[object] = field(default_factory=Counter[object])
    _n_noted: int = 0
    _given: list[JsonValue] = field(default_factory=list[JsonValue])  # the last history, as in the source
    _native: list[list[Fields]] = field(
        default_factory=list[list[Fields]]
    )  # the messages of each of its entries

    def keys(self) -> list[bytes]:
        """Return the key of each message (see `message_key`)."""
        for message in self.messages[len(self._keys) :]:
            self._places.setdefault(key := message_key(message), []).append(len(self._keys))
            self._keys.append(key)
            if message["role"] in INSTRUCTING:
                self._instructions.add(key)
        return self._keys

    def instruct(self, text: str | None) -> None:
        """Add instructions that the source stores separately from the messages, without duplicates."""
        if text and not is_blank(text) and text not in self.policy:
            self.policy.append(text)

    def know_tools(self, value: JsonValue) -> None:
        """Add tool schemas without duplicates.

        The value is a list of schemas or an object of schemas by name, or JSON text of either.
        """
        value = parsed(value)
        values = list(value.values()) if isinstance(value, dict) else listed(value)
        for schema in map(parsed, values):
            if isinstance(schema, dict):
                self.tools.setdefault(canonical(schema), schema)

    def not_read(self, what: str, kinds: Mapping[str, int]) -> None:
        """Name records of unknown kinds, given the number of each kind."""
        texts = [not_read(what, kind) for kind, n in kinds.items() for _ in range(n)]
        self.extend([{"role": "developer", "content": None, UNREAD: texts}] if texts else [])

    def extend(self, messages: Iterable[Fields]) -> None:
        """Append messages unchanged."""
        self.messages.extend(messages)

    def converted(self, values: Sequence[JsonValue]) -> list[Fields]:
        """Return a history as native messages; entries that the last history of the thread begins with are known.

        Raises:
            NotThisFormatError: If the form of a message is unknown.
        """
        pairs = zip(values, self._given, strict=False)
        n = next(
            (i for i, (value, earlier_value) in enumerate(pairs) if value != earlier_value),
            min(len(values), len(self._given)),
        )
        new = [native_messages([value], first=i) for i, value in enumerate(values[n:], n)]
        self._given, self._native = [*values], [*self._native[:n], *new]
        return [message for entry in self._native for message in entry]

    def merge(self, history: Sequence[Fields], reply: Sequence[Fields]) -> None:
        """Append the new messages of a model call: the part of its input that is missing here, and its reply."""
        self.extend(self._unseen(history))
        self.extend(reply)

    def _unseen(self, history: Sequence[Fields]) -> list[Fields]:
        """Return the messages of a call's input that this conversation does not contain yet.

        Both lists are traversed in parallel: each match is searched for at or after the previous match. An assistant
        message at the position of an existing assistant message is the same message in another form. The results of
        parallel calls match in any order.
        """
        self.keys()
        at = 0
        fresh: list[Fields] = []
        for message in history:
            places = self._places.get(message_key(message), [])
            later = bisect_left(places, at)
            if later < len(places):
                at = places[later] + 1
                fresh = self._in_place(fresh, is_end=at == len(self.messages))
            elif places and message["role"] == "tool" and self._is_in_last_results(places[-1], at):
                continue
            elif message["role"] == "assistant" and self._is_reply(at):
                at += 1
                fresh = self._in_place(fresh, is_end=False)
            elif message["role"] not in INSTRUCTING or not places:
                fresh.append(message)
        return fresh

    def _in_place(self, fresh: Sequence[Fields], *, is_end: bool) -> list[Fields]:
        """Return the new messages before a known one that are read: results at the end, and names of unread parts.

        When the others were said is unknown, so they are omitted and counted.
        """
        kept = [
            m for m in fresh if (is_end and m["role"] == "tool") or (UNREAD in m and not m.get("content"))
        ]
        spoken = [m for m in fresh if m["role"] not in INSTRUCTING]
        self.n_out_of_place += len(spoken) - sum(m["role"] not in INSTRUCTING for m in kept)
        return kept

    def _is_in_last_results(self, place: int, end: int) -> bool:
        """Return whether only results of calls are between a place and the end, which excludes itself."""
        return all(m["role"] == "tool" for m in self.messages[place:end])

    def _is_reply(self, at: int) -> bool:
        return at < len(self.messages) and self.messages[at]["role"] == "assistant"

    def answer(self, name: str | None, arguments: JsonValue, message: Fields) -> None:
        """Append a tool result, preceded by a new call if its call is unknown.

        Args:
            name: The tool.
            arguments: The arguments of the call.
            message: A tool message. If it has no known `tool_call_id`, it is the result of the tool's first open call,
                preferably of one with the same arguments.
        """
        self._note()
        call_id = message.get("tool_call_id")
        if call_id is not None and self._answered[call_id] >= max(self._called[call_id], 1):
            return
        if call_id is None or call_id not in self._called:
            waiting = [c for c in self._waiting.get(name or "", ()) if not self._is_answered(c)]
            exact = (c for c in waiting if parsed(c.get("arguments")) == parsed(arguments))
            open_call = next(exact, waiting[0] if waiting else None)
            if open_call is None:
                call: Fields = {"id": call_id, "name": name or "tool", "arguments": arguments}
                self.extend([{"role": "assistant", "content": None, "tool_calls": [call]}])
            else:
                call_id = open_call.get("id")
                self._waiting[name or ""] = [c for c in waiting if c is not open_call]
        self.extend([{**message, "tool_call_id": call_id}])

    def _is_answered(self, call: dict[str, JsonValue]) -> bool:
        name = call.get("id")
        return name is not None and self._answered[name] >= self._called[name]

    def _note(self) -> None:
        """Record the tool calls and results in the messages that were added since this method last ran."""
        for message in self.messages[self._n_noted :]:
            if message.get("role") == "tool" and message.get("tool_call_id") is not None:
                self._answered[message["tool_call_id"]] += 1
            calls = message.get("tool_calls")
            for call in calls if isinstance(calls, list) else ():
                self._called[call.get("id")] += 1
                self._waiting.setdefault(str(call.get("name") or ""), []).append(call)
        self._n_noted = len(self.messages)

    def spoken(self) -> list[tuple[bytes, str]]:
        """Return the key and the role of each message that is not an instruction, and results in the order of their keys.

        Parallel calls end in any order, and a later request may list their results in another one.
        """
        pairs = zip(self.keys(), self.messages, strict=True)
        messages = [(key, str(m["role"])) for key, m in pairs if m["role"] not in INSTRUCTING]
        for is_result, group in groupby(range(len(messages)), lambda i: messages[i][1] == "tool"):
            places = [*group] if is_result else []
            if len(places) > 1:
                messages[places[0] : places[-1] + 1] = sorted(messages[i] for i in places)
        return messages

    def fail(self, place: str, error: str | None) -> None:
        """Note the error that the conversation ends in so far, or None; it went on after one that was noted earlier."""
        if self.failure is not None:
            self.recovered.append(self.failure[1])
        self.failure = (place, error) if error else None

    def follow(self, other: "Thread", n_repeated: int = 0) -> None:
        """Append a later part of the conversation.

        Args:
            other: The part.
            n_repeated: Number of its first messages that this conversation contains, not counting instructions.
        """
        self.keys()
        for key, message in zip(other.keys(), other.messages, strict=True):
            if message["role"] in INSTRUCTING:
                self.extend([] if key in self._instructions else [message])
            elif n_repeated > 0:
                n_repeated -= 1
            else:
                self.extend([message])
        for text in other.policy:
            self.instruct(text)
        self.n_withdrawn += other.n_withdrawn
        self.n_out_of_place += other.n_out_of_place
        self.fail(*(other.failure or ("", None)))
        self.recovered += other.recovered
        self.tools |= other.tools
        self.models |= other.models
        _add_metadata(self.metadata, other.metadata)

    def fields(self) -> Fields:
        """Return the conversation's fields in native form: messages, tools and metadata."""
        reasoning: list[JsonValue] = []
        messages: list[Fields] = []
        unspoken: list[str] = []
        for message in _joined_reasoning(self.messages, unspoken):
            plain = dict(message)
            if text := plain.pop("reasoning", None):
                reasoning.append({"message_index": len(messages), "text": str(text)})
            model = plain.pop("model", None)
            if message.get("role") == "assistant" and isinstance(model, str):
                self.models.setdefault(model)
            messages.append(plain)
        if unspoken:
            reasoning.append({"message_index": max(len(messages) - 1, 0), "text": "\n".join(unspoken)})
        own_metadata: dict[str, JsonValue] = {
            POLICY: "\n\n".join(self.policy) or None,
            MODELS: [*self.models] or None,
            REASONING: reasoning or None,
            RECOVERED: self._errors_recovered_from() or None,
        }
        tools = list(self.tools.values()) or None
        left_out = [WITHDRAWN] * self.n_withdrawn + [OUT_OF_PLACE] * self.n_out_of_place
        more: Fields = {LEFT_OUT: left_out} if left_out else {}
        if self.failure is not None:
            place, error = self.failure
            more["outcome"] = {
                **{"error": error_text(error), "outcome_class": class_of_error(error)},
                **{"source": place, "basis": "error"},
            }
        return more | {
            "messages": messages,
            "tools": tools,
            "metadata": without_nulls({**self.metadata, **own_metadata}),
        }

    def _errors_recovered_from(self) -> list[JsonValue]:
        last = None if self.failure is None else self.failure[1]
        return [error_text(error) for error in dict.fromkeys(self.recovered) if error != last]


def _joined_reasoning(messages: Iterable[Fields], unspoken: list[str]) -> Iterable[Fields]:
    """Yield the messages; reasoning that forms a separate message is moved to the assistant's next message.

    If no message follows, the reasoning is added to `unspoken`.
    """
    waiting: list[str] = []
    for message in messages:
        is_thought = message.get("reasoning") and message["role"] == "assistant"
        if is_thought and not any(message.get(k) for k in ("content", "tool_calls", "attachments", UNREAD)):
            waiting.append(str(message["reasoning"]))
            continue
        if waiting and message["role"] == "assistant":
            own = [str(message["reasoning"])] if message.get("reasoning") else []
            message = {**message, "reasoning": "\n".join([*waiting, *own])}
            waiting = []
        yield message
    unspoken += waiting


def _add_metadata(into: dict[str, JsonValue], more: Mapping[str, JsonValue]) -> None:
    """Merge metadata: scores are concatenated, costs are added, and other keys keep their first value."""
    for key, value in more.items():
        mine = into.get(key)
        if key == SOURCE_SCORES and isinstance(mine, list) and isinstance(value, list):
            into[key] = [*mine, *value]
        elif key == "agent_cost_usd" and isinstance(mine, int | float) and isinstance(value, int | float):
            into[key] = mine + value
        else:
            into.setdefault(key, value)


def message_key(message: Fields) -> bytes:
    """Return a key that is equal for copies of a message.

    The key consists of role, text, calls and attachments; the key of a tool result is its call id, if it has one.
    """
    role, content = message.get("role"), message.get("content")
    if role == "tool" and message.get("tool_call_id"):
        return canonical(["tool", message["tool_call_id"]])
    text = content.strip() if isinstance(content, str) else content or message.get(UNREAD) or ""
    calls = message.get("tool_calls")
    call_keys = (
        [[c.get("name"), parsed(c.get("arguments"))] for c in calls] if isinstance(calls, list) else []
    )
    attached = message.get("attachments")
    return canonical([role, text, call_keys, attached] if attached else [role, text, call_keys])
