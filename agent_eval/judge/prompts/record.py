"""Build the record of a conversation for a judge: lines of data within the context size of the model.

If everything fits, it is shown in full. Otherwise, texts are shortened evenly, in a small number of steps, down to an
index of all messages and calls with their sizes. Errors and destructive calls stay complete as long as possible. The
line of a turn depends only on that turn, so that the record of a turn is a byte-exact prefix of the next turn's record,
which providers can cache. Omissions are counted, and marked by an object that no text of a transcript can imitate.
"""

import bisect
import itertools
import json
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import JsonValue

from agent_eval.judge.prompts.blind import BlindedTerms
from agent_eval.judge.prompts.fence import line
from agent_eval.judge.rules.destructive import may_destroy
from agent_eval.judge.rules.finding import tells_error
from agent_eval.transcripts.models import OPERATOR, Conversation, Message, Turn

BYTES_PER_TOKEN = (
    3  # of UTF-8: fewer than in English; about one letter in scripts with three bytes per letter
)
WHOLE = 10**12


class Step(NamedTuple):
    """Hold the maximum lengths of texts, by kind.

    `kept` applies to errors and to calls that may destroy something. `said` applies to messages of the user and the
    operator and to replies of the agent without calls; they contain what was asked and promised, so they are shortened
    after tool results. `text` applies to all other texts.
    """

    text: int = WHOLE
    kept: int = WHOLE
    said: int = WHOLE


STEPS: tuple[Step, ...] = (
    Step(),
    *(Step(200_000, said=200_000), Step(60_000, said=200_000), Step(20_000, said=60_000)),
    *(Step(5_000, said=20_000), Step(1_000, said=5_000), Step(250, said=2_000)),
    *(Step(60, 8_000, 1_000), Step(60, 8_000, 250)),
    *(Step(0, 8_000, 500), Step(0, 2_000, 250), Step(0, 500, 250), Step(0, 120, 120), Step(0, 120, 60)),
)
"""Steps of shortening. The first one that fits is used."""
IMPORTANT = STEPS[-3:]
"""Steps in which earlier turns are shown without calls and tool results, except errors and destructive calls."""
AS_POLICY: JsonValue = {"shown_as": "policy"}
"""Replacement for an opening message of the operator, whose text is in the frame."""
OF_MANY = (STEPS[0], *STEPS[5::3], STEPS[-1])
MANY_TURNS = 400  # number of turns above which only the steps OF_MANY are tried
FIRST_WORDS = ((200, True), (100, True), (60, True), (60, False), (30, False))
"""Maximum characters of the first words of a turn, and whether the reply is included; used if no step fits."""
_OUTLINE = 100  # bytes that a line with first words takes in addition to the words
_BOUNDS = (*(int(1_000_000 * 0.8**k) for k in range(44)), 0)
"""Maximum lengths of the texts in a frame or another single line. The first one that fits is used."""


class Line(NamedTuple):
    """Hold a line of the record, and the numbers of characters shown, characters left out, and shortened texts."""

    text: str
    n_shown: int = 0
    n_characters_left_out: int = 0
    n_left_out: int = 0

    @property
    def size(self) -> int:
        """Return the size of the line in bytes."""
        return size_of(self.text)


def size_of(text: str) -> int:
    """Return the size of a text in bytes (UTF-8)."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


@dataclass
class _Tally:
    """Count the characters and items that are shown and omitted while a line is built."""

    n_shown: int = 0
    n_characters_left_out: int = 0
    n_left_out: int = 0

    def leave_out(self, message: Message) -> None:
        self.n_left_out += 1 + len(message.tool_calls)
        texts = [message.content or "", message.name or ""]
        for call in message.tool_calls:
            texts += [call.name, _json_text(call.arguments) or ""]
        self.n_characters_left_out += sum(map(len, texts))

    def line(self, value: object) -> Line:
        return Line(line(value), self.n_shown, self.n_characters_left_out, self.n_left_out)


class _Remembered:
    """Caches lines of frozen objects, so that a line that many prompts share is built only once.

    Lines are looked up by the identity of the object as long as it exists. If the lines exceed `most` characters in
    total, the oldest ones are dropped.
    """

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._lines: dict[tuple[object, ...], tuple[weakref.ref[object], Line]] = {}
        self._lock = threading.Lock()

    def line(self, thing: object, form: tuple[object, ...], make: Callable[[], Line]) -> Line:
        """Return the line of an object in the given form, and build it if it is not cached."""
        key = (id(thing), *form)
        cache_entry = self._lines.get(key)
        if cache_entry is not None and cache_entry[0]() is thing:
            return cache_entry[1]
        new_line = make()
        with self._lock:
            self._forget(key)
            self._lines[key] = (weakref.ref(thing), new_line)
            self._held += len(new_line.text)
            while self._held > self._most:
                self._forget(next(iter(self._lines)))
        return new_line

    def _forget(self, key: tuple[object, ...]) -> None:
        if (cache_entry := self._lines.pop(key, None)) is not None:
            self._held -= len(cache_entry[1].text)


_REMEMBERED = _Remembered(most=16_000_000)


def frame_line(
    conversation: Conversation, names: BlindedTerms, place: tuple[int | str, ...] = (), most: int = WHOLE
) -> Line:
    """Return the line with the policy, goal, profile, knowledge and tools of a conversation, without id and outcome.

    In the record of a session, `place` is the number of the conversation and the tests that it serves. The line then
    begins with these and the scenario.
    """
    form = (names, place, most)
    return _REMEMBERED.line(conversation, form, lambda: _frame_line(conversation, names, place, most))


def _frame_line(
    conversation: Conversation, names: BlindedTerms, place: tuple[int | str, ...], most: int
) -> Line:
    about: dict[str, JsonValue] = {}
    if place:
        number, *tests = place
        about = {"conversation": number, "scenario": conversation.scenario, "tests": [*tests]}

    def at(bound: int, tally: _Tally) -> dict[str, JsonValue]:
        def shown(value: JsonValue) -> JsonValue:
            return _shown(value, bound, names, tally)

        tools, policy = conversation.tools, conversation.policy
        return {
            **about,
            **({} if policy is None else {"policy": shown(policy)}),
            "goal": shown(conversation.goal),
            "profile": shown(conversation.profile),
            "knowledge": [shown(item) for item in conversation.knowledge],
            "tools": None if tools is None else [shown(tool) for tool in tools],
        }

    return _bounded(at, about, most)


def turn_line(turn: Turn, names: BlindedTerms, step: Step = STEPS[0]) -> Line:
    """Return the line of a turn: its messages in order, with numbered tool calls that the results refer to.

    Args:
        turn: The turn.
        names: Names to hide.
        step: Maximum lengths of the texts.
    """
    return _REMEMBERED.line(turn, (names, step), lambda: part_line(turn, names, step))


def part_line(turn: Turn, names: BlindedTerms, step: Step, indices: Collection[int] | None = None) -> Line:
    """Return the line of a turn with the messages whose indices are in `indices`, by default all.

    Counts replace the other messages.
    """
    tally = _Tally()
    messages = list(_messages(turn, step, names, tally, indices))
    return tally.line({"turn": turn.turn_index, "messages": messages})


def bounded_line(turn: Turn, names: BlindedTerms, most: int) -> Line:
    """Return the line of a turn in the first step that fits, else the JSON of the last step without its middle."""
    for step in STEPS:
        candidate = turn_line(turn, names, step)
        if candidate.size <= most:
            return candidate
    last = turn_line(turn, names, STEPS[-1])
    return middle_cut(last, {"turn": turn.turn_index}, most)


def turn_lines(turns: Sequence[Turn], names: BlindedTerms, most: int) -> list[Line]:
    """Return the lines of turns within `most` bytes: in full, else shortened, else with first words only."""
    messages = [message for turn in turns for message in turn.messages]
    for step in STEPS if len(turns) <= MANY_TURNS else OF_MANY:
        if least_size(messages, step) > most:
            continue
        make = _important_line if step in IMPORTANT else turn_line
        lines = [make(turn, names, step) for turn in turns]
        if total_size(lines) <= most:
            return lines
    return _outlined(turns, names, most)


def least_size(messages: Iterable[Message], step: Step) -> int:
    """Return a lower bound for the bytes of messages in a step.

    It is half of the length of their texts, because hidden names may be replaced by shorter placeholders.
    """
    return sum(min(len(m.content or ""), _plain_bound(m, step)) for m in messages) // 2


def _important_line(turn: Turn, names: BlindedTerms, step: Step) -> Line:
    """Return the line of a turn with only its important messages (see `is_said` and `is_kept`)."""

    def made() -> Line:
        indices = [i for i, message in enumerate(turn.messages) if is_said(message) or is_kept(message)]
        return part_line(turn, names, step, indices)

    return _REMEMBERED.line(turn, (names, step, "important"), made)


def important_size(turns: Iterable[Turn], names: BlindedTerms) -> int:
    """Return the size in bytes of turns in the first step of IMPORTANT."""
    return total_size(_important_line(turn, names, IMPORTANT[0]) for turn in turns)


def total_size(lines: Iterable[Line]) -> int:
    """Return the size of lines in bytes, including line breaks."""
    return sum(text_line.size + 1 for text_line in lines)


def data_line(name: str, value: JsonValue, names: BlindedTerms, most: int = WHOLE) -> Line:
    """Return a line with a single value, such as an expected answer, shortened to `most` bytes."""
    return _bounded(lambda bound, tally: {name: _shown(value, bound, names, tally)}, {}, most)


def gap_line(turns: Sequence[Turn]) -> Line:
    """Return the line that replaces omitted consecutive turns."""
    return _REMEMBERED.line(turns[-1], ("gap", len(turns)), lambda: _gap_line(turns))


def _gap_line(turns: Sequence[Turn]) -> Line:
    tally = _Tally()
    for turn in turns:
        for message in turn.messages:
            tally.leave_out(message)
    return tally.line({"turns_left_out": len(turns)})


def is_kept(message: Message) -> bool:
    """Return whether a message is an error or has a destructive call, and is kept complete as long as possible."""
    is_error = message.role == "tool" and (message.is_error or tells_error(message.content or ""))
    return bool(is_error) or any(may_destroy(call.name, call.arguments) for call in message.tool_calls)


def is_said(message: Message) -> bool:
    """Return whether a message is by the user or the operator, or a reply of the agent without calls."""
    return message.role != "tool" and not message.tool_calls


def _bound(message: Message, step: Step) -> int:
    """Return the maximum length of the texts of a message in a step."""
    if step.text >= WHOLE:
        return step.text
    bound = _plain_bound(message, step)
    return max(bound, step.kept) if is_kept(message) else bound


def _plain_bound(message: Message, step: Step) -> int:
    return max(step.text, step.said) if is_said(message) else step.text


def _messages(
    turn: Turn,
    step: Step,
    names: BlindedTerms,
    tally: _Tally,
    shown_only: Collection[int] | None,
) -> Iterator[JsonValue]:
    numbers: dict[str, int] = {}
    n_calls = n_gone = 0
    is_opening = turn.turn_index == 0
    for i, message in enumerate(turn.messages):
        is_opening = is_opening and message.role in OPERATOR
        if shown_only is not None and i not in shown_only:
            tally.leave_out(message)
            n_gone += 1
            for call in message.tool_calls:
                if call.id is not None:
                    numbers.setdefault(call.id, n_calls)
                n_calls += 1
            continue
        if n_gone:
            yield {"messages_left_out": n_gone}
            n_gone = 0
        bound = _bound(message, step)
        fields: dict[str, JsonValue] = {"role": message.role}
        if message.name is not None:
            fields["name"] = _shown(message.name, max(bound, 60), names, tally)
        if message.role == "tool" and message.tool_call_id in numbers:
            fields["call"] = numbers[message.tool_call_id]
        if message.content is not None or not message.tool_calls:
            fields["content"] = AS_POLICY if is_opening else _shown(message.content, bound, names, tally)
        calls: list[JsonValue] = []
        for call in message.tool_calls:
            if call.id is not None:
                numbers.setdefault(call.id, n_calls)
            name = _shown(call.name, max(bound, 60), names, tally)
            arguments = _shown(call.arguments, bound, names, tally)
            calls.append({"call": n_calls, "name": name, "arguments": arguments})
            n_calls += 1
        if calls:
            fields["tool_calls"] = calls
        if message.is_error is not None:
            fields["is_error"] = message.is_error
        yield fields
    if n_gone:
        yield {"messages_left_out": n_gone}


def _shown(value: JsonValue, bound: int, names: BlindedTerms, tally: _Tally) -> JsonValue:
    """Return a value with names hidden. The middle of a long text, or of the JSON of another long value, is omitted."""
    if value is None:
        return None
    if isinstance(value, str):
        return _cut(names.hide(value), bound, tally)
    text = _json_text(value)
    if text is None:
        return {"left_out": "a value that is nested too deeply to be shown"}
    if len(text) > max(bound, 2):  # {} and [] are kept
        hidden = _json_text(names.without_personal_data(value)) if names.personal else text
        return {"json": _cut(names.hide(hidden or ""), bound, tally)}
    tally.n_shown += len(text)
    return names.hide_in(value)


def _json_text(value: JsonValue) -> str | None:
    """Return a string unchanged and other values as JSON, or None if the value is nested too deeply."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return None


def _cut(text: str, bound: int, tally: _Tally) -> JsonValue:
    """Return the text, or a list of its beginning, the number of omitted characters and its end if it is too long."""
    if len(text) <= bound:
        tally.n_shown += len(text)
        return text
    head = bound // 2
    tail = bound - head
    gone = len(text) - bound
    tally.n_shown += bound
    tally.n_characters_left_out += gone
    tally.n_left_out += 1
    if not bound:
        return {"characters_left_out": gone}
    return [text[:head], {"characters_left_out": gone}, text[-tail:]]


def _bounded(at: Callable[[int, _Tally], dict[str, JsonValue]], key: dict[str, JsonValue], most: int) -> Line:
    """Return the line with texts as long as possible within `most` bytes, else its shortest form without the middle."""

    def made(bound: int) -> Line:
        tally = _Tally()
        return tally.line(at(bound, tally))

    whole = made(WHOLE)
    if whole.size <= most:
        return whole
    first = bisect.bisect_left(_BOUNDS, True, key=lambda bound: made(bound).size <= most)
    longest_line = made(_BOUNDS[min(first, len(_BOUNDS) - 1)])
    return longest_line if longest_line.size <= most else middle_cut(longest_line, key, most)


def middle_cut(whole: Line, key: dict[str, JsonValue], most: int) -> Line:
    """Return the JSON of a line without its middle.

    JSON within JSON takes about 2 bytes per character, and 6 in some scripts.
    """
    text, room = whole.text, max(most // 2 - 100, 50)
    text_cut = line({**key, "json": _cut(text, room, _Tally())})
    while size_of(text_cut) > most and room > 50:
        room = max(room // 2, 50)
        text_cut = line({**key, "json": _cut(text, room, _Tally())})
    share = room / max(len(text), 1)
    n_shown = int(whole.n_shown * share)
    return Line(
        text_cut, n_shown, whole.n_characters_left_out + whole.n_shown - n_shown, whole.n_left_out + 1
    )


class _Begun(NamedTuple):
    """Hold the first words of a turn: those of the user and, if included, those of the reply."""

    words: tuple[str, ...]
    n_whole: int  # number of texts that are shown completely

    @property
    def size(self) -> int:
        """Return the size in bytes as an item of a JSON list."""
        return size_of(line([*self.words])) + 2


def _outlined(turns: Sequence[Turn], names: BlindedTerms, most: int) -> list[Line]:
    """Return the lines for the first turn, the first words of the following turns, and as many last turns as fit.

    First words take up to two thirds of the size. If this is too small for all turns, only the last turns have them.
    """
    first = _important_line(turns[0], names, IMPORTANT[0])
    opening = [first] if len(turns) > 1 and first.size <= most // 4 else list[Line]()
    later_turns, room = turns[len(opening) :], most - total_size(opening) - _OUTLINE
    begun = _first_words(later_turns, names, room * 2 // 3)
    last = list[Line]()
    used_size = sum(turn.size for turn in begun)
    while len(last) < len(later_turns):
        important_line = _important_line(later_turns[-1 - len(last)], names, IMPORTANT[-1])
        freed = begun[-1 - len(last)].size if len(last) < len(begun) else 0
        if used_size - freed + important_line.size + 1 > room:
            break
        used_size += important_line.size + 1 - freed
        last.insert(0, important_line)
    left_out = later_turns[: len(later_turns) - len(last)]
    n_bare = min(len(later_turns) - len(begun), len(left_out))
    bare = [gap_line(left_out[:n_bare])] if n_bare else []
    outline = [_outline_line(left_out[n_bare:], begun)] if n_bare < len(left_out) else []
    return [*opening, *bare, *outline, *last]


def _first_words(turns: Sequence[Turn], names: BlindedTerms, most: int) -> list[_Begun]:
    """Return the first words of all turns, as long as possible, or of the last turns if those of all do not fit."""
    begun = list[_Begun]()
    for length, has_replies in FIRST_WORDS:
        begun = [_begun(turn, names, length, has_replies=has_replies) for turn in turns]
        if sum(turn.size for turn in begun) <= most:
            break
    sizes = itertools.accumulate(turn.size for turn in reversed(begun))
    n = sum(size <= most for size in sizes)
    return begun[len(begun) - n :]


def _begun(turn: Turn, names: BlindedTerms, length: int, *, has_replies: bool) -> _Begun:
    user_text = next((m.content for m in turn.messages if m.role == "user" and m.content), "")
    agent_texts = [m.content for m in turn.messages if m.role == "assistant" and is_said(m) and m.content]
    texts = [names.hide(user_text), *([names.hide(agent_texts[-1])] if agent_texts and has_replies else [])]
    return _Begun(tuple(text[:length] for text in texts), sum(0 < len(text) <= length for text in texts))


def _outline_line(turns: Sequence[Turn], begun: Sequence[_Begun]) -> Line:
    """Return the line that replaces consecutive turns and contains the first words of each."""
    whole = gap_line(turns)
    gap = begun[: len(turns)]
    n_shown = sum(len(word) for turn in gap for word in turn.words)
    return Line(
        line({"turns_left_out": len(turns), "first_words": [[*turn.words] for turn in gap]}),
        n_shown,
        max(whole.n_characters_left_out - n_shown, 0),
        whole.n_left_out - sum(turn.n_whole for turn in gap),
    )
