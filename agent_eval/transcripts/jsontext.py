"""JSON as it may come from anywhere: read strictly, written as text that every table can hold."""

import json
import math
import re

from pydantic import JsonValue

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def loads(text: str) -> JsonValue:
    """The value of a JSON text; half a surrogate pair becomes U+FFFD, which UTF-8 can hold.

    Raises:
        ValueError: If it is no JSON, nested too deeply, or holds a number that JSON or a double cannot
            hold (NaN, Infinity, 1e400).
    """
    try:
        value = _DECODER.decode(text)
        if _SURROGATE.search(text):
            value = json.loads(clean(json.dumps(value, ensure_ascii=False)))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    read: JsonValue = value
    return read


def dumps(value: object) -> str:
    """The JSON text of a value, keys in the order found."""
    return json.dumps(value, ensure_ascii=False)


def clean(text: str) -> str:
    """The text with half surrogate pairs replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is too large")
    return value


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no JSON; write null for an unknown value")


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse)
