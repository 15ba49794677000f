"""Export conversations as OpenAI chat records or ATIF trajectories, one per line.

Fields that a format lacks are stored in its extension (`extra.agent_eval` in ATIF), so that `import` can read
them back.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from agent_eval.errors import NotFoundError
from agent_eval.formats.files import Bounds, entries
from agent_eval.formats.json_text import dumps
from agent_eval.formats.refusals import Refusal
from agent_eval.formats.streams import json_lines
from agent_eval.formats.timestamps import seconds
from agent_eval.formats.validation_messages import explain
from agent_eval.transcripts.attachments import chat_part, split
from agent_eval.transcripts.importers.coding.atif import OWN
from agent_eval.transcripts.models import Conversation, Message, MessageToolCall, tokens_of
from agent_eval.transcripts.sessions import CONVERSATIONS

Fields = dict[str, object]
ATIF_VERSION = "ATIF-v1.8"
_SOURCES = {"assistant": "agent", "user": "user", "system": "system", "developer": "system"}


def exported(format_name: str, conversation: Conversation) -> Fields:
    """Return a conversation as one record in the given format.

    Raises:
        NotFoundError: If the format is not openai or atif.
    """
    if format_name not in EXPORTS:
        raise NotFoundError(
            f"Format {format_name!r} cannot be exported. Formats: {', '.join(sorted(EXPORTS))}."
        )
    return EXPORTS[format_name](conversation)


def export_lines(
    format_name: str, agent_folder: Path, sessions: tuple[str, ...] = ()
) -> Iterator[str | Refusal]:
    """Yield a JSON line for each conversation of an agent, in order of session and line.

    An invalid line yields a `Refusal` instead.

    Args:
        format_name: openai or atif.
        agent_folder: The folder of the agent's sessions.
        sessions: The sessions to export; default: all.

    Raises:
        NotFoundError: If the format is unknown, or the agent does not have one of the sessions.
    """
    if format_name not in EXPORTS:
        raise NotFoundError(
            f"Format {format_name!r} cannot be exported. Formats: {', '.join(sorted(EXPORTS))}."
        )
    bounds = Bounds.of(agent_folder.parent)
    folders = [f for f in entries(agent_folder) if not bounds.refused_folder(f, "session")]
    missing = sorted(set(sessions) - {f.name for f in folders})
    if missing or not folders:
        named = f" {', '.join(missing)[:200]}" if missing else ""
        raise NotFoundError(f"Agent {agent_folder.name!r} has no session{named}.")
    for folder in folders:
        path = folder / CONVERSATIONS
        if (sessions and folder.name not in sessions) or bounds.refused_file(path):
            continue
        for record in json_lines(path, f"{folder.name}/{CONVERSATIONS}"):
            if isinstance(record, Refusal):
                yield record
                continue
            try:
                conversation = Conversation.model_validate(record.value)
            except ValidationError as error:
                yield Refusal(f"{folder.name}/{CONVERSATIONS}", record.number, explain(error, Conversation))
            else:
                yield dumps(exported(format_name, conversation))


def _own_fields(conversation: Conversation) -> Fields:
    """Return all fields that differ from their defaults, except messages and source."""
    fields: Fields = conversation.model_dump(
        mode="json", exclude_defaults=True, exclude={"messages", "source"}
    )
    return fields


def _as_openai(conversation: Conversation) -> Fields:
    return {
        **_own_fields(conversation),
        "outcome": conversation.outcome.model_dump(mode="json", exclude_defaults=True),
        "messages": [_chat_message(message) for message in conversation.messages],
    }


def _chat_message(message: Message) -> Fields:
    fields: Fields = message.model_dump(
        mode="json", exclude_defaults=True, exclude={"tool_calls", "attachments"}
    )
    fields = {"role": message.role, "content": message.content, **fields}
    if message.attachments:
        parts = split(message.content, message.attachments)
        fields["content"] = [
            {"type": "text", "text": part} if isinstance(part, str) else chat_part(part) for part in parts
        ]
    if message.tool_calls:
        fields["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments(call)},
            }
            for call in message.tool_calls
        ]
    return fields


def _arguments(call: MessageToolCall) -> str:
    return call.arguments if isinstance(call.arguments, str) else dumps(call.arguments)


def _as_atif(conversation: Conversation) -> Fields:
    steps: list[Fields] = []
    for message in conversation.messages:
        if message.role == "tool":
            _add_result(steps, message)
        else:
            steps.append(_step(message))
    agent: Fields = {"name": "agent", "version": "unknown"}
    if conversation.tools is not None:
        agent["tool_definitions"] = list(conversation.tools)
    own = {"tools": None, "metadata": {}, **_own_fields(conversation)}
    costs = [m.cost_usd for m in conversation.messages if m.role == "assistant" and m.cost_usd is not None]
    totals: Fields = {"total_steps": len(steps)} | ({"total_cost_usd": sum(costs)} if costs else {})
    return {
        "schema_version": ATIF_VERSION,
        "trajectory_id": conversation.conversation_id,
        "agent": agent,
        "steps": [{"step_id": i, **step} for i, step in enumerate(steps, start=1)],
        "final_metrics": totals,
        "extra": {OWN: own},
    }


def _step(message: Message) -> Fields:
    """Return a message as an ATIF step; fields that ATIF lacks are stored in the step's `extra`."""
    fields: Fields = message.model_dump(
        mode="json", exclude_defaults=True, exclude={"tool_calls", "role", "content"}
    )
    source = _SOURCES[message.role]
    step: Fields = {"source": source, "message": message.content or ""}
    if message.content is None:
        fields["content"] = None
    if message.role == "developer":
        fields["role"] = message.role
    if message.timestamp and seconds(message.timestamp) > float("-inf"):
        step["timestamp"] = fields.pop("timestamp")
    if source == "agent":
        if message.tool_calls:
            step["tool_calls"] = [_tool_call(call, i) for i, call in enumerate(message.tool_calls)]
        if metrics := _metrics(message):
            step["metrics"] = metrics
    elif message.tool_calls:
        fields["tool_calls"] = [
            call.model_dump(mode="json", exclude_defaults=True) for call in message.tool_calls
        ]
    return step | ({"extra": {OWN: fields}} if fields else {})


def _metrics(message: Message) -> Fields:
    n_in, n_out = tokens_of(message.usage or {})
    tokens: Fields = {"prompt_tokens": n_in, "completion_tokens": n_out}
    return {
        name: value for name, value in {**tokens, "cost_usd": message.cost_usd}.items() if value is not None
    }


def _tool_call(call: MessageToolCall, index: int) -> Fields:
    """Return a tool call in ATIF form, which requires an id and an object of arguments."""
    is_plain = isinstance(call.arguments, dict) and call.id is not None and call.note is None
    own: Fields = {} if is_plain else {"id": None, **call.model_dump(mode="json", exclude_defaults=True)}
    arguments = call.arguments if isinstance(call.arguments, dict) else {"value": call.arguments}
    call_fields: Fields = {
        "tool_call_id": call.id or f"call-{index}",
        "function_name": call.name,
        "arguments": arguments,
    }
    return call_fields | ({"extra": {OWN: own}} if own else {})


def _add_result(steps: list[Fields], message: Message) -> None:
    """Add a tool result to the preceding agent step; if there is no such step, add a step with only the result."""
    fields: Fields = message.model_dump(
        mode="json", exclude_defaults=True, exclude={"role", "content", "tool_call_id"}
    )
    if message.content is None:
        fields["content"] = None
    last = steps[-1] if steps else {}
    if last.get("source") != "agent" and not last.get("observation"):
        last = {"source": "system", "message": "", "extra": {OWN: {"is_observation": True}}}
        steps.append(last)
    result: Fields = {"content": message.content or ""}
    calls = last.get("tool_calls")
    is_known = isinstance(calls, list) and any(call["tool_call_id"] == message.tool_call_id for call in calls)
    if message.tool_call_id is not None and is_known:
        result["source_call_id"] = message.tool_call_id
    else:
        fields["tool_call_id"] = message.tool_call_id
    results = last.setdefault("observation", {"results": []})
    assert isinstance(results, dict)
    results["results"].append(result | ({"extra": {OWN: fields}} if fields else {}))


EXPORTS: Mapping[str, Callable[[Conversation], Fields]] = {"openai": _as_openai, "atif": _as_atif}
"""Export functions by format name; the names are the same as for import."""
