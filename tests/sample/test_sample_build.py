"""The shipped sample is what its authored files say, and the checker lets nothing through."""

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent_eval.transcripts.sessions import read_agents, read_sessions
from tests.sample.build import AUTHORED, DATA, build, check, write
from tests.sample.check import AuthoredSampleError, read_authored


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return build()


def test_the_shipped_data_are_a_fresh_build(files: dict[str, str]) -> None:
    # after a change: python -m tests.sample.build
    assert check(DATA, files) == []


def test_everything_reads_without_a_refusal(files: dict[str, str], tmp_path: Path) -> None:
    write(files, tmp_path)
    agents, refusals = read_agents(tmp_path / "agents.yaml")
    assert refusals == []
    assert len(agents) == len(list(AUTHORED.glob("*.yaml")))
    for agent_id in agents:
        taken = read_sessions(agent_id, tmp_path / "sessions" / agent_id)
        assert taken.import_errors.is_empty()
        assert not taken.conversations.is_empty()


def test_a_changed_a_missing_and_a_further_file_are_named(files: dict[str, str], tmp_path: Path) -> None:
    write(files, tmp_path)
    (tmp_path / "agents.yaml").write_text("[]\n")
    (tmp_path / "ratings" / "sample.csv").unlink()
    (tmp_path / "verdicts" / "more.jsonl").touch()
    assert check(tmp_path, files) == [
        "agents.yaml: differs",
        "ratings/sample.csv: missing",
        "verdicts/more.jsonl: not part of the build",
    ]


CALL = {"call": "look", "arguments": {"at": "door"}, "result": "open"}
TURN = {"user": "Is it open?", "reply": [CALL, "It is open until 8."], "ratings": [5, 5, 5, 5, 4]}
CONVERSATION = {
    **{"conversation_id": "c1", "task_id": "D1", "trial": 0, "scenario": "D1", "goal": "g", "profile": "p"},
    **{"knowledge": [], "tools": [{"name": "look"}], "interventions": [], "injected_error": None},
    "outcome": {"correct": True},
    "turns": [TURN | {"why": "Right.", "quote": "until 8"}],
    "goal_completion": [1, "said", "It is open"],
    "criteria": {c: [4, "why", "open"] for c in ("accuracy", "completeness", "usefulness")},
}
SESSION = {
    "session_id": "s1",
    "session": {"methodology_versions": ["1.3.0"], "date": "2026-04-01"},
    "ratings": {u: [4, "why", "It is open"] for u in ("U1", "U2", "U3", "U6")},
    "conversations": [CONVERSATION],
}
SMALL = {"agent": {"agent_id": "ada", "category": "customer_service"}, "sessions": [SESSION]}


def problems(tmp_path: Path, **changes: object) -> str:
    """What the checker says of the small file after `a__0__b=value` changes."""
    content: Any = copy.deepcopy(SMALL)
    for path, value in changes.items():
        *parents, last = [int(k) if k.isdigit() else k for k in path.split("__")]
        at = content
        for key in parents:
            at = at[key]
        at[last] = value
    file = tmp_path / "ada.yaml"
    file.write_text(json.dumps(content))
    try:
        read_authored(file)
    except AuthoredSampleError as error:
        return str(error)
    return ""


C = "sessions__0__conversations__0__"
T = f"{C}turns__0__"


def test_the_small_file_is_well_and_all_problems_are_listed_at_once(tmp_path: Path) -> None:
    assert problems(tmp_path) == ""
    text = problems(tmp_path, **{f"{T}quote": "until 9", f"{C}criteria": {}})
    assert text.startswith("2 problems")


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (f"{T}quote", "until 9", "quote is not in this turn"),
        (f"{T}ratings", [5, 5, 5, 5, 6], "less than or equal to 5"),
        (f"{T}ratings", [5, 5, 5, 5, 4.0], "valid integer"),
        (f"{T}ratings", None, "ratings is missing"),
        (f"{T}why", None, "why is missing"),
        (f"{T}notes", {"tone": "x"}, "unknown ratings: tone"),
        (f"{T}failures", {"agent": ["repetition"]}, "need a failure_why"),
        (f"{T}failures", {"agent": ["false information"]}, "faithfulness 5"),
        (f"{T}reply", [], "nothing to rate"),
        (f"{T}reply", [{"call": "find", "arguments": {}}, "until 8 It is open"], "not declared: find"),
        (f"{C}goal_completion", [0, "x", "It is open"], "must agree"),
        (f"{C}goal_completion", [1, "x", "It is shut"], "the quote is not in the conversation"),
        (f"{C}criteria", {}, "criteria are []"),
        (f"{C}scenario", "standardised_task", "expected []"),
        (f"{C}scenario", "error_injection", "needs injected_error"),
        (f"{C}interventions", None, "U5 cannot be counted"),
        (f"{C}interventions", [{"turn_index": 3, "kind": "help"}], "names turn 3"),
        (f"{C}expected", [{"turn_index": 0, "answer": "8"}], "answer_correctness"),
        ("sessions__0__session__u3_scope", "multi_turn", "two user messages"),
        ("sessions__0__ratings__U4", [4, "x", "open"], "U4 not expected"),
        ("sessions__0__ratings__U1", [4, "x", "nowhere"], "U1: the quote is in no conversation"),
        ("sessions__0__session__invalid_reason", "no disk", "must not be rated"),
        ("agent__category", "cooking", "'cooking' is not one of"),
        ("human_ratings", [{"session_id": "s2", "target": "U1", "rating_1to5": 4, "rater": "k"}], "'s2'"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, path: str, value: object, said: str) -> None:
    assert said in problems(tmp_path, **{path: value})


def test_equal_content_that_is_judged_unlike_is_refused(tmp_path: Path) -> None:
    other: Any = copy.deepcopy(SESSION)
    other["session_id"], other["conversations"][0]["conversation_id"] = "s2", "c2"
    other["conversations"][0]["turns"][0]["ratings"] = [1, 5, 5, 5, 4]
    (tmp_path / "ada.yaml").write_text(json.dumps(SMALL | {"sessions": [SESSION, other]}))
    with pytest.raises(AuthoredSampleError, match=r"c2 turn 0: helpfulness .* differs"):
        build(tmp_path)


def test_a_repeated_key_is_refused(tmp_path: Path) -> None:
    shutil.copy(AUTHORED / "relay-bot.yaml", tmp_path / "a.yaml")
    with (tmp_path / "a.yaml").open("a") as file:
        file.write("\nagent: {agent_id: other}\n")
    with pytest.raises(AuthoredSampleError, match="given twice"):
        read_authored(tmp_path / "a.yaml")
