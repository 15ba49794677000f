"""Determine which sessions are independent of each other, and why the others are not."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from types import MappingProxyType
from typing import NamedTuple

INDEPENDENT_SESSIONS = 3  # minimum for a claim of tested repeatability
Question = tuple[str | None, str | None]
"""The task id and the hash of the user's first message."""


class SessionEvidence(NamedTuple):
    """Hold the evidence of one session."""

    session_id: str
    session_date: date | None
    session_run: str | None
    gaps: tuple[str, ...]  # required tests and slots without a conversation
    questions: Mapping[str, frozenset[Question]]  # by required test and slot
    content: tuple[
        tuple[str | None, ...], ...
    ]  # the origin of what was said in each conversation; it ends with None without a message of the agent
    shares: Mapping[tuple[str | None, ...], float] = MappingProxyType({})
    """Of near-duplicates, by their origin: the share of the text that they have in common with it."""
    repeated: tuple[str, ...] = ()  # conversations that are in the session more than once
    long: frozenset[tuple[str | None, ...]] = frozenset()  # the origins of texts that are compared one by one
    counts: bool = True  # False for a session that can only be copied, e.g. an invalid one


def lacking_evidence(sessions: Sequence[SessionEvidence]) -> str | None:
    """Return why the sessions do not show that repeatability was tested; None if they do.

    At least three sessions must be independent. Independent sessions are complete and ask the same questions;
    the agent's messages differ in more than half of the conversations; and their dates or their values of
    `session_run` differ. The reason names every session that does not count.
    """
    sessions = [s for s in sessions if s.counts]
    complete = [s for s in sessions if not s.gaps and not _unnamed(s)]
    groups: dict[object, list[SessionEvidence]] = defaultdict(list)
    for session in sorted(complete, key=_order):
        groups[tuple(sorted(session.questions.items()))].append(session)
    independent = max((_independent(group) for group in groups.values()), key=len, default=[])
    if len(independent) >= INDEPENDENT_SESSIONS:
        return None
    why = "".join(f"; {text}" for text in _reasons(sessions, independent))
    return (
        f"true is claimed, but {len(independent)} of {len(sessions)} sessions are independent and cover all required "
        f"tests and D1–D5 with the same questions, at least {INDEPENDENT_SESSIONS} must{why}"
    )


def copies(sessions: Sequence[SessionEvidence]) -> list[str]:
    """Return a reason for each session that counts whose agent messages are copies of another session's.

    The other session is earlier, or does not count. A copy adds no evidence to the mean and the interval. Conversations without a message of the agent do not
    count as copies.
    """
    reasons: list[str] = []
    holding: dict[tuple[str | None, ...], list[int]] = defaultdict(
        list
    )  # earlier sessions by content, as numbers
    ordered = sorted(sessions, key=lambda session: (session.counts, _order(session)))
    for number, session in enumerate(ordered):
        parts_with_text = {part for part in session.content if None not in part}
        alike = sorted({earlier for part in parts_with_text for earlier in holding[part]})
        copied = next((ordered[i] for i in alike if _is_copy(ordered[i], session, of_silence=False)), None)
        if copied is not None and session.counts:
            reasons.append(f"copied session: {session.session_id} {_how_copied(session, copied)}")
        elif session.counts and (mixed := _mixed(session, holding, ordered)):
            reasons.append(f"copied session: {session.session_id} {mixed}")
        reasons += session.repeated if session.counts else ()
        for part in parts_with_text:
            holding[part].append(number)
    return reasons


def _mixed(
    session: SessionEvidence,
    holding: Mapping[tuple[str | None, ...], Sequence[int]],
    earlier: Sequence[SessionEvidence],
) -> str | None:
    """Return how a session mixes long texts of several earlier sessions in at least half of its slots and tests, or None."""
    copied = [origin for origin in session.content if origin in session.long and holding.get(origin)]
    parts = {origin[:-1] for origin in session.content}
    if not copied or 2 * len({origin[:-1] for origin in copied}) < len(parts):
        return None
    names = sorted({earlier[holding[origin][0]].session_id for origin in copied})
    share = sum(session.shares.get(origin, 1.0) for origin in copied) / len(copied)
    return (
        f"repeats conversations of {', '.join(names)}: {len(copied)} of {len(session.content)} conversations share "
        f"{share:.0%} of their text"
    )


def _how_copied(session: SessionEvidence, copied: SessionEvidence) -> str:
    """Return how a session copies another one; for near-duplicates with the share of the text that is the same."""
    shared = list((Counter(copied.content) & Counter(session.content)).elements())
    shared_keys = [origin for origin in shared if None not in origin]
    shares = [min(session.shares.get(o, 1.0), copied.shares.get(o, 1.0)) for o in shared_keys]
    if not any(o in session.shares or o in copied.shares for o in shared_keys):
        return f"is a copy of {copied.session_id}"
    return (
        f"is a near copy of {copied.session_id}: {len(shared_keys)} of {len(session.content)} conversations share "
        f"{sum(shares) / len(shares):.0%} of their text"
    )


def _independent(sessions: Sequence[SessionEvidence]) -> list[SessionEvidence]:
    apart: list[SessionEvidence] = []
    for session in sessions:
        if (session.session_date or session.session_run) and all(_are_apart(session, k) for k in apart):
            apart.append(session)
    return apart


def _are_apart(a: SessionEvidence, b: SessionEvidence) -> bool:
    return not _is_copy(a, b) and _at_other_times(a, b)


def _is_copy(a: SessionEvidence, b: SessionEvidence, *, of_silence: bool = True) -> bool:
    """Return whether the agent's messages are the same in at least half of the conversations."""
    shared = Counter(a.content) & Counter(b.content)
    n_shared = sum(n for text_key, n in shared.items() if of_silence or None not in text_key)
    return 2 * n_shared >= max(len(a.content), len(b.content), 1)


def _at_other_times(a: SessionEvidence, b: SessionEvidence) -> bool:
    """Return whether the two sessions have different dates or runs; a missing value is not a difference."""
    pairs = ((a.session_date, b.session_date), (a.session_run, b.session_run))
    return any(one is not None and other is not None and one != other for one, other in pairs)


def _reasons(sessions: Sequence[SessionEvidence], independent: Sequence[SessionEvidence]) -> Iterator[str]:
    names = {session.session_id for session in independent}
    first = independent[0] if independent else None
    for session in sessions:
        if session.session_id not in names:
            yield f"session {session.session_id} {_reason(session, first, independent)}"


def _reason(
    session: SessionEvidence, first: SessionEvidence | None, independent: Sequence[SessionEvidence]
) -> str:
    """Return the reason why a session is not counted as independent."""
    if session.gaps:
        return f"lacks {', '.join(session.gaps)}"
    if parts := _unnamed(session):
        return f"has neither a task_id nor a user message in {', '.join(parts)}"
    if first and (parts := _differing(session, first)):
        return f"asks other questions than session {first.session_id} in {', '.join(parts)}"
    if copied := next((k for k in independent if _is_copy(k, session)), None):
        return _how_copied(session, copied).replace("copy of ", "copy of session ", 1)
    if not (session.session_date or session.session_run):
        return "has neither a date nor a session_run"
    same = next((k for k in independent if not _at_other_times(session, k)), None)
    return f"has neither a date nor a session_run other than session {same.session_id if same else '?'}"


def _differing(a: SessionEvidence, b: SessionEvidence) -> list[str]:
    return [part for part, questions in a.questions.items() if questions != b.questions.get(part)]


def _unnamed(session: SessionEvidence) -> list[str]:
    """Return the parts with a conversation that has neither a task id nor a user message."""
    return [part for part, questions in session.questions.items() if (None, None) in questions]


def session_order(day: date | None, run: str | None, session_id: str) -> tuple[int, bool, str, str, str]:
    """Return a sort key that puts sessions with both a date and a run first, which are easiest to distinguish."""
    return (day is None) + (run is None), day is None, str(day or ""), run or "", session_id


def _order(session: SessionEvidence) -> tuple[int, bool, str, str, str]:
    return session_order(session.session_date, session.session_run, session.session_id)
