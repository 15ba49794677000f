"""The flags that tau2-bench stored for its expected actions, against ours; skipped where its files are absent."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from agent_eval.scores.tools.trajectory import match
from agent_eval.transcripts.importers import tau2
from agent_eval.transcripts.importers.base import Source
from agent_eval.transcripts.models import Conversation

N_FLAGS = {
    "airline__gpt-4o-2024-11-20": 148,
    "airline__qwen2.5-7b": 124,
    "airline__toolorchestra-nemotron": 148,
    "telecom-solo__gpt-4.1__4trials": 40,
}


def checks(file: Path) -> list[tuple[list[dict[str, Any]], list[bool]]]:
    """Per simulation, in the file's order: the expected actions of agent and user, and the stored flags."""
    with gzip.open(file) as stream:
        simulations = json.load(stream)["simulations"]
    stored = [(s.get("reward_info") or {}).get("action_checks") or [] for s in simulations]
    return [
        ([{"name": c["action"]["name"], "arguments": c["action"]["arguments"], "match": "exact"} for c in found],
         [c["action_match"] for c in found])
        for found in stored
    ]  # fmt: skip


@pytest.mark.parametrize("name", N_FLAGS)
def test_every_stored_flag_of_an_expected_action_is_reproduced(shared_data: Path, name: str) -> None:
    file = shared_data / "tau2" / f"{name}.json.gz"
    conversations = [c for c in tau2.read(Source(file, "s")) if isinstance(c, Conversation)]
    ours: list[bool] = []
    theirs: list[bool] = []
    for conversation, (expected, flags) in zip(conversations, checks(file), strict=True):
        calls = [
            {"name": call.name, "arguments": call.arguments}
            for turn in conversation.turns()
            for call in turn.tool_calls
        ]
        ours += match(calls, expected, mode="unordered").found
        theirs += flags
    assert len(theirs) == N_FLAGS[name]
    assert ours == theirs
    assert 0 < sum(theirs) < len(theirs)
