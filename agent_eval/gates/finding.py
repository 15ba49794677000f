"""What a gate found: passed, failed or unknown, about what, and with which evidence."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Result = Literal["passed", "failed", "unknown"]
SHOWN = 5  # examples in the evidence of one gate
LONGEST = 80  # characters of a stranger's words in the evidence


@dataclass(frozen=True)
class GateFinding:
    """One gate's answer. `subject` is what it speaks of where a gate has several, e.g. 'helpfulness in D2'."""

    gate: str
    result: Result
    evidence: str
    subject: str = ""
    value: Fraction | float | None = None
    threshold: Fraction | None = None


def worst(results: Iterable[Result]) -> Result:
    """Failed if any failed, else unknown if any is; passed only if all passed, and there is one."""
    found = set(results)
    if "failed" in found:
        return "failed"
    return "passed" if found == {"passed"} else "unknown"


def listed(texts: Iterable[str]) -> str:
    """The first few, and how many more there are."""
    every = list(texts)
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return f"{'; '.join(every[:SHOWN])}{more}"


def short(text: str) -> str:
    """A stranger's words on one line, cut."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
