"""Find the branch in which a session ended, if a person went back and asked something else."""

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
    *("turn_idx", "turn_id", "turn", "index", "order", "step", "step_id"),
)
"""Keys of a message that contain its number in the conversation."""
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
    found = in_time_order(numbered, lambda value: time_of(mapping(value)), _needs_no_time)
    n_children = sum(_parent(value) is not None for value in found)
    if n_children == 0 or n_children < len(found) - sum(map(_is_root, found)):
        return found, 0
    found = parents_first(found, _own, _parent)
    last = text_of(leaf) if leaf is not None else next((_own(value) for value in reversed(found)), None)
    branch = ended_in(found, _own, _parent, last)
    kept = found if branch is None else [value for value in found if _own(value) in branch]
    return kept, len(found) - len(kept)


def _number(value: JsonValue) -> JsonValue:
    number = next((found for key in _NUMBERS if (found := mapping(value).get(key)) is not None), None)
    return int(number) if isinstance(number, str) and number.isascii() and number.isdecimal() else number


def _needs_no_time(value: JsonValue) -> bool:
    return mapping(value).get("role") in _FREE


def _own(value: JsonValue) -> str | None:
    return next((text for key in _OWN if (text := text_of(mapping(value).get(key)))), None)


def _parent(value: JsonValue) -> str | None:
    return next((text for key in _PARENTS if (text := text_of(mapping(value).get(key)))), None)


def _is_root(value: JsonValue) -> bool:
    return any(key in mapping(value) and mapping(value)[key] is None for key in _PARENTS)
