"""Projects with a suite of eight slots, for tests: scenario files and agents.yaml of any endpoint."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from agent_eval.project import Project
from agent_eval.simulate.preparation import prepared
from agent_eval.simulate.runner import SimulationReport
from agent_eval.transcripts.models import Conversation

TOOL = {
    "name": "lookup_order",
    "description": "Return the state of an order.",
    "parameters": {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]},
    "mock": {
        "table": [
            {"arguments": {"order": "1042"}, "constant": "shipped on Monday"},
            {"error": "unknown order"},
        ]
    },
}
SLOTS = ("D1", "D2", "D3", "D4", "D5", "standardised_task", "hallucination", "error_injection")


def scenario(slot: str) -> dict[str, Any]:
    """Return a scripted scenario of a slot."""
    fields: dict[str, Any] = {
        "slot": slot,
        "template": "customer_service_v1",
        "goal": "Learn where the parcel is.",
        "profile": "A hurried customer.",
        "opening": f"Where is my order 1042, please? ({slot})",
        "tools": [TOOL],
        "turns": [{"say": "And can you promise that it arrives today?", "kind": "information"}],
        "assertions": [{"trajectory": {"mode": "contains", "tools": [{"name": "lookup_order"}]}}],
    }
    return fields | ({"injected_error": "The order number is wrong."} if slot == "error_injection" else {})


def write_suite(
    root: Path, scenarios: Mapping[str, Mapping[str, Any]], name: str = "shop", **suite: object
) -> Path:
    """Write a suite and return its folder."""
    folder = root / "data" / "scenarios" / name
    folder.mkdir(parents=True, exist_ok=True)
    for scenario_id, fields in scenarios.items():
        (folder / f"{scenario_id}.scenario.yaml").write_text(
            yaml.safe_dump(json.loads(json.dumps(fields)), sort_keys=False)
        )
    if suite:
        (folder / "suite.yaml").write_text(yaml.safe_dump(suite))
    return folder


def write_agents(root: Path, endpoints: Mapping[str, Mapping[str, Any]]) -> None:
    """Write agents.yaml with an endpoint for each agent."""
    entries = [
        {"agent_id": agent, "category": "customer_service", "endpoint": json.loads(json.dumps(endpoint))}
        for agent, endpoint in endpoints.items()
    ]
    (root / "data").mkdir(exist_ok=True)
    (root / "data" / "agents.yaml").write_text(yaml.safe_dump(entries, sort_keys=False))


def openai(url: str, model: str = "varied", **more: object) -> dict[str, Any]:
    """Return an endpoint of the scripted server."""
    return {"kind": "openai", "url": url, "model": model, **more}


EIGHT = {slot.lower().replace("_", "-"): scenario(slot) for slot in SLOTS}


def held(root: Path, agent: str) -> list[Conversation]:
    """Return the conversations of an agent's complete sessions."""
    files = sorted((root / "data" / "sessions" / agent).glob("[!.]*/conversations.jsonl"))
    return [
        Conversation.model_validate_json(line) for file in files for line in file.read_bytes().splitlines()
    ]


def ran(
    root: Path, *agents: str, concurrency: int = 40, n_sessions: int = 1, **settings: Any
) -> SimulationReport:
    """Run all suites of a project against agents."""
    setup = Project.open(root).with_settings(**settings).simulation_setup()
    return prepared(setup, agents, n_sessions=n_sessions).run(concurrency=concurrency)
