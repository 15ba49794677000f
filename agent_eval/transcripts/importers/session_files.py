"""Write the files of a session folder without ever leaving incomplete files."""

import filecmp
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agent_eval.formats.atomic_files import sync_folder, sync_stream
from agent_eval.formats.hashing import digest
from agent_eval.formats.json_text import dumps
from agent_eval.formats.refusals import MORE_REFUSED, NOT_READ, Refusal
from agent_eval.formats.streams import Record, json_lines
from agent_eval.transcripts.models import Conversation, too_large
from agent_eval.transcripts.sessions import CONVERSATIONS, ERRORS, FILES

MOST_TOLD = 10_000  # maximum number of rejected records that are listed individually
PARTS = "parts.jsonl"
"""File in a session folder with the parts of conversations that are split over several source files."""
_WRITTEN = (*FILES, PARTS)


@contextmanager
def temporary(folder: Path) -> Iterator[Path]:
    """Yield a hidden folder beside the target, after removing the remains of a killed import."""
    new = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    try:
        yield new
    finally:
        shutil.rmtree(new, ignore_errors=True)


def write_records(folder: Path, records: Iterable[Conversation | Refusal]) -> tuple[int, int, list[Refusal]]:
    """Write conversations.jsonl as a stream, then import_errors.jsonl if records were rejected.

    Return the number of conversations, the number of rejected records, and the listed rejected records.
    """
    n_imported = n_refused = n_more = 0
    refusals: list[Refusal] = []
    with (folder / CONVERSATIONS).open("wb") as stream:
        for record in records:
            item: Refusal | bytes = record if isinstance(record, Refusal) else _line_or_refusal(record)
            if isinstance(item, Refusal):
                n_refused += not item.reason.startswith(NOT_READ)
                n_more += len(refusals) >= MOST_TOLD
                if len(refusals) < MOST_TOLD:
                    refusals.append(item)
            else:
                stream.write(item)
                n_imported += 1
        sync_stream(stream)
    if n_more:
        reason = f"{n_more:,} {MORE_REFUSED}; the first {MOST_TOLD:,} are listed one by one"
        refusals.append(Refusal(refusals[-1].file, 0, reason))
    if refusals:
        write(folder / ERRORS, "".join(f"{dumps(vars(r))}\n" for r in refusals).encode())
    return n_imported, n_refused, refusals


def _line_or_refusal(conversation: Conversation) -> bytes | Refusal:
    """Return a conversation as a line, or why it is rejected for its size, with the file and record in its source."""
    line = line_of(conversation)
    reason = too_large(len(line), len(conversation.messages))
    if reason is None:
        return line
    place = (conversation.source or "").partition(" sha256:")[0].partition(":")[2]
    file, _, number = place.rpartition("#")
    return Refusal(file or CONVERSATIONS, int(number) if number.isdecimal() else 0, reason)


def line_of(conversation: Conversation) -> bytes:
    """Return a conversation as a line of conversations.jsonl."""
    return conversation.model_dump_json(exclude_defaults=True).encode() + b"\n"


def write(path: Path, content: bytes) -> None:
    """Write a file and flush it to disk."""
    with path.open("wb") as stream:
        stream.write(content)
        sync_stream(stream)


def is_same(old: Path, new: Path) -> bool:
    """Return whether the old folder already contains identical files."""
    pairs = [(old / name, new / name) for name in _WRITTEN]
    return all(
        filecmp.cmp(a, b, shallow=False) if a.is_file() and b.is_file() else a.exists() == b.exists()
        for a, b in pairs
    )


def changed_lines(old: Path, new: Path) -> set[str]:
    """Return the ids of the conversations that both folders contain, with different content."""
    before, after = (_digests(folder / CONVERSATIONS) for folder in (old, new))
    return {name for name in before.keys() & after.keys() if before[name] != after[name]}


def _digests(path: Path) -> dict[str, str]:
    lines = json_lines(path, path.name) if path.is_file() else ()
    values = (line.value for line in lines if isinstance(line, Record) and isinstance(line.value, dict))
    return {str(value.get("conversation_id")): digest(dumps(value)) for value in values}


def put_in_place(new: Path, folder: Path) -> None:
    """Move a new session atomically; in an existing session, replace each file atomically and keep other files."""
    if not folder.exists():
        sync_folder(new)
        new.rename(folder)
    else:
        for name in _WRITTEN:
            if (new / name).exists():
                (new / name).replace(folder / name)
            else:
                (folder / name).unlink(missing_ok=True)
        sync_folder(folder)
    sync_folder(folder.parent)
