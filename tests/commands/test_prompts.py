"""`agent-eval prompts`: what is sent, for the example and for an agent's conversations."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agent_eval.cli import app
from agent_eval.commands.prompts import NAMED
from tests.conftest import copy_sample
from tests.judge.attacks.grammar import read_back


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy_sample(tmp_path)
    monkeypatch.setenv("AGENT_EVAL_HOME", str(tmp_path))
    return tmp_path


def prompt(*arguments: str) -> dict[str, Any]:
    named = () if "--metric" in arguments else ("--metric", "turn")
    result = CliRunner().invoke(app, ["prompts", *named, *arguments, "--json"])
    assert result.exit_code == 0, (result.output, result.exception)
    [row] = json.loads(result.output)
    return dict(row)


def refusal(*arguments: str) -> str:
    return str(CliRunner().invoke(app, ["prompts", *arguments]).exception)


def test_the_text_holds_the_messages_byte_for_byte_the_schema_and_the_hashes(root: Path) -> None:
    row = prompt()
    text = CliRunner().invoke(app, ["prompts", "--metric", "turn"]).output
    for message in row["messages"]:
        assert message["content"] in text
    assert json.dumps(row["schema"], ensure_ascii=False, indent=1) in text
    assert f"prompt hash {row['prompt_hash']}" in text
    assert f"judge profile {row['profile_version']}, hash {row['profile_hash']}" in text


def test_without_a_name_every_call_of_a_run_is_printed(root: Path) -> None:
    result = CliRunner().invoke(app, ["prompts", "--json"])
    assert [row["prompt"] for row in json.loads(result.output)] == list(NAMED)
    text = CliRunner().invoke(app, ["prompts"]).output
    assert all(f"prompt: {name}" in text for name in NAMED)
    assert "policy_adherence" in text


def test_a_metric_is_shown_in_a_call_of_its_own(root: Path) -> None:
    assert prompt("--metric", "faithfulness")["metrics"] == ["faithfulness"]
    assert prompt("--metric", "U4")["metrics"] == ["U4"]
    assert prompt("--metric", "D3.accuracy")["metrics"] == ["D3.accuracy"]
    assert prompt("--metric", "session")["metrics"] == ["U1", "U2", "U3", "U4", "U5", "U6"]
    assert prompt("--metric", "scenario")["metrics"] == ["D1.accuracy", "D1.completeness", "D1.usefulness"]


def test_a_conversation_of_an_agent_is_shown_up_to_the_turn_without_the_agents_name(root: Path) -> None:
    where = ("--agent", "lumen-support", "--conversation", "lumen-2026-04-a-D2")
    [_, user] = prompt(*where, "--turn", "1")["messages"]
    data = read_back(user["content"]).data
    assert [line.get("turn") for line in data] == [None, 0, 1]
    assert "Lumen Support" not in user["content"]


def test_the_last_turn_takes_the_conversations_question_along_unless_a_rule_decides_it(root: Path) -> None:
    assert prompt()["metrics"][-2:] == ["goal_completion", "plan_adherence"]
    declared = prompt("--agent", "lumen-support", "--conversation", "lumen-2026-04-a-D1")  # with its outcome
    assert "goal_completion" not in declared["metrics"]


def test_u4_is_asked_only_of_a_session_with_an_injected_error(root: Path) -> None:
    assert "U4" in prompt("--metric", "session", "--agent", "concierge-pa")["metrics"]
    [file] = (root / "data" / "sessions" / "concierge-pa").glob("*/conversations.jsonl")
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if '"error_injection"' not in line))
    without = prompt("--metric", "session", "--agent", "concierge-pa")["metrics"]
    assert "U1" in without
    assert "U4" not in without


def test_the_code_of_an_agents_record_is_kept_secret_and_stays(root: Path) -> None:
    where = ("--agent", "lumen-support")
    first, again = prompt(*where), prompt(*where)
    assert first["prompt_hash"] == again["prompt_hash"]
    assert first["prompt_hash"] != prompt()["prompt_hash"]


def test_what_is_not_there_is_named_with_what_is(root: Path) -> None:
    assert "Did you mean 'helpfulness'?" in refusal("--metric", "helpfulnes")
    assert "no conversation 'lumen-2026-04-a-D9'" in refusal(
        "--agent", "lumen-support", "--conversation", "lumen-2026-04-a-D9"
    )
    assert "its turns are 0 to 1" in refusal("--turn", "7")
    assert "no expected answer" in refusal("--metric", "answer_correctness", "--turn", "1")
    assert "Agent 'nobody' is not known" in refusal("--agent", "nobody")
    assert "--conversation requires --agent" in refusal("--conversation", "x")


def test_attachments_follow_the_prompt_if_the_judge_reads_them_and_are_counted_if_not(root: Path) -> None:
    url = f"data:image/png;base64,{'A' * 200}"
    shown = {"type": "image_url", "image_url": {"url": url}}
    said = [{"role": "user", "content": ["What?", shown]}, {"role": "assistant", "content": "A cat."}]
    (root / "chat.jsonl").write_text(json.dumps({"id": "c", "messages": said}))
    imported = ["import", "openai", str(root / "chat.jsonl"), "--agent", "seer"]
    assert CliRunner().invoke(app, imported).exit_code == 0
    where = ("--agent", "seer", "--metric", "helpfulness")
    assert "needs a multimodal judge" in refusal(*where)
    estimated = ["run", "--agent", "seer", "--judge", "openai/m", "--dry-run", "--json"]
    [*_, whole] = json.loads(CliRunner().invoke(app, estimated).output)
    assert (whole["n_calls"], whole["n_unreadable"] > 0) == (0, True)
    (root / "agent_eval.toml").write_text("judge_multimodal = true\n")
    assert prompt(*where)["attachments"] == [url]
    assert "attachment 1: image, 1 kB, image/png" in CliRunner().invoke(app, ["prompts", *where]).output


@pytest.mark.parametrize("name", ["simulated_user", "simulated_user_check"])
def test_the_prompts_of_simulated_users_are_shown(name: str) -> None:
    row = prompt("--metric", name)
    text = json.dumps(row["messages"])
    assert "WHO YOU ARE" in text
    assert "YOUR GOAL" in text
    assert row["schema"]["required"]


def test_the_prompt_of_a_metric_on_request_is_shown_before_it_is_requested(root: Path) -> None:
    assert "decisive_step" in prompt("--metric", "decisive_step")["messages"][0]["content"]
