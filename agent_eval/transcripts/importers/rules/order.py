"""Put records and messages in the order in which they happened: parents first, then points in time.

Times are compared as instants. File order decides only where the source states nothing else, and an order that
contradicts itself is refused.
"""

import datetime
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import TypeVar

from pydantic import JsonValue

from agent_eval.formats.timestamps import as_text, parse_timestamp
from agent_eval.transcripts.importers.rules.values import Fields, NotThisFormatError, number_of

_Item = TypeVar("_Item")
TIME_KEYS = (
    *("timestamp", "created_at", "createdAt", "create_time", "created_time", "sent_at", "sentAt"),
    *("timestamp_ms", "created", "datetime", "date_time", "time", "date", "ts"),
)
"""Keys of a message or a record that contain its time; the first one that is present counts."""
_KEYS = frozenset(TIME_KEYS)
_VAGUE = frozenset({"created", "time", "date", "ts"})
"""Keys that may hold something else than a point in time, such as a duration; a value without a day is ignored."""
_DAY = re.compile(r"\d{1,4}([./-])\d{1,2}\1\d{1,4}")
_HOUR = re.compile(r"(?<=[ T])(\d):")
_CLOCK = re.compile(r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?")
_DOTTED = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(?:[ ,T]+(\d{1,2}):(\d{2})(?::(\d{2}))?)?")
_CLOCK_ONLY = re.compile(
    r"(\d{2}|\d(?=:\d{2}(?::|\s*[AP]))):(\d{2})(?::(\d{2}(?:\.\d{1,9})?))?(?:\s*([AP])\.?M\.?)?",
    re.IGNORECASE,
)
_INSTANT = re.compile(r".{4}-[01].{4}T.*Z", re.DOTALL)
_DIGITS = re.compile(r"\d{9,19}(?:\.\d{1,9})?")
_SCALES = ((1e16, 1e-9), (1e14, 1e-6), (1e11, 1e-3), (0, 1))
"""Least value of a number → seconds per unit: nanoseconds, microseconds, milliseconds, seconds since 1970."""
_FORMS = "write it as ISO 8601, e.g. 2026-11-01T10:00:00Z, or as seconds since 1970"
_FREE = ("system", "developer")


def point_in_time(value: JsonValue) -> datetime.datetime | None:
    """Return a point in time in UTC; None for null, an empty text or a boolean.

    Supports ISO 8601, RFC 2822, day.month.year with dots, and numbers of seconds to nanoseconds since 1970.

    Raises:
        NotThisFormatError: If the value is anything else.
    """
    if isinstance(value, str) and value:
        return _point_of_text(value)
    if value is None or value == "" or isinstance(value, bool):
        return None
    try:
        if (number := number_of(value)) is not None:
            return _point_of_number(number)
    except (ValueError, OverflowError, OSError):
        pass
    raise NotThisFormatError(f"{str(value)[:60]!r} is not a known form of a time; {_FORMS}")


def _point_of_number(number: float) -> datetime.datetime:
    scale = next((scale for least, scale in _SCALES if number > least), 1)
    return datetime.datetime.fromtimestamp(number * scale, datetime.UTC)


@lru_cache(maxsize=1024)  # the time of a line is read for the line, its message and their order
def _point_of_text(value: str) -> datetime.datetime:
    text = _HOUR.sub(r"0\1:", value.strip())
    try:
        if _DIGITS.fullmatch(text):
            return _point_of_number(float(text))
        if dotted := _DOTTED.fullmatch(text):
            day, month, year, hour, minute, second = (int(part or 0) for part in dotted.groups())
            return datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.UTC)
        try:
            return parse_timestamp(text)
        except ValueError:
            return parsedate_to_datetime(text).astimezone(datetime.UTC)
    except (ValueError, TypeError, OverflowError, OSError):
        raise NotThisFormatError(f"{value[:60]!r} is not a known form of a time; {_FORMS}") from None


def time_text(value: JsonValue) -> str | None:
    """Return a time as ISO 8601 text; a text that is in this form is unchanged.

    Raises:
        NotThisFormatError: If the value is not a time.
    """
    when = point_in_time(value)
    return value if isinstance(value, str) and when is not None and _is_iso(value) else as_text(when)


@lru_cache(maxsize=1024)
def _is_iso(value: str) -> bool:
    try:
        parse_timestamp(value)
    except ValueError:
        return False
    return True


def time_of(record: Mapping[str, JsonValue]) -> JsonValue:
    """Return the time of a record or a message as in the source, or None if it has none."""
    if _KEYS.isdisjoint(record):
        return None
    key = next((key for key in TIME_KEYS if record.get(key) not in (None, "")), None)
    if key is None:
        return None
    value, day = record[key], record.get("date")
    if isinstance(value, str) and isinstance(day, str) and _CLOCK.fullmatch(value.strip()):
        value = f"{day.strip()} {value.strip()}"  # two columns of a table
    try:
        point_in_time(value)
    except NotThisFormatError:
        is_time = key not in _VAGUE or _DAY.search(str(value)) or clock_of(value) is not None
        return value if is_time else None
    return value


def clock_of(value: JsonValue) -> tuple[int, int, float] | None:
    """Return hour, minute and second of a time without a day, e.g. 10:05 PM; None for any other value, such as 0:09."""
    match = _CLOCK_ONLY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return None
    hour, half = int(match[1]), (match[4] or "").upper()
    return hour % 12 + 12 * (half == "P") if half else hour, int(match[2]), float(match[3] or 0)


def parents_first(
    items: Sequence[_Item], own: Callable[[_Item], str | None], parent: Callable[[_Item], str | None]
) -> list[_Item]:
    """Return the items so that each one follows its parent; otherwise their order is unchanged.

    Raises:
        NotThisFormatError: If an item comes after itself.
    """
    names = [own(item) for item in items]
    name_set = {*names} - {None}
    waiting: dict[str, list[tuple[_Item, str | None]]] = {}
    done: set[str] = set()
    ordered: list[_Item] = []
    for item, name in zip(items, names, strict=True):
        before = parent(item)
        if before is not None and before in name_set and before not in done and before != name:
            waiting.setdefault(before, []).append((item, name))
            continue
        ready = [(item, name)]
        while ready:
            following, name = ready.pop(0)
            ordered.append(following)
            if name is not None:
                done.add(name)
                ready = [*waiting.pop(name, ()), *ready]
    if waiting:
        names_left = ", ".join(repr(name) for left in waiting.values() for _, name in left if name)[:200]
        raise NotThisFormatError(
            f"its order is a circle: each of {names_left} comes after another of them; correct the ids"
        )
    return ordered


def in_time_order(
    items: Sequence[_Item],
    when: Callable[[_Item], JsonValue],
    is_free: Callable[[_Item], bool] = lambda _: False,
) -> list[_Item]:
    """Return the items in the order of their times; items of equal times keep their order.

    Items that are listed newest first are reversed, also those of equal times. If any item lacks a time, the order of
    the file is kept, unless the known times contradict it. Times without a day only confirm the order of the file.

    Args:
        items: The items, in file order.
        when: Function that returns the time of an item as in the source, or None.
        is_free: Function that returns whether an item needs no time, such as instructions before a conversation.

    Raises:
        NotThisFormatError: If a time cannot be read, or if times run backwards and some are missing.
    """
    stated = [value for item in items if (value := when(item)) not in (None, "")]
    clocks = [clock for value in stated if (clock := clock_of(value)) is not None]
    if clocks and len(clocks) == len(stated):
        if clocks == sorted(clocks):
            return list(items)
        raise NotThisFormatError(
            "its order is unknown: its times run backwards and have no day; write day and time, "
            "e.g. 2026-11-01T10:00:00Z"
        )
    times = [point_in_time(when(item)) for item in items]
    entry_times = [time for time in times if time is not None]
    falls = next((i for i in range(1, len(entry_times)) if entry_times[i] < entry_times[i - 1]), None)
    if falls is None:
        return list(items)
    free = [item for item, time in zip(items, times, strict=True) if time is None and is_free(item)]
    if len(entry_times) + len(free) < len(items):
        missing = next(i for i, t in enumerate(times) if t is None and not is_free(items[i]))
        raise NotThisFormatError(
            f"its order is unknown: the times run backwards at {as_text(entry_times[falls])}, and entry {missing + 1} of "
            f"{len(items)} has no time; give each entry a time, or write the oldest first"
        )
    timed = [(time, item) for item, time in zip(items, times, strict=True) if time is not None]
    if all(later[0] <= earlier[0] for earlier, later in itertools.pairwise(timed)):
        timed.reverse()
    return [*free, *(item for _, item in sorted(timed, key=lambda pair: pair[0]))]


def in_number_order(items: Sequence[_Item], number: Callable[[_Item], JsonValue]) -> list[_Item]:
    """Return the items in the order of their numbers, if each has a different one; else in the given order."""
    numbers: list[float] = []
    for item in items:
        if (value := number_of(number(item))) is None:
            return list(items)
        numbers.append(value)
    if len(set(numbers)) < len(items):
        return list(items)
    return [item for _, item in sorted(zip(numbers, items, strict=True), key=lambda pair: pair[0])]


def log_in_time_order(lines: Sequence[_Item], when: Callable[[_Item], JsonValue]) -> list[_Item]:
    """Return the lines of a log in the order of their times; lines without a time come first.

    The order of the file is kept if a time cannot be read, which the message that has it names.
    """
    times = [when(line) for line in lines]
    if _are_ascending(times):
        return list(lines)
    try:
        return in_time_order(lines, when, is_free=lambda _: True)
    except NotThisFormatError:
        return list(lines)


def _are_ascending(times: Sequence[JsonValue]) -> bool:
    """Return whether the known times are texts such as 2026-11-01T10:00:00.000Z in the order of the text."""
    texts = [time for time in times if isinstance(time, str)]
    if len(texts) + times.count(None) < len(times):
        return False
    return all(map(_INSTANT.fullmatch, texts)) and len({*map(len, texts)}) <= 1 and texts == sorted(texts)


def messages_in_time_order(messages: Sequence[Fields]) -> list[Fields]:
    """Return native messages in the order of their times (see `in_time_order`); instructions need no time."""
    return in_time_order(messages, _message_time, lambda message: message.get("role") in _FREE)


def _message_time(message: Fields) -> JsonValue:
    value = message.get("timestamp")
    return value if isinstance(value, str | int | float) else None


def refuse_results_before_calls(messages: Iterable[Fields]) -> None:
    """Check that each tool result follows its call.

    Raises:
        NotThisFormatError: If the only call with the id of a result follows the result.
    """
    early: dict[str, int] = {}
    called: set[str] = set()
    for index, message in enumerate(messages):
        answered = message.get("tool_call_id")
        if message.get("role") == "tool" and isinstance(answered, str) and answered not in called:
            early.setdefault(answered, index)
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list | tuple) else ():
            name = call.get("id") if isinstance(call, dict) else None
            if name in early:
                raise NotThisFormatError(
                    f"message {early[name] + 1} is the result of a call that only message {index + 1} makes; "
                    "write the oldest message first, or give each message a time"
                )
            called |= {name} if isinstance(name, str) else set()


def seconds_of(value: JsonValue) -> float | None:
    """Return a time as seconds since 1970; None for a missing or invalid time."""
    try:
        when = point_in_time(value)
    except NotThisFormatError:
        return None
    return None if when is None else when.timestamp()


def sortable(value: JsonValue) -> float:
    """Return a time as seconds since 1970, by which traces are sorted; minus infinity for a missing or invalid time."""
    seconds = seconds_of(value)
    return float("-inf") if seconds is None else seconds
