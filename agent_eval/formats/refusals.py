"""What a reader gives up on: one refused record, named by file and line."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """A record that was refused while the rest went on."""

    file: str  # file name or path within the project
    line: int  # 1-based line or record number; 0 for the whole file
    reason: str  # what is wrong, what is allowed, the fix
