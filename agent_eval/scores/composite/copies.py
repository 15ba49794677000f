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

from agent_eval.transcripts.content_hash import NOTHING_OWN
from agent_eval.transcripts.text_sketch import ENOUGH_WORDS, TextSketch, containment

NEAR = 0.8  # least share of the shorter text's shingles that near-duplicates share
CLOSE = 0.9  # least share between agents, and between answers to different questions, which may be alike by themselves
ALIKE, WHOLE = 0.75, 0.8
"""Least share of each text, and least part of a session, that a copy of a whole session between agents has.

The mean share is at least `NEAR`: one word in 20 replaced leaves 0.85, and so do reordered sentences. Different agents
that do the same household tasks of MINT share 0.75 of the text in single conversations, never in a session of tasks of all
kinds. Lower limits would flag honest agents with short replies of the same facts: 0.65 in a suite of look-ups."""
_INDEXED, _INDEXED_GAPPED, _INDEXED_PATTERNS = 64, 24, 12
"""Smallest hashes of a text that candidates are found by; with 16 shingles, a short text in a long one is missed."""
_LEAST_SHARED = 2  # of these hashes
_MOST_CANDIDATES = 8


class SlotText(NamedTuple):
    """Hold what the agent said in one conversation that fills a slot or a required test."""

    session_id: str
    parts: tuple[str, ...]  # the required tests and slots
    exact: str | None  # hash of the messages; None if the agent said nothing
    opening: str | None  # hash of the first user message
    sketch: TextSketch | None = None
    counts: bool = True  # whether its session counts under the version
    own_words: str | None = (
        None  # hash of what is left without the user's messages; None if nothing was repeated
    )

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


def units_of(texts: Sequence[SlotText]) -> list[Unit]:
    """Return the units of sessions, whose conversations are consecutive in `texts`."""
    units: list[Unit] = []
    for session_id, group in groupby(enumerate(texts), key=lambda item: item[1].session_id):
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


def near_duplicates(
    sketches: Sequence[TextSketch], least: float = NEAR, agents: Sequence[str] | None = None
) -> list[Match]:
    """Return a match for each text that is a near-duplicate of an earlier one, or else shares at least `least` with one.

    Texts of two `agents` that consist of what both were given do not match.

    The time is linear in the number of texts: candidates are the first texts with the same smallest hashes.
    """
    first: dict[int, int] = {}
    matches: list[Match] = []
    for number, sketch in enumerate(sketches):
        lowest = (
            *sketch.hashes[:_INDEXED],
            *sketch.gapped[:_INDEXED_GAPPED],
            *sketch.patterns[:_INDEXED_PATTERNS],
        )
        shared = [first[h] for h in lowest if h in first]
        if not shared:
            first.update(dict.fromkeys(lowest, number))
            continue
        best: Match | None = None
        for earlier, n_shared in Counter(shared).most_common(_MOST_CANDIDATES):
            if n_shared < _LEAST_SHARED:
                continue
            of_two = agents is not None and agents[number] != agents[earlier]
            share = containment(sketch, sketches[earlier], of_two_agents=of_two)
            if share >= max(least, best.share if best else 0.0):
                best = Match(number, earlier, share)
            if share >= NEAR:
                break
        matches += [best] if best else []
        for h in lowest:
            first.setdefault(h, number)
    return matches


class TextOrigin(NamedTuple):
    """Identify the first occurrence of what was said."""

    key: tuple[str | None, ...]  # equal for all occurrences
    share: float = 1.0  # of the text that this occurrence shares with it
    is_exact: bool = True


def origins(texts: Sequence[SlotText]) -> list[TextOrigin]:
    """Return the origin of each entry; near-duplicates have the same key, and so have equal messages of the same parts."""
    sources = [TextOrigin((*one.parts, one.exact)) for one in texts]
    units = units_of(texts)
    for match in near_duplicates([unit.sketch for unit in units]):
        mine, theirs = units[match.number].members, units[match.earlier].members
        of_parts = {texts[j].parts: j for j in theirs}
        for i in mine:
            j = theirs[0] if len(mine) == len(theirs) == 1 else of_parts.get(texts[i].parts)
            if j is not None and texts[i].exact is not None:
                is_exact = texts[i].exact == texts[j].exact and texts[i].parts == texts[j].parts
                sources[i] = TextOrigin(
                    sources[j].key, min(match.share, sources[j].share), is_exact and sources[j].is_exact
                )
    return sources


REPEATED = "repeated reply: "


def repeated_within(texts: Sequence[SlotText], sources: Sequence[TextOrigin]) -> Iterator[tuple[str, str]]:
    """Yield a session and a text for each conversation that is in a session more than once, in one slot or several.

    The agent's text and the question are the same in two conversations, or its text is in at least half of the session's.
    Trials of a slot that all say the same are not named.
    If that text is too short to be compared as a copy, the entry begins with `REPEATED`; the user's messages
    do not count in it.
    """
    for session_id, group in groupby(zip(texts, sources, strict=True), key=lambda item: item[0].session_id):
        of_session = [item for item in group if item[0].exact is not None]
        half = max(len(of_session), 3) / 2
        n_own = Counter(one.own_words or one.exact for one, _ in of_session)
        by_text: dict[object, list[tuple[SlotText, TextOrigin]]] = defaultdict(list)
        for one, origin in of_session:
            own = one.own_words or one.exact
            if n_own[own] >= half and (one.own_words or not one.is_long):
                by_text[own].append((one, origin))
            else:
                by_text[origin.key if one.is_long else (one.exact, one.opening)].append((one, origin))
        sizes: dict[tuple[str, ...], set[int]] = defaultdict(set)
        for alike in by_text.values():
            for parts, n_alike in Counter(one.parts for one, _ in alike).items():
                sizes[parts].add(n_alike)
        for alike in by_text.values():
            first = alike[0][0]
            others = [i for i in alike[1:] if i[0].parts != first.parts and i[1].share >= CLOSE]
            is_half = len(others) + 1 >= half
            copied = (
                others
                if is_half
                else [
                    i
                    for i in alike[1:]
                    if i[0].opening == first.opening and (first.is_long or i[0].exact == first.exact)
                ]
            )
            if {one.parts for one, _ in copied} == {first.parts} and len(sizes[first.parts]) == 1:
                continue  # trials: each conversation of the slot was held equally often, so that no mean changes
            if not copied:
                continue
            names = ", ".join("/".join(one.parts) for one, _ in copied)
            n = f"{len(copied) + 1} of {len(of_session)} conversations"
            says_nothing = NOTHING_OWN in (first.own_words, first.exact)
            is_other = any(one.opening != first.opening for one, _ in copied)
            if is_half and (first.own_words or not first.is_long) and is_other:
                same = f"have the reply of {'/'.join(first.parts)}: {n}"
                if says_nothing:
                    same = f"and {'/'.join(first.parts)} have replies of at most one word of their own: {n}"
                elif any(one.exact != first.exact for one, _ in copied):
                    same = f"have the reply of {'/'.join(first.parts)} but for the user's messages: {n}"
                yield session_id, f"{REPEATED}{names} of session {session_id} {same}"
                continue
            share = min(origin.share for _, origin in copied)
            yield (
                session_id,
                f"copied conversation: {names} of session {session_id} repeat {'/'.join(first.parts)}: {n} share "
                f"{share:.0%} of their text; a slot that also serves as a test is linked, not copied",
            )


def stored_texts(
    agent_id: str,
    texts: Sequence[SlotText],
    days: Mapping[tuple[str, str], date | None],
    counting: Collection[str],
) -> list[str]:
    """Return the units as texts 'date session conversations/all sketch', for the comparison of the agents of a board.

    The number of conversations is negative for sessions that are not in `counting`.
    """
    n_in = Counter(one.session_id for one in texts)
    unit_texts: list[str] = []
    for unit in units_of(texts):
        name = unit.session_id
        n = len(unit.members) if name in counting else -len(unit.members)
        unit_texts.append(f"{days.get((agent_id, name)) or '-'} {name} {n}/{n_in[name]} {unit.sketch.text()}")
    return unit_texts


class _Spoken(NamedTuple):
    """Hold a unit of an agent's session."""

    agent_id: str
    session_id: str
    n: int  # conversations of the unit
    n_in_session: int
    counts: bool  # whether the session counts under the version
    sketch: TextSketch


_Session = tuple[str, str]
"""Agent and session."""


def with_copies_between_agents(composite_scores: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with the status that they have on a board: published only if no session is shared with another agent.

    If at least half of a session's conversations are near-duplicates of conversations of other agents, or a session is
    alike as a whole (see `WHOLE`), the session and those of the others with which it shares at least a quarter of theirs are
    named in `missing`, with the share, and all these agents become `provisional`. Which of them copied is not decided: the
    dates and ids are written by those who submit the sessions.
    """
    if "text_sketches" not in composite_scores.columns:
        return composite_scores
    copied: dict[tuple[str, str], list[str]] = {}
    for (version,), of_version in composite_scores.group_by("methodology_version"):
        names = of_version.select("agent_id", "text_sketches").iter_rows()
        spoken = [_spoken(agent, text) for agent, texts in names for text in texts or ()]
        for agent, text in _copies(spoken):
            copied.setdefault((str(version), agent), []).append(text)
    if not copied:
        return composite_scores
    board_rows: list[dict[str, Any]] = []
    for row in composite_scores.iter_rows(named=True):
        texts = copied.get((row["methodology_version"], row["agent_id"]), [])
        is_ranked = row["status"] == "published" and texts
        board_rows.append(
            row
            | {"status": "provisional" if is_ranked else row["status"], "missing": [*row["missing"], *texts]}
        )
    return pl.DataFrame(board_rows, schema=composite_scores.schema)


def _spoken(agent_id: str, text: str) -> _Spoken:
    _, session_id, counts, sketch = text.split(" ", 3)
    n, n_in = map(int, counts.split("/"))
    return _Spoken(agent_id, session_id, abs(n), n_in, n > 0, TextSketch.read(sketch))


def _copies(spoken: Sequence[_Spoken]) -> Iterator[tuple[str, str]]:
    """Yield the agent and a text for each session that shares its text with other agents; one of each two counts."""
    ordered = sorted(spoken, key=lambda s: (s.agent_id, s.session_id, s.sketch.hashes))
    sizes = {(s.agent_id, s.session_id): s.n_in_session for s in ordered}
    alike: dict[_Session, dict[_Session, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for match in near_duplicates([one.sketch for one in ordered], ALIKE, [one.agent_id for one in ordered]):
        one, other = ordered[match.number], ordered[match.earlier]
        if one.agent_id != other.agent_id and (one.counts or other.counts):
            ends = (one.agent_id, one.session_id), (other.agent_id, other.session_id)
            alike[ends[0]][ends[1]][match.number] = match.share
            alike[ends[1]][ends[0]][match.earlier] = match.share

    def size(units: Mapping[int, float]) -> int:
        return sum(ordered[k].n for k in units)

    def mean(units: Mapping[int, float]) -> float:
        return sum(ordered[k].n * share for k, share in units.items()) / max(size(units), 1)

    shared: dict[_Session, dict[_Session, dict[int, float]]] = {
        session: {p: {k: v for k, v in units.items() if v >= CLOSE} for p, units in partners.items()}
        for session, partners in alike.items()
    }
    union = {session: {k: v for one in of.values() for k, v in one.items()} for session, of in shared.items()}
    is_half = {session for session, units in union.items() if units and 2 * size(units) >= sizes[session]}
    is_whole = {
        (session, partner)
        for session, partners in alike.items()
        for partner, units in partners.items()
        if size(units) >= WHOLE * sizes[session] and mean(units) >= NEAR
    }
    for session, partners in sorted(shared.items()):
        whole = {p for p in partners if not is_whole.isdisjoint({(session, p), (p, session)})}
        neighbours = sorted(
            p
            for p, units in partners.items()
            if p in whole
            or (units and session in is_half)
            or (p in is_half and 4 * size(units) >= sizes[session])
        )
        if neighbours:
            with_named = {
                k: v for p in neighbours for k, v in (alike[session] if p in whole else partners)[p].items()
            }
            names = ", ".join(f"{agent}'s session {name}" for agent, name in neighbours)
            yield (
                session[0],
                f"copied session: {session[1]} and {names} have the same text: {size(with_named)} of {sizes[session]} "
                f"conversations share {mean(with_named):.0%} of it",
            )
