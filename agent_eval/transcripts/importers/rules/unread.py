"""Name the parts of a source that an importer cannot read, so that nothing vanishes and nothing is invented."""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence

from agent_eval.formats.refusals import NOT_READ
from agent_eval.formats.validation_messages import shorten

UNREAD = "unread"
"""Key of a message: descriptions of its parts that cannot be read (list of strings); `settled` removes it."""


def unread_of(message: Mapping[str, object]) -> list[str]:
    """Return the descriptions of a message's parts that cannot be read."""
    value = message.get(UNREAD)
    return [str(text) for text in value] if isinstance(value, list) else []


def not_read(what: str, name: object) -> str:
    """Return the description of a part, e.g. part of type 'chart'."""
    return f"{what} {str(name)[:60]!r}"


def unknown_keys(what: str, entry: Mapping[str, object], known: Container[str]) -> list[str]:
    """Return a description of the keys of an entry that are not known and have a text, list or object; else nothing."""
    keys = sorted(
        key
        for key, value in entry.items()
        if key not in known and value and isinstance(value, str | list | dict)
    )
    return [not_read(f"{what} with the keys", ", ".join(keys[:4]))] if keys else []


def unknown_entry(what: str, entry: Mapping[str, object], keys: Iterable[str]) -> list[dict[str, object]]:
    """Return a message that names an entry of a conversation without any of the known keys; empty for other entries."""
    if any(entry.get(key) is not None for key in keys):
        return []
    texts = [not_read(f"{what} with the keys", ", ".join(sorted(entry)[:4]))]
    return [{"role": "developer", "content": None, UNREAD: texts}]


def without(
    what: str, entry: Mapping[str, object], needed: Collection[str], known: Iterable[str]
) -> list[dict[str, object]]:
    """Return a message that names the unknown keys of an entry that lacks a needed key; empty for other entries."""
    texts = [] if all(key in entry for key in needed) else unknown_keys(what, entry, {*needed, *known})
    return [{"role": "developer", "content": None, UNREAD: texts}] if texts else []


def further_choices(choices: Sequence[object]) -> list[str]:
    """Return a description of each reply to one request that is not read: only the first one is."""
    return ["further choice of one reply"] * (len(choices) - 1)


def described(texts: Sequence[str]) -> list[str]:
    """Return one reason for each kind of part that was not read, with the number of such parts, as it will be read."""
    counts = Counter(map(shorten, texts)) if texts else {}
    return [
        f"{NOT_READ} {n:,} × {text}; the rest of the record is imported" for text, n in sorted(counts.items())
    ]
