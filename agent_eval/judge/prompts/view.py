"""Select the parts of a turn, conversation or session that fit into the limited context of a model.

If the whole text does not fit, it is shortened down to an index (see `record.STEPS`). If the index does not fit either,
the text is divided into overlapping windows; each window is judged, and the verdicts are merged (see
judge/llm/requests.py).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from agent_eval.judge.prompts.blind import BlindedTerms
from agent_eval.judge.prompts.record import (
    BYTES_PER_TOKEN,
    STEPS,
    Line,
    Step,
    bounded_line,
    frame_line,
    gap_line,
    important_size,
    is_kept,
    is_said,
    least_size,
    middle_cut,
    part_line,
    size_of,
    total_size,
    turn_line,
    turn_lines,
)
from agent_eval.transcripts.attachments import AttachmentKind
from agent_eval.transcripts.models import Conversation, Message, Turn

CONTEXT_TOKENS = 128_000  # assumed for a model with an unknown context size
TURNS = 100  # maximum number of turns shown before a judged turn
MOST_WINDOWS = 8
INDEX = 9  # number of steps in which all messages are shown, with a maximum length of 60 or more
ENGLISH = 4  # bytes per token of the texts of prompts
_TIGHT = 4  # a quarter of the context is reserved for a record that is not short
_OVERLAP = 10  # a window overlaps the previous one by a tenth of its messages
_BESIDE = 3_000  # bytes of the request, the marks and the format of the messages
_LEAST = 2_000  # minimum bytes of a record
_PER_MESSAGE = 120  # bytes of an index entry in addition to its text


@dataclass(frozen=True)
class ViewLimits:
    """Hold the limits on what a model can be shown in one call.

    `turns` is the maximum number of turns shown before a judged turn. If there are more, the oldest are omitted in
    groups of half that number, so that the beginning of the prompt stays the same for many turns.
    """

    context_tokens: int = CONTEXT_TOKENS
    reply_tokens: int = 4_096
    turns: int = TURNS
    kinds: frozenset[AttachmentKind] = frozenset()  # kinds of attachments that the model reads
    withheld: frozenset[str] = frozenset()  # references of attachments that the server rejected

    @property
    def reply(self) -> int:
        """Return the tokens reserved for the reply: at most a quarter of the context."""
        return min(self.reply_tokens, self.context_tokens // 4)

    @property
    def prompt_bytes(self) -> int:
        """Return the maximum size of a prompt in bytes, without the tokens reserved for the reply."""
        return (self.context_tokens - self.reply) * BYTES_PER_TOKEN

    def room_beside(self, *texts: str) -> int:
        """Return the bytes that the given texts leave for a record, but at least _LEAST."""
        return max(self.prompt_bytes - sum(map(size_of, texts)) - _BESIDE, _LEAST)

    def has_room_beside(self, *texts: str, record: int) -> bool:
        """Return whether the texts leave room for a record of `record` bytes, or for a quarter of the context if less.

        For a record of up to _LEAST bytes, the texts are counted with four bytes per token, as in English.
        """
        own = sum(map(size_of, texts))
        is_short = record <= _LEAST and (own + _LEAST) * BYTES_PER_TOKEN <= self.prompt_bytes * ENGLISH
        return is_short or own + _BESIDE + min(record, self.prompt_bytes // _TIGHT) <= self.prompt_bytes

    def first_turn(self, n_earlier: int) -> int:
        """Return the index of the first of `n_earlier` turns that is shown: 0, or a multiple of half of `turns`."""
        jump = max(self.turns // 2, 1)
        return 0 if n_earlier <= self.turns else ((n_earlier - self.turns) // jump + 1) * jump


@dataclass(frozen=True)
class View:
    """Hold the lines of a record. For a window, `seen_share` and `n_left_out` refer to its own part."""

    lines: list[str]
    seen_share: float = 1.0
    n_left_out: int = 0
    n_windows: int = 1


@dataclass
class _Counted:
    """Hold the lines of a record with their counts."""

    lines: list[Line] = field(default_factory=list[Line])

    def view(self, *, ignored: int = 0) -> View:
        """Return the view. `ignored` items were omitted by the limit on turns; they do not reduce `seen_share`."""
        n_shown = sum(record_line.n_shown for record_line in self.lines)
        gone = sum(record_line.n_characters_left_out for record_line in self.lines)
        left_out = sum(record_line.n_left_out for record_line in self.lines) + ignored
        return View([record_line.text for record_line in self.lines], _share(n_shown, gone), left_out)


def turn_view(
    conversation: Conversation,
    turns: Sequence[Turn],
    names: BlindedTerms,
    limits: ViewLimits,
    room: int,
    after: Sequence[Line] = (),
    window: int = 0,
) -> View:
    """Return the view for a question about the last of the given turns.

    Args:
        conversation: The conversation, whose frame is the first line.
        turns: Turns up to and including the judged one.
        names: Names to hide.
        limits: Limits of the model.
        room: Maximum size of the record in bytes.
        after: Lines that follow the judged turn.
        window: Number of the window, from 0, if the turn needs several.
    """
    *earlier, turn = turns
    start = limits.first_turn(len(earlier))
    history = [*earlier[:1], *earlier[start:]] if start else earlier
    frame = frame_line(conversation, names, (), _frame_room(room, room // 2, [*history, turn], names, after))
    rest = room - frame.size - total_size(after)
    most = rest - min(max(important_size(history, names), rest // 4), rest // 2) if earlier else rest
    last_lines = _in_steps([turn], names, most) or _in_steps([turn], names, rest - rest // 4)
    lines, n_ignored = _history(
        earlier, start, names, rest - total_size(last_lines) if last_lines else rest // 4
    )
    if last_lines is None:
        part = _window([turn], names, max(rest - total_size(lines), _LEAST), window)
        return part.view([frame, *lines], after, [turn], ignored=n_ignored)
    return _Counted([frame, *lines, *last_lines, *after]).view(ignored=n_ignored)


def whole_view(
    conversations: Sequence[tuple[Conversation, Sequence[Turn], tuple[int | str, ...], Sequence[Line]]],
    names: BlindedTerms,
    room: int,
    after: Sequence[Line] = (),
    window: int = 0,
) -> View:
    """Return the view for a question about whole conversations.

    Each conversation has its turns, its place in the session and additional lines. A single conversation is divided
    into windows if necessary; the conversations of a session share the available size evenly.
    """
    share = (room - total_size(after)) // max(len(conversations), 1)
    record = _Counted()
    for conversation, turns, place, behind in conversations:
        frame = frame_line(conversation, names, place, _frame_room(share, share // 3, turns, names, behind))
        rest = share - frame.size - total_size(behind)
        fitted = _in_steps(turns, names, rest)
        if fitted is None and len(conversations) == 1:
            part = _window(turns, names, max(rest, _LEAST), window)
            return part.view([frame], [*behind, *after], turns)
        record.lines += [frame, *(turn_lines(turns, names, rest) if fitted is None else fitted), *behind]
    record.lines += after
    return record.view()


def _frame_room(
    room: int, least: int, turns: Sequence[Turn], names: BlindedTerms, beside: Sequence[Line]
) -> int:
    """Return the bytes for the frame: the room that complete turns leave, but at least `least`."""
    free = room - total_size(beside)
    for turn in turns:
        if free <= least:
            return least
        free -= turn_line(turn, names).size + 1
    return max(free, least)


def _in_steps(turns: Sequence[Turn], names: BlindedTerms, most: int) -> list[Line] | None:
    """Return the lines of all turns in the first step that fits, or None if not even the index fits."""
    messages = [message for turn in turns for message in turn.messages]
    for step in STEPS[:INDEX]:
        if least_size(messages, step) > most:
            continue
        lines = [turn_line(turn, names, step) for turn in turns]
        if total_size(lines) <= most:
            return lines
    return None


def _history(earlier: Sequence[Turn], start: int, names: BlindedTerms, most: int) -> tuple[list[Line], int]:
    """Return the lines of earlier turns, and the number of messages and calls that the limit on turns omits.

    The first turn is always included. A gap line replaces the omitted turns, and the last turns follow it.
    """
    if not start:
        return (turn_lines(earlier, names, most) if earlier else []), 0
    gap = gap_line(earlier[1:start])
    first = bounded_line(earlier[0], names, max(most // 4, 300))
    last = turn_lines(earlier[start:], names, max(most - first.size - gap.size, 300))
    return [first, Line(gap.text), *last], gap.n_left_out


# Windows


@dataclass(frozen=True)
class _Window:
    """Hold one of `n` windows: its lines, the lines of its own part without overlap, and the number of items in it.

    The lines that every window shows in addition to the turns are counted with the first window.
    """

    n: int
    number: int
    lines: Sequence[Line]
    own: Sequence[Line]
    n_own_items: int

    def view(
        self, before: Sequence[Line], after: Sequence[Line], turns: Sequence[Turn], *, ignored: int = 0
    ) -> View:
        """Return the window as a view of the turns. `ignored` items were omitted by the limit on turns."""
        whole = gap_line(turns)
        beside = [*before, *after]
        own = [*self.own, *(beside if self.number == 0 else ())]
        n_shown = sum(record_line.n_shown for record_line in own)
        n_all = whole.n_characters_left_out + sum(
            record_line.n_shown + record_line.n_characters_left_out for record_line in beside
        )
        n_elsewhere = whole.n_left_out - self.n_own_items
        n_left_out = sum(record_line.n_left_out for record_line in own) - n_elsewhere
        return View(
            [record_line.text for record_line in [*before, *self.lines, *after]],
            _share(n_shown, max(n_all - n_shown, 0)),
            max(n_left_out, 0) + (ignored if self.number == 0 else 0),
            self.n,
        )


def _window(turns: Sequence[Turn], names: BlindedTerms, most: int, number: int) -> _Window:
    """Return the window `number` of those into which the messages of the turns are divided."""
    items = [(i, j) for i, turn in enumerate(turns) for j in range(len(turn.messages))]
    costs = [_cost(turns[i].messages[j]) for i, j in items]
    n = min(max(math.ceil(sum(costs) / (most * 0.8)), 2), MOST_WINDOWS, max(len(items), 1))
    bounds = list(_bounds(costs, n))
    begin, end = bounds[number], bounds[number + 1]
    n_items = sum(1 + len(turns[i].messages[j].tool_calls) for i, j in items[begin:end])
    overlap = min(begin, max((end - begin) // _OVERLAP, 1))
    part, own = items[begin - overlap : end], items[begin:end]
    request_items = _request_of(turns, *part[0]) if part else []
    messages = [turns[i].messages[j] for i, j in part]
    for step in STEPS[4:-1]:
        if least_size(messages, step) > most:
            continue
        lines = list(_part(turns, [*request_items, *part], names, step))
        if total_size(lines) <= most:
            return _Window(n, number, lines, list(_part(turns, own, names, step)), n_items)
    return _Window(n, number, *_thinned(turns, request_items, own, names, most), n_items)


def _request_of(turns: Sequence[Turn], i: int, j: int) -> list[tuple[int, int]]:
    """Return the positions of the user's messages in turn `i` that precede message `j`.

    Every window shows these messages, so that the judge knows what was asked.
    """
    return [(i, k) for k in range(j) if turns[i].messages[k].role == "user"]


def _thinned(
    turns: Sequence[Turn],
    request_items: Sequence[tuple[int, int]],
    part: Sequence[tuple[int, int]],
    names: BlindedTerms,
    most: int,
) -> tuple[list[Line], list[Line]]:
    """Return the lines of a window that is too large for any step, with only its most important messages.

    Tool results and calls are omitted first, then replies, errors, the user's messages, and destructive calls. The
    first and last two messages of the window are always kept. Counts replace the omitted messages. The first result
    also has the user's request if it is not part of the window; the second result has only the window's own part.
    """
    ranks = _ranks(turns, part)
    ordered = sorted(range(len(part)), key=lambda i: (ranks[i], min(i, len(part) - 1 - i)))

    def lines_of(n: int, step: Step, before: Sequence[tuple[int, int]] = request_items) -> list[Line]:
        return list(_part(turns, [*before, *(part[i] for i in sorted(ordered[:n]))], names, step))

    n_least, n_wanted = min(4, len(part)), sum(rank <= 2 for rank in ranks)
    for step in STEPS[INDEX - 2 :]:
        if total_size(lines_of(n_wanted, step)) <= most:
            n_least = n_wanted
            break
    fitting = lines_of(n_least, step)
    if total_size(fitting) > most:
        bound = max(most // len(fitting) - 1, 300)
        cut = [middle_cut(window_line, {"part": i}, bound) for i, window_line in enumerate(fitting)]
        return cut, cut
    n_most = len(part)
    while n_least < n_most:
        n = (n_least + n_most + 1) // 2
        if total_size(lines := lines_of(n, step)) <= most:
            n_least, fitting = n, lines
        else:
            n_most = n - 1
    return fitting, lines_of(n_least, step, ())


def _ranks(turns: Sequence[Turn], part: Sequence[tuple[int, int]]) -> list[int]:
    """Return the rank of each message of a window. Messages with the highest rank are omitted first."""
    ranks: list[int] = []
    for k, (i, j) in enumerate(part):
        message = turns[i].messages[j]
        if k < 2 or k >= len(part) - 2 or (message.tool_calls and is_kept(message)):
            ranks.append(0)
        elif is_said(message) and message.role != "assistant":
            ranks.append(1)
        else:
            ranks.append(2 if is_kept(message) else 3 if is_said(message) else 4)
    return ranks


def _part(
    turns: Sequence[Turn], items: Sequence[tuple[int, int]], names: BlindedTerms, step: Step
) -> Iterator[Line]:
    """Yield the lines of the turns with only the given messages. Gap lines replace turns without any of them."""
    messages_of_turn: dict[int, set[int]] = {}
    for i, j in items:
        messages_of_turn.setdefault(i, set()).add(j)
    done = 0
    for i in sorted(messages_of_turn):
        if i > done:
            yield gap_line(turns[done:i])
        yield part_line(turns[i], names, step, messages_of_turn[i])
        done = i + 1
    if done < len(turns):
        yield gap_line(turns[done:])


def _bounds(costs: Sequence[int], n: int) -> Iterator[int]:
    """Yield the indices at which windows of about equal cost begin, and the index at which the last one ends."""
    yield 0
    total, cost_so_far, k = sum(costs), 0, 1
    for i, cost in enumerate(costs):
        cost_so_far += cost
        while k < n and cost_so_far >= total * k / n:
            yield i + 1
            k += 1
    yield len(costs)


def _cost(message: Message) -> int:
    """Return the approximate size of a message in a window, in bytes."""
    bound = 8_000 if is_kept(message) else 1_000 if is_said(message) else 250
    arguments = sum(min(size_of(str(call.arguments)), bound) + _PER_MESSAGE for call in message.tool_calls)
    return min(size_of(message.content or ""), bound) + arguments + _PER_MESSAGE


def _share(n_shown: int, gone: int) -> float:
    return n_shown / (n_shown + gone) if gone else 1.0
