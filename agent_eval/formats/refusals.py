"""Describe rejected records, with their file and line."""

import re
from dataclasses import dataclass

REPEATED = "the same as record"
NOT_READ = "not read:"
"""Prefix of the reason for parts of a record that were not read, although the record was imported."""
MORE_REFUSED = "more records were refused"
_MORE = re.compile(rf"([\d,]+) {MORE_REFUSED}")


@dataclass(frozen=True)
class Refusal:
    """Describe a rejected record; other records are still imported."""

    file: str  # file name or path within the project
    line: int  # 1-based line or record number; 0 for the whole file
    reason: str  # the problem, the allowed values and the fix


def n_records(line: int, reason: str) -> int:
    """Return the number of records that a refusal represents.

    It is 0 for a whole file, a copy of an imported record, and parts of an imported record.
    """
    if reason.startswith((REPEATED, NOT_READ)):
        return 0
    if line > 0:
        return 1
    more = _MORE.match(reason)
    return int(more[1].replace(",", "")) if more else 0
