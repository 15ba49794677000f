"""Small frames and methodologies for tests of the scores: one line per fact that matters, the rest filled in."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from agent_eval.methodology.models import DIMENSIONS, SCENARIOS, Methodology
from agent_eval.scores.composite.domain import domain_scores
from agent_eval.scores.composite.score import CompositeTables, composite_scores
from agent_eval.scores.composite.universal import universal_scores
from agent_eval.tables import table
from tests.untyped import any_table

SLUG = "customer_service_v1"
CRITERIA = ("accuracy", "completeness", "usefulness")
TESTS = ("standardised_task", "hallucination", "error_injection")
ANCHORS = {str(n): f"words for {n}" for n in range(5, 0, -1)}


def methodology(version: str = "1.3.0", **changes: Any) -> Methodology:
    """As published for that version where scores are concerned, with placeholder words."""
    is_strict, is_penalising = version != "1.0.0", version == "1.3.0"
    content: dict[str, Any] = {
        "version": version,
        "published": "2026-04-09",
        "status": "current",
        "title": "A methodology",
        "source": "a test",
        "weights": {"universal": "0.40", "domain": "0.60"},
        "dimensions": [
            {
                "id": d,
                "name": f"Name of {d}",
                "question": f"Question of {d}?",
                "anchors": ANCHORS,
                "anchors_origin": "ours",
            }
            | ({"needs_test": "error_injection"} if d == "U4" and is_strict else {})
            for d in DIMENSIONS
        ],
        "templates": [
            {
                "slug": SLUG,
                "category": "customer_service",
                "name": "Customer service",
                "origin": "published",
                "content_origin": "ours",
                "criteria": [{"id": c, "name": c, "anchors": ANCHORS} for c in CRITERIA],
                "scenarios": [
                    {"id": d, "name": f"Name of {d}", "description": f"What {d} is"} for d in SCENARIOS
                ],
            }
        ],
        "required_tests": [
            {
                "slug": slug,
                "name": slug,
                "asked": "a",
                "wanted": "b",
                "failure": "c",
                "enforcement": "bars_publication" if is_strict else "warn",
                "enforcement_origin": "ours",
            }
            for slug in TESTS
        ],
        "required_disclosures": ["u3_scope", "repeatability_tested"] if is_strict else [],
        "penalties": [{"disclosure": "repeatability_tested", "when": False, "points": 10}]
        if is_penalising
        else [],
    }
    return Methodology.model_validate(content | changes)


METHODOLOGIES = {v: methodology(v) for v in ("1.0.0", "1.1.0", "1.2.0", "1.3.0")}


def rating(target: str, value: int | None, **changes: Any) -> dict[str, Any]:
    """A row of rubric_ratings: scored, or missing without a value."""
    scored = value is not None
    return {
        "methodology_version": "1.3.0",
        "agent_id": "lumen",
        "session_id": "a",
        "target": target,
        "rating_1to5": value,
        "status": "scored" if scored else "missing",
        "reason": None if scored else "not rated",
        "judge": "recorded" if scored else "none",
        "is_effective": True,
    } | changes


def ratings(
    universal: Sequence[int | None] = (4,) * 6,
    domain: Sequence[Sequence[int | None]] = ((4, 4, 4),) * 5,
    **changes: Any,
) -> list[dict[str, Any]]:
    """All parts of one session; each scenario has one conversation, named after session and slot."""
    rows = [rating(d, value, **changes) for d, value in zip(DIMENSIONS, universal, strict=True)]
    for scenario, values in zip(SCENARIOS, domain, strict=True):
        rows += [
            rating(scenario, value, criterion=criterion, **changes)
            | {"conversation_id": f"{changes.get('session_id', 'a')}-{scenario}"}
            for criterion, value in zip(CRITERIA, values, strict=True)
        ]
    return rows


def unrated(**changes: Any) -> list[dict[str, Any]]:
    """The rows of an agent that has no session declared for the version."""
    none = {"session_id": None, "reason": "no session is declared for this version"} | changes
    return [rating(d, None, **none) for d in DIMENSIONS] + [
        rating(d, None, criterion=c, **none) for d in SCENARIOS for c in CRITERIA
    ]


def transcripts(
    slots: Iterable[str | None] = (*SCENARIOS, *TESTS), *, session: str = "a", **changes: Any
) -> list[dict[str, Any]]:
    """One admitted conversation per slot; those of D3 have two user messages."""
    return [
        {
            "methodology_version": "1.3.0",
            "agent_id": "lumen",
            "conversation_id": f"{session}-{slot}",
            "session_id": session,
            "benchmark_id": "run",
            "template": SLUG,
            "slot": slot,
            "tests": [slot] if slot in TESTS else [],
            "n_turns": 1,
            "n_user_messages": 2 if slot == "D3" else 1,
            "is_admitted": True,
        }
        | changes
        for slot in slots
    ]


def session(session_id: str = "a", **changes: Any) -> dict[str, Any]:
    """A session declared for all four versions, with both disclosures; repeatability was not tested."""
    return {
        "agent_id": "lumen",
        "session_id": session_id,
        "benchmark_id": "run",
        "methodology_versions": list(METHODOLOGIES),
        "u3_scope": "multi_turn",
        "repeatability_tested": False,
    } | changes


def spoken(name: str, *, words: str | None = None, asks: str = "") -> list[dict[str, Any]]:
    """The conversations of a session; `words` of another one make it a copy, `asks` makes its questions others."""
    return [
        {
            "agent_id": "lumen",
            "conversation_id": f"{name}-{slot}",
            "session_id": name,
            "messages_hash": f"{slot} in the words of {words or name}",
            "opening_hash": f"{slot}{asks}",
        }
        for slot in (*SCENARIOS, *TESTS)
    ]


def judgment(conversation_id: str, metric: str, value: float | None, **changes: Any) -> dict[str, Any]:
    """A row of conversation_judgments or turn_judgments (with turn_index)."""
    return {
        "methodology_version": "1.3.0",
        "agent_id": "lumen",
        "conversation_id": conversation_id,
        "metric": metric,
        "judge": "recorded",
        "value": value,
        "status": "unscored" if value is None else "scored",
        "unscored_reason": "parse_failure" if value is None else None,
        "is_effective": True,
    } | changes


def hallucination(value: float | None = 1.0, session: str = "a", **changes: Any) -> dict[str, Any]:
    """The judgment of a session's hallucination test."""
    return judgment(f"{session}-hallucination", "hallucination_passed", value, **changes)


def composed(
    *,
    rated: Iterable[Mapping[str, Any]] | None = None,
    held: Iterable[Mapping[str, Any]] | None = None,
    declared: Iterable[Mapping[str, Any]] | None = None,
    judged: Iterable[Mapping[str, Any]] | None = None,
    conversations: Iterable[Mapping[str, Any]] = (),
    methodologies: Mapping[str, Methodology] = METHODOLOGIES,
) -> pl.DataFrame:
    """composite_scores from rows, through universal and domain scores; by default one complete session."""
    made = frames(rated=rated, held=held, declared=declared, judged=judged, conversations=conversations)
    return compose(made, methodologies)


def frames(
    *,
    rated: Iterable[Mapping[str, Any]] | None = None,
    held: Iterable[Mapping[str, Any]] | None = None,
    declared: Iterable[Mapping[str, Any]] | None = None,
    judged: Iterable[Mapping[str, Any]] | None = None,
    conversations: Iterable[Mapping[str, Any]] = (),
) -> dict[str, pl.DataFrame]:
    """The input tables, by default of one complete session."""
    rows = {
        "rubric_ratings": ratings() if rated is None else rated,
        "transcripts": transcripts() if held is None else held,
        "sessions": [session()] if declared is None else declared,
        "conversation_judgments": [hallucination()] if judged is None else judged,
        "conversations": conversations,
    }
    return {name: table(name).frame(dict(row) for row in of_table) for name, of_table in rows.items()}


def compose(
    made: Mapping[str, pl.DataFrame],
    methodologies: Mapping[str, Methodology] = METHODOLOGIES,
    disputes: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """composite_scores from input tables."""
    tables = CompositeTables(
        universal_scores=universal_scores(any_table(made["rubric_ratings"]), methodologies),
        domain_scores=domain_scores(
            any_table(made["rubric_ratings"]), any_table(made["transcripts"]), methodologies
        ),
        **{
            name: any_table(made[name])
            for name in ("transcripts", "sessions", "conversations", "conversation_judgments")
        },
        disputes=disputes,
    )
    return composite_scores(tables, methodologies)


def versioned(rows: Iterable[Mapping[str, Any]], version: str) -> list[dict[str, Any]]:
    """The rows under another methodology version."""
    return [dict(row) | {"methodology_version": version} for row in rows]


def one(frame: pl.DataFrame) -> dict[str, Any]:
    """The only row."""
    assert frame.height == 1
    return frame.row(0, named=True)
