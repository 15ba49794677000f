"""Find near-duplicates: texts of an agent that occur in several slots, sessions or agents of a board.

Texts are compared from 40 words on. The shorter texts of a session are compared together.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from typing import Any, NamedTuple

import polars as pl

from agent_eval.transcripts.text_sketch import ENOUGH_WORDS, TextSketch, containment

NEAR = 0.8  # least share of the shorter text's shingles that near-duplicates share
CLOSE = 0.9  # least share between agents, and between answers to different questions, which may be alike by themselves
_INDEXED = 16  # smallest hashes of a text that candidates are found by
_LEAST_SHARED = 2  # of these hashes
_MOST_CANDIDATES = 3


class SlotText(NamedTuple):
    """Hold what the agent said in one conversation that fills a slot or a required test."""

    session_id: str
    parts: tuple[str, ...]  # the required tests and slots
    exact: str | None  # hash of the messages; None if the agent said nothing
    opening: str | None  # hash of the first user message
    sketch: TextSketch | None = None

    @property
    def is_long(self) -> bool:
        """Return whether the text is compared by itself."""
        return self.sketch is not None and self.sketch.n_words >= ENOUGH_WORDS


@dataclass(frozen=True)
class Unit:
    """Hold texts of a session that are compared together: one long text, or all short ones."""

    session_id: str
    members: tuple[int, ...]  # numbers of the conversations
    sketch: TextSketch


class Match(NamedTuple):
    """Identify a text and the first earlier text that it is a near-duplicate of."""

    number: int
    earlier: int
    share: float  # of the shorter text's shingles


def units_of(said: Sequence[SlotText]) -> list[Unit]:
    """Return the units of sessions, whose conversations are consecutive in `said`."""
    units: list[Unit] = []
    for session_id, group in groupby(enumerate(said), key=lambda item: item[1].session_id):
        short: list[tuple[int, TextSketch]] = []
        for number, one in group:
            if one.sketch is None:
                continue
            if one.sketch.n_words >= ENOUGH_WORDS:
                units.append(Unit(session_id, (number,), one.sketch))
            else:
                short.append((number, one.sketch))
        if short:
            joined = short[0][1]
            for _, sketch in short[1:]:
                joined = joined.joined(sketch)
            if joined.n_words >= ENOUGH_WORDS:
                units.append(Unit(session_id, tuple(number for number, _ in short), joined))
    return units


def near_duplicates(sketches: Sequence[TextSketch]) -> list[Match]:
    """Return a match for each text that is a near-duplicate of an earlier one.

    The time is linear in the number of texts: candidates are the first texts with the same smallest hashes.
    """
    first: dict[int, int] = {}
    found: list[Match] = []
    for number, sketch in enumerate(sketches):
        lowest = sketch.hashes[:_INDEXED]
        candidates = Counter(first[h] for h in lowest if h in first)
        for earlier, n_shared in candidates.most_common(_MOST_CANDIDATES):
            share = containment(sketch, sketches[earlier]) if n_shared >= _LEAST_SHARED else 0.0
            if share >= NEAR:
                found.append(Match(number, earlier, share))
                break
        for h in lowest:
            first.setdefault(h, number)
    return found


class TextOrigin(NamedTuple):
    """Identify the first occurrence of what was said."""

    key: tuple[str | None, ...]  # equal for all occurrences
    share: float = 1.0  # of the text that this occurrence shares with it
    is_exact: bool = True


def origins(said: Sequence[SlotText]) -> list[TextOrigin]:
    """Return the origin of each entry; near-duplicates have the same key, and so have equal messages of the same parts."""
    found = [TextOrigin((*one.parts, one.exact)) for one in said]
    units = units_of(said)
    for match in near_duplicates([unit.sketch for unit in units]):
        mine, theirs = units[match.number].members, units[match.earlier].members
        of_parts = {said[j].parts: j for j in theirs}
        for i in mine:
            j = theirs[0] if len(mine) == len(theirs) == 1 else of_parts.get(said[i].parts)
            if j is not None and said[i].exact is not None:
                is_exact = said[i].exact == said[j].exact and said[i].parts == said[j].parts
                found[i] = TextOrigin(
                    found[j].key, min(match.share, found[j].share), is_exact and found[j].is_exact
                )
    return found


def repeated_within(said: Sequence[SlotText], found: Sequence[TextOrigin]) -> Iterator[tuple[str, str]]:
    """Yield a session and a text for each conversation that is in a session more than once, in one slot or several.

    The agent's text and the question are the same in two conversations, or its text is in at least half of the session's.
    """
    for session_id, group in groupby(zip(said, found, strict=True), key=lambda item: item[0].session_id):
        of_session = [item for item in group if item[0].exact is not None]
        by_text: dict[object, list[tuple[SlotText, TextOrigin]]] = defaultdict(list)
        for one, origin in of_session:
            by_text[origin.key if one.is_long else (one.exact, one.opening)].append((one, origin))
        for alike in by_text.values():
            first = alike[0][0]
            others = [i for i in alike[1:] if i[0].parts != first.parts and i[1].share >= CLOSE]
            is_half = 2 * (len(others) + 1) >= max(len(of_session), 3)
            copied = others if is_half else [item for item in alike[1:] if item[0].opening == first.opening]
            if copied:
                names = ", ".join("/".join(one.parts) for one, _ in copied)
                share = min(origin.share for _, origin in copied)
                yield (
                    session_id,
                    f"copied conversation: {names} of session {session_id} repeat {'/'.join(first.parts)}: "
                    f"{len(copied) + 1} of {len(of_session)} conversations share {share:.0%} of their text; a slot that "
                    "also serves as a test is linked, not copied",
                )


def stored_texts(
    agent_id: str,
    said: Sequence[SlotText],
    days: Mapping[tuple[str, str], date | None],
    counting: Collection[str],
) -> list[str]:
    """Return the units as texts 'date session conversations/all sketch', for the comparison of the agents of a board.

    The conversations of sessions that are not in `counting` are given as 0: they can be copied, but are not reported as copies.
    """
    n_in = Counter(one.session_id for one in said)
    found: list[str] = []
    for unit in units_of(said):
        name = unit.session_id
        n = len(unit.members) if name in counting else 0
        found.append(f"{days.get((agent_id, name)) or '-'} {name} {n}/{n_in[name]} {unit.sketch.text()}")
    return found


class _Spoken(NamedTuple):
    """Hold a unit of an agent's session."""

    date: str | None
    agent_id: str
    session_id: str
    n: int  # conversations of the unit
    n_in_session: int
    sketch: TextSketch


def with_copies_between_agents(composite_scores: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with the status that they have on a board: published only if no session is copied from another agent.

    If at least half of a session's conversations are near-duplicates of another agent's session, the agent with the
    later session becomes `provisional`, and `missing` names the pair and the share. If the dates do not tell which
    session is later, both do.
    """
    if "text_sketches" not in composite_scores.columns:
        return composite_scores
    rows = composite_scores.filter(pl.col("has_entered").fill_null(value=True))
    copied: dict[tuple[str, str], list[str]] = {}
    for (version,), of_version in rows.group_by("methodology_version"):
        names = of_version.select("agent_id", "text_sketches").iter_rows()
        spoken = [_spoken(agent, text) for agent, texts in names for text in texts or ()]
        for agent, text in _copies(spoken):
            copied.setdefault((str(version), agent), []).append(text)
    if not copied:
        return composite_scores
    found: list[dict[str, Any]] = []
    for row in composite_scores.iter_rows(named=True):
        texts = copied.get((row["methodology_version"], row["agent_id"]), [])
        is_ranked = row["status"] == "published" and texts
        found.append(
            row
            | {"status": "provisional" if is_ranked else row["status"], "missing": [*row["missing"], *texts]}
        )
    return pl.DataFrame(found, schema=composite_scores.schema)


def _spoken(agent_id: str, text: str) -> _Spoken:
    date, session_id, counts, sketch = text.split(" ", 3)
    n, n_in = map(int, counts.split("/"))
    return _Spoken(None if date == "-" else date, agent_id, session_id, n, n_in, TextSketch.read(sketch))


def _copies(spoken: Sequence[_Spoken]) -> Iterator[tuple[str, str]]:
    """Yield the agent and a text for each session that is a copy of another agent's, in the order of time."""
    ordered = sorted(spoken, key=lambda s: (s.date is None, s.date or "", s.agent_id, s.session_id))
    named: dict[tuple[str, str], _Spoken] = {}
    copied: dict[_Spoken, dict[_Spoken, list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))
    for match in near_duplicates([one.sketch for one in ordered]):
        later, earlier = ordered[match.number], ordered[match.earlier]
        if later.agent_id != earlier.agent_id and match.share >= CLOSE:
            pair = [named.setdefault((s.agent_id, s.session_id), s) for s in (later, earlier)]
            copied[pair[0]][pair[1]].append((later.n, match.share))
    for later, sources in copied.items():
        matched = [pair for of_source in sources.values() for pair in of_source]
        n = sum(n for n, _ in matched)
        if not n or 2 * n < later.n_in_session:
            continue
        share = sum(n * share for n, share in matched) / n
        how = f"{n} of {later.n_in_session} conversations share {share:.0%} of their text"
        names = " and of ".join(
            f"{s.agent_id}'s session {s.session_id}" for s in sorted(sources, key=lambda s: s[1:3])
        )
        yield later.agent_id, f"copied session: {later.session_id} is a copy of {names}: {how}"
        for earlier in sources if len(sources) == 1 else ():
            if earlier.n and (later.date is None or later.date == earlier.date):
                name = f"{later.agent_id}'s session {later.session_id}"
                yield earlier.agent_id, f"copied session: {earlier.session_id} is a copy of {name}: {how}"
