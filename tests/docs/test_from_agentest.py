"""docs/howto/from-agentest.md: the counterpart in every row exists."""

import importlib
import re
from typing import Any

import pytest
import typer

from agent_eval.cli import app
from agent_eval.metrics.metric_set import DEFAULT
from agent_eval.settings import Settings
from agent_eval.simulate.agents import endpoints
from agent_eval.simulate.mocks import Mock
from agent_eval.simulate.scenarios import (
    Assertion,
    BenchmarkScenario,
    ScriptedMessage,
    SimulatedUser,
    Trajectory,
)
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs/howto/from-agentest.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (?!Agentest|---)(.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
HOLDERS: dict[str, Any] = {
    "scenario": BenchmarkScenario, "simulated user": SimulatedUser, "scripted message": ScriptedMessage, "mock": Mock,
    "assertion": Assertion, "trajectory": Trajectory,
}  # fmt: skip
ENDPOINTS: dict[str, Any] = {
    "openai": endpoints.OpenAIEndpoint, "http": endpoints.HttpEndpoint, "python": endpoints.PythonEndpoint, "command": endpoints.CommandEndpoint,
}  # fmt: skip


# The source's options of scenarios, of its configuration and of its command line, and its metrics.
NAMES = [
    "profile",
    "goal",
    "knowledge",
    "userPromptTemplate",
    "turns",
    "userMessage",
    "mocks",
    "callIndex",
    "conversationId",
    "turnIndex",
    "sequence",
    "unmockedTools",
    "assertions",
    "toolCalls",
    "matchMode",
    "expected",
    "args",
    "argMatchMode",
    "forbidden",
    "agent",
    "name",
    "type",
    "endpoint",
    "handler",
    "headers",
    "body",
    "streaming",
    "requestTimeoutMs",
    "provider",
    "model",
    "providerOptions",
    "conversationsPerScenario",
    "maxTurns",
    "concurrency",
    "debounceMs",
    "metrics",
    "thresholds",
    "failOnErrorSeverity",
    "customMetrics",
    "include",
    "exclude",
    "compare",
    "reporters",
    "helpfulness",
    "coherence",
    "relevance",
    "faithfulness",
    "verbosity",
    "goal_completion",
    "agent_behavior_failure",
    "tool_call_behavior_failure",
    "scenario",
    "watch",
    "verbose",
]


def test_every_name_of_the_source_has_a_row() -> None:
    there = " ".join(name for name, _ in ROWS)
    assert [name for name in NAMES if not re.search(rf"`(--)?{name}\b", there)] == []


@pytest.mark.parametrize(("there", "here"), ROWS)
def test_the_counterpart_of_each_row_exists(there: str, here: str) -> None:
    commands: Any = typer.main.get_command(app)
    found = [name in Settings.model_fields for name in re.findall(r"setting `(\w+)`", here)]
    for key, holder in re.findall(
        r"key `(\w+)` of an? (scenario|simulated user|scripted message|mock|assertion|trajectory)", here
    ):
        found.append(key in HOLDERS[holder].model_fields)
    for kind, key in re.findall(r"endpoint `(\w+)`, key `(\w+)`", here):
        found.append(key in ENDPOINTS[kind].model_fields)
    for names, dotted in re.findall(r"fields ((?:`\w+`(?:, )?)+) of class `([\w.]+)`", here):
        module, _, name = dotted.rpartition(".")
        annotated = getattr(importlib.import_module(module), name).__annotations__
        found.append(set(re.findall(r"`(\w+)`", names)) <= annotated.keys())
    if here.startswith("metrics "):
        found += [name in DEFAULT.names for name in re.findall(r"`(\w+)`", here)]
    for line in re.findall(r"command `agent-eval ([^`]+)`", here):
        command, *options = line.split()
        known = {option for parameter in commands.commands[command].params for option in parameter.opts}
        found.append({option for option in options if option.startswith("--")} <= known)
    for option, command in re.findall(r"option `(--[\w-]+)` of command `agent-eval (\w+)`", here):
        found.append(option in {o for parameter in commands.commands[command].params for o in parameter.opts})
    if not found:
        assert re.match(r"not |an entry of agents.yaml", here), (there, here)
    assert all(found), (there, here)
