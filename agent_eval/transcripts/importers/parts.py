"""Merge conversations whose source session is split over several files.

The session folder's `parts.jsonl` contains the parts as they were imported. The conversation is computed from all
parts, so that the order of imports does not matter and importing a file again changes nothing.
"""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from functools import reduce
from pathlib import Path

from pydantic import JsonValue, ValidationError

from agent_eval.formats.atomic_files import sync_stream
from agent_eval.formats.hashing import canonical
from agent_eval.formats.streams import Record, json_lines
from agent_eval.formats.timestamps import seconds
from agent_eval.transcripts.importers.agent_ids import RecordOrigin
from agent_eval.transcripts.importers.base import SOURCE_SESSIONS, listed, mapping
from agent_eval.transcripts.importers.session_files import (
    PARTS,
    is_same,
    line_of,
    put_in_place,
    temporary,
    write,
)
from agent_eval.transcripts.importers.shared.sessions import n_said_again
from agent_eval.transcripts.importers.shared.threads import MODELS, POLICY, REASONING, message_key
from agent_eval.transcripts.models import OPERATOR, Conversation
from agent_eval.transcripts.sessions import CONVERSATIONS, ERRORS, SESSION

_COST = "agent_cost_usd"
_SURE = 2  # minimum number of user messages that two parts must share if timestamps do not identify messages


class SessionParts:
    """Hold the parts of a session's conversations, by conversation id and file."""

    def __init__(self, folder: Path) -> None:
        self._of: dict[str, dict[str, Conversation]] = {}
        path = folder / PARTS
        for record in json_lines(path, path.name) if path.is_file() else ():
            try:
                part = Conversation.model_validate(record.value if isinstance(record, Record) else None)
            except ValidationError:
                continue  # its file can be imported again
            self._put(part.conversation_id, part)

    def __contains__(self, conversation_id: str) -> bool:
        return conversation_id in self._of

    def put(self, conversation_id: str, part: Conversation) -> Conversation:
        """Add a part, or replace the part from the same file; return the merged conversation."""
        self._put(conversation_id, part)
        return merged(list(self._of[conversation_id].values()))

    def write(self, folder: Path, conversation_ids: Container[str] | None = None) -> None:
        """Write the parts of these conversations (None: of all conversations) to a folder, if there are any."""
        names = (name for name in self._of if conversation_ids is None or name in conversation_ids)
        if lines := [line_of(part) for name in names for part in self._of[name].values()]:
            write(folder / PARTS, b"".join(lines))

    def _put(self, conversation_id: str, part: Conversation) -> None:
        origin = RecordOrigin.of(part.source)
        name = origin.file_of_format if origin else ""
        own = part.model_copy(update={"conversation_id": conversation_id})
        self._of.setdefault(conversation_id, {})[name] = own


def continue_session(
    folder: Path, parts: Mapping[str, Sequence[Conversation]]
) -> tuple[dict[str, Conversation], int] | None:
    """Merge parts into conversations of a session.

    Returns the changed conversations by id, and the number of turns that they gained; None if the session's files did
    not change.

    Args:
        folder: The session folder.
        parts: The parts, by the id of the conversation that they belong to.
    """
    session_parts = SessionParts(folder)
    n_before = 0
    changed: dict[str, Conversation] = {}
    with temporary(folder) as new:
        with (folder / CONVERSATIONS).open("rb") as old, (new / CONVERSATIONS).open("wb") as stream:
            for line in old:
                own = Conversation.model_validate_json(line)
                for part in parts.get(own.conversation_id, ()):
                    if own.conversation_id not in session_parts:
                        session_parts.put(own.conversation_id, own)
                    changed[own.conversation_id] = session_parts.put(own.conversation_id, part)
                n_before += len(own.turns()) if own.conversation_id in changed else 0
                stream.write(line_of(changed.get(own.conversation_id, own)))
            sync_stream(stream)
        for name in (SESSION, ERRORS):
            if (folder / name).is_file():
                write(new / name, (folder / name).read_bytes())
        session_parts.write(new)
        if is_same(folder, new):
            return None
        put_in_place(new, folder)
    return changed, sum(len(whole.turns()) for whole in changed.values()) - n_before


def merged(parts: Sequence[Conversation]) -> Conversation:
    """Merge parts into one conversation, ordered by their first timestamps, or in the given order without timestamps.

    Messages that an earlier part already contains are dropped: a part may repeat all earlier messages, or begin with
    the last messages of the previous part. Messages with timestamps are equal if content and timestamp are equal.
    Without timestamps, an overlap is recognised only if it covers all earlier messages or at least two user messages.
    The other fields are those of the first given part.
    """
    times = [next((m.timestamp for m in part.messages if m.timestamp), None) for part in parts]
    ordered = list(parts)
    if all(times):
        ordered = [p for _, p in sorted(zip(times, parts, strict=True), key=lambda pair: seconds(pair[0]))]
    whole = reduce(_followed, ordered)
    return parts[0].model_copy(
        update={"messages": whole.messages, "tools": whole.tools, "metadata": whole.metadata}
    )


def _followed(first: Conversation, second: Conversation) -> Conversation:
    own, others = ([m.model_dump(mode="json") for m in part.messages] for part in (first, second))
    if n_said_again(own, others):  # the second part is the earlier one
        return _followed(second, first)
    mine, theirs = [*map(message_key, own)], [*map(message_key, others)]
    own_keys = set(mine)
    n_forked = max(_n_forked(second, mine, theirs), n_said_again(others, own))
    if len(theirs) < len(mine) and mine[: len(theirs)] == theirs:
        new: list[int] = []
    elif n_forked:
        new = list(range(n_forked, len(theirs)))
    elif _are_timed(first) and _are_timed(second) and theirs[: len(mine)] != mine:
        left = Counter(zip(mine, (m.timestamp for m in first.messages), strict=True))
        new = []
        for i, message in enumerate(second.messages):
            same = (theirs[i], message.timestamp)
            left[same] -= 1
            new += [i] if left[same] < 0 else []
    else:
        new = list(range(_n_shared(second, mine, theirs), len(theirs)))
    added = [i for i in new if second.messages[i].role not in OPERATOR or theirs[i] not in own_keys]
    tools = {canonical(tool): tool for part in (first, second) for tool in part.tools or ()}
    return first.model_copy(
        update={
            "messages": (*first.messages, *(second.messages[i] for i in added)),
            "tools": tuple(tools.values()) if tools else first.tools or second.tools,
            "metadata": _metadata(first, second, added),
        }
    )


def _are_timed(part: Conversation) -> bool:
    return all(m.timestamp for m in part.messages if m.role in ("user", "assistant"))


def _n_shared(second: Conversation, mine: Sequence[bytes], theirs: Sequence[bytes]) -> int:
    """Return the number of messages at the beginning of the second part that repeat the end of the first part."""
    for n in range(min(len(mine), len(theirs)), 0, -1):
        if mine[-n] != theirs[0] or mine[-n:] != theirs[:n]:
            continue
        if n == len(mine) or sum(message.role == "user" for message in second.messages[:n]) >= _SURE:
            return n
    return 0


def _n_forked(second: Conversation, mine: Sequence[bytes], theirs: Sequence[bytes]) -> int:
    """Return the number of messages at the beginning of both parts that are equal, if they contain an exchange.

    A fork repeats the history of its parent, often with the times of the fork.
    """
    n = next(
        (i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), min(len(mine), len(theirs))
    )
    roles = [message.role for message in second.messages[:n]]
    return n if "user" in roles and "assistant" in roles[roles.index("user") :] else 0


def _metadata(first: Conversation, second: Conversation, added: Sequence[int]) -> dict[str, JsonValue]:
    mine, theirs = first.metadata, second.metadata
    both_metadata = {**theirs, **mine}
    for key in (MODELS, SOURCE_SESSIONS):
        if union := _union(mine.get(key), theirs.get(key)):
            both_metadata[key] = union
    texts = [text for text in (mine.get(POLICY), theirs.get(POLICY)) if isinstance(text, str)]
    if texts:
        both_metadata[POLICY] = "\n\n".join(dict.fromkeys(texts))
    places = {old: len(first.messages) + new for new, old in enumerate(added)}
    thoughts = [t for t in map(mapping, listed(theirs.get(REASONING))) if t.get("message_index") in places]
    moved: list[JsonValue] = [_moved(thought, places) for thought in thoughts]
    if moved:
        both_metadata[REASONING] = [*listed(mine.get(REASONING)), *moved]
    costs = [cost for cost in (mine.get(_COST), theirs.get(_COST)) if isinstance(cost, int | float)]
    if costs:  # a part that repeats messages repeats their cost too
        both_metadata[_COST] = sum(costs) if len(added) == len(second.messages) else max(costs)
    return both_metadata


def _moved(thought: Mapping[str, JsonValue], places: Mapping[int, int]) -> dict[str, JsonValue]:
    index = thought.get("message_index")
    return {**thought, "message_index": places[index] if isinstance(index, int) else None}


def _union(mine: JsonValue, theirs: JsonValue) -> list[JsonValue]:
    union: list[JsonValue] = []
    for value in (*listed(mine), *listed(theirs)):
        if value not in union:
            union.append(value)
    return union
