"""Sanitise untrusted text for terminals: replace control characters and bidirectional overrides."""

REPLACEMENT = "\ufffd"
_BIDI = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))  # embeddings, overrides, isolates
_UNPRINTABLE = dict.fromkeys((*range(32), *range(127, 160), *_BIDI, *range(0xD800, 0xE000)), REPLACEMENT)
_STEERING = {i: c for i, c in _UNPRINTABLE.items() if chr(i) not in "\n\t"}
_BREAKS = dict.fromkeys(map(ord, "\t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"), " ")
LONGEST = 2_000


def sanitize(text: str) -> str:
    """Return text without control characters, bidirectional overrides and unpaired surrogates.

    Line ends and tabs stay; every other such character becomes U+FFFD.
    """
    return text.translate(_STEERING)


def one_line(text: str) -> str:
    """Return sanitised text on one line, of at most 2,000 characters."""
    line = sanitize(text.translate(_BREAKS)).strip()
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def escaped_json(text: str) -> str:
    """Return the JSON text with unprintable characters as escapes: the same value, safe to print."""
    return text.translate(_JSON)


_JSON = {i: f"\\u{i:04x}" for i in _UNPRINTABLE if i >= 127}  # the others are already escaped, or whitespace
