"""Small frames and methodologies for tests of the scores: one line per fact that matters, the rest filled in."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from agent_eval.methodology.models import DIMENSIONS, SCENARIOS, Methodology
from agent_eval.scores.composite.domain import domain_scores
from agent_eval.scores.composite.score import CompositeTables, composite_scores
from agent_eval.scores.composite.universal import universal_scores
from agent_eval.tables import table

SLUG = "customer_service_v1"
CRITERIA = ("accuracy", "completeness", "usefulness")
TESTS = ("standardised_task", "hallucination", "error_injection")
ANCHORS = {str(n): f"words for {n}" for n in range(5, 0, -1)}


def methodology(version: str = "1.3.0", **changes: Any) -> Methodology:
    """As published for that version where scores are concerned, with placeholder words."""
    is_strict, is_penalising = version != "1.0.0", version == "1.3.0"
    needed = {"U4": {"needs_test": "error_injection"}} if is_strict else {}
    anchors = {"anchors": ANCHORS}
    enforced = {"enforcement": "bars_publication" if is_strict else "warn", "enforcement_origin": "ours"}
    penalty = {"disclosure": "repeatability_tested", "when": False, "points": 10}
    template = {"slug": SLUG, "category": "customer_service", "name": "Customer service"}
    content: dict[str, Any] = {
        "version": version,
        "published": "2026-04-09",
        "status": "current",
        "title": "A methodology",
        "source": "a test",
        "weights": {"universal": "0.40", "domain": "0.60"},
        "dimensions": [
            {"id": d, "name": f"Name of {d}", "question": f"Question of {d}?", "anchors_origin": "ours"}
            | anchors
            | needed.get(d, {})
            for d in DIMENSIONS
        ],
        "templates": [
            template
            | {"origin": "published", "content_origin": "ours"}
            | {"criteria": [{"id": c, "name": c} | anchors for c in CRITERIA]}
            | {"scenarios": [{"id": d, "name": f"Name of {d}", "description": d} for d in SCENARIOS]}
        ],
        "required_tests": [
            {"slug": slug, "name": slug, "asked": "a", "wanted": "b", "failure": "c"} | enforced
            for slug in TESTS
        ],
        "required_disclosures": ["u3_scope", "repeatability_tested"] if is_strict else [],
        "penalties": [penalty] if is_penalising else [],
    }
    return Methodology.model_validate(content | changes)


METHODOLOGIES = {v: methodology(v) for v in ("1.0.0", "1.1.0", "1.2.0", "1.3.0")}
PAIR: dict[str, Any] = {"methodology_version": "1.3.0", "agent_id": "lumen"}


def rating(target: str, value: int | None, **changes: Any) -> dict[str, Any]:
    """A row of rubric_ratings: scored, or missing without a value."""
    scored = {"status": "scored", "reason": None, "judge": "recorded"}
    missing = {"status": "missing", "reason": "not rated", "judge": "none"}
    row = {"session_id": "a", "target": target, "rating_1to5": value, "is_effective": True}
    return PAIR | row | (missing if value is None else scored) | changes


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
    fixed = {
        "session_id": session,
        "benchmark_id": "run",
        "template": SLUG,
        "n_turns": 1,
        "is_admitted": True,
    }
    return [
        PAIR
        | fixed
        | {"conversation_id": f"{session}-{slot}", "slot": slot, "n_user_messages": 2 if slot == "D3" else 1}
        | {"tests": [slot] if slot in TESTS else []}
        | changes
        for slot in slots
    ]


def session(session_id: str = "a", **changes: Any) -> dict[str, Any]:
    """A session declared for all four versions, with both disclosures; repeatability was not tested."""
    row = {"agent_id": "lumen", "session_id": session_id, "benchmark_id": "run"}
    disclosed = {"u3_scope": "multi_turn", "repeatability_tested": False}
    return row | disclosed | {"methodology_versions": list(METHODOLOGIES)} | changes


def spoken(name: str, *, words: str | None = None, asks: str = "") -> list[dict[str, Any]]:
    """The conversations of a session; `words` of another one make it a copy, `asks` makes its questions others."""
    return [
        {"agent_id": "lumen", "conversation_id": f"{name}-{slot}", "session_id": name}
        | {"messages_hash": f"{slot} in the words of {words or name}", "opening_hash": f"{slot}{asks}"}
        for slot in (*SCENARIOS, *TESTS)
    ]


def judgment(conversation_id: str, metric: str, value: float | None, **changes: Any) -> dict[str, Any]:
    """A row of conversation_judgments or turn_judgments (with turn_index)."""
    scored = {"status": "scored", "unscored_reason": None}
    lost = {"status": "unscored", "unscored_reason": "parse_failure"}
    row = {"conversation_id": conversation_id, "metric": metric, "judge": "recorded", "value": value}
    return PAIR | row | {"is_effective": True} | (lost if value is None else scored) | changes


def hallucination(value: float | None = 1.0, session: str = "a", **changes: Any) -> dict[str, Any]:
    """The judgment of a session's hallucination test."""
    return judgment(f"{session}-hallucination", "hallucination_passed", value, **changes)


Rows = Iterable[Mapping[str, Any]] | None


def composed(methodologies: Mapping[str, Methodology] = METHODOLOGIES, **rows: Rows) -> pl.DataFrame:
    """composite_scores from rows, through universal and domain scores; by default one complete session."""
    return compose(frames(**rows), methodologies)


def frames(
    *,
    rated: Rows = None,
    held: Rows = None,
    declared: Rows = None,
    judged: Rows = None,
    conversations: Rows = (),
) -> dict[str, pl.DataFrame]:
    """The input tables, by default of one complete session."""
    rows = {
        "rubric_ratings": ratings() if rated is None else rated,
        "transcripts": transcripts() if held is None else held,
        "sessions": [session()] if declared is None else declared,
        "conversation_judgments": [hallucination()] if judged is None else judged,
        "conversations": conversations or (),
    }
    return {name: table(name).frame(dict(row) for row in of_table) for name, of_table in rows.items()}


def compose(
    made: Mapping[str, Any],
    methodologies: Mapping[str, Methodology] = METHODOLOGIES,
    disputes: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """composite_scores from input tables."""
    names = ("transcripts", "sessions", "conversations", "conversation_judgments")
    tables = CompositeTables(
        universal_scores=universal_scores(made["rubric_ratings"], methodologies),
        domain_scores=domain_scores(made["rubric_ratings"], made["transcripts"], methodologies),
        **{name: made[name] for name in names},
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
