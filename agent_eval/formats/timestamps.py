"""Parse and format points in time as ISO 8601 text in UTC."""

import datetime


def parse_timestamp(text: str) -> datetime.datetime:
    """Parse an ISO 8601 date or time as a point in time in UTC; a text without an offset is taken as UTC.

    Raises:
        ValueError: If the text is not an ISO 8601 date or time.
    """
    when = datetime.datetime.fromisoformat(text)
    try:
        return when.replace(tzinfo=datetime.UTC) if when.tzinfo is None else when.astimezone(datetime.UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} is outside the calendar in UTC") from error


_FIRST_DAY = datetime.date(1990, 1, 1)
"""Earlier dates are what programs write for an unknown time, such as 0001-01-01, 1900-01-01 and 1970-01-01."""


def check_date(when: datetime.date, name: str) -> None:
    """Raise if a date is later than today, because a date in the future would stay the latest one, or before 1990.

    Today is the later one of the dates in UTC and in this machine's time zone.

    Raises:
        ValueError: If the date is later, or before 1990; the message contains the name of the field.
    """
    now = datetime.datetime.now(datetime.UTC)
    today = max(now.date(), now.astimezone().date())
    day = when.date() if isinstance(when, datetime.datetime) else when
    if day < _FIRST_DAY:
        raise ValueError(
            f"{name} is {day.isoformat()}, which programs write for an unknown date; write the date, or omit {name}"
        )
    if day > today:
        raise ValueError(f"{name} is {day.isoformat()}, which is in the future; today is {today.isoformat()}")


def seconds(when: str | datetime.datetime | None) -> float:
    """Return a point in time as seconds since 1970; minus infinity for a missing or invalid value."""
    if isinstance(when, datetime.datetime):
        return when.timestamp()
    try:
        return parse_timestamp(when).timestamp() if when else float("-inf")
    except ValueError:
        return float("-inf")


def as_text(when: object) -> str | None:
    """Format a point in time as ISO 8601 text in UTC, e.g. 2026-04-20T10:00:00Z; a text is returned unchanged."""
    if isinstance(when, datetime.datetime):
        return when.astimezone(datetime.UTC).isoformat().replace("+00:00", "Z")
    return None if when is None else str(when)
