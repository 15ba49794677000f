"""Select what of a turn, a conversation or a session is shown to a model with a limited context.

The whole text is shown if it fits, otherwise an index of it (`record.STEPS`). If the index does not fit
either, it is shown in overlapping windows; each window is judged, and the verdicts are merged
(judge/llm/requests.py).
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

CONTEXT_TOKENS = 128_000  # for a model with an unknown context size
TURNS = 100  # maximum number of earlier turns before a judged one
MOST_WINDOWS = 8
INDEX = 9  # steps in which all messages are shown, with texts of at least 60 characters
ENGLISH = 4  # bytes to a token of the prompts' own texts
_TIGHT = 4  # a record that is not short has at least this part of the context, if a single rubric leaves it
_OVERLAP = 10  # a window begins a tenth of its messages before the end of the previous one
_BESIDE = 3_000  # bytes of the request, the marks and the messages' own form
_LEAST = 2_000  # bytes of a record
_PER_MESSAGE = 120  # bytes of an index entry in addition to its text


@dataclass(frozen=True)
class ViewLimits:
    """Limit what a model can be shown in one call.

    `turns`: maximum number of earlier turns before a judged one. Above it, the oldest are left out, half as
    many at a time, so that the beginning of the prompt stays equal for many turns.
    """

    context_tokens: int = CONTEXT_TOKENS
    reply_tokens: int = 4_096
    turns: int = TURNS
    kinds: frozenset[AttachmentKind] = frozenset()  # of attachments that the model reads
    withheld: frozenset[str] = frozenset()  # references of attachments that its server rejected

    @property
    def reply(self) -> int:
        """Return the tokens reserved for the reply: at most a quarter of the context."""
        return min(self.reply_tokens, self.context_tokens // 4)

    @property
    def prompt_bytes(self) -> int:
        """Return the bytes of a prompt that fit beside the reply."""
        return (self.context_tokens - self.reply) * BYTES_PER_TOKEN

    def room_beside(self, *texts: str) -> int:
        """Return the bytes left for a record, next to texts that are always sent; never less than _LEAST."""
        return max(self.prompt_bytes - sum(map(size_of, texts)) - _BESIDE, _LEAST)

    def has_room_beside(self, *texts: str, record: int) -> bool:
        """Return whether a record, of at most a quarter of the context, fits next to texts that are sent.

        Next to a record of _LEAST bytes, texts count with the four bytes to a token that English has.
        """
        own = sum(map(size_of, texts))
        is_short = record <= _LEAST and (own + _LEAST) * BYTES_PER_TOKEN <= self.prompt_bytes * ENGLISH
        return is_short or own + _BESIDE + min(record, self.prompt_bytes // _TIGHT) <= self.prompt_bytes

    def first_turn(self, n_earlier: int) -> int:
        """Return the first of the earlier turns that are shown: 0, or a multiple of half the window."""
        jump = max(self.turns // 2, 1)
        return 0 if n_earlier <= self.turns else ((n_earlier - self.turns) // jump + 1) * jump


@dataclass(frozen=True)
class View:
    """Hold the lines of a record. In a window, `seen_share` and `n_left_out` are of its own part."""

    lines: list[str]
    seen_share: float = 1.0
    n_left_out: int = 0
    n_windows: int = 1


@dataclass
class _Counted:
    """Hold lines with counts of what they show."""

    lines: list[Line] = field(default_factory=list[Line])

    def view(self, *, ignored: int = 0) -> View:
        """Return the view; `ignored` items are left out by choice: counted as left out, but not as unseen."""
        shown = sum(found.n_shown for found in self.lines)
        gone = sum(found.n_characters_left_out for found in self.lines)
        left_out = sum(found.n_left_out for found in self.lines) + ignored
        return View([found.text for found in self.lines], _share(shown, gone), left_out)


def turn_view(
    conversation: Conversation,
    turns: Sequence[Turn],
    names: BlindedTerms,
    limits: ViewLimits,
    room: int,
    after: Sequence[Line] = (),
    window: int = 0,
) -> View:
    """Return what is shown for a question about the last turn: the frame, earlier turns, the turn, `after`.

    Args:
        conversation: Its frame opens the record.
        turns: Turns up to and including the judged one.
        names: Names to hide.
        limits: Limits of the model.
        room: Maximum bytes of the record.
        after: Lines after the turn.
        window: Number of the window, if the turn needs several.
    """
    *earlier, turn = turns
    start = limits.first_turn(len(earlier))
    shown = [*earlier[:1], *earlier[start:]] if start else earlier
    frame = frame_line(conversation, names, (), _frame_room(room, room // 2, [*shown, turn], names, after))
    rest = room - frame.size - total_size(after)
    most = rest - min(max(important_size(shown, names), rest // 4), rest // 2) if earlier else rest
    judged = _in_steps([turn], names, most) or _in_steps([turn], names, rest - rest // 4)
    lines, n_ignored = _history(earlier, start, names, rest - total_size(judged) if judged else rest // 4)
    if judged is None:
        part = _window([turn], names, max(rest - total_size(lines), _LEAST), window)
        return part.view([frame, *lines], after, [turn], ignored=n_ignored)
    return _Counted([frame, *lines, *judged, *after]).view(ignored=n_ignored)


def whole_view(
    conversations: Sequence[tuple[Conversation, Sequence[Turn], tuple[int | str, ...], Sequence[Line]]],
    names: BlindedTerms,
    room: int,
    after: Sequence[Line] = (),
    window: int = 0,
) -> View:
    """Return what is shown for a question about whole conversations, each with its place and further lines.

    Only a single conversation is shown in windows; the conversations of a session share the size evenly.
    """
    share = (room - total_size(after)) // max(len(conversations), 1)
    counted = _Counted()
    for conversation, turns, place, behind in conversations:
        frame = frame_line(conversation, names, place, _frame_room(share, share // 3, turns, names, behind))
        rest = share - frame.size - total_size(behind)
        shown = _in_steps(turns, names, rest)
        if shown is None and len(conversations) == 1:
            part = _window(turns, names, max(rest, _LEAST), window)
            return part.view([frame], [*behind, *after], turns)
        counted.lines += [frame, *(turn_lines(turns, names, rest) if shown is None else shown), *behind]
    counted.lines += after
    return counted.view()


def _frame_room(
    room: int, least: int, turns: Sequence[Turn], names: BlindedTerms, beside: Sequence[Line]
) -> int:
    """Return the bytes of a frame: what whole turns leave of the room, but not less than `least`."""
    free = room - total_size(beside)
    for turn in turns:
        if free <= least:
            return least
        free -= turn_line(turn, names).size + 1
    return max(free, least)


def _in_steps(turns: Sequence[Turn], names: BlindedTerms, most: int) -> list[Line] | None:
    """Return all turns in the first step that fits; None if not even the index fits."""
    messages = [message for turn in turns for message in turn.messages]
    for step in STEPS[:INDEX]:
        if least_size(messages, step) > most:
            continue
        lines = [turn_line(turn, names, step) for turn in turns]
        if total_size(lines) <= most:
            return lines
    return None


def _history(earlier: Sequence[Turn], start: int, names: BlindedTerms, most: int) -> tuple[list[Line], int]:
    """Return the lines of earlier turns, and how many messages and calls the window leaves out by choice.

    The first turn is always included; the last ones follow the gap.
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
    """Hold one of `n` windows: its lines, those of its own part without overlap, and that part's items.

    What every window shows beside the turns is counted with the first one.
    """

    n: int
    number: int
    lines: Sequence[Line]
    own: Sequence[Line]
    n_own_items: int

    def view(
        self, before: Sequence[Line], after: Sequence[Line], turns: Sequence[Turn], *, ignored: int = 0
    ) -> View:
        """Return the window as a view of the turns; `ignored` items are left out by choice."""
        whole = gap_line(turns)
        beside = [*before, *after]
        own = [*self.own, *(beside if self.number == 0 else ())]
        n_shown = sum(found.n_shown for found in own)
        n_all = whole.n_characters_left_out + sum(
            found.n_shown + found.n_characters_left_out for found in beside
        )
        n_elsewhere = whole.n_left_out - self.n_own_items
        n_left_out = sum(found.n_left_out for found in own) - n_elsewhere
        return View(
            [found.text for found in [*before, *self.lines, *after]],
            _share(n_shown, max(n_all - n_shown, 0)),
            max(n_left_out, 0) + (ignored if self.number == 0 else 0),
            self.n,
        )


def _window(turns: Sequence[Turn], names: BlindedTerms, most: int, number: int) -> _Window:
    """Return one of the windows in which the messages of turns are shown."""
    items = [(i, j) for i, turn in enumerate(turns) for j in range(len(turn.messages))]
    costs = [_cost(turns[i].messages[j]) for i, j in items]
    n = min(max(math.ceil(sum(costs) / (most * 0.8)), 2), MOST_WINDOWS, max(len(items), 1))
    bounds = list(_bounds(costs, n))
    begin, end = bounds[number], bounds[number + 1]
    n_items = sum(1 + len(turns[i].messages[j].tool_calls) for i, j in items[begin:end])
    overlap = min(begin, max((end - begin) // _OVERLAP, 1))
    part, own = items[begin - overlap : end], items[begin:end]
    asked = _request_of(turns, *part[0]) if part else []
    messages = [turns[i].messages[j] for i, j in part]
    for step in STEPS[4:-1]:
        if least_size(messages, step) > most:
            continue
        lines = list(_part(turns, [*asked, *part], names, step))
        if total_size(lines) <= most:
            return _Window(n, number, lines, list(_part(turns, own, names, step)), n_items)
    return _Window(n, number, *_thinned(turns, asked, own, names, most), n_items)


def _request_of(turns: Sequence[Turn], i: int, j: int) -> list[tuple[int, int]]:
    """Return the user's message of turn `i` if it is before message `j`: every window shows what was asked."""
    return [(i, k) for k in range(j) if turns[i].messages[k].role == "user"][:1]


def _thinned(
    turns: Sequence[Turn],
    asked: Sequence[tuple[int, int]],
    part: Sequence[tuple[int, int]],
    names: BlindedTerms,
    most: int,
) -> tuple[list[Line], list[Line]]:
    """Return the most important messages of a window that is too large for any step, and counts of the others.

    Tool results and calls are left out first, then replies, errors, the user's messages, and calls that may
    destroy; never the ends of the window. What was asked is shown first if it is not part of the window; it
    is in the first of the two results only.
    """
    ranks = _ranks(turns, part)
    ordered = sorted(range(len(part)), key=lambda i: (ranks[i], min(i, len(part) - 1 - i)))

    def lines_of(n: int, step: Step, before: Sequence[tuple[int, int]] = asked) -> list[Line]:
        return list(_part(turns, [*before, *(part[i] for i in sorted(ordered[:n]))], names, step))

    n_least, n_wanted = min(4, len(part)), sum(rank <= 2 for rank in ranks)
    for step in STEPS[INDEX - 2 :]:
        if total_size(lines_of(n_wanted, step)) <= most:
            n_least = n_wanted
            break
    fitting = lines_of(n_least, step)
    if total_size(fitting) > most:
        bound = max(most // len(fitting) - 1, 300)
        cut = [middle_cut(found, {"part": i}, bound) for i, found in enumerate(fitting)]
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
    """Return how soon each message of a window may be left out: the higher, the sooner."""
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
    """Return the turns of some messages, with only those messages; other turns are shown as gaps."""
    held: dict[int, set[int]] = {}
    for i, j in items:
        held.setdefault(i, set()).add(j)
    done = 0
    for i in sorted(held):
        if i > done:
            yield gap_line(turns[done:i])
        yield part_line(turns[i], names, step, held[i])
        done = i + 1
    if done < len(turns):
        yield gap_line(turns[done:])


def _bounds(costs: Sequence[int], n: int) -> Iterator[int]:
    """Yield where windows of about equal cost begin, and where the last one ends."""
    yield 0
    total, held, k = sum(costs), 0, 1
    for i, cost in enumerate(costs):
        held += cost
        while k < n and held >= total * k / n:
            yield i + 1
            k += 1
    yield len(costs)


def _cost(message: Message) -> int:
    """Return the approximate bytes that a message takes in a window."""
    bound = 8_000 if is_kept(message) else 1_000 if is_said(message) else 250
    arguments = sum(min(size_of(str(call.arguments)), bound) + _PER_MESSAGE for call in message.tool_calls)
    return min(size_of(message.content or ""), bound) + arguments + _PER_MESSAGE


def _share(shown: int, gone: int) -> float:
    return shown / (shown + gone) if gone else 1.0
