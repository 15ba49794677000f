"""Read Python literals as JSON, because some harnesses log the arguments of a call as `str(dict)`."""

import ast
import math
import warnings
from collections.abc import Iterator
from itertools import pairwise

from pydantic import JsonValue

from agent_eval.formats.json_text import clean

LONGEST = 100_000  # characters; parsing needs many times the memory of the text
NOTE = "read as a Python literal"


def read_dict(text: str) -> dict[str, JsonValue] | None:
    """Return the JSON object for the text of a Python dict, or None if the text is not a supported dict.

    Only literals are parsed; no code is run. Tuples become lists. A dict is not supported if it repeats a key, has
    keys that are not strings, or has values that JSON does not support (sets, bytes, NaN or infinity).
    """
    text = text.strip()
    if not text.startswith("{") or not text.endswith("}") or len(text) > LONGEST:
        return None
    try:
        with warnings.catch_warnings():  # ignore warnings about escapes in the text
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
    """Return the value as a JSON value; raises ValueError if JSON does not support its type."""
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
