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
from agent_eval.transcripts.importers.shared.api_calls import replied, sent
from agent_eval.transcripts.importers.shared.dialects import is_message, parsed
from agent_eval.transcripts.importers.shared.layouts import Item, grouped, records_of
from agent_eval.transcripts.importers.shared.pairs import REQUESTS, RESPONSES
from agent_eval.transcripts.importers.shared.threads import Thread

NAME = "openai-responses"
EXPECTED = (
    'a response {"object": "response", "output": […]}, a pair {"request": {"input": …}, "response": {…}}, '
    'or {"input": […], "output": […]}'
)
_SESSION = ("session_id", "conversation_id", "thread_id")


def read(source: Source) -> Iterator[Found]:
    """Yield the conversations of a log; responses are linked by `previous_response_id` or `conversation`."""
    root: dict[str, str] = {}
    records = grouped(source, lambda: _items(source), lambda value: _key(mapping(value), root))
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
            yield Record(record.number, {"items": record.value}, record.size)
        else:
            yield record


def _parts(record: Mapping[str, JsonValue]) -> tuple[Mapping[str, JsonValue], Mapping[str, JsonValue]]:
    """Return the request and the response of a record; a record with only one of them is used for both."""
    found = [
        next((inner for key in keys if (inner := mapping(parsed(record.get(key))))), {})
        for keys in (REQUESTS, RESPONSES)
    ]
    request, response = (mapping(parsed(part.get("body"))) or part for part in found)
    return request or record, response or record


def _key(record: Mapping[str, JsonValue], root: dict[str, str]) -> str | None:
    """Return the id of the response chain's first response, of the API's conversation, or of the log's session."""
    request, response = _parts(record)
    own = text_of(response.get("id"))
    before = text_of(response.get("previous_response_id") or request.get("previous_response_id"))
    named = response.get("conversation", request.get("conversation"))
    places = (record, mapping(record.get("metadata")), mapping(request.get("metadata")))
    session = next((text for place in places for key in _SESSION if (text := text_of(place.get(key)))), None)
    known = text_of(mapping(named).get("id") or (named if isinstance(named, str) else None)) or session
    found = known or (root.get(before, before) if before else own)
    if own and found:
        root[own] = found
    return found


def _conversation(group: Mapping[str, JsonValue], ids: Ids, number: int) -> Fields:
    whole = Thread()
    for record in map(mapping, listed(group.get("records"))):
        part = Thread()
        request, response = _parts(record)
        items = record.get("items", record.get("data"))
        if isinstance(items, list):
            part.extend(sent(part, items))
        else:
            inputs = {key: request.get(key) for key in ("input", "instructions", "tools")}
            part.extend(sent(part, without_nulls(inputs)))
            part.extend(replied(part, dict(response)))
        if error := response.get("error"):
            part.metadata["error"] = error
        whole.follow(part)
    if not whole.messages:
        raise NotThisFormatError(f"input and output are missing; expected {EXPECTED}")
    return whole.fields() | {"conversation_id": ids.named(text_of(group.get("key")) or str(number))}
