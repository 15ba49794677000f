"""Remove API keys and other secrets from everything that a provider sends, before it is stored or shown."""

import base64
import contextlib
import functools
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, quote_plus

from agent_eval.errors import StorageError
from agent_eval.formats.json_text import clean

SHORTEST_SECRET = 16  # bytes
LONGEST = 300  # maximum characters of a stored error
_SEARCHED = 10_000  # maximum characters of an error that are searched for secrets
_NAMES = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_SHORTEST = 6  # shorter values are not treated as secrets, because redacting them would remove common words
_TOKENS = re.compile(
    r"\b(?:sk|pk|rk|xai|gsk|hf|AIza)[-_][\w*-]{6,}|AIza[\w-]{10,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{12,}"  # AWS
    r"|\bgh[pousr]_\w{16,}|\bgithub_pat_\w{16,}|\bgl(?:pat|ptt|rt|dt)-[\w-]{16,}"  # GitHub, GitLab
    r"|\bxox[a-z]-[\w-]{8,}|\bxapp-[\w-]{8,}"  # Slack
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"  # JWT
    r"|\b(?i:basic)\s+[A-Za-z0-9+/]{16,}={0,2}|\b(?i:bearer)\s+[\w.~+/-]{12,}=*"
)
"""Matches values that have the format of a known kind of key."""
_IN_ERRORS = re.compile(
    r"(?i:bearer)\s+\S+|(?i:(?:api[-_ ]?key|token|secret|password)\b[^\w]{1,4})[\w*./+-]{6,}|(?<=//)[^/\s@]+@"
)
"""Matches places where errors show a key. Not applied to a judge's reasons, where the words are common."""
HIDDEN = "[hidden]"


def kept_secret(file: Path, make: Callable[[], bytes] = lambda: os.urandom(32)) -> bytes:
    """Return the secret in a file. If the file is missing, create it with a new secret that only the owner can read.

    Raises:
        StorageError: If the file has fewer than SHORTEST_SECRET bytes.
    """
    with contextlib.suppress(FileNotFoundError):
        return _long_enough(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    new_file = file.with_name(f"{file.name}.{os.getpid()}")
    with os.fdopen(os.open(new_file, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as stream:
        stream.write(make())
    with contextlib.suppress(FileExistsError):  # another process created the file first; use its secret
        os.link(new_file, file)
    new_file.unlink()
    return _long_enough(file)


def _long_enough(file: Path) -> bytes:
    secret = file.read_bytes()
    if len(secret) < SHORTEST_SECRET:
        raise StorageError(
            f"The secret in {file} has {len(secret)} bytes; at least {SHORTEST_SECRET} are expected. Restore the file from a "
            "backup, or delete it so that a new secret is made."
        )
    return secret


def redact(text: str) -> str:
    """Return the text of an error in one line without keys, truncated to LONGEST characters.

    Only the first _SEARCHED characters are used.
    """
    searched = text[:_SEARCHED]
    if len(text) > _SEARCHED:  # a truncated key is not recognised, so drop the text after the last space
        searched = searched.rpartition(" ")[0] or searched[: _SEARCHED // 2]
    return clean(" ".join(_IN_ERRORS.sub(HIDDEN, hide_secrets(searched)).split()))[:LONGEST]


def keys_of_environment() -> frozenset[str]:
    """Return the values of environment variables whose names denote keys. Call it once to redact many texts."""
    return frozenset(v for name, v in os.environ.items() if _NAMES.search(name) and len(v) >= _SHORTEST)


def hide_secrets(text: str, keys: frozenset[str] | None = None) -> str:
    """Return a text without `keys` (by default those of the environment) and without values that look like keys."""
    return _TOKENS.sub(HIDDEN, hide_keys(text, keys))


def hide_keys(text: str, keys: frozenset[str] | None = None) -> str:
    """Return a text without `keys` (by default those of the environment).

    Keys are found verbatim and in JSON, URL, base64 and hexadecimal encoding, ignoring case.
    """
    values = keys_of_environment() if keys is None else keys
    small = text.lower()
    if not any(form in small for form in _forms(values)):  # the usual case; much faster than the pattern
        return text
    return _pattern(values).sub(HIDDEN, text)


@functools.lru_cache(maxsize=8)
def _forms(values: frozenset[str]) -> tuple[str, ...]:
    """Return every encoded form of the values in lower case, the longest first."""
    forms = {
        form.lower() for value in values for encode in (_encoded, _hexadecimal) for form in encode(value)
    }
    return tuple(sorted(forms, key=len, reverse=True))


@functools.lru_cache(maxsize=8)
def _pattern(values: frozenset[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, _forms(values))), re.IGNORECASE)


def _encoded(value: str) -> Iterator[str]:
    """Yield the value verbatim, as JSON, and as part of a base64 text for each of the three possible offsets."""
    raw = value.encode()
    yield value
    yield json.dumps(value)[1:-1]
    for before, encode in ((n, e) for n in range(3) for e in (base64.b64encode, base64.urlsafe_b64encode)):
        whole = encode(b"\0" * before + raw).decode()
        begin, end = (0, 2, 3)[before], (before + len(raw)) * 8 // 6
        yield whole[begin:end]


def _hexadecimal(value: str) -> Iterator[str]:
    raw = value.encode()
    yield from {quote(value), quote(value, safe=""), quote_plus(value)}
    yield "".join(f"%{byte:02x}" for byte in raw)
    yield raw.hex()
    yield "".join(f"\\u{ord(sign):04x}" for sign in value)
