"""Secrets stay in the environment: whatever a provider's error says is cleared of them before anybody sees it."""

import contextlib
import os
import re
from pathlib import Path

from agent_eval.formats.json_text import clean

LONGEST = 300  # characters of an error that are kept
_NAMES = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_SHORTEST = 6  # shorter values are no secrets, and would blank out common words
_PATTERNS = re.compile(
    r"\b(?:sk|pk|rk|xai|gsk|hf|AIza)[-_][\w*-]{6,}|AIza[\w-]{10,}|(?i:bearer)\s+\S+"
    r"|(?i:(?:api[-_ ]?key|token|secret|password)\b[^\w]{1,4})[\w*./+-]{6,}|(?<=//)[^/\s@]+@"
)
HIDDEN = "[hidden]"


def kept_secret(file: Path) -> bytes:
    """The secret in a file, which is made with a random one when it is absent; only its owner may read it."""
    with contextlib.suppress(FileNotFoundError):
        return file.read_bytes()
    file.parent.mkdir(parents=True, exist_ok=True)
    made = file.with_name(f"{file.name}.{os.getpid()}")
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as stream:
        stream.write(os.urandom(32))
    with contextlib.suppress(FileExistsError):  # another process was first: its secret holds
        os.link(made, file)
    made.unlink()
    return file.read_bytes()


def redact(text: str) -> str:
    """The text in one line without keys, neither those of the environment nor what looks like one; cut to LONGEST."""
    values = {v for name, v in os.environ.items() if _NAMES.search(name) and len(v) >= _SHORTEST}
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return clean(" ".join(_PATTERNS.sub(HIDDEN, text).split()))[:LONGEST]
