"""With judge_redact no personal data leaves the project; without it nothing changes."""

import json
from pathlib import Path

import pytest

from agent_eval.project import Project
from tests.commands.conftest import AGENT, Model, invoke

pytestmark = pytest.mark.slow
PERSONAL = ("ada@example.com", "4111 1111 1111 1111", "C-123456")
ON = "judge_redact = true\nredact_patterns = {customer = 'C-\\d{6}'}\n"


def test_what_leaves_the_project_is_redacted_and_the_keys_without_it_stay(root: Path, model: Model) -> None:
    [file, *_] = sorted((root / "data" / "sessions" / AGENT).glob("*/conversations.jsonl"))
    lines = file.read_text().splitlines()
    first = json.loads(lines[0])
    first["messages"][0]["content"] += f" {' and '.join(PERSONAL)}."
    file.write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
    show = (
        "prompts",
        "--agent",
        AGENT,
        "--conversation",
        first["conversation_id"],
        "--metric",
        "turn",
        "--turn",
        "0",
    )
    plain = invoke(*show).stdout
    assert all(value in plain for value in PERSONAL)
    assert Project.open().judges.own is None
    unredacted = Project.open().with_settings(judge_model="some/model").judges.own
    assert unredacted is not None
    assert dict(unredacted.parameters) == {"temperature": 0.0}
    assert all(value in invoke("export", "openai", "--agent", AGENT).stdout for value in PERSONAL)

    (root / "agent_eval.toml").write_text(ON)
    shown, exported = invoke(*show), invoke("export", "openai", "--agent", AGENT)
    for text in (shown.stdout, exported.stdout):
        assert not any(value in text for value in PERSONAL)
        assert "[email " in text
    assert "hidden: 1 card, 1 customer, 1 email" in exported.stderr
    done = invoke("run", "--methodology", "1.3.0", "--judge", "some/model")
    assert "1 customer" in done.stderr
    sent = str([client.asked for client in model.clients])
    assert "[customer " in sent
    assert not any(value in sent for value in PERSONAL)
