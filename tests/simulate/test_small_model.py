"""A small real model as an agent: its stored sessions as a sample, and, where it is installed, a live session."""

import json
from pathlib import Path

import pytest

from tests.commands.conftest import invoke, use
from tests.conftest import REPOSITORY
from tests.judge.test_real_model import base_url
from tests.simulate.suites import held, openai, ran, write_agents

__all__ = ["base_url"]
SAMPLE = REPOSITORY / "samples" / "smollm2"


@pytest.mark.slow
def test_the_sample_shows_how_badly_a_small_model_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert invoke("init", str(tmp_path), "--sample", "smollm2").exit_code == 0
    use(monkeypatch, tmp_path)
    assert invoke("scenarios", "check").exit_code == 0
    invoke("run", "--methodology", "1.3.0")
    [row] = json.loads(invoke("leaderboard", "--json").stdout)
    # U: (5 + 1+2+1+2+1) + (5 + 1+1+1+2+1) + (5 + 2+1+1+2+1) = 35 of 90; D: 55 of 225
    assert row["composite_score"] == pytest.approx(0.4 * 35 / 90 * 100 + 0.6 * 55 / 225 * 100)
    assert (row["status"], row["judge"]) == ("published", "recorded + rule")


@pytest.mark.slow
def test_a_live_model_holds_the_conversations_of_a_suite(root: Path, base_url: str) -> None:
    suite = root / "data" / "scenarios" / "book-desk"
    suite.mkdir(parents=True)
    for name in ("d1-delivery", "d4-false-premise"):
        file = f"{name}.scenario.yaml"
        (suite / file).write_text((SAMPLE / "scenarios" / "book-desk" / file).read_text())
    write_agents(root, {"small": openai(base_url, "smollm2", timeout_s=300, body={"max_tokens": 32})})
    report = ran(root, "small", concurrency=1)
    assert (report.outcomes, report.exit_code) == ({"unknown": 2}, 0)
    said = [m for c in held(root, "small") for m in c.messages if m.role == "assistant"]
    assert len(said) == 4
    assert all(m.content and m.latency_ms and m.usage for m in said)
