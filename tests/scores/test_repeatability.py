"""Tested repeatability from session folders: the sample's three sessions, their copies, and other questions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_eval.methodology import load
from agent_eval.scores.composite.disclosures import Disclosed, disclosed
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.transcripts.admission import admit
from agent_eval.transcripts.sessions import read_sessions

LUMEN = Path(__file__).parents[2] / "data" / "sessions" / "lumen-support"
NAMES = ("lumen-2026-04-a", "lumen-2026-04-b", "lumen-2026-04-c")
Change = Callable[[dict[str, Any]], dict[str, Any]]


def write(folder: Path, name: str, like: str, change: Change = lambda c: c, **manifest: object) -> None:
    """A session folder like one of the sample's, its conversations under ids of their own."""
    (folder / name).mkdir(parents=True)
    stated = yaml.safe_load((LUMEN / like / "session.yaml").read_text()) | manifest
    (folder / name / "session.yaml").write_text(yaml.safe_dump(stated))
    lines = (LUMEN / like / "conversations.jsonl").read_text().splitlines()
    made = (
        change(json.loads(line) | {"conversation_id": f"{name}-{i}", "trial": None})
        for i, line in enumerate(lines)
    )
    (folder / name / "conversations.jsonl").write_text("".join(f"{json.dumps(c)}\n" for c in made))


def found(folder: Path) -> Disclosed:
    """What the sessions of a folder disclose under 1.3.0."""
    taken, version = read_sessions("lumen", folder), load("1.3.0")
    assert taken.import_errors.is_empty()
    agents = table("agents").frame([{"agent_id": "lumen", "category": "customer_service"}])
    held = admit(taken.conversations, taken.sessions, agents, version)
    judged = table("conversation_judgments").empty()
    pair = AgentVersion.of(agent_id="lumen", methodology_version="1.3.0")
    return disclosed(held, taken.sessions, taken.conversations, judged, {"1.3.0": version})[pair]


def write_all(folder: Path, change: Change = lambda c: c, **manifest: object) -> Path:
    for name in NAMES:
        write(folder, name, name, change, **manifest)
    return folder


def reason(disclosures: Disclosed) -> str:
    assert disclosures.repeatability_tested is None
    [text] = [text for text in disclosures.missing if text.startswith("repeatability_tested: ")]
    return text


def test_a_copy_beside_enough_evidence_bars_publication(tmp_path: Path) -> None:
    disclosures = found(write_all(tmp_path))
    assert disclosures.repeatability_tested is True
    assert not any(text.startswith("copied session") for text in disclosures.missing)
    write(tmp_path, "again", NAMES[0], date="2026-05-01")
    disclosures = found(tmp_path)
    assert disclosures.repeatability_tested is True
    assert disclosures.warnings == ()
    assert f"copied session: again is a copy of {NAMES[0]}" in disclosures.missing


@pytest.mark.parametrize("claim", [True, False, None])
def test_a_copy_is_named_whatever_is_claimed_of_repeatability(tmp_path: Path, claim: bool | None) -> None:
    for name in NAMES[:2]:
        write(tmp_path, name, name, repeatability_tested=claim)
    write(tmp_path, "again", NAMES[0], retouch, date="2026-05-01", repeatability_tested=claim)
    named = [text for text in found(tmp_path).missing if text.startswith("copied session")]
    assert named == [f"copied session: again is a copy of {NAMES[0]}"]


def test_sessions_of_an_agent_that_says_nothing_are_not_copies(tmp_path: Path) -> None:
    def silenced(conversation: dict[str, Any]) -> dict[str, Any]:
        return conversation | {"messages": [m for m in conversation["messages"] if m["role"] == "user"]}

    missing = found(write_all(tmp_path, silenced)).missing
    assert not any(text.startswith("copied session") for text in missing)


def retouch(conversation: dict[str, Any]) -> dict[str, Any]:
    return conversation | {"messages": [retouched(m) for m in conversation["messages"]]}


def retouched(message: dict[str, Any]) -> dict[str, Any]:
    """The agent's messages with doubled and zero-width spaces, another sign at the end and in capitals."""
    if message["role"] != "assistant" or not message.get("content"):
        return message
    return message | {"content": f"{message['content'].upper().replace(' ', '  ')}\u200b!"}


@pytest.mark.parametrize(
    "disguise",
    [
        lambda c: c,
        lambda c: c | {"goal": f"Other words for the goal of {c['conversation_id']}."},
        lambda c: c | {"metadata": {"copied": c["conversation_id"]}},
        retouch,
    ],
    ids=["byte copy", "another goal", "other metadata", "other spaces, signs and letter case"],
)
def test_copies_of_a_session_under_other_dates_are_no_evidence(tmp_path: Path, disguise: Change) -> None:
    for i, name in enumerate(NAMES):
        write(tmp_path, name, NAMES[0], disguise, date=f"2026-04-1{i}", session_run=f"run {i}")
    text = reason(found(tmp_path))
    assert "1 of 3 sessions are independent" in text
    copies = [f"session {name} is a copy of session {NAMES[0]}" for name in NAMES[1:]]
    assert text.endswith("; ".join(copies))


def test_sessions_of_other_questions_are_no_evidence(tmp_path: Path) -> None:
    def asked_otherwise(conversation: dict[str, Any]) -> dict[str, Any]:
        first = next(m for m in conversation["messages"] if m["role"] == "user")
        first["content"] = f"Something else, for {conversation['conversation_id']}: when do you open?"
        return conversation

    text = reason(found(write_all(tmp_path, asked_otherwise)))
    assert "1 of 3 sessions are independent" in text
    assert f"session {NAMES[1]} asks other questions than session {NAMES[0]} in standardised_task" in text


def test_letter_case_and_spacing_make_no_other_question(tmp_path: Path) -> None:
    def shouted(conversation: dict[str, Any]) -> dict[str, Any]:
        first = next(m for m in conversation["messages"] if m["role"] == "user")
        first["content"] = f"  {first['content'].upper()}\n"
        return conversation

    write(tmp_path, NAMES[0], NAMES[0], shouted)
    for name in NAMES[1:]:
        write(tmp_path, name, name)
    assert found(tmp_path).repeatability_tested is True
