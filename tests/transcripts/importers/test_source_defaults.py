"""Defaults and deciding fields of the sources, as their own code reads them."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from agent_eval.formats.refusals import Refusal
from agent_eval.transcripts.importers.auto import import_files
from agent_eval.transcripts.importers.base import Source
from agent_eval.transcripts.importers.benchmarks import agentest
from agent_eval.transcripts.importers.catalog import FORMATS
from agent_eval.transcripts.importers.inputs import input_files
from agent_eval.transcripts.models import Conversation
from tests.transcripts.importers.samples import INSPECT_SAMPLE, SAMPLES, inspect_archive


def read(format_name: str, content: bytes, folder: Path) -> Conversation:
    path = folder / "log"
    path.write_bytes(content)
    (found,) = (item for item in FORMATS[format_name](Source(path, "s")) if isinstance(item, Conversation))
    return found


def recognised(content: bytes, folder: Path) -> tuple[str | None, int]:
    """The format and number of the conversations that are imported."""
    path = folder / "log.json"
    path.write_bytes(content)
    files = input_files([str(path)])
    (report,) = import_files("auto", files, sessions_folder=folder / "s", agent_id="a")
    return report.format_name, report.report.n_imported if report.report else 0


def inspect_log(**changes: Any) -> bytes:
    """The sample log with these keys of its first sample; json writes NaN as Inspect does."""
    document = copy.deepcopy(SAMPLES["inspect"].content)
    sample = document["samples"][0]
    del sample["scores"]
    return json.dumps(document | {"samples": [sample | changes]}).encode()


@pytest.mark.parametrize(
    ("scores", "correct"),
    [
        ({"scores": {"m": {"value": float("nan")}}}, None),  # Score.unscored()
        ({"scores": {"m": {"value": "C"}, "n": {"value": float("nan")}}}, True),
        ({"scores": {"m": {"value": "C", "explanation": "NaN, -Infinity"}}}, True),
        ({"scores": {"m": {"value": "yes"}}}, True),  # value_to_float
        ({"scores": {"m": {"value": "True"}}}, True),
        ({"scores": {"m": {"value": "no"}}}, False),
        ({"scores": {"m": {"value": "maybe"}}}, None),
        ({"score": {"value": "C", "answer": "snow"}}, True),  # deprecated key
        ({"score": {"value": "I"}}, False),
        ({"scores": {"m": {"value": "C"}}, "invalidation": {"author": "me", "reason": "leak"}}, None),
        ({"scores": {"m": {"value": "C"}}, "invalidation": None}, True),
    ],
)
def test_the_scores_of_an_inspect_log(scores: dict[str, Any], correct: bool | None, tmp_path: Path) -> None:
    found = read("inspect", inspect_log(**scores), tmp_path)
    assert found.outcome.correct is correct
    assert bool(found.metadata.get("invalidation")) == bool(scores.get("invalidation"))
    if "explanation" in str(scores):
        assert "NaN, -Infinity" in json.dumps(found.metadata)
    assert recognised(inspect_log(**scores), tmp_path) == ("inspect", 1)


def test_an_unscored_sample_in_an_inspect_archive_is_read(tmp_path: Path) -> None:
    unscored = INSPECT_SAMPLE | {"scores": {"m": {"value": float("nan")}}}
    assert read("inspect", inspect_archive(unscored), tmp_path).outcome.correct is None


@pytest.mark.parametrize(
    ("code", "content", "is_error"),
    [
        (1, "no such file", True),
        (0, "done", False),
        (None, "<returncode>2</returncode>\nx", True),
        (None, "x", None),
    ],
)
@pytest.mark.parametrize("role", ["tool", "user"])
def test_the_return_code_of_a_mini_swe_agent_observation(
    role: str, code: int | None, content: str, is_error: bool | None, tmp_path: Path
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    answer = {"role": role, "content": content, "extra": {} if code is None else {"returncode": code}}
    if role == "tool":
        answer["tool_call_id"] = "c1"
    called = {"role": "assistant", "content": None, "tool_calls": [call]}
    said = [{"role": "user", "content": "List the files"}, called, answer]
    info = {"exit_status": "Submitted", "mini_version": "2.0.0"}
    record = {"info": info, "trajectory_format": "mini-swe-agent-1.1", "messages": said}
    found = read("mini-swe-agent", json.dumps(record).encode(), tmp_path)
    assert [m.is_error for m in found.messages if m.role == "tool"] == [is_error]


def turn(index: int, user: str, agent: str) -> dict[str, Any]:
    return {"turnIndex": index, "userMessage": user, "agentMessage": agent, "toolCalls": []}


HELPFUL = {"turnIndex": 1, "metrics": {"helpfulness": {"value": 4, "reason": "short"}}}
TALK: dict[str, Any] = {
    "conversationId": "conv-1",
    "error": None,
    "turns": [turn(0, "Weather?", "Snow."), turn(1, "Sure?", "Yes.")],
    "evaluation": {"turnEvaluations": [HELPFUL], "goalCompletion": {"value": 1, "reason": "told"}},
    "trajectory": {"matched": False, "missingCalls": ["weather"]},
}
WRITTEN: dict[str, Any] = {
    "summary": {"passed": False, "totalScenarios": 1, "passedScenarios": 0, "failedScenarios": 1},
    "scenarios": [{"name": "asks for weather", "passed": False, "conversations": [TALK], "errors": []}],
}


def test_the_file_that_agentest_writes(tmp_path: Path) -> None:
    """The form of its JSON reporter, which its documentation shows otherwise."""
    found = read("agentest", json.dumps(WRITTEN).encode(), tmp_path)
    assert (found.task_id, found.goal, found.n_turns) == ("asks for weather", "asks for weather", 2)
    assert found.outcome.correct is None  # the verdict is on means over the scenario, not on a conversation
    assert found.metadata["source_scores"] == [
        {"name": "goalCompletion", "value": 1, "reason": "told"},
        {"name": "helpfulness", "turn_index": 1, "value": 4, "reason": "short"},
        {"name": "trajectory", "value": False, "matched": False, "missingCalls": ["weather"]},
    ]
    assert recognised(json.dumps(WRITTEN, indent=2).encode(), tmp_path) == ("agentest", 1)


def test_a_report_of_another_tool_with_the_same_keys_is_not_agentest() -> None:
    assert not agentest.looks_like({"summary": {"passed": 3}, "scenarios": [{"name": "login", "steps": []}]})
    assert not agentest.looks_like({"summary": "x", "scenarios": ["a"]})
    assert agentest.looks_like(WRITTEN)
    assert agentest.looks_like(dict.fromkeys(WRITTEN))


def test_a_comparison_of_agents_is_refused_with_what_helps(tmp_path: Path) -> None:
    scenario = {"name": "x", "agents": [{"agent": "a", **WRITTEN["scenarios"][0]}]}
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"mode": "comparison", "summary": {}, "scenarios": [scenario]}))
    (found,) = FORMATS["agentest"](Source(path, "s"))
    assert isinstance(found, Refusal)
    assert "compares several agents" in found.reason


@pytest.mark.parametrize(
    ("value", "names", "content"),
    [
        ('{"name": "a", "arguments": {}}', ["a"], None),
        ('[{"name": "a", "arguments": {}}, {"name": "b", "arguments": {}}]', ["a", "b"], None),
        ('<think>Both are needed.</think>\n{"name": "a", "arguments": {}}', ["a"], "Both are needed."),
        ('[{"name": "a"}, {"nothing": 1}]', ["a"], None),  # the other one is named as not read
        ("[]", [], None),
        ("no call", [], "no call"),
    ],
)
def test_calls_and_thoughts_of_sharegpt(
    value: str, names: list[str], content: str | None, tmp_path: Path
) -> None:
    said = [{"from": "human", "value": "Go"}, {"from": "function_call", "value": value}]
    found = read("sharegpt", json.dumps([{"conversations": said}]).encode(), tmp_path)
    assert [call.name for call in found.messages[1].tool_calls or ()] == names
    assert found.messages[1].content == content


@pytest.mark.parametrize(("cost", "stored"), [(0.0031, 0.0031), (0, None), ("x", None), (None, None)])
def test_the_cost_of_a_record_is_its_conversations(cost: Any, stored: float | None, tmp_path: Path) -> None:
    record = {"messages": SAMPLES["openai"].content[0]["messages"], "cost_usd": cost}
    found = read("openai", json.dumps(record).encode() + b"\n", tmp_path)
    assert found.metadata.get("agent_cost_usd") == stored


@pytest.mark.parametrize(
    ("costs", "stored"),
    [
        ((0.1, 0.3), 0.4),
        ((0.1, None), None),
        ((None, 0.3), None),
        ((0.2, 0.2, 0.2), 0.6),
        ((None, None), None),
    ],
)
@pytest.mark.parametrize("is_pair", [False, True])
def test_the_cost_of_a_session_in_several_records_is_their_sum(
    is_pair: bool, costs: tuple[float | None, ...], stored: float | None, tmp_path: Path
) -> None:
    rows = []
    for i, cost in enumerate(costs):
        question, reply = {"role": "user", "content": f"q{i}"}, {"role": "assistant", "content": f"a{i}"}
        pair = {"request": {"messages": [question]}, "response": {"choices": [{"message": reply}]}}
        said: dict[str, Any] = pair if is_pair else {"messages": [question, reply]}
        rows.append({"session_id": "s", **said, **({} if cost is None else {"cost_usd": cost})})
    found = read("openai", "".join(f"{json.dumps(row)}\n" for row in rows).encode(), tmp_path)
    declared = found.metadata.get("agent_cost_usd")
    assert declared == (None if stored is None else pytest.approx(stored))
