"""Parse and format points in time: ISO 8601 texts, in UTC."""

import datetime


def parse_timestamp(text: str) -> datetime.datetime:
    """Return an ISO 8601 date or time as a point in UTC; without an offset it is read as UTC.

    Raises:
        ValueError: If the text is not an ISO 8601 date or time.
    """
    when = datetime.datetime.fromisoformat(text)
    try:
        return when.replace(tzinfo=datetime.UTC) if when.tzinfo is None else when.astimezone(datetime.UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} is outside the calendar in UTC") from error


def seconds(when: str | datetime.datetime | None) -> float:
    """Return a point in time as a number to sort by; absent or unreadable values sort first."""
    if isinstance(when, datetime.datetime):
        return when.timestamp()
    try:
        return parse_timestamp(when).timestamp() if when else float("-inf")
    except ValueError:
        return float("-inf")


def as_text(when: object) -> str | None:
    """Return a point in time as ISO 8601 text in UTC, e.g. 2026-04-20T10:00:00Z; a text stays as it is."""
    if isinstance(when, datetime.datetime):
        return when.astimezone(datetime.UTC).isoformat().replace("+00:00", "Z")
    return None if when is None else str(when)
