"""Read values of JSON records, and name what is wrong with a record."""

from collections.abc import Mapping
from typing import cast

from pydantic import JsonValue

from agent_eval.formats.json_text import dumps

Fields = dict[str, object]
"""A conversation or a message in native form, before it is validated."""


class NotThisFormatError(Exception):
    """Raised when a record or a whole file is not in the format; the message describes the expected form."""


def mapping(value: JsonValue) -> Mapping[str, JsonValue]:
    """Return the value if it is an object, else an empty object."""
    return value if isinstance(value, dict) else {}


def listed(value: JsonValue) -> list[JsonValue]:
    """Return the value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def text_of(value: JsonValue) -> str | None:
    """Return a string unchanged, None for null, and any other value as JSON."""
    return value if value is None or isinstance(value, str) else dumps(value)


def number_of(value: JsonValue) -> float | None:
    """Return the value if it is a number and not a boolean, else None."""
    is_one = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 10**300
    return float(cast("float", value)) if is_one else None


def without_nulls(fields: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the entries whose value is not null."""
    return {name: value for name, value in fields.items() if value is not None}
