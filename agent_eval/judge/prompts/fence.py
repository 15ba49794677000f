"""Fence untrusted data: write it as JSON lines between two marks that the data cannot imitate.

A line of data is a JSON object without line breaks or `<`, so that no text of a transcript can open or close the block.
The code in the marks, a keyed hash, is a second protection. Control tokens of chat templates, invisible characters,
direction marks and lone surrogates are written as JSON escapes, so that the line still decodes to the original text.
"""

import hashlib
import json
import re
from collections.abc import Iterable

from agent_eval.formats.hashing import canonical

_ESCAPED = re.compile(
    "["
    "<"  # the marks, and control tokens such as <|im_start|> or </s>
    "\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "]"
    r"|\[(?=/?[A-Z_]{1,40}\])"  # control tokens such as [INST]
)


def line(value: object) -> str:
    """Return a line of data: JSON that decodes to the value and cannot be mistaken for a mark."""
    return _ESCAPED.sub(_escape, json.dumps(value, ensure_ascii=False))


def code(secret: bytes, *parts: object) -> str:
    """Return the code of the marks: a keyed hash of the parts (24 hex digits)."""
    return hashlib.blake2b(canonical(parts), key=secret[:64], digest_size=12).hexdigest()


def fenced(lines: Iterable[str], code: str) -> str:
    """Return the block with the given lines (from `line`) between the marks, ending with a line break."""
    return "\n".join([f"<record {code}>", *lines, f"</record {code}>", ""])


def _escape(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1] if match[0] > "\x7f" else f"\\u{ord(match[0]):04x}"
