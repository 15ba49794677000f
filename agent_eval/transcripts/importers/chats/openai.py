"""Read OpenAI chats: {"messages": […], …} or lists of messages, one per line or in a JSON array."""

from collections.abc import Iterator, Mapping
from typing import cast

from pydantic import JsonValue

from agent_eval.formats.json_text import dumps
from agent_eval.formats.refusals import Refusal
from agent_eval.formats.streams import Record
from agent_eval.formats.validation_messages import shorten
from agent_eval.transcripts.importers.base import (
    SOURCE_SESSIONS,
    Fields,
    Found,
    Ids,
    NotThisFormatError,
    Source,
    base_success,
    conversations,
    error_text,
    id_of,
    listed,
    mapping,
    or_nothing_found,
    paid,
    reward_note,
    reward_of,
    reward_outcome,
    success_of,
    task_id_of,
    text_of,
    trial_of,
)
from agent_eval.transcripts.importers.registry import Format
from agent_eval.transcripts.importers.rules.branches import LEFT_OUT
from agent_eval.transcripts.importers.rules.speakers import with_assistant_named
from agent_eval.transcripts.importers.shared.dialects import is_chat_message, parsed
from agent_eval.transcripts.importers.shared.histories import folded, in_order, thread_of
from agent_eval.transcripts.importers.shared.layouts import Item, records_of
from agent_eval.transcripts.importers.shared.pairs import PAIR, Pair, as_record, is_pair, marked
from agent_eval.transcripts.importers.shared.sessions import session_of
from agent_eval.transcripts.importers.shared.threads import Thread
from agent_eval.transcripts.importers.shared.wrapped import has_chats, unwrapped
from agent_eval.transcripts.outcomes import class_of_error

NAME = "openai"
_COST = "agent_cost_usd"
EXPECTED = '{"messages": […]} or a list of messages, one per line or in a JSON array'
_IDS = ("conversation_id", "id")
_TEXTS = ("goal", "profile")
_NATIVE = ("task_family", "scenario", "tools", "expected", "interventions", "injected_error")
_RESULTS = ("outcome", "reward", "correct", "error")
_KNOWN = {*_IDS, *_TEXTS, *_NATIVE, *_RESULTS, "messages", "task_id", "trial", "knowledge", "metadata"}
_KNOWN |= {"functions", "system", "instructions", PAIR}


def read(source: Source) -> Iterator[Found]:
    """Yield the conversations of a chat file, or of a proxy's log of requests and responses.

    The records of a session form one conversation. A record that equals the beginning of a later one is omitted.
    """
    records = or_nothing_found(
        source, folded(source, lambda: _whole(source), lambda item: _as_chat(source, item)), EXPECTED
    )
    return conversations(source, NAME, records, _conversation)


def looks_like(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a record is a chat or a request with its response."""
    is_unanswered = "messages" in value and value["messages"] is None
    return has_chats(value) or is_pair(dict(value)) or is_unanswered


def _whole(source: Source) -> Iterator[Item]:
    """Yield the records as objects with messages, or as pairs of a request and its response.

    Lists of messages and wrapped chats are converted.
    """
    for record in unwrapped(source, lambda: records_of(source, EXPECTED, is_chat_message)):
        if isinstance(record, Record) and isinstance(record.value, dict):
            record = Record(record.number, with_assistant_named(record.value, source.agent_id), record.size)
        if isinstance(record, Record) and is_pair(record.value):
            try:
                yield marked(record)
            except NotThisFormatError as error:
                yield Refusal(source.file, record.number, shorten(str(error)))
        else:
            yield record


def _as_chat(source: Source, item: Item) -> Item:
    """Return a pair as a chat record, or the reason why it is refused; return other items unchanged."""
    if not isinstance(item, Pair):
        return item
    try:
        return Record(item.number, as_record(mapping(item.value)), item.size)
    except NotThisFormatError as error:
        return Refusal(source.file, item.number, shorten(str(error)))


def _conversation(record: Mapping[str, JsonValue], ids: Ids, number: int) -> Fields:
    if "records" in record and "key" in record:
        return _session(record, ids)
    if "messages" not in record and all(record.get(name) is None for name in _RESULTS):
        raise NotThisFormatError(f"messages is missing; expected {EXPECTED}")
    thread = thread_of(record)
    conversation_fields = thread.fields()
    return {
        LEFT_OUT: conversation_fields.get(LEFT_OUT),
        **{name: text_of(record.get(name)) for name in _TEXTS},
        **{name: record[name] for name in _NATIVE if record.get(name) is not None},
        **_names(record, ids, number),
        "messages": conversation_fields["messages"],
        "tools": parsed(record["tools"]) if record.get("tools") is not None else conversation_fields["tools"],
        "knowledge": _knowledge(record.get("knowledge")),
        "outcome": _outcome(record),
        "metadata": _metadata(record) | cast("dict[str, JsonValue]", conversation_fields["metadata"]),
    }


def _session(group: Mapping[str, JsonValue], ids: Ids) -> Fields:
    """Return the records of one session as one conversation; its cost is known only if that of every record is."""
    parts: list[Thread] = []
    more: dict[str, JsonValue] = {}
    records = in_order([mapping(record) for record in listed(group["records"])])
    costs = [cost for record in records if (cost := paid(record.get("cost_usd"))) is not None]
    for record in records:
        part = thread_of(record)
        part.know_tools(record.get("tools"))
        parts.append(part)
        more = _metadata(record) | more
    if len(records) > 1 and mapping(more).get(_COST) in costs:
        del more[_COST]
        more |= {_COST: sum(costs)} if len(costs) == len(records) else {}
    conversation_fields = session_of(parts).fields()
    key = text_of(group["key"]) or ""
    metadata = more | cast("dict[str, JsonValue]", conversation_fields["metadata"]) | {SOURCE_SESSIONS: [key]}
    name = ids.named(key)
    ended = {"outcome": _outcome(records[-1])} if records and records[-1].get("error") else {}
    return {**conversation_fields, **ended, "metadata": metadata, "conversation_id": name}


def _names(record: Mapping[str, JsonValue], ids: Ids, number: int) -> Fields:
    id_of(record, "task_id")
    task_id = task_id_of(record)
    own_id = next((text for key in _IDS if (text := id_of(record, key))), None)
    if task_id is None:
        return {"conversation_id": own_id or ids.named(str(number)), "trial": trial_of(record.get("trial"))}
    names = ids.numbered(task_id, record.get("trial"))
    return names | ({"conversation_id": own_id} if own_id else {})


def _knowledge(value: JsonValue) -> list[str]:
    texts = value if isinstance(value, list) else [value]
    return [text for item in texts if (text := text_of(item)) is not None]


def _outcome(record: Mapping[str, JsonValue]) -> object:
    """Return the declared outcome unchanged, else one derived from `correct`, base_success, `error` and `reward`."""
    if record.get("outcome") is not None:
        return record["outcome"]
    error = record.get("error")
    correct = success_of(record, "correct")
    if (reward := record.get("reward")) is not None and reward_of(reward) is None:
        raise NotThisFormatError(
            f"reward is {dumps(reward)[:60]}; expected a finite number, true, false or null"
        )
    if correct is None:
        return reward_outcome(NAME, record.get("reward"), base_success(record, "messages"), ("error", error))
    outcome = {
        "correct": correct, "reward": reward_of(record.get("reward")), "source": f"{NAME} correct", "basis": "declared",
    }  # fmt: skip
    if error in (None, False, ""):
        return outcome
    text = text_of(error) or ""  # classify the whole text, because a traceback ends with its exception
    class_fields = {} if correct else {"outcome_class": class_of_error(text)}
    return outcome | {"error": error_text(text)} | class_fields


def _metadata(record: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    unknown = {key: value for key, value in record.items() if key not in _KNOWN}
    note = reward_note(record.get("reward")) if record.get("outcome") is None else {}
    cost = paid(record.get("cost_usd"))
    costs: dict[str, JsonValue] = {} if cost is None else {_COST: cost}
    return {**costs, **mapping(record.get("metadata")), **unknown, **note}


FORMAT = Format(
    NAME,
    read,
    looks_like,
    order=190,
    content=(
        '`{"messages": […]}` or lists of messages; pairs of request and response; completions; one '
        "message per line or CSV row"
    ),
    conversation=(
        "a record; the records with the same `session_id` or `thread_id`; the messages with the "
        "same `conversation_id`"
    ),
    details=(
        "A record is rejected if its `correct` is not true, false, 1 or 0, its `reward` is not a number, "
        "its `trial` is not a whole number, or its ids are neither texts nor whole numbers; the message "
        "names the key. The import also reads `functions` and `function_call`, and messages in the "
        "formats of Anthropic, Gemini, Bedrock, LangChain, LlamaIndex, Haystack and the AI SDK. The "
        "messages can be under `conversation`, `conversations`, `turns`, `history` or `contents`, and "
        "chats in a list under a key such as `data`. Single messages are grouped by `conversation_id`, "
        "`session_id`, `thread_id` or `chat_id`; without such an id, a file is one conversation. The "
        "columns of a CSV file, and the keys of single messages, are `role` (or sender, speaker, author),"
        " `content` (or message, text, body, utterance) and one of these ids; or `messages` as JSON. "
        "`request`, `response`, cost and time are read from the records of a proxy; further choices are"
        " named. If the messages end without a reply, it is read from `response`, `reply`, `choices`, "
        "`output` or `completion` beside them; a plain text may be the expected reply, and is named"
    ),
    outcome=(
        "`outcome` (native format) or `correct`",
        (
            "`error`, if `correct` or `base_success` is false, or if both are absent and the reward is 0,"
            " negative or missing: as tau-bench"
        ),
        "`base_success`, then `reward`, as tau-bench",
    ),
    also="chats, proxy logs, CSV of messages",
    is_general=True,
)
"""This format, as `catalog` registers it."""
