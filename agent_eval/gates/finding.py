"""Define the finding of a gate: the result (passed, failed or unknown), the subject and the evidence."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Result = Literal["passed", "failed", "unknown"]
SHOWN = 5  # maximum number of examples in the evidence of a gate
LONGEST = 80  # maximum characters of an untrusted text in the evidence


@dataclass(frozen=True)
class GateFinding:
    """Represent the result of a gate. `subject` names the part that was evaluated, e.g. 'helpfulness in D2'."""

    gate: str
    result: Result
    evidence: str
    subject: str = ""
    value: Fraction | float | None = None
    threshold: Fraction | None = None


def worst(results: Iterable[Result]) -> Result:
    """Return failed if any result is failed, passed if there are results and all are passed, else unknown."""
    distinct_results = set(results)
    if "failed" in distinct_results:
        return "failed"
    return "passed" if distinct_results == {"passed"} else "unknown"


def listed(texts: Iterable[str]) -> str:
    """Join the first SHOWN texts and append the number of the remaining ones."""
    every = list(texts)
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return f"{'; '.join(every[:SHOWN])}{more}"


def short(text: str) -> str:
    """Return untrusted text as one line of at most LONGEST characters."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
