"""Python functions and commands as agents: what they may do, and how they fail."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agent_eval.simulate.agents.endpoints import EndpointError
from agent_eval.transcripts.models import Conversation
from tests.simulate.suites import held, ran, scenario, write_agents, write_suite
from tests.simulate.toys import PROGRAM

TOYS = "tests.simulate.toys"
COMMAND = f"{sys.executable} agent.py"


def conversation(
    root: Path, endpoint: dict[str, Any], opening: str = "Hello.", **settings: Any
) -> Conversation:
    """Return the only conversation with an agent."""
    write_suite(root, {"one": {"opening": opening, "turns": [{"say": "And now?"}]}})
    write_agents(root, {"toy": endpoint})
    ran(root, "toy", **settings)
    return held(root, "toy")[0]


def python(name: str, **more: object) -> dict[str, Any]:
    return {"kind": "python", "function": f"{TOYS}:{name}", "timeout_s": 0.5, **more}


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("crashing", "RuntimeError: out of order"),
        ("quitting", "SystemExit: 3"),
        ("hanging", "no reply within 0.5 s"),
        ("returning_a_set", "returned no JSON"),
        ("returning_nothing", "the reply is null"),
    ],
)
def test_a_function_that_fails_is_an_error_of_the_agent(root: Path, name: str, error: str) -> None:
    started = time.monotonic()
    outcome = conversation(root, python(name), agent_modules=(TOYS,)).outcome
    assert outcome.outcome_class == "agent_error"
    assert error in (outcome.error or "")
    assert time.monotonic() - started < 4


def test_a_function_answers_and_reports_the_tools_that_it_ran(root: Path) -> None:
    said = conversation(root, python("own_tools", tools="own"), agent_modules=(TOYS,))
    assert [(c.name, c.result) for c in said.turns()[0].tool_calls] == [("search", "found")]
    assert said.messages[3].cost_usd == 0.5


def test_a_command_runs_once_per_conversation_and_receives_only_named_variables(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_KEY", "visible-key-1")
    monkeypatch.setenv("OTHER_KEY", "hidden-key-2")
    (root / "agent.py").write_text(PROGRAM)
    monkeypatch.chdir(root)
    endpoint = {"kind": "command", "command": COMMAND, "environment": ["TOY_KEY"]}
    allowed: dict[str, Any] = {"agent_commands": (COMMAND,), "agent_variables": ("TOY_KEY",)}
    said = [m.content for m in conversation(root, endpoint, **allowed).messages if m.role == "assistant"]
    (first, pid, keys), (second, *rest) = ((text or "").split(" ", 2) for text in said)
    assert (first, second, rest, keys) == ("0", "1", [pid, keys], "['TOY_KEY']")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


@pytest.mark.parametrize(
    ("opening", "error"),
    [("crash", "ended with code 1: no more paper"), ("garbage", "not JSON"), ("hang", "no reply within 2 s")],
)
def test_a_command_that_fails_is_an_error_of_the_agent(
    root: Path, monkeypatch: pytest.MonkeyPatch, opening: str, error: str
) -> None:
    (root / "agent.py").write_text(PROGRAM)
    monkeypatch.chdir(root)
    endpoint = {"kind": "command", "command": COMMAND, "timeout_s": 2}
    outcome = conversation(root, endpoint, opening, agent_commands=(COMMAND,)).outcome
    assert outcome.outcome_class == "agent_error"
    assert error in (outcome.error or "")


@pytest.mark.parametrize(
    ("endpoint", "settings", "fix"),
    [
        (python("echo"), {}, "agent_modules"),
        (python("echo"), {"agent_modules": ("tests.simulate",)}, "agent_modules"),
        (python("absent"), {"agent_modules": (TOYS,)}, "cannot be loaded"),
        ({"kind": "command", "command": COMMAND}, {}, "agent_commands"),
        ({"kind": "command", "command": f"{COMMAND} --more"}, {"agent_commands": (COMMAND,)}, "agent_commands"),
        ({"kind": "command", "command": COMMAND, "environment": ["PATH2"]}, {"agent_commands": (COMMAND,)}, "agent_variables"),
        ({"kind": "http", "url": "http://127.0.0.1:9", "body": {}, "reply": "a", "headers": {"x": "${HOME}"}}, {}, "agent_variables"),
        ({"kind": "openai", "url": "http://127.0.0.1:9"}, {}, "endpoint.model is missing"),
        ({"kind": "openai", "url": "file:///etc/passwd", "model": "m"}, {}, "endpoint.url"),
        ({"kind": "openai", "url": "http://127.0.0.1:9", "model": "m", "modle": 1}, {}, "unknown key modle"),
        ({"kind": "grpc"}, {}, "Allowed: openai, litellm, http, python, command"),
    ],
)  # fmt: skip
def test_nothing_runs_and_no_variable_is_read_that_the_settings_do_not_name(
    root: Path, endpoint: dict[str, Any], settings: dict[str, Any], fix: str
) -> None:
    with pytest.raises(EndpointError, match=fix):
        conversation(root, endpoint, **settings)


def test_a_python_mock_runs_only_if_its_module_is_named(root: Path) -> None:
    tool = {"name": "count", "mock": {"sequence": [{"constant": 1}, {"python": f"{TOYS}:count"}]}}
    write_suite(root, {"one": scenario("D1") | {"slot": None, "tools": [tool], "assertions": []}})
    write_agents(root, {"toy": python("echo")})
    with pytest.raises(EndpointError, match="agent_modules"):
        ran(root, "toy", agent_modules=("another",))
