"""Read data of the OpenAI Responses API: requests with responses, stored responses, and lists of items."""

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from agent_eval.formats.streams import Record
from agent_eval.transcripts.importers.base import (
    Fields,
    Found,
    Ids,
    NotThisFormatError,
    Source,
    conversations,
    listed,
    mapping,
    or_nothing_found,
    text_of,
    without_nulls,
)
from agent_eval.transcripts.importers.registry import Format
from agent_eval.transcripts.importers.rules.branches import ended_in
from agent_eval.transcripts.importers.rules.order import (
    in_time_order,
    messages_in_time_order,
    parents_first,
    time_of,
)
from agent_eval.transcripts.importers.shared.api_calls import replied, sent
from agent_eval.transcripts.importers.shared.dialects import is_message, parsed
from agent_eval.transcripts.importers.shared.layouts import Item, grouped, records_of
from agent_eval.transcripts.importers.shared.pairs import REQUESTS, RESPONSES
from agent_eval.transcripts.importers.shared.sessions import session_of
from agent_eval.transcripts.importers.shared.threads import Thread

NAME = "openai-responses"
EXPECTED = (
    'a response {"object": "response", "output": […]}, a pair {"request": {"input": …}, "response": {…}}, '
    'or {"input": […], "output": […]}'
)
_SESSION = ("session_id", "conversation_id", "thread_id")


def read(source: Source) -> Iterator[Found]:
    """Yield the conversations of a log; responses are linked by `previous_response_id` or `conversation`."""
    chains = _Chains(source)
    records = grouped(source, lambda: _items(source), lambda value: chains.key(mapping(value)))
    return conversations(source, NAME, or_nothing_found(source, records, EXPECTED), _conversation)


def looks_like(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a record belongs to the Responses API."""
    request, response = _parts(value)
    is_response = response.get("object") == "response" and isinstance(response.get("output"), list)
    has_input = "input" in request and "messages" not in request and isinstance(response.get("output"), list)
    return is_response or has_input or _is_item_list(value)


def _is_item_list(value: Mapping[str, JsonValue]) -> bool:
    items = listed(value.get("items")) or (listed(value.get("data")) if value.get("object") == "list" else [])
    return bool(items) and is_message(items[0])


def _items(source: Source) -> Iterator[Item]:
    for record in records_of(source, EXPECTED, is_message):
        if isinstance(record, Record) and isinstance(record.value, list):
            record = Record(record.number, {"items": record.value}, record.size)
        yield from _by_thread(record) if isinstance(record, Record) else (record,)


def _by_thread(record: Record) -> Iterator[Record]:
    """Yield a record for each thread of the Assistants API whose messages a list contains."""
    value = mapping(record.value)
    key = "items" if "items" in value else "data"
    threads: dict[JsonValue, list[JsonValue]] = {}
    for item in listed(value.get(key)):
        threads.setdefault(text_of(mapping(item).get("thread_id")), []).append(item)
    if None in threads or not _is_item_list(value):
        yield record
        return
    for i, (name, items) in enumerate(threads.items()):
        time = time_of(mapping(items[0]))
        own: dict[str, JsonValue] = {"thread_id": name, **({} if time is None else {"created_at": time})}
        yield Record(record.number, {**value, key: items, **own}, 0 if i else record.size)


def _parts(record: Mapping[str, JsonValue]) -> tuple[Mapping[str, JsonValue], Mapping[str, JsonValue]]:
    """Return the request and the response of a record; a record with only one of them is used for both."""
    parts = [
        next((inner for key in keys if (inner := mapping(parsed(record.get(key))))), {})
        for keys in (REQUESTS, RESPONSES)
    ]
    request, response = (mapping(parsed(part.get("body"))) or part for part in parts)
    return request or record, response or record


class _Chains:
    """Know the conversation of each response: any response of a chain may name it, in any order of the file."""

    def __init__(self, source: Source) -> None:
        self._before: dict[str, str] = {}
        self._named: dict[str, str] = {}
        records = [mapping(item.value) for item in _items(source) if isinstance(item, Record)]
        self._is_one_list = len(records) == 1 and _is_item_list(records[0])
        for record in records:
            own, before = _own(record), _before(record)
            if own and before:
                self._before.setdefault(own, before)
        for record in records:
            if session := _session(record):
                self._named.setdefault(self._root(record) or session, session)

    def key(self, record: Mapping[str, JsonValue]) -> str | None:
        """Return the id of the API's conversation, of the log's session, or of the first response of the chain.

        A file with one list of messages of one thread is numbered, as in earlier releases.
        """
        if self._is_one_list:
            return None
        root = self._root(record)
        return _session(record) or (self._named.get(root, root) if root else None)

    def _root(self, record: Mapping[str, JsonValue]) -> str | None:
        at = _own(record) or _before(record)
        visited = set[str]()
        while at is not None and at in self._before and at not in visited:
            visited.add(at)
            at = self._before[at]
        if at in visited:  # a circle: its responses have one key, so that their order is refused
            circle = [at]
            while (before := self._before[circle[-1]]) != at:
                circle.append(before)
            at = min(circle)
        return at


def _own(record: Mapping[str, JsonValue]) -> str | None:
    return text_of(_parts(record)[1].get("id"))


def _before(record: Mapping[str, JsonValue]) -> str | None:
    request, response = _parts(record)
    return text_of(response.get("previous_response_id") or request.get("previous_response_id"))


def _session(record: Mapping[str, JsonValue]) -> str | None:
    request, response = _parts(record)
    chat = response.get("conversation", request.get("conversation"))
    places = (record, mapping(record.get("metadata")), mapping(request.get("metadata")))
    session = next((text for place in places for key in _SESSION if (text := text_of(place.get(key)))), None)
    return text_of(mapping(chat).get("id") or (chat if isinstance(chat, str) else None)) or session


def _time(record: Mapping[str, JsonValue]) -> JsonValue:
    request, response = _parts(record)
    return next((time for place in (response, record, request) if (time := time_of(place)) is not None), None)


def _in_order(messages: list[Fields], record: Mapping[str, JsonValue]) -> list[Fields]:
    """Return the items of a list in the order of their times.

    Raises:
        NotThisFormatError: If the API's list has no times and begins with the agent and ends with the user.
    """
    spoken = [str(m["role"]) for m in messages if m["role"] in ("user", "assistant", "tool")]
    is_untimed = not any(m.get("timestamp") for m in messages)
    if record.get("object") == "list" and is_untimed and spoken[:1] != ["user"] and spoken[-1:] == ["user"]:
        raise NotThisFormatError(
            "the list begins with the agent and ends with the user, and has no times; the API lists the newest first: "
            "request it with order=asc"
        )
    return messages_in_time_order(messages)


def _conversation(group: Mapping[str, JsonValue], ids: Ids, number: int) -> Fields:
    parts: list[Thread] = []
    records = in_time_order([*map(mapping, listed(group.get("records")))], _time)
    records = parents_first(records, _own, _before)
    branch = ended_in(records, _own, _before, _own(records[-1])) if records else None
    n_withdrawn = 0
    errors: list[str] = []
    for record in records:
        part = Thread()
        request, response = _parts(record)
        items = record.get("items", record.get("data"))
        if isinstance(items, list):
            part.extend(_in_order(sent(part, items), record))
        else:
            inputs = {key: request.get(key) for key in ("input", "instructions", "tools")}
            part.extend(sent(part, without_nulls(inputs)))
            time = time_of(response)
            replies = replied(part, dict(response))
            part.extend(m if time is None else {"timestamp": time, **m} for m in replies)
        error = response.get("error") or (response.get("status") == "failed" and "the response failed")
        part.fail(f"{NAME} error", text_of(error) if error else None)
        if branch is not None and _own(record) not in branch and _before(record) in branch:
            n_withdrawn += sum(m["role"] in ("user", "assistant") for m in part.messages)
            errors += (part.failure or ())[1:]
            continue
        parts.append(part)
    whole = session_of(parts)
    whole.n_withdrawn += n_withdrawn
    whole.recovered += errors
    if not whole.messages:
        raise NotThisFormatError(f"input and output are missing; expected {EXPECTED}")
    return whole.fields() | {"conversation_id": ids.named(text_of(group.get("key")) or str(number))}


FORMAT = Format(
    NAME,
    read,
    looks_like,
    order=180,
    content=(
        'responses of the Responses API, pairs `{"request": {"input": …}, "response": …}`, lists of items'
    ),
    conversation=(
        "responses linked by `previous_response_id`, or with the same `conversation`, `session_id` or `thread_id`"
    ),
)
"""This format, as `catalog` registers it."""
