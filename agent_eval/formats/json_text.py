"""Parse untrusted JSON strictly, and write JSON text that can be stored in tables."""

import json
import math
import re

from pydantic import JsonValue

MOST_VALUES = 2_000_000
"""Maximum number of values in a text, because a long text of `{},{},…` needs thirty times its size in memory."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*"', re.DOTALL)
_MOST_DIGITS = 4_000  # Python's own limit is 4,300


def loads(text: str) -> JsonValue:
    """Return the value of a JSON text; unpaired surrogates, which UTF-8 cannot encode, are replaced by U+FFFD.

    Raises:
        ValueError: If the text is not JSON, is nested too deeply, repeats a key in an object, has more than
            2,000,000 values, or has a number that JSON or a double cannot represent (NaN, Infinity, 1e400).
    """
    if _holds_too_many(text):
        raise ValueError(f"it holds more than {MOST_VALUES:,} values")
    try:
        value = (_DECODER if len(text) > _MOST_DIGITS else _OF_SHORT).decode(text)
        if "\\u" in text and _SURROGATE.search(text):
            value = _DECODER.decode(clean(json.dumps(value, ensure_ascii=False)))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    read: JsonValue = value
    return read


def dumps(value: object) -> str:
    """Return the JSON text of a value; keys keep their order."""
    return json.dumps(value, ensure_ascii=False)


def clean(text: str) -> str:
    """Return the text with unpaired surrogates replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _holds_too_many(text: str) -> bool:
    """Return whether the text has too many values; commas in strings are excluded only if there are too many commas."""
    if len(text) <= MOST_VALUES or text.count(",") <= MOST_VALUES:
        return False
    return _STRING.sub('""', text).count(",") > MOST_VALUES


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:40]!r} is given twice in one object; remove one")
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is too large")
    return value


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"the number {text[:20]}… is too large")
    return int(text)


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not valid JSON; write null for an unknown value")


_DECODER = json.JSONDecoder(
    parse_float=_finite, parse_int=_whole, parse_constant=_refuse, object_pairs_hook=_object
)
_OF_SHORT = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse, object_pairs_hook=_object)
"""Decoder of texts that are too short for a whole number with too many digits."""
