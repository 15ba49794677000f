"""The record: what a judge is shown of a conversation, as lines of data, within bounds.

A turn's line depends on that turn alone, so the record of one turn is a byte-exact prefix of the next turn's: that
is what providers cache. Only in conversations too long for the bound are earlier turns shown shorter, in few steps.
What is left out is marked by an object that no text of a transcript can imitate, and counted.
"""

import functools
import json
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence

from pydantic import JsonValue

from agent_eval.judge.prompts.blind import BlindedTerms
from agent_eval.judge.prompts.fence import line
from agent_eval.transcripts.models import Conversation, Message, Turn

BOUND = 160_000  # characters of a whole record: also in scripts with a token a letter it fits 128,000 tokens
LINE_BOUND = BOUND // 5  # of one line
TEXT_BOUNDS = (20_000, 5_000, 1_000, 250)  # of one text: the first that lets the whole fit
MANY_TURNS = 400  # above it, texts are short and turns in the middle are left out
SHORT_TEXT = 1_000


class _Remembered:
    """Lines made of frozen things, so that a line that opens every later prompt is made once.

    Found by identity while the thing lives; the oldest go when `most` characters are held.
    """

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._lines: dict[tuple[object, ...], tuple[weakref.ref[object], str]] = {}
        self._lock = threading.Lock()

    def line(self, thing: object, form: tuple[object, ...], make: Callable[[], str]) -> str:
        """The thing's line in a form, made where it is not held."""
        key = (id(thing), *form)
        found = self._lines.get(key)
        if found is not None and found[0]() is thing:
            return found[1]
        text = make()
        with self._lock:
            self._forget(key)
            self._lines[key] = (weakref.ref(thing), text)
            self._held += len(text)
            while self._held > self._most:
                self._forget(next(iter(self._lines)))
        return text

    def _forget(self, key: tuple[object, ...]) -> None:
        if (found := self._lines.pop(key, None)) is not None:
            self._held -= len(found[1])


_REMEMBERED = _Remembered(most=16_000_000)


def frame_line(
    conversation: Conversation, names: BlindedTerms, place: tuple[int | str, ...] = (), most: int = LINE_BOUND
) -> str:
    """Goal, profile, knowledge and tools of a conversation; no id and no outcome.

    In a session's record `place` is its number and the tests that it serves; they come first, with its scenario.
    """
    form = (names, place, most)
    return _REMEMBERED.line(conversation, form, lambda: _frame_line(conversation, names, place, most))


def _frame_line(
    conversation: Conversation, names: BlindedTerms, place: tuple[int | str, ...], most: int
) -> str:
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

    return _bounded(at, about, most)


def turn_line(turn: Turn, names: BlindedTerms, longest: int = TEXT_BOUNDS[0], most: int = LINE_BOUND) -> str:
    """One turn: its messages in order, with tool calls numbered and results pointing to their call.

    Args:
        turn: The turn.
        names: Names to withhold.
        longest: Bound of one text.
        most: Bound of the line.
    """
    form = (names, longest, most)
    return _REMEMBERED.line(turn, form, lambda: _turn_line(turn, names, longest, most))


def _turn_line(turn: Turn, names: BlindedTerms, longest: int, most: int) -> str:
    def at(bound: int) -> dict[str, JsonValue]:
        messages = list(_messages(turn.messages, min(bound, longest), names))
        return {"turn": turn.turn_index, "messages": messages}

    return _bounded(at, {"turn": turn.turn_index}, most)


def turn_lines(turns: Sequence[Turn], names: BlindedTerms, most: int) -> list[str]:
    """The lines of turns within a bound: all whole, else each shorter, else without some in the middle."""
    for longest in TEXT_BOUNDS if len(turns) <= MANY_TURNS else ():
        lines = [turn_line(turn, names, longest) for turn in turns]
        if sum(map(len, lines)) + len(lines) <= most:
            return lines
    return _without_middle(turns, names, most)


def data_line(name: str, value: JsonValue, names: BlindedTerms, most: int = LINE_BOUND) -> str:
    """One further line, such as an expected answer."""
    return _bounded(lambda bound: {name: _shown(value, bound, names)}, {}, most)


def _messages(messages: Sequence[Message], bound: int, names: BlindedTerms) -> Iterator[JsonValue]:
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


def _shown(value: JsonValue, bound: int, names: BlindedTerms) -> JsonValue:
    """A value with names hidden; a long text without its middle, any other long value as its JSON text likewise."""
    if value is None:
        return None
    if isinstance(value, str):
        return _cut(names.hide(value), bound)
    try:
        text = json.dumps(value, ensure_ascii=False)
        if len(text) > bound:
            return {"json": _cut(names.hide(text), bound)}
        return names.hide_in(value)
    except RecursionError:
        return {"left_out": "a value that is nested too deeply to be shown"}


def _cut(text: str, bound: int) -> JsonValue:
    """The text, or [its beginning, how much is left out, its end] when it is longer than the bound."""
    if len(text) <= bound:
        return text
    head = bound // 2
    tail = bound - head
    return [text[:head], {"characters_left_out": len(text) - head - tail}, text[-tail:]]


def _bounded(at: Callable[[int], dict[str, JsonValue]], key: dict[str, JsonValue], most: int) -> str:
    """The first line that fits, with shorter and shorter texts; else the last one's JSON without its middle."""
    text = ""
    for bound in TEXT_BOUNDS:
        text = line(at(bound))
        if len(text) <= most:
            return text
    room = max(most // 2 - 100, 50)  # as JSON within JSON a character takes two at most
    return line({**key, "json": _cut(text, room)})


def _without_middle(turns: Sequence[Turn], names: BlindedTerms, most: int) -> list[str]:
    """The first turn and as many of the last as fit, shortened, with the number of those between them."""
    short = functools.partial(turn_line, names=names, longest=SHORT_TEXT, most=most // 4)
    first, last = short(turns[0]), list[str]()
    room = most - len(first) - len(line({"turns_left_out": len(turns)})) - 2
    for turn in reversed(turns[1:]):
        shown = short(turn)
        room -= len(shown) + 1
        if room < 0:
            break
        last.append(shown)
    left_out = len(turns) - 1 - len(last)
    gap = [line({"turns_left_out": left_out})] if left_out else []
    return [first, *gap, *reversed(last)]
