"""Check required tests, disclosures and the hallucination result.

A failed check can prevent publication. A disclosure is an entry of the session manifests that was checked
against the transcripts. An entry that fails the check is null, with the reason; null is never treated as
false.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

import polars as pl

from agent_eval.methodology.models import SCENARIOS, Methodology
from agent_eval.scores.composite.copies import SlotText, TextOrigin, origins, repeated_within, stored_texts
from agent_eval.scores.composite.ratings import DISPUTED, PAIR, methodology_of, pairs_of
from agent_eval.scores.composite.repeatability import (
    Question,
    SessionEvidence,
    copies,
    lacking_evidence,
    session_order,
)
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.transcripts.admission import INJECTION, linked
from agent_eval.transcripts.content_hash import NOTHING_OWN
from agent_eval.transcripts.text_sketch import TextSketch

NOT_JUDGED = "present, not judged"
SAID_TO_PASS = "passed, but the agent never replied in conversation"


class SessionFacts(NamedTuple):
    """Hold the declared values and the contents of one session that counts."""

    session_id: str
    u3_scope: str | None
    repeatability_tested: bool | None
    longest: int  # most user messages that say something in a conversation: U3 is judged on all of them
    gaps: tuple[str, ...]  # required tests and slots without a conversation in the session
    empty: tuple[
        tuple[str, str], ...
    ] = ()  # required tests with a conversation that is named after them but does not show them


@dataclass(frozen=True)
class Disclosed:
    """Hold the checked disclosures of one pair. Entries in `missing` prevent publication, `warnings` do not."""

    u3_scope: str | None
    repeatability_tested: bool | None
    hallucination_passed: bool | None
    missing: tuple[str, ...]
    warnings: tuple[str, ...]
    texts: tuple[str, ...] = ()  # sketches of what the agent said, to be compared with other agents


def declared(sessions: pl.DataFrame) -> pl.DataFrame:
    """Return one row per session and version that it was run for; sessions for 'any' version have no row."""
    return (
        sessions.explode("methodology_versions")
        .rename({"methodology_versions": "methodology_version"})
        .filter(pl.col("methodology_version") != "any")
    )


def counted(transcripts: pl.DataFrame, sessions: pl.DataFrame) -> pl.DataFrame:
    """Return the transcripts that are rated: admitted, and in a session declared for their version."""
    key = [*PAIR, "session_id"]
    return transcripts.filter("is_admitted").join(declared(sessions).select(key), on=key, how="semi")


def disclosed(
    transcripts: pl.DataFrame,
    sessions: pl.DataFrame,
    conversations: pl.DataFrame,
    conversation_judgments: pl.DataFrame,
    methodologies: Mapping[str, Methodology],
) -> dict[AgentVersion, Disclosed]:
    """Return the required tests and disclosures of every pair in `transcripts`, checked session by session.

    Every session that counts must contain each required test. `hallucination_passed` is true if every
    hallucination conversation was judged and passed, with a reply, false if any failed, and null otherwise. A session that
    copies another one prevents publication under every version.
    """
    counting = counted(transcripts, sessions)
    facts = _session_facts(counting, sessions, conversations, methodologies)
    spoken = _spoken(transcripts, counting, sessions, conversations, methodologies)
    evidence = _session_evidence(spoken, sessions, facts)
    days = {key: day for key, (day, _) in _whens(sessions).items()}
    results = _hallucination_results(counting, conversations, conversation_judgments)
    return {
        pair: _disclosed(
            methodology_of(pair.methodology_version, methodologies),
            facts.get(pair, []),
            evidence.get(pair, []),
            results.get(pair, (None, None)),
            tuple(
                stored_texts(
                    pair.agent_id,
                    spoken.get(pair, ((), {}))[0],
                    days,
                    [f.session_id for f in facts.get(pair, ())],
                )
            ),
        )
        for pair in pairs_of(transcripts)
    }


def u3_scope(sessions: Sequence[SessionFacts]) -> tuple[str | None, str | None]:
    """Return the U3 scope that all sessions declare, or the reason why it is unknown.

    The scope is checked against every conversation of the session, including the standardised task, because
    U3 is judged on all of them.
    """
    claims = {s.session_id: s.u3_scope for s in sessions}
    if problem := _disagreement(claims):
        return None, problem
    for name, scope, _, longest, *_ in sessions:
        if scope == "single_message" and longest > 1:
            return None, (
                f"single_message is claimed, but a conversation of session {name} has {longest} user messages"
            )
        if scope == "multi_turn" and longest < 2:
            return None, (
                f"multi_turn is claimed, but no conversation of session {name} has two user messages"
            )
    return sessions[0].u3_scope, None


def repeatability_tested(
    sessions: Sequence[SessionFacts], evidence: Sequence[SessionEvidence]
) -> tuple[bool | None, str | None]:
    """Return whether all sessions disclose tested repeatability, or null and the reason.

    True is replaced by null if fewer than three sessions are independent.
    """
    claims = {s.session_id: s.repeatability_tested for s in sessions}
    if problem := _disagreement(claims):
        return None, problem
    if not sessions[0].repeatability_tested:
        return False, None
    problem = lacking_evidence(evidence)
    return (None, problem) if problem else (True, None)


def _disclosed(
    methodology: Methodology,
    sessions: Sequence[SessionFacts],
    evidence: Sequence[SessionEvidence],
    hallucination: tuple[bool | None, str | None],
    texts: tuple[str, ...] = (),
) -> Disclosed:
    missing, warnings = _absent_tests(methodology, sessions)
    passed, problem = hallucination
    for test in methodology.required_tests:
        if test.slug == "hallucination" and problem:
            (missing if test.enforcement == "bars_publication" else warnings).append(
                f"hallucination: {problem}"
            )
    nothing = (None, f"no session counts under {methodology.version}")
    scope, scope_problem = u3_scope(sessions) if sessions else nothing
    tested, tested_problem = repeatability_tested(sessions, evidence) if sessions else nothing
    penalised = methodology.penalty_points("repeatability_tested", None) is None
    for name, problem, is_needed, is_claimed in (
        ("u3_scope", scope_problem, False, any(s.u3_scope for s in sessions)),
        ("repeatability_tested", tested_problem, penalised, any(s.repeatability_tested for s in sessions)),
    ):
        if problem and (is_needed or name in methodology.required_disclosures):
            missing.append(f"{name}: {problem}")
        elif problem and is_claimed:
            warnings.append(f"{name}: {problem}")
    missing += copies(evidence)
    return Disclosed(scope, tested, passed, tuple(missing), tuple(warnings), texts)


def _absent_tests(methodology: Methodology, sessions: Sequence[SessionFacts]) -> tuple[list[str], list[str]]:
    missing: list[str] = []
    warnings: list[str] = []
    for test in methodology.required_tests:
        into = missing if test.enforcement == "bars_publication" else warnings
        if not sessions:
            into.append(f"{test.slug}: no session counts under {methodology.version}")
        for session in sessions:
            if test.slug in session.gaps:
                where = f" (session {session.session_id})" if len(sessions) > 1 else ""
                into.append(f"{test.slug}{where}: {_why_absent(test.slug, session)}")
    return missing, warnings


def _why_absent(test: str, session: SessionFacts) -> str:
    """Return why a session lacks a required test: no conversation is declared for it, or those that are do not show it."""
    empty_conversations = sorted(name for slug, name in session.empty if slug == test)
    if not empty_conversations:
        return "no conversation of the session holds this test"
    lacks = "no message and no crash of the agent"
    if test == INJECTION:
        lacks += ", or no injected_error that describes the error"
    return f"conversation {', '.join(empty_conversations)} is declared for it, but has {lacks}"


def _disagreement(claims: Mapping[str, object]) -> str | None:
    """Return why the manifests do not agree on a disclosure; None if they do."""
    silent = [session for session, claim in claims.items() if claim is None]
    if len(silent) == len(claims):
        return "not disclosed"
    if silent:
        return f"not disclosed in session {', '.join(silent)}"
    if len(set(claims.values())) > 1:
        claims_text = ", ".join(f"{session}: {str(claim).lower()}" for session, claim in claims.items())
        return f"the sessions disagree ({claims_text})"
    return None


def _session_facts(
    counting: pl.DataFrame,
    sessions: pl.DataFrame,
    conversations: pl.DataFrame,
    methodologies: Mapping[str, Methodology],
) -> dict[AgentVersion, list[SessionFacts]]:
    """Return the sessions of each pair, sorted by id. Gaps list required tests first, then slots."""
    claims = declared(sessions).select(*PAIR, "session_id", "u3_scope", "repeatability_tested")
    links = linked(sessions).rename({"scenario": "slot"})
    is_test = pl.col("slot").is_in(SCENARIOS).not_()
    requests = conversations.select("agent_id", "conversation_id", "n_requests")
    counting = (
        counting.join(links, on=["agent_id", "session_id", "slot"], how="left")
        .join(requests, on=["agent_id", "conversation_id"], how="left")
        .with_columns(
            pl.coalesce("n_requests", "n_user_messages"),
            named=pl.when(is_test).then("slot").otherwise("linked"),
        )
    )
    facts: dict[AgentVersion, list[SessionFacts]] = defaultdict(list)
    for version, methodology in methodologies.items():
        of_version = pl.col("methodology_version") == version
        needed = _needed(methodology)
        session_coverage = (
            counting.filter(of_version)
            .group_by("agent_id", "session_id")
            .agg(
                pl.col("n_requests").max().fill_null(0).alias("longest"),
                pl.struct("named", "conversation_id").filter(_is_named_only()).alias("empty"),
                *(_serves(part).any().alias(f"serves {part}") for part in needed),
            )
        )
        lacked = pl.concat_list(
            pl.when(~pl.col(f"serves {part}")).then(pl.lit(part)) for part in needed
        ).list.drop_nulls()
        declared_here = (
            claims.filter(of_version)
            .join(session_coverage, on=["agent_id", "session_id"])
            .sort("agent_id", "session_id")
            .select("agent_id", *SessionFacts._fields[:-2], lacked.alias("gaps"), "empty")
        )
        for agent, session, scope, tested, longest, gaps, empty in declared_here.iter_rows():
            empty_tests = tuple((of_slot["named"], of_slot["conversation_id"]) for of_slot in empty)
            facts[AgentVersion.of(agent_id=agent, methodology_version=version)].append(
                SessionFacts(session, scope, tested, longest, tuple(gaps), empty_tests)
            )
    return facts


def _is_named_only() -> pl.Expr:
    """Return whether a conversation is declared for a required test (`named`) that it does not show."""
    return pl.col("named").is_not_null() & ~pl.col("tests").list.contains(pl.col("named"))


def _needed(methodology: Methodology) -> list[str]:
    """Return the parts that every session must contain: the required tests, then the slots."""
    return [*(test.slug for test in methodology.required_tests), *SCENARIOS]


Asked = dict[str, dict[str, set[Question]]]
"""The questions by session and part."""


def _spoken(
    transcripts: pl.DataFrame,
    counting: pl.DataFrame,
    sessions: pl.DataFrame,
    conversations: pl.DataFrame,
    methodologies: Mapping[str, Methodology],
) -> dict[AgentVersion, tuple[list[SlotText], Asked]]:
    """Return what the agent said in the conversations that fill slots and tests, and the questions of the sessions that count.

    Texts of sessions that do not count are first, because a copy of them is one whatever its date; they are invalid,
    superseded, or run for other versions or for any. Then they are in the order of sessions.
    """
    is_silent = pl.col("n_agent_messages") == 0
    words_hash = (
        pl.when(~is_silent.fill_null(False)).then(pl.coalesce("messages_hash", "content_hash")).alias("said")
    )
    key = [*PAIR, "conversation_id"]
    rows = (
        transcripts.join(counting.select(*key, counts=pl.lit(value=True)), on=key, how="left")
        .join(
            conversations.select(
                "agent_id",
                "conversation_id",
                "scenario",
                "opening_hash",
                "own_words_hash",
                "text_sketch",
                words_hash,
            ),
            on=["agent_id", "conversation_id"],
            how="left",
        )
        .filter(pl.col("counts") | pl.col("scenario").is_not_null())
        .join(linked(sessions), on=["agent_id", "session_id", "scenario"], how="left")
        .select(
            *PAIR,
            "session_id",
            "counts",
            "slot",
            "scenario",
            "linked",
            "tests",
            "task_id",
            "opening_hash",
            "said",
            "own_words_hash",
            "text_sketch",
        )
    )
    whens = _whens(sessions)
    texts_of_pair: dict[AgentVersion, tuple[list[SlotText], Asked]] = {}
    for (
        version,
        agent,
        session,
        counts,
        slot,
        *scenario_and_link,
        tests,
        task,
        opening,
        said_hash,
        own_words,
        sketch,
    ) in rows.iter_rows():
        texts, questions_of_session = texts_of_pair.setdefault(
            AgentVersion.of(agent_id=agent, methodology_version=version), ([], {})
        )
        needed = _needed(methodologies[version])
        parts = tuple(part for part in needed if part in (({slot, *tests}) if counts else scenario_and_link))
        if counts:
            of_session = questions_of_session.setdefault(session, {part: set() for part in needed})
            for part in parts:
                of_session[part].add((task, opening))
        if parts:
            sketched = None if sketch is None or said_hash in (None, NOTHING_OWN) else TextSketch.read(sketch)
            texts.append(SlotText(session, parts, said_hash, opening, sketched, bool(counts), own_words))
    for pair, (texts, _) in texts_of_pair.items():
        agent = pair.agent_id
        texts.sort(
            key=lambda one: (
                one.counts,
                session_order(*whens.get((agent, one.session_id), (None, None)), one.session_id),
                str(one[:3]),
            )
        )
    return texts_of_pair


def _whens(sessions: pl.DataFrame) -> dict[tuple[str, str], tuple[date | None, str | None]]:
    rows = sessions.select("agent_id", "session_id", "session_date", "session_run").iter_rows()
    return {(agent, session): (day, run) for agent, session, day, run in rows}


def _session_evidence(
    spoken: Mapping[AgentVersion, tuple[Sequence[SlotText], Asked]],
    sessions: pl.DataFrame,
    facts: Mapping[AgentVersion, Sequence[SessionFacts]],
) -> dict[AgentVersion, list[SessionEvidence]]:
    """Return the questions and answers in each pair's sessions, in session order.

    A pair is left out if none of its sessions claims tested repeatability and nothing was said twice.
    """
    whens = _whens(sessions)
    evidence_of_pair: dict[AgentVersion, list[SessionEvidence]] = {}
    for pair, of_pair in facts.items():
        slot_texts, questions_asked = spoken.get(pair, ((), {}))
        of_texts = origins(slot_texts)
        repeated: dict[str, list[str]] = defaultdict(list)
        for session, text in repeated_within(slot_texts, of_texts):
            repeated[session].append(text)
        content: dict[str, list[TextOrigin]] = defaultdict(list)
        long: dict[str, set[tuple[str | None, ...]]] = defaultdict(set)
        for one, origin in zip(slot_texts, of_texts, strict=True):
            content[one.session_id].append(origin)
            if one.is_long:
                long[one.session_id].add(origin.key)
        counts = Counter(o for of in content.values() for o in {o.key for o in of if None not in o.key})
        if not (
            any(f.repeatability_tested for f in of_pair) or repeated or max(counts.values(), default=0) > 1
        ):
            continue
        gaps = {fact.session_id: fact.gaps for fact in of_pair}
        evidence_of_pair[pair] = [
            SessionEvidence(
                name,
                *whens.get((pair.agent_id, name), (None, None)),
                gaps.get(name, ()),
                {part: frozenset(questions) for part, questions in questions_asked.get(name, {}).items()},
                tuple(sorted((o.key for o in content[name]), key=str)),
                {o.key: o.share for o in content[name] if not o.is_exact},
                tuple(repeated[name]),
                frozenset(long[name]),
                counts=name in gaps,
            )
            for name in (*gaps, *sorted({*content} - {*gaps}))
        ]
    return evidence_of_pair


def _serves(part: str) -> pl.Expr:
    """Return whether a conversation contains the test or fills the slot; a test's name as slot is not the test."""
    if part in SCENARIOS:
        return (pl.col("slot") == part).fill_null(False)
    return pl.col("tests").list.contains(part).fill_null(False)


def is_present(text: str) -> bool:
    """Return whether an entry of `missing` names a required test that was run but has no result."""
    return text.endswith(NOT_JUDGED) or f": {DISPUTED} (" in text or SAID_TO_PASS in text


def _hallucination_results(
    counting: pl.DataFrame, conversations: pl.DataFrame, conversation_judgments: pl.DataFrame
) -> dict[AgentVersion, tuple[bool | None, str | None]]:
    passed = conversation_judgments.filter("is_effective", pl.col("metric") == "hallucination_passed")
    value = pl.when(pl.col("status") == "scored").then("value").alias("value")
    differ = pl.when(pl.col("status") == DISPUTED).then("unscored_reason").alias("differ")
    key = [*PAIR, "conversation_id"]
    silent = conversations.filter(pl.col("n_replies") == 0).select("agent_id", "conversation_id", silent=True)
    is_contradicted = (pl.col("value") == 1) & pl.col("silent").fill_null(value=False)
    per_pair = (
        counting.filter(pl.col("tests").list.contains("hallucination"))
        .join(passed.select(*key, value, differ), on=key, how="left")
        .join(silent, on=["agent_id", "conversation_id"], how="left")
        .group_by(PAIR)
        .agg(
            n_unjudged=pl.col("value").is_null().sum(),
            n_failed=(pl.col("value") < 1).sum(),
            differ=pl.col("differ").drop_nulls().sort(),
            silent=pl.col("conversation_id").filter(is_contradicted).sort(),
        )
    )
    results: dict[AgentVersion, tuple[bool | None, str | None]] = {}
    for version, agent, n_unjudged, n_failed, differ, silent_ids in per_pair.iter_rows():
        result = False if n_failed else None if n_unjudged or silent_ids else True
        why = f"{DISPUTED} ({'; '.join(differ)})" if differ else NOT_JUDGED if n_unjudged else None
        if silent_ids:
            why = f"{SAID_TO_PASS} {', '.join(silent_ids)}"
        pair = AgentVersion.of(agent_id=agent, methodology_version=version)
        results[pair] = (result, why)
    return results
