"""Define the errors of a store; each message is one line with the file, the problem and the fix."""

import re
from pathlib import Path

from agent_eval.errors import StorageError

# Messages of DuckDB and the operating system, and the fix for each. The first match counts.
_FIXES = (
    (r"no space left|file too large|quota", "Free some space there and try again"),
    (r"read-only file system|permission denied", "Grant this user write permission there"),
    (
        r"version number|storage version|serialization version",
        "It was written by another version of DuckDB; install that version or a later version",
    ),
    (
        r"not a valid|not read enough|corrupt|checksum|is a directory|replaying wal|deserializ",
        "It is damaged or not a store. Replace it with a copy made by `agent-eval store backup`, or move it to another folder and run "
        "again: everything except the answers of models is computed from the data folder",
    ),
)


class StoreError(StorageError):
    """Raised when the store cannot be opened, read or written. Its content is unchanged.

    Fix: Do what the message says: each cause has its own fix.
    """

    def __init__(self, attach: str, doing: str, why: str, fix: str = "") -> None:
        lines = why.strip().splitlines() or ["unknown reason"]
        # DuckLake's first line is the same for every failed commit; the second contains the reason
        why = lines["DuckLake transaction" in lines[0] and len(lines) > 1].rstrip(".")
        fix = fix or next((text for pattern, text in _FIXES if re.search(pattern, why, re.IGNORECASE)), "")
        unchanged_note = "" if doing == "read" else "No rows were changed"
        sentences = [f"Cannot {doing} the store {attach}: {why}", fix, unchanged_note]
        super().__init__(". ".join(filter(None, sentences)) + ".")


class BusyStoreError(StoreError):
    """Raised when another program kept the store locked for longer than the time limit.

    Fix: Close that program, or wait until it finishes, and run again.
    """

    def __init__(self, attach: str, doing: str, holder: str, waited_s: float) -> None:
        super().__init__(
            attach,
            doing,
            f"{holder} has locked it for more than {waited_s:g} s",
            "Close that program or wait until it finishes, then try again",
        )


def missing_folder(file: Path, doing: str) -> StoreError:
    """Return the error if the store's folder does not exist, e.g. because a disk is not mounted."""
    return StoreError(
        str(file),
        doing,
        f"its folder {file.parent} does not exist",
        "In a new project, run `agent-eval init DIR`, or add --sample to start with the sample. If the data is on "
        "a separate disk, mount the disk. The settings `store` and `data_dir` in agent_eval.toml define the paths",
    )
