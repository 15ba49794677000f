"""Score session folders without Dagster: what an evaluator writes, and the row that the board gets."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from agent_eval.judge.rubric import rubric_ratings
from agent_eval.methodology import load
from agent_eval.methodology.models import DIMENSIONS, SCENARIOS
from agent_eval.scores.composite.domain import domain_scores
from agent_eval.scores.composite.score import CompositeTables, composite_scores
from agent_eval.scores.composite.universal import universal_scores
from agent_eval.tables import table
from agent_eval.transcripts.admission import admit_all
from agent_eval.transcripts.sessions import read_sessions
from tests.scores.builders import CRITERIA, TESTS

Conversation = dict[str, Any]
Rating = int | None
VERSIONS = ("1.0.0", "1.1.0", "1.2.0", "1.3.0")
MANIFEST = {
    "methodology_versions": list(VERSIONS), "date": "2026-04-01", "u3_scope": "multi_turn", "repeatability_tested": False,
}  # fmt: skip


def asked(slot: str, *replies: str, **fields: Any) -> Conversation:
    """A conversation of a slot: the user's question before each reply."""
    turns = [
        [{"role": "user", "content": f"Question {i} of {slot}?"}, {"role": "assistant", "content": reply}]
        for i, reply in enumerate(replies or (f"A reply to {slot}.", f"More on {slot}."))
    ]
    messages = [message for turn in turns for message in turn]
    injected = {"injected_error": {"kind": f"a broken {slot}"}} if slot == "error_injection" else {}
    return {"scenario": slot, "task_id": slot, "messages": messages, "interventions": []} | injected | fields


def complete(**changed: Conversation | None) -> list[Conversation]:
    """The eight conversations of a session; `D2=…` replaces one, None leaves it out."""
    made = {slot: asked(slot) for slot in (*TESTS, *SCENARIOS)} | changed
    return [conversation for conversation in made.values() if conversation is not None]


def write(
    root: Path, agent: str, session: str, conversations: Iterable[Conversation], **manifest: Any
) -> None:
    folder = root / agent / session
    folder.mkdir(parents=True)
    (folder / "session.yaml").write_text(yaml.safe_dump(MANIFEST | manifest))
    lines = (
        json.dumps({"conversation_id": f"{session}-{c.get('scenario', i)}"} | c) + "\n"
        for i, c in enumerate(conversations)
    )
    (folder / "conversations.jsonl").write_text("".join(lines))


def rated(
    agent: str, session: str, value: Rating = 4, **changed: Rating | Sequence[Rating]
) -> list[dict[str, Any]]:
    """Ratings of a session by a person: `value` for all parts, `U4=1` or `D2=(5, 5, 4)` for some."""
    by: dict[str, Any] = {
        "agent_id": agent,
        "methodology_version": "any",
        "rater": "anna",
        "rated_at": "2026-04-02T00:00:00Z",
    }
    found = [
        by | {"session_id": session, "target": d, "rating_1to5": changed.get(d, value)} for d in DIMENSIONS
    ]
    for slot in SCENARIOS:
        values = changed.get(slot, (value,) * 3)
        assert not isinstance(values, int | None)
        found += [
            by | {"conversation_id": f"{session}-{slot}", "target": slot, "criterion": c, "rating_1to5": r}
            for c, r in zip(CRITERIA, values, strict=True)
        ]
    numbered = enumerate((row for row in found if row["rating_1to5"] is not None), start=2)
    return [row | {"file": f"{agent}-{session}.csv", "line": line} for line, row in numbered]


def scored(
    root: Path,
    ratings: Sequence[Mapping[str, Any]],
    versions: Sequence[str] = ("1.3.0",),
    *,
    n_rejected: int = 0,
) -> pl.DataFrame:
    """composite_scores of all agents with a folder in `root`; hallucination tests with `correct` or a reply were passed."""
    methodologies = {version: load(version) for version in versions}
    names = sorted(path.name for path in root.iterdir())
    read = [read_sessions(name, root / name) for name in names]
    parts = ("conversations", "turns", "sessions", "import_errors")
    made: dict[str, Any] = {part: pl.concat([getattr(one, part) for one in read]) for part in parts}
    assert made["import_errors"].height == n_rejected, made["import_errors"]["reason"].to_list()
    agents = table("agents").frame([{"agent_id": name, "category": "customer_service"} for name in names])
    made["transcripts"] = admit_all(made["conversations"], made["sessions"], agents, methodologies)
    people = table("human_ratings").frame(dict(row) for row in ratings)
    rated_of: dict[str, Any] = {
        name: made[name] for name in ("transcripts", "conversations", "turns", "sessions")
    }
    rubric: Any = rubric_ratings(
        **rated_of,
        human_ratings=people,
        methodologies=methodologies,
        lookup=lambda _: table("judge_cache").empty(),
    )
    passed = {"metric": "hallucination_passed", "judge": "rule", "status": "scored"}
    is_test = pl.col("tests").list.contains("hallucination")
    shown = made["conversations"].select("agent_id", "conversation_id", "n_replies", "outcome_correct")
    said_to_pass = (
        pl.col("outcome_correct").fill_null(pl.col("n_replies") > 0).cast(pl.Float64).alias("value")
    )
    held = made["transcripts"].filter(is_test).join(shown, on=["agent_id", "conversation_id"])
    keys = held.select("methodology_version", "agent_id", "conversation_id", said_to_pass)
    judged = [passed | row | {"is_effective": True} for row in keys.iter_rows(named=True)]
    tables = CompositeTables(
        universal_scores=universal_scores(rubric, methodologies),
        domain_scores=domain_scores(rubric, made["transcripts"], methodologies),
        **{name: made[name] for name in ("transcripts", "sessions", "conversations")},
        conversation_judgments=table("conversation_judgments").frame(judged),
        import_errors=made["import_errors"],
    )
    return composite_scores(tables, methodologies)


def only(frame: pl.DataFrame, agent: str = "ada", version: str = "1.3.0") -> dict[str, Any]:
    """The row of an agent under a version."""
    return frame.filter(agent_id=agent, methodology_version=version).row(0, named=True)
