"""The record: what a judge is shown of a conversation, as lines of data, within bounds.

A turn's line depends on that turn alone, so the record of one turn is a byte-exact prefix of the next turn's: that
is what providers cache. Only in conversations too long for the bound are earlier turns shown shorter, in few steps.
What is left out is marked by an object that no text of a transcript can imitate, and counted.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

from pydantic import JsonValue

from agent_eval.judge.prompts.blind import Names
from agent_eval.judge.prompts.fence import line
from agent_eval.transcripts.models import Conversation, Message, Turn

T = TypeVar("T")

BOUND = 200_000  # characters of a whole record
LINE_BOUND = BOUND // 4  # of a frame, and of one turn
TEXT_BOUNDS = (20_000, 5_000, 1_000, 250)  # of one text: the first that lets the whole fit
LEFT_OUT = "characters_left_out"


class _Same(Generic[T]):
    """A thing as a key: equal to itself only. It holds the thing, so that the identity stays its own."""

    __slots__ = ("thing",)

    def __init__(self, thing: T) -> None:
        self.thing = thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.thing is self.thing


def frame_line(conversation: Conversation, names: Names, place: tuple[int | str, ...] = ()) -> str:
    """Goal, profile, knowledge and tools of a conversation; no id and no outcome.

    In a session's record `place` is its number and the tests that it serves; they come first, with its scenario.
    """
    return _frame_line(_Same(conversation), names, place)


@lru_cache(maxsize=512)  # the same line opens the record of every turn
def _frame_line(held: _Same[Conversation], names: Names, place: tuple[int | str, ...]) -> str:
    conversation = held.thing
    about: dict[str, JsonValue] = {}
    if place:
        number, *tests = place
        about = {"conversation": number, "scenario": conversation.scenario, "tests": [*tests]}

    def at(bound: int) -> dict[str, JsonValue]:
        tools = conversation.tools
        return {
            **about,
            "goal": _shown(conversation.goal, bound, names),
            "profile": _shown(conversation.profile, bound, names),
            "knowledge": [_shown(item, bound, names) for item in conversation.knowledge],
            "tools": None if tools is None else [_shown(tool, bound, names) for tool in tools],
        }

    return _bounded(at, about, LINE_BOUND)


def turn_line(turn: Turn, names: Names, longest: int = TEXT_BOUNDS[0], most: int = LINE_BOUND) -> str:
    """One turn: its messages in order, with tool calls numbered and results pointing to their call.

    Args:
        turn: The turn.
        names: Names to withhold.
        longest: Bound of one text.
        most: Bound of the line.
    """
    return _turn_line(_Same(turn), names, longest, most)


@lru_cache(maxsize=2048)  # a line is needed again for every later turn
def _turn_line(held: _Same[Turn], names: Names, longest: int, most: int) -> str:
    turn = held.thing

    def at(bound: int) -> dict[str, JsonValue]:
        messages = list(_messages(turn.messages, min(bound, longest), names))
        return {"turn": turn.turn_index, "messages": messages}

    return _bounded(at, {"turn": turn.turn_index}, most)


def turn_lines(turns: Sequence[Turn], names: Names, most: int) -> list[str]:
    """The lines of turns within a bound: all whole, else each shorter, else without some in the middle."""
    lines: list[str] = []
    for bound in TEXT_BOUNDS:
        lines = [turn_line(turn, names, bound) for turn in turns]
        if _size(lines) <= most:
            return lines
    lines = [turn_line(turn, names, TEXT_BOUNDS[-1], most // 4) for turn in turns]
    return lines if _size(lines) <= most else _without_middle(lines, most)


def data_line(name: str, value: JsonValue, names: Names) -> str:
    """One further line, such as an expected answer."""
    return _bounded(lambda bound: {name: _shown(value, bound, names)}, {}, LINE_BOUND)


def _messages(messages: Sequence[Message], bound: int, names: Names) -> Iterator[JsonValue]:
    numbers: dict[str, int] = {}
    n_calls = 0
    for message in messages:
        shown: dict[str, JsonValue] = {"role": message.role}
        if message.name is not None:
            shown["name"] = _shown(message.name, bound, names)
        if message.role == "tool" and message.tool_call_id in numbers:
            shown["call"] = numbers[message.tool_call_id]
        if message.content is not None or not message.tool_calls:
            shown["content"] = _shown(message.content, bound, names)
        calls: list[JsonValue] = []
        for call in message.tool_calls:
            if call.id is not None:
                numbers.setdefault(call.id, n_calls)
            arguments = _shown(call.arguments, bound, names)
            calls.append({"call": n_calls, "name": _shown(call.name, bound, names), "arguments": arguments})
            n_calls += 1
        if calls:
            shown["tool_calls"] = calls
        if message.is_error is not None:
            shown["is_error"] = message.is_error
        yield shown


def _shown(value: JsonValue | Mapping[str, JsonValue], bound: int, names: Names) -> JsonValue:
    """A value with names hidden; a long text without its middle, any other long value as its JSON text likewise."""
    if value is None:
        return None
    if isinstance(value, str):
        return _cut(names.hide(value), bound)
    try:
        text = json.dumps(value, ensure_ascii=False)
        if len(text) > bound:
            return {"json": _cut(names.hide(text), bound)}
        return names.hide_in(value if not isinstance(value, Mapping) else dict(value))
    except RecursionError:
        return {"left_out": "a value that is nested too deeply to be shown"}


def _cut(text: str, bound: int) -> JsonValue:
    """The text, or [its beginning, how much is left out, its end] when it is longer than the bound."""
    if len(text) <= bound:
        return text
    head = bound // 2
    tail = bound - head
    return [text[:head], {LEFT_OUT: len(text) - head - tail}, text[-tail:]]


def _bounded(at: Callable[[int], dict[str, JsonValue]], key: dict[str, JsonValue], most: int) -> str:
    """The first line that fits, with shorter and shorter texts; else the last one's JSON without its middle."""
    text = ""
    for bound in TEXT_BOUNDS:
        text = line(at(bound))
        if len(text) <= most:
            return text
    room = most // 8  # an escape makes a character of `text` at most eight
    return line({**key, "json": _cut(text, room)})


def _without_middle(lines: Sequence[str], most: int) -> list[str]:
    """The first line and as many of the last as fit, with the number of those between them."""
    kept, room = 0, most - len(lines[0]) - len(line({"turns_left_out": len(lines)}))
    while kept < len(lines) - 1 and room > len(lines[-1 - kept]):
        room -= len(lines[-1 - kept]) + 1
        kept += 1
    left_out = len(lines) - 1 - kept
    return [lines[0], line({"turns_left_out": left_out}), *lines[len(lines) - kept :]]


def _size(lines: Sequence[str]) -> int:
    return sum(map(len, lines)) + len(lines)
