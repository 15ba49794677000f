"""What a reader gives up on: one refused record, named by file and line."""

import re
from dataclasses import dataclass

REPEATED = "the same as record"
MORE_REFUSED = "more records were refused"
_MORE = re.compile(rf"([\d,]+) {MORE_REFUSED}")


@dataclass(frozen=True)
class Refusal:
    """A record that was refused while the rest went on."""

    file: str  # file name or path within the project
    line: int  # 1-based line or record number; 0 for the whole file
    reason: str  # what is wrong, what is allowed, the fix


def n_records(line: int, reason: str) -> int:
    """How many records a refusal stands for; 0 for a whole file, or a copy of a record that was imported."""
    if reason.startswith(REPEATED):
        return 0
    if line > 0:
        return 1
    more = _MORE.match(reason)
    return int(more[1].replace(",", "")) if more else 0
