"""Describe the trials behind a rate in words, wherever some planned trials are unknown."""

from collections.abc import Mapping

_PARTS = (
    ("n_harness_errors", "{n} lost to the harness"),
    ("n_unknown", "{n} of unknown outcome"),
    ("n_refused", "{n} refused at import"),
)


def shortfall(row: Mapping[str, object]) -> str | None:
    """Return '180 of 200 planned trials known: 15 lost to the harness, 5 refused at import (spring: 5)'.

    None if all are known. If the row counts known trials (`n_known`), the unexplained others have no
    task.
    """
    counts = {name: n for name, _ in _PARTS if isinstance(n := row.get(name), int)}
    planned, n_known = row.get("n_planned"), row.get("n_known")
    n_lost = sum(counts.values())
    n_without = planned - n_known - n_lost if isinstance(planned, int) and isinstance(n_known, int) else 0
    if not n_lost and n_without <= 0:
        return None
    parts = [text.format(n=counts[name]) for name, text in _PARTS if counts.get(name)]
    sessions = row.get("refused_sessions")
    if counts.get("n_refused") and isinstance(sessions, list):
        parts[-1] += f" ({', '.join(map(str, sessions))})"
    if n_without > 0:
        parts.append(f"{n_without} without a task id, which count in no pass rate")
    known = planned - n_lost - max(n_without, 0) if isinstance(planned, int) else "?"
    return f"{known} of {planned if planned is not None else '?'} planned trials known: {', '.join(parts)}"


def bounds(row: Mapping[str, object], name: str) -> str:
    """Return '.378 to .478', the worst and the best case of a rate; '?' for an unknown one."""
    ends = (row.get(f"{name}_worst"), row.get(f"{name}_best"))
    return " to ".join(f"{end:.3f}" if isinstance(end, float) else "?" for end in ends)
