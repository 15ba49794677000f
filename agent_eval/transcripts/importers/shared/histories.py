"""Merge the chat records of a session, and drop records whose history a later record repeats."""

import datetime
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from pydantic import JsonValue

from agent_eval.formats.hashing import canonical
from agent_eval.formats.streams import Record
from agent_eval.transcripts.importers.base import (
    LeftOut,
    NotThisFormatError,
    Source,
    listed,
    mapping,
    text_of,
)
from agent_eval.transcripts.importers.rules.branches import spoken_in_order
from agent_eval.transcripts.importers.rules.order import in_time_order, parents_first, point_in_time, time_of
from agent_eval.transcripts.importers.shared import api_calls
from agent_eval.transcripts.importers.shared.layouts import Item, grouped
from agent_eval.transcripts.importers.shared.messages import chat_messages_with_reasoning
from agent_eval.transcripts.importers.shared.pairs import PAIR
from agent_eval.transcripts.importers.shared.threads import Thread

FOLDED = "records are the beginning of a later record and are merged into it"
_SESSION = ("session_id", "sessionId", "thread_id", "threadId", "litellm_session_id")
_LEAVES = ("currentId", "current_id", "current_node", "current_leaf_message_uuid")
"""Keys of a record with the id of the last message of the branch that it displays."""
_OWN = ("task_id", "conversation_id", "outcome", "correct", "reward")


def folded(
    source: Source, records: Callable[[], Iterator[Item]], prepared: Callable[[Item], Item]
) -> Iterator[Item]:
    """Yield the records, grouped by session, without records that are the beginning of a later record.

    Records are grouped by `session_id` or `thread_id`, which may also be in `metadata`. A record with a task, an
    outcome or an id is not grouped. Only records without any of these keys are recognised as repeated.

    Args:
        source: The file.
        records: Function that yields the records; called up to three times.
        prepared: Function that converts a record to a chat. It keeps the keys of sessions, tasks and outcomes.
    """
    repeated, has_sessions = _looked_through(records(), prepared)

    def kept() -> Iterator[Item]:
        for item in records():
            if not isinstance(item, Record) or item.number not in repeated:
                yield item

    if has_sessions:
        for item in grouped(source, kept, session_of, prepared):
            yield _alone(item) if isinstance(item, Record) else item
    else:
        yield from map(prepared, kept())
    for _ in repeated:
        yield LeftOut(FOLDED)


def _alone(item: Record) -> Record:
    """Unwrap a group that consists of one record without a session; return other groups unchanged."""
    group = mapping(item.value)
    if group.get("key") is None:
        return Record(item.number, listed(group.get("records"))[0], item.size)
    return item


def session_of(value: JsonValue) -> str | None:
    """Return the session of a record, or None if it does not belong to a session."""
    record = mapping(value)
    if any(record.get(name) is not None for name in _OWN) or (record.get("id") and not record.get(PAIR)):
        return None
    places = (record, mapping(record.get("metadata")))
    return next((text for place in places for key in _SESSION if (text := text_of(place.get(key)))), None)


def _looked_through(records: Iterator[Item], prepared: Callable[[Item], Item]) -> tuple[set[int], bool]:
    """Return the numbers of the records that a later record repeats, and whether any record has a session."""
    ends: dict[bytes, list[int]] = {}
    later: dict[bytes, datetime.datetime] = {}  # beginning of a record → the record's time
    repeated: set[int] = set()
    has_sessions = False
    for item in records:
        record = mapping(item.value) if isinstance(item, Record) else {}
        has_sessions = has_sessions or session_of(dict(record)) is not None
        chat = prepared(item) if _may_repeat(record) else None
        if not isinstance(item, Record) or not isinstance(chat, Record):
            continue
        record = mapping(chat.value)
        state = hashlib.blake2b(digest_size=16)
        messages = listed(record.get("messages"))
        when = _time(record)
        for i, message in enumerate(messages):
            try:
                state.update(canonical(_content(mapping(message))))
            except RecursionError:  # rejected later, with its reason
                break
            if i + 1 < len(messages):
                repeated.update(ends.pop(state.digest(), ()))
                if when is not None:
                    later[state.digest()] = when
            elif when is not None and state.digest() in later and when < later[state.digest()]:
                repeated.add(item.number)  # the file lists the newest record first
            else:
                ends.setdefault(state.digest(), []).append(item.number)
    return repeated, has_sessions


def _time(record: Mapping[str, JsonValue]) -> datetime.datetime | None:
    try:
        return point_in_time(record_time(record))
    except NotThisFormatError:
        return None


def _may_repeat(record: Mapping[str, JsonValue]) -> bool:
    """Return whether a record is only a history, without an id, a session, a task or an outcome."""
    is_own = record.get("id") is not None and not record.get(PAIR)
    return not is_own and all(record.get(name) is None for name in _OWN) and session_of(dict(record)) is None


def _content(message: Mapping[str, JsonValue]) -> list[JsonValue]:
    keys = ("role", "content", "tool_calls", "function_call", "tool_call_id")
    return [message.get(key) or None for key in keys]


def thread_of(record: Mapping[str, JsonValue]) -> Thread:
    """Return the messages of a chat record, with the instructions and tools that the record stores separately.

    Raises:
        NotThisFormatError: If `messages` is neither null nor a list of messages.
    """
    thread = Thread()
    for key in ("system", "instructions"):
        api_calls.instruct(thread, record.get(key))
    thread.know_tools(record.get("functions"))
    values = record.get("messages")
    if not isinstance(values, list):
        thread.extend(chat_messages_with_reasoning(values))
        return thread
    leaf = next((record[key] for key in _LEAVES if record.get(key) is not None), None)
    ordered, thread.n_withdrawn = spoken_in_order(values, leaf)
    thread.extend(chat_messages_with_reasoning(ordered))
    return thread


def in_order(records: Sequence[Mapping[str, JsonValue]]) -> list[Mapping[str, JsonValue]]:
    """Return the records of a session in the order in which they happened.

    Times decide; without times, a record whose messages begin with all messages of another one follows it.

    Raises:
        NotThisFormatError: If times contradict the order and some are missing.
    """
    ordered = in_time_order(records, record_time)
    if any(record_time(record) is not None for record in ordered):
        return ordered
    states = [[*_states(record)] for record in ordered]
    names = {id(record): prefix[-1] for record, prefix in zip(ordered, states, strict=True) if prefix}
    whole = set(names.values())
    parents = {
        id(record): next((state for state in reversed(prefix[:-1]) if state in whole), None)
        for record, prefix in zip(ordered, states, strict=True)
    }
    return parents_first(
        ordered, lambda record: names.get(id(record)), lambda record: parents.get(id(record))
    )


def record_time(record: Mapping[str, JsonValue]) -> JsonValue:
    """Return the time of a record, or of its first message; None if neither has one."""
    messages = map(mapping, listed(record.get("messages"))[:1])
    own = (record.get(key) for key in ("startTime", "start_time", "request_created_at"))
    times = (*own, time_of(record), time_of(mapping(record.get("metadata"))), *map(time_of, messages))
    return next((time for time in times if time is not None), None)


def _states(record: Mapping[str, JsonValue]) -> Iterator[str]:
    """Yield a hash of the messages up to each message."""
    state = hashlib.blake2b(digest_size=16)
    for message in listed(record.get("messages")):
        state.update(canonical(_content(mapping(message))))
        yield state.hexdigest()
