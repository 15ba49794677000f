"""Compute canonical JSON and its hash."""

import hashlib
import json
from collections.abc import Iterable

_encoded = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode


def canonical(value: object) -> bytes:
    """Return the canonical JSON text of a value: sorted keys, no spaces, lone surrogates escaped."""
    return _encoded(value).encode()


def digest(*parts: object) -> str:
    """Return the hash of several values as 32 hex digits; `("a", "b")` and `("ab",)` have different hashes."""
    return hashlib.blake2b(canonical(parts), digest_size=16).hexdigest()


def digests(parts: tuple[object, ...], ends: Iterable[bytes]) -> list[str]:
    """Return the `digest` of the same first parts with each of these last ones, which are canonical lists."""
    start = hashlib.blake2b(canonical(parts)[:-1], digest_size=16)
    hashes = []
    for end in ends:
        whole = start.copy()
        whole.update(b"," + end[1:])
        hashes.append(whole.hexdigest())
    return hashes
