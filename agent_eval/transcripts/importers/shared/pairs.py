"""Convert requests and responses logged by a proxy or a batch to chat records.

The supported forms are records {"request": …, "response": …} (each as an object, as JSON text, or under `body`),
LiteLLM's payloads {"messages": …, "response": …}, messages with the reply beside them (`response`, `reply` or
`choices`; `output` and `completion` only if they are messages), and an API response without its request. A response that is an error ends the
conversation.
"""

from collections.abc import Mapping

from pydantic import JsonValue

from agent_eval.formats.streams import Record
from agent_eval.transcripts.importers.base import Fields, listed, mapping, number_of, paid, text_of
from agent_eval.transcripts.importers.rules.unread import UNREAD
from agent_eval.transcripts.importers.shared.api_calls import replied, sent
from agent_eval.transcripts.importers.shared.dialects import is_message, parsed
from agent_eval.transcripts.importers.shared.threads import Thread

PAIR = "_pair"
"""Key that marks a record built from a request and its response, of which the id is the API call's id."""
REQUESTS = ("request", "request_body", "requestBody", "req")
RESPONSES = ("response", "response_body", "responseBody", "res", "completion")
_AMBIGUOUS = ("completion", "output")
_BESIDE = ("choices", "reply", *RESPONSES, "output")
"""Keys beside the messages of a record that contain the reply to them."""
_KEYS = frozenset({"object", *REQUESTS, *_BESIDE})
"""Keys of which every pair has at least one."""
_CHOICES = ("choices", "usage", "model")
_ERRORS = (
    "error_message",
    "errorMessage",
    "error_str",
    "exception",
    "failure",
    "status_message",
    "statusMessage",
)
_NO_RESPONSE = "the log contains no response"
_STARTED = ("startTime", "start_time", "created_at", "request_created_at", "timestamp")


def is_pair(value: JsonValue) -> bool:
    """Return whether a record is a request with its response, or a model API's response without its request."""
    record = mapping(value)
    if _KEYS.isdisjoint(record):
        return False
    has_request = any(key in record and _body(record, (key,)) for key in REQUESTS) or isinstance(
        record.get("messages"), list
    )
    response = _body(record, RESPONSES)
    is_answer = _has_reply(response) or "error" in response or _blocked(response) is not None
    is_answer = is_answer or _is_unanswered(record)
    is_beside = _reply_beside(record) is not None
    return (has_request and is_answer) or _is_response(record) or is_beside or _is_asked_and_answered(record)


def _is_asked_and_answered(record: Mapping[str, JsonValue]) -> bool:
    """Return whether a record is a model API's response with its request beside it."""
    return bool(_body(record, REQUESTS)) and _are_choices(record.get("choices"))


def _is_unanswered(record: Mapping[str, JsonValue]) -> bool:
    """Return whether a log states that a request got no response: `"response": null`."""
    responses = [record[key] for key in RESPONSES if key in record]
    if not responses and any(
        key in record and _body(record, (key,)) for key in REQUESTS
    ):  # an empty cell of a CSV file
        return any(record.get(key) for key in ("error", *_ERRORS))
    messages = listed(_body(record, REQUESTS).get("messages", record.get("messages")))
    is_open = not messages or mapping(messages[-1]).get("role") not in ("assistant", "model")
    return bool(responses) and all(value in (None, "", {}) for value in responses) and is_open


def _has_reply(response: Mapping[str, JsonValue]) -> bool:
    lists = (response.get(key) for key in ("choices", "output", "content", "candidates"))
    return any(isinstance(value, list) for value in lists) or isinstance(response.get("message"), dict)


def _reply_beside(record: Mapping[str, JsonValue]) -> str | None:
    """Return the key of the reply beside messages that end without one, or None."""
    messages = listed(record.get("messages"))
    if not messages or mapping(messages[-1]).get("role") not in ("user", "human", "tool", "function"):
        return None
    reply_keys = (key for key in _BESIDE if record.get(key) and isinstance(record[key], str | dict | list))
    return next((key for key in reply_keys if key != "choices" or _are_choices(record[key])), None)


def _are_choices(value: JsonValue) -> bool:
    """Return whether a value is the `choices` of an API's response, and not the options of a question."""
    return any({"message", "finish_reason"} & set(mapping(choice)) for choice in listed(value))


def _replied_beside(thread: Thread, key: str, record: Mapping[str, JsonValue]) -> list[Fields]:
    """Return the reply beside messages; a text that may as well be the expected reply is named and not read."""
    value = parsed(record[key])
    if key == "choices":
        return replied(thread, {name: record[name] for name in _CHOICES if name in record})
    is_told = is_message(value) or (isinstance(value, list) and all(map(is_message, value)))
    if key in _AMBIGUOUS and not is_told and not _has_reply(mapping(value)):
        what = f"{key!r} beside messages without a reply (write it as 'response' if the agent said it)"
        return [{"role": "developer", "content": None, UNREAD: [what]}]
    return replied(thread, value)


def _is_response(record: Mapping[str, JsonValue]) -> bool:
    is_alone = not isinstance(record.get("messages"), list) and not _body(record, REQUESTS)
    kinds = ("chat.completion", "text_completion", "response")
    return is_alone and record.get("object") in kinds and _has_reply(record)


def _body(record: Mapping[str, JsonValue], keys: tuple[str, ...]) -> Mapping[str, JsonValue]:
    """Return the object under the first key that has one; JSON strings are parsed, and `body` is unwrapped."""
    for key in keys:
        if record.get(key) is None:
            continue
        body = mapping(parsed(record.get(key)))
        inner = mapping(parsed(body.get("body", body.get("json"))))
        if inner or body:
            return inner or body
    return {}


class Pair(Record):
    """Hold a pair that is not converted yet, because its history may be long and its file is read several times."""


def marked(record: Record) -> Record:
    """Return a pair as a `Pair`; an API response without its request, which has no history, as a chat record.

    Raises:
        NotThisFormatError: If the form of a message is unknown.
    """
    value = mapping(record.value)
    if _is_response(value):
        return Record(record.number, as_record(value), record.size)
    return Pair(record.number, {**value, PAIR: True}, record.size)


def as_record(record: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the chat record of a pair: all messages of the request, then the reply.

    Raises:
        NotThisFormatError: If the form of a message is unknown.
    """
    thread = Thread()
    is_alone = _is_response(record)
    request = {} if is_alone else _body(record, REQUESTS) or record
    is_whole = is_alone or (_is_asked_and_answered(record) and not _body(record, RESPONSES))
    response = record if is_whole else _body(record, RESPONSES)
    has_reply = _has_reply(response) or "error" in response
    beside = None if has_reply else _reply_beside(record)
    history = sent(
        thread, {key: value for key, value in request.items() if key not in (*RESPONSES, "choices", beside)}
    )
    reply = replied(thread, dict(response)) if _has_reply(response) else []
    reply = reply if beside is None else _replied_beside(thread, beside, record)
    _time(record, reply)
    if reply:
        cost = paid(record.get("response_cost", record.get("cost_usd", record.get("cost"))))
        reply[-1] |= {} if cost is None else {"cost_usd": cost}
    rest = {
        key: value
        for key, value in record.items()
        if key not in (*REQUESTS, *RESPONSES, "messages", "choices", beside)
    }
    if is_alone:
        rest = {"id": record.get("id")}
    if not reply and not rest.get("error"):
        own = (
            response.get("error"),
            _blocked(response),
            *(record.get(key) for key in _ERRORS),
            _state(record),
            _NO_RESPONSE,
        )
        rest["error"] = next(error for error in own if error)
    model = response.get("model") or request.get("model")
    chat_fields: dict[str, JsonValue] = {
        "messages": [dict(m) for m in (*history, *reply)],  # type: ignore[arg-type]
        "tools": [*thread.tools.values()] or None,
        "instructions": "\n\n".join(thread.policy) or None,
        "model": model,
        PAIR: True,
    }
    return {**rest, **{key: value for key, value in chat_fields.items() if value is not None}}


def _blocked(response: Mapping[str, JsonValue]) -> str | None:
    """Return why Gemini answered nothing to a prompt, or None if it did not say so."""
    reason = text_of(mapping(response.get("promptFeedback")).get("blockReason"))
    return None if reason is None else f"the prompt was blocked: {reason}"


def _state(record: Mapping[str, JsonValue]) -> str | None:
    """Return the error that Vertex's batches write as `status`, such as 'Bad Request: {…}'; one word is not an error."""
    state = record.get("status")
    return state if isinstance(state, str) and len(state.split()) > 1 else None


def _time(record: Mapping[str, JsonValue], reply: list[Fields]) -> None:
    """Add the start time and the duration of the reply, if the log contains them."""
    if not reply:
        return
    began = next((text for key in _STARTED if (text := text_of(record.get(key)))), None)
    took = next(
        (n for key in ("latency_ms", "duration_ms") if (n := number_of(record.get(key))) is not None), None
    )
    if began is not None:
        reply[-1].setdefault("timestamp", began)
    if took is not None and took >= 0:
        reply[-1].setdefault("latency_ms", took)
