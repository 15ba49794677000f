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
    """Raised when the store cannot be opened, read or written. Its content is unchanged."""

    def __init__(self, attach: str, doing: str, why: str, fix: str = "") -> None:
        lines = why.strip().splitlines() or ["unknown reason"]
        # DuckLake's first line is the same for every failed commit; the second contains the reason
        why = lines["DuckLake transaction" in lines[0] and len(lines) > 1].rstrip(".")
        fix = fix or next((text for pattern, text in _FIXES if re.search(pattern, why, re.IGNORECASE)), "")
        unchanged_note = "" if doing == "read" else "No rows were changed"
        sentences = [f"Cannot {doing} the store {attach}: {why}", fix, unchanged_note]
        super().__init__(". ".join(filter(None, sentences)) + ".")


class BusyStoreError(StoreError):
    """Raised when another program kept the store locked for longer than the time limit."""

    def __init__(self, attach: str, doing: str, holder: str, waited_s: float) -> None:
        super().__init__(
            attach,
            doing,
            f"{holder} has locked it for more than {waited_s:g} s",
            "Close that program or wait until it finishes, then try again",
        )


class MissingFolderError(StoreError):
    """Raised when the store's folder does not exist, e.g. because a disk is not mounted."""

    def __init__(self, file: Path, doing: str) -> None:
        super().__init__(
            str(file),
            doing,
            f"its folder {file.parent} does not exist",
            "In a new project, run `agent-eval init DIR`, or add --sample to start with the sample. If the data is on "
            "a separate disk, mount the disk. The settings `store` and `data_dir` in agent_eval.toml define the paths",
        )


class OlderStoreError(StoreError):
    """Raised when the store was written before the first release; its tables have other names and types."""

    def __init__(self, attach: str, version: int, oldest: int) -> None:
        super().__init__(
            attach,
            "use",
            f"its tables have version {version or 'of no number'}, but this agent_eval supports versions from {oldest}",
            "Move the file away and run `agent-eval run`: everything but the answers of judge models is computed again "
            "from data/. To keep those answers, open the store with the commit of agent_eval that wrote it, or a later "
            "one that migrates it",
        )


class NewerStoreError(StoreError):
    """Raised when a later release of agent_eval wrote the store; this release would lose its columns."""

    def __init__(self, attach: str, version: int, supported_version: int, written_by: str) -> None:
        super().__init__(
            attach,
            "use",
            f"its tables have version {version} (agent_eval {written_by}), but this agent_eval supports versions up to {supported_version}",
            f"Install agent_eval {written_by} or later, or set `store` in agent_eval.toml to another file",
        )
