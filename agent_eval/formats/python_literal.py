"""Read Python literals as JSON: some harnesses log a call's arguments as `str(dict)`, which is not JSON."""

import ast
import math
import warnings
from collections.abc import Iterator
from itertools import pairwise

from pydantic import JsonValue

from agent_eval.formats.json_text import clean

LONGEST = 100_000  # characters; parsing takes many times the memory of its text
NOTE = "read as a Python literal"


def read_dict(text: str) -> dict[str, JsonValue] | None:
    """Return the JSON object for the text of a Python dict; None if the text is not one.

    Only literals are read; no code is run. Tuples become lists. A dict with a repeated key, with keys that
    are not strings, or with a value that JSON lacks (sets, bytes, NaN, infinity) is not read.
    """
    text = text.strip()
    if not text.startswith("{") or not text.endswith("}") or len(text) > LONGEST:
        return None
    try:
        with warnings.catch_warnings():  # warnings about escapes in the text
            warnings.simplefilter("ignore")
            tree = ast.parse(text, mode="eval")
        if any(_repeats_a_key(node) for node in ast.walk(tree)):
            return None
        read = _as_json(ast.literal_eval(tree))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return read if isinstance(read, dict) else None


def _repeats_a_key(node: ast.AST) -> bool:
    if not isinstance(node, ast.Dict):
        return False
    keys = sorted(_key_texts(node))
    return any(a == b for a, b in pairwise(keys))


def _key_texts(node: ast.Dict) -> Iterator[str]:
    return (key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))


def _as_json(value: object) -> JsonValue:
    """Return the value as JSON; raise ValueError if JSON lacks it."""
    if isinstance(value, str):
        return clean(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {clean(key): _as_json(item) for key, item in value.items()}
    raise ValueError(f"JSON has no {type(value).__name__}")
