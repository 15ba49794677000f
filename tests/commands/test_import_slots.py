"""Slots for transcripts of any format: a Langfuse and an Inspect file reach the board as published."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eval.commands.imports import import_transcripts
from agent_eval.commands.results.leaderboard import board_of
from agent_eval.commands.run import run
from agent_eval.commands.terminal.output import consoles
from agent_eval.judge.inputs.human_ratings import COLUMNS
from agent_eval.project import Project
from tests.commands.conftest import use

pytestmark = pytest.mark.slow

SLOTS = ("D1", "D2", "D3", "D4", "D5", "standardised_task", "hallucination", "error_injection")
CRITERIA = ("accuracy", "completeness", "usefulness")
SAID = ["Where is order 7?", "It left today.", "And order 8?", "It arrives tomorrow."]


def langfuse() -> list[dict[str, Any]]:
    def trace(slot: str) -> dict[str, Any]:
        calls = [
            {"id": f"{slot}{i}", "traceId": slot, "type": "GENERATION", "parentObservationId": None, "startTime": f"2026-05-01T00:00:0{i}Z",
             "input": [{"role": "user", "content": f"{slot}: {SAID[i]}"}], "output": {"role": "assistant", "content": SAID[i + 1]}}
            for i in (0, 2)
        ]  # fmt: skip
        return {"trace": {"id": f"trace-{slot}"}, "observations": calls}

    return [trace(slot) for slot in SLOTS]


def inspect() -> dict[str, Any]:
    messages = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(SAID)]
    sample = {"epoch": 1, "input": SAID[0], "target": "", "messages": messages, "scores": {}}
    samples = [sample | {"id": f"trace-{slot}"} for slot in SLOTS]
    return {"version": 2, "status": "success", "eval": {"task": "orders"}, "samples": samples}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "data" / "ratings").mkdir(parents=True)
    return use(monkeypatch, tmp_path)


def imported(root: Path, agent: str, content: object, format_name: str = "auto") -> int:
    """Import a file with the slots of slots.csv; the exit code."""
    path = root / f"{agent}.json"
    path.write_text(json.dumps(content))
    return import_transcripts(
        Project.open(), *consoles(), format_name=format_name, paths=[str(path)], agent_id=agent,
        category="customer_service", session_id=None, versions=(), task_set=None, slots_file=slots_file(root),
    )  # fmt: skip


def slots_file(root: Path) -> Path:
    path = root / "slots.csv"
    told = "u3_scope=multi_turn; repeatability_tested=false; date=2026-05-01; interventions=none"
    rows = [f"trace-{slot},{slot},{told if slot == 'D1' else 'interventions=none'}" for slot in SLOTS[:-1]]
    injected = '"{""interventions"": [], ""injected_error"": {""type"": ""typo""}}"'
    path.write_text(
        "\n".join(["task_id,slot,disclosures", *rows, f"trace-error_injection,error_injection,{injected}"])
    )
    return path


def rate(root: Path, agent: str, session: str) -> None:
    """A person's ratings of all that the composite needs."""
    project = Project.open()
    path = root / "data" / "sessions" / agent / session / "conversations.jsonl"
    ids = {c["scenario"]: c["conversation_id"] for c in map(json.loads, path.read_text().splitlines())}
    version = project.registry.current.version
    rows = [(session, "", f"U{i}", "", "4", "") for i in range(1, 7)]
    rows += [("", ids[f"D{i}"], f"D{i}", criterion, "4", "") for i in range(1, 6) for criterion in CRITERIA]
    rows += [("", ids["hallucination"], "hallucination_passed", "", "", "1")]
    lines = [",".join((*COLUMNS, "value"))]
    for where, conversation, *what, rating, value in rows:
        place = f"{agent},{where},{conversation},,{version},{','.join(what)}"
        lines.append(f"{place},{rating},seen,,ann,2026-05-02,{value}")
    (root / "data" / "ratings" / f"{agent}.csv").write_text("\n".join(lines) + "\n")


def test_files_of_two_formats_with_slots_and_ratings_are_published(project: Path) -> None:
    for agent, content in (("traced", langfuse()), ("logged", inspect())):
        assert imported(project, agent, content) == 0
        rate(project, agent, agent)
    version = Project.open().registry.current.version
    assert run(Project.open(), versions=[version]).exit_code in (0, 1)
    rows = board_of(Project.open(), version).to_dicts()
    for row in rows:  # of the two agents, each has the other's conversations: nothing else is missing
        assert row["status"] == "provisional"
        assert all(reason.startswith(("copied ", "repeated reply: ")) for reason in row["missing"])


def test_a_row_that_meets_no_conversation_is_named_and_the_exit_code_is_1(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert imported(project, "bot", langfuse()[:1], "langfuse") == 1
    said = capsys.readouterr()
    assert "slots.csv:3: no conversation has the task_id 'trace-D2'" in said.err
    assert said.out.startswith("1 conversation imported")
