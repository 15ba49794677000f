"""Define a gate's finding: the result (passed, failed or unknown), its subject and its evidence."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Result = Literal["passed", "failed", "unknown"]
SHOWN = 5  # number of examples in the evidence of one gate
LONGEST = 80  # characters of untrusted text in the evidence


@dataclass(frozen=True)
class GateFinding:
    """Hold the result of one gate. `subject` names its part if it has several, e.g. 'helpfulness in D2'."""

    gate: str
    result: Result
    evidence: str
    subject: str = ""
    value: Fraction | float | None = None
    threshold: Fraction | None = None


def worst(results: Iterable[Result]) -> Result:
    """Return failed if any failed, else unknown if any is unknown or there are none, else passed."""
    found = set(results)
    if "failed" in found:
        return "failed"
    return "passed" if found == {"passed"} else "unknown"


def listed(texts: Iterable[str]) -> str:
    """Join the first few texts, with the number of the remaining ones."""
    every = list(texts)
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return f"{'; '.join(every[:SHOWN])}{more}"


def short(text: str) -> str:
    """Return untrusted text on one line, truncated."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
