"""Sanitise untrusted text for terminals (control characters, bidirectional overrides), and write counts in words."""

REPLACEMENT = "\ufffd"
_BIDI = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))  # embeddings, overrides, isolates
_UNPRINTABLE = dict.fromkeys((*range(32), *range(127, 160), *_BIDI, *range(0xD800, 0xE000)), REPLACEMENT)
_STEERING = {i: c for i, c in _UNPRINTABLE.items() if chr(i) not in "\n\t"}
_BREAKS = dict.fromkeys(map(ord, "\t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"), " ")
LONGEST = 2_000


def sanitize(text: str) -> str:
    """Replace control characters, bidirectional overrides and unpaired surrogates by U+FFFD.

    Line breaks and tabs are kept.
    """
    return text.translate(_STEERING)


def sanitize_line(text: str) -> str:
    """Return sanitised text on one line, so that a name within a sentence cannot add lines to the output."""
    return sanitize(text.translate(_BREAKS))


def one_line(text: str) -> str:
    """Return sanitised text on one line, with at most 2,000 characters."""
    line = sanitize_line(text).strip()
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def count_of(n: object, noun: str) -> str:
    """Return a whole number with its noun in the right number, e.g. '1 agent' or '1,252 agents'."""
    number = f"{n:,}" if isinstance(n, int) else str(n)
    return f"{number} {noun}{'' if n == 1 else 's'}"


def escaped_json(text: str) -> str:
    """Escape unprintable characters in a JSON text, so that it is safe to print and has the same value."""
    return text.translate(_JSON)


_JSON = {i: f"\\u{i:04x}" for i in _UNPRINTABLE if i >= 127}  # others are escaped or whitespace
