"""Describe the unknown trials of a rate in words."""

from collections.abc import Mapping

_PARTS = (
    ("n_harness_errors", "{n} lost to the harness"),
    ("n_unknown", "{n} of unknown outcome"),
    ("n_refused", "{n} refused at import"),
)


def shortfall(row: Mapping[str, object]) -> str | None:
    """Describe the unknown trials of a rate; None if all planned trials are known, and none ended in an unexplained error.

    An example is '180 of 200 planned trials known: 15 lost to the harness, 5 refused at import (spring: 5)'. Trials that
    ended in an error of unknown cause are named, also if their source declares them failed. If the row has the number of
    known trials (`n_known`), all trials that are not explained otherwise have no task id; they are counted apart, because
    `n_known` does not say whether their outcomes are known.
    """
    counts = {name: n for name, _ in _PARTS if isinstance(n := row.get(name), int)}
    planned, n_known = row.get("n_planned"), row.get("n_known")
    n_lost = sum(counts.values())
    n_without = planned - n_known - n_lost if isinstance(planned, int) and isinstance(n_known, int) else 0
    n_doubted = n if isinstance(n := row.get("n_unexplained_errors"), int) else 0
    if not n_lost and n_without <= 0 and not n_doubted:
        return None
    parts = [text.format(n=counts[name]) for name, text in _PARTS if counts.get(name)]
    sessions = row.get("refused_sessions")
    if counts.get("n_refused") and isinstance(sessions, list):
        parts[-1] += f" ({', '.join(map(str, sessions))})"
    n_of_tasks = planned - max(n_without, 0) if isinstance(planned, int) else "?"
    n_with_outcome = n_of_tasks - n_lost if isinstance(n_of_tasks, int) else "?"
    of_tasks = " with a task id" if n_without > 0 else ""
    counts_text = f"{n_with_outcome} of {n_of_tasks} planned trials{of_tasks} known{': ' * bool(parts)}{', '.join(parts)}"
    if n_without > 0:
        counts_text += f"; {n_without} without one, which count in no pass rate"
    return f"{counts_text}; {n_doubted} ended in {unexplained(n_doubted)}" if n_doubted else counts_text


def unexplained(n: int) -> str:
    """Return the words for n errors of unknown cause, which the worst to best case covers."""
    errors = "an error of unknown cause" if n == 1 else "errors of unknown cause"
    return f"{errors}, counted as declared (worst to best case covers a failure of the harness)"


def bounds(row: Mapping[str, object], name: str) -> str:
    """Format the worst and best case of a rate, such as '0.378 to 0.478', with '?' for an unknown value."""
    ends = (row.get(f"{name}_worst"), row.get(f"{name}_best"))
    return " to ".join(f"{end:.3f}" if isinstance(end, float) else "?" for end in ends)
