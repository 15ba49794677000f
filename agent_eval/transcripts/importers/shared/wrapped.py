"""Find the chats in records that use another key for messages, wrap several chats, or are single messages."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from pydantic import JsonValue

from agent_eval.formats.refusals import Refusal
from agent_eval.formats.streams import Record
from agent_eval.transcripts.importers.base import Source, listed, mapping, text_of
from agent_eval.transcripts.importers.rules.speakers import SAID_ROLES, known_role, with_assistant_named
from agent_eval.transcripts.importers.shared.dialects import is_chat_message, parsed, with_known_keys
from agent_eval.transcripts.importers.shared.layouts import Item, grouped

_MESSAGES = (
    *("messages", "conversation", "conversations", "turns", "history", "chat_history", "contents"),
    *("dialogue", "transcript"),
)
_HOLDERS = ("chat", "values", "conversation", "thread", "session")
"""Keys of an object that contains the messages, as in Open WebUI, LangGraph and others."""
_LISTS = (
    *("data", "conversations", "records", "items", "chats", "sessions", "threads", "rows", "results"),
    *("logs", "examples"),
)
"""Keys under which a record stores a list of chats."""
_OF_MESSAGES = (
    *("conversation_id", "conversationId", "session_id", "sessionId", "thread_id", "threadId"),
    *("chat_id", "chatId", "dialogue_id", "dialog_id"),
)
"""Keys of a message that contain its conversation id."""
_BESIDE = ("chosen", "rejected", "preferred_output", "non_preferred_output")
_FEW = 3
_NO_NAME = "the message has no conversation id, although the first message of the file has one; add it to each message"


def with_messages(value: JsonValue) -> JsonValue:
    """Return a record with its messages under `messages`; a value that does not contain a chat is unchanged."""
    record = mapping(value)
    if isinstance(record.get("messages"), list) or any(key in record for key in _BESIDE):
        return value
    for key in _MESSAGES:
        messages = parsed(record.get(key))
        if _is_chat(messages):
            rest = {name: inner for name, inner in record.items() if name != key}
            system = rest.pop("systemInstruction", rest.pop("system_instruction", None))
            instructed = {} if system is None else {"instructions": system}
            return {**rest, **instructed, "messages": messages}
    for key in _HOLDERS:
        wrapper = mapping(record.get(key))
        if _is_chat(wrapper.get("messages")):
            rest = {name: inner for name, inner in record.items() if name != key}
            return {**rest, "messages": wrapper["messages"]}
    return value


def has_chats(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a record is a chat, wraps chats, or is one message."""
    return is_chat(with_messages(dict(value))) or bool(_wrapped(dict(value))) or is_bare_message(dict(value))


def is_chat(value: JsonValue) -> bool:
    """Return whether a record has a list of messages, which may be empty."""
    messages = mapping(value).get("messages")
    return isinstance(messages, list) and all(map(is_chat_message, messages[:_FEW]))


def is_bare_message(value: JsonValue) -> bool:
    """Return whether a record is a single chat message, with a role and either text or calls, but no messages."""
    record = with_known_keys(dict(mapping(value)))
    has_text = bool({"content", "parts", "tool_calls", "text"} & set(record)) and "messages" not in record
    return has_text and isinstance(record.get("role"), str) and is_chat_message(dict(record))


def unwrapped(source: Source, read: Callable[[], Iterator[Record | Refusal]]) -> Iterator[Item]:
    """Yield a record {"messages": […], …} for each chat in a file, and other records unchanged.

    Lines that are single messages are grouped by their conversation id, in file order. If the first message has no
    conversation id, all messages form one conversation.

    Args:
        source: The file.
        read: Function that yields the records; called up to three times.
    """
    firsts = [item for item in islice(read(), _FEW) if isinstance(item, Record)]
    first = next((item for item in firsts if is_bare_message(item.value)), None)
    if first is None:
        yield from _each(read())
        return
    has_names = _named(first.value) is not None
    key = _named if has_names else _all_together
    lines: dict[tuple[str | None, str], int] = {}
    for item in grouped(source, read, key):
        if isinstance(item, Record):
            group = mapping(item.value)
            name_field = {"conversation_id": group["key"]} if has_names and group.get("key") else {}
            if has_names and not group.get("key"):
                yield Refusal(source.file, item.number, _NO_NAME)
                continue
            chat: dict[str, JsonValue] = {**name_field, "messages": listed(group.get("records"))}
            chat = with_assistant_named(chat, source.agent_id)
            if (role := _unknown_role(chat)) is None:
                yield Record(item.number, chat, item.size)
            else:
                lines = lines or _lines_of_roles(read, key)
                reason = f"role is {role[:40]!r}; allowed: {', '.join(SAID_ROLES)}. Its conversation is not imported"
                yield Refusal(source.file, lines.get((text_of(group.get("key")), role), item.number), reason)
        else:
            yield item


def _unknown_role(chat: Mapping[str, JsonValue]) -> str | None:
    """Return the first role of a chat's messages that is a word of unknown meaning, or None."""
    roles = (mapping(message).get("role") for message in listed(chat.get("messages")))
    return next((role for role in roles if isinstance(role, str) and known_role(role) is None), None)


def _lines_of_roles(
    read: Callable[[], Iterator[Record | Refusal]], key: Callable[[JsonValue], str | None]
) -> dict[tuple[str | None, str], int]:
    """Return the number of the first record with each unknown role, by the key of its conversation and the role."""
    line_of_role: dict[tuple[str | None, str], int] = {}
    for item in read():
        role = mapping(item.value).get("role") if isinstance(item, Record) else None
        if isinstance(item, Record) and isinstance(role, str) and known_role(role) is None:
            line_of_role.setdefault((key(item.value), role), item.number)
    return line_of_role


def _each(items: Iterator[Record | Refusal]) -> Iterator[Item]:
    n_more = 0
    for item in items:
        if not isinstance(item, Record):
            yield item
            continue
        chats = _wrapped(item.value) or _separated(item.value)
        for chat in chats:
            yield Record(item.number + n_more, chat, item.size // len(chats))
            n_more += 1
        if chats:
            n_more -= 1
        else:
            yield Record(item.number + n_more, _with_list(with_messages(item.value)), item.size)


def _with_list(value: JsonValue) -> JsonValue:
    return {"messages": value} if isinstance(value, list) else value


def _wrapped(value: JsonValue) -> list[JsonValue]:
    """Return the chats in a record's list of chats; empty if there is no such list."""
    record = mapping(value)
    if "messages" in record:
        return []
    lists = (listed(record.get(key)) for key in _LISTS)
    chat_list = next((chats for chats in lists if chats and is_chat(with_messages(chats[0]))), [])
    return [with_messages(chat) for chat in chat_list]


def _separated(value: JsonValue) -> list[JsonValue]:
    """Return the chats in a list of messages from more than one conversation; empty for any other value."""
    names: dict[str | None, list[JsonValue]] = {}
    for message in listed(value):
        names.setdefault(_named(message), []).append(message)
    if len(names) < 2 or None in names:
        return []
    return [{"conversation_id": name, "messages": messages} for name, messages in names.items()]


def _named(value: JsonValue) -> str | None:
    record = mapping(value)
    return next((text for key in _OF_MESSAGES if (text := text_of(record.get(key)))), None)


def _all_together(value: JsonValue) -> str | None:
    return "" if isinstance(value, dict) else None


def _is_chat(value: JsonValue) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_chat_message, value[:_FEW]))
