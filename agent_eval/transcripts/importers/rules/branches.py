"""Find the branch in which a session ended, if a person went back and asked something else."""

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from pydantic import JsonValue

from agent_eval.transcripts.importers.rules.order import (
    in_number_order,
    in_time_order,
    parents_first,
    time_of,
)
from agent_eval.transcripts.importers.rules.values import mapping, text_of

LEFT_OUT = "left_out"
"""Key of a converted record: reasons of parts that are omitted on purpose (list of strings)."""
WITHDRAWN = (
    "messages belong to a branch that the person went back from, or to a replaced answer, and are omitted"
)
_OWN = ("id", "uuid", "message_id", "messageId")
_PARENTS = ("parent_id", "parentId", "parent", "parent_message_id", "parentMessageId", "parent_message_uuid")
_NUMBERS = (
    *(
        "seq",
        "sequence",
        "sequence_number",
        "seq_no",
        "position",
        "message_index",
        "message_number",
        "turn_index",
    ),
    *("turn_idx", "turn_id", "turn", "turn_number", "index", "order", "step", "step_id", "step_index"),
    *("turnIndex", "turnNumber", "messageIndex", "messageNumber", "sequenceNumber", "stepIndex"),
)
"""Keys of a message that contain its number in the conversation."""
_KEYS_OF_NUMBERS, _KEYS_OF_PARENTS = frozenset(_NUMBERS), frozenset(_PARENTS)
_FREE = ("system", "developer")
_Item = TypeVar("_Item")


def ended_in(
    items: Sequence[_Item],
    own: Callable[[_Item], str | None],
    parent: Callable[[_Item], str | None],
    leaf: str | None,
) -> set[str] | None:
    """Return the ids of the items between a leaf and its root; None if the leaf is unknown.

    Args:
        items: All items, also those that are not messages, because they may be parents.
        own: Function that returns the id of an item.
        parent: Function that returns the id of an item's parent.
        leaf: The id of the last item.
    """
    parents: Mapping[str, str | None] = {
        name: parent(item) for item in items if (name := own(item)) is not None
    }
    if leaf is None or leaf not in parents:
        return None
    branch: set[str] = set()
    at: str | None = leaf
    while at is not None and at in parents and at not in branch:
        branch.add(at)
        at = parents[at]
    return branch


Spoken = Sequence[tuple[bytes, str]]
"""Key and role of each message of a part of a session, without instructions."""


def _states(part: Spoken) -> list[bytes]:
    """Return a hash of the messages up to each message."""
    state = hashlib.blake2b(digest_size=16)
    return [_next(state, key) for key, _ in part]


def _next(state: "hashlib.blake2b", key: bytes) -> bytes:
    """Add a message to a state, and return the hash of all messages of the state."""
    state.update(len(key).to_bytes(8) + key)
    return state.digest()


def _has_exchange(roles: Sequence[str]) -> bool:
    """Return whether the agent answers a message of the user."""
    return "user" in roles and "assistant" in roles[roles.index("user") :]


def ended_parts(parts: Sequence[Spoken]) -> tuple[list[int], int]:
    """Return the indexes of the parts of the branch that a session ended in, and the number of withdrawn messages.

    A part is replaced if a later part repeats its beginning and then says something else. The beginning contains an
    exchange; or it ends with a message of the user, and the later part also contains the next one.
    """
    following: dict[
        bytes, dict[bytes, bool]
    ] = {}  # state → next state of later parts → goes on with the user
    branch_indices: list[int] = []
    spoken: set[bytes] = set()
    replaced: set[bytes] = set()
    for index in range(len(parts) - 1, -1, -1):
        roles, states = [role for _, role in parts[index]], _states(parts[index])
        own = {s for s, role in zip(states, roles, strict=True) if role in ("user", "assistant")}
        last_user = max((i for i, role in enumerate(roles) if role == "user"), default=-1)
        is_replaced = False
        for at, (state, after) in enumerate(itertools.pairwise(states)):
            others = following.get(state, {})
            others = {other: goes_on for other, goes_on in others.items() if other != after}
            before = roles[: at + 1]
            is_replaced = is_replaced or (bool(others) and _has_exchange(before))
            is_replaced = is_replaced or ("user" in before and any(others.values()))
        for at, (state, after) in enumerate(itertools.pairwise(states)):
            goes_on = last_user > at + 1
            following.setdefault(state, {})[after] = following.get(state, {}).get(after, False) or goes_on
        if is_replaced:
            replaced |= own
        else:
            branch_indices.append(index)
            spoken |= own
    return branch_indices[::-1], len(replaced - spoken)


class KnownBeginnings:
    """Know the beginnings of the parts of a session, to find how much of the next part repeats them."""

    def __init__(self) -> None:
        self._whole: list[tuple[bytes, str]] = []
        self._state = hashlib.blake2b(digest_size=16)
        self._ends: set[bytes] = set()
        self._states: set[bytes] = set()

    def n_repeated(self, part: Spoken) -> int:
        """Return the number of first messages of the next part that are known, and add the part.

        They are an earlier part, or all earlier messages, or contain an exchange; or they contain an exchange with
        which the earlier messages end. An exact copy of a single exchange is asked again.
        """
        states, roles = _states(part), [role for _, role in part]
        n = 0
        for at, state in enumerate(states, start=1):
            if state in self._ends or (state in self._states and _has_exchange(roles[:at])):
                n = at
        if n == len(part) and roles.count("user") < 2:
            n = 0
        n = n or self._n_shared(part)
        self._whole += part[n:]
        self._states |= {*states}
        self._ends |= {*states[-1:], *[_next(self._state, key) for key, _ in part[n:]][-1:]}
        return n

    def _n_shared(self, part: Spoken) -> int:
        """Return the number of first messages of a part with which the earlier messages end."""
        for n in range(min(len(self._whole), len(part) - 1), 1, -1):
            is_same = self._whole[-n][0] == part[0][0] and self._whole[-n:] == [*part[:n]]
            if is_same and _has_exchange([role for _, role in part[:n]]):
                return n
        return 0


def spoken_in_order(values: Sequence[JsonValue], leaf: JsonValue = None) -> tuple[list[JsonValue], int]:
    """Return the messages of a list in the order in which they were said, and the number of withdrawn ones.

    Times decide, then parents; without either, numbers such as `seq` do, if each message has a different one. If the
    messages name their parents, only the branch that ends in the leaf is returned.

    Args:
        values: The messages, as in the source.
        leaf: The id of the last message of the branch; None: the latest message.

    Raises:
        NotThisFormatError: If times contradict the order and some are missing.
    """
    numbered = in_number_order(values, _number)
    ordered = in_time_order(numbered, lambda value: time_of(mapping(value)), _needs_no_time)
    n_children = sum(_parent(value) is not None for value in ordered)
    if n_children == 0:
        return ordered, 0
    if n_children < len(ordered) - sum(map(_is_root, ordered)):
        return ordered, 0
    ordered = parents_first(ordered, _own, _parent)
    last = text_of(leaf) if leaf is not None else next((_own(value) for value in reversed(ordered)), None)
    branch = ended_in(ordered, _own, _parent, last)
    branch_values = ordered if branch is None else [value for value in ordered if _own(value) in branch]
    return branch_values, len(ordered) - len(branch_values)


def _number(value: JsonValue) -> JsonValue:
    if _KEYS_OF_NUMBERS.isdisjoint(mapping(value)):
        return None
    number = next(
        (value_of_key for key in _NUMBERS if (value_of_key := mapping(value).get(key)) is not None), None
    )
    return int(number) if isinstance(number, str) and number.isascii() and number.isdecimal() else number


def _needs_no_time(value: JsonValue) -> bool:
    return mapping(value).get("role") in _FREE


def _own(value: JsonValue) -> str | None:
    return next((text for key in _OWN if (text := text_of(mapping(value).get(key)))), None)


def _parent(value: JsonValue) -> str | None:
    if _KEYS_OF_PARENTS.isdisjoint(mapping(value)):
        return None
    return next((text for key in _PARENTS if (text := text_of(mapping(value).get(key)))), None)


def _is_root(value: JsonValue) -> bool:
    fields = mapping(value)
    return any(key in fields and fields[key] is None for key in _PARENTS)
