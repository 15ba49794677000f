"""10,000 conversations of 10 turns: import, and the first run's ingest."""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measuring import cost

CONVERSATIONS, TURNS = 10_000, 10


def measure() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "data").mkdir()
        source = root / "big.jsonl"
        with source.open("w") as lines:
            for i in range(CONVERSATIONS):
                lines.write(json.dumps({"messages": _messages(i), "task_id": f"t{i}"}) + "\n")
        env = {"AGENT_EVAL_HOME": folder, "DAGSTER_HOME": str(root / ".dagster")}
        command = [sys.executable, "-m", "agent_eval"]
        spent = cost([*command, "import", "auto", str(source), "--agent", "big"], env=env)
        yield f"import auto, {CONVERSATIONS:,} conversations, {CONVERSATIONS * TURNS:,} turns: {spent} (bar 60 s, 1 GB)"
        spent = cost([sys.executable, "-c", _INGEST], env=env)
        yield f"read them into frames: {spent} (bar 60 s, 1 GB)"


_INGEST = (
    "from agent_eval.project import Project; from agent_eval.project.ingest import ingest; "
    "assert ingest(Project.open(), ['big'])['turns'].height == 100_000"
)


def _messages(i: int) -> list[dict[str, object]]:
    messages: list[dict[str, object]] = []
    for turn in range(TURNS):
        messages.append(
            {
                "role": "user",
                "content": f"Question {turn} of conversation {i}: where is order {i * 7 + turn}?",
            }
        )
        messages.append(
            {
                "role": "assistant",
                "content": f"Order {i * 7 + turn} left our warehouse and arrives in {turn + 1} days.",
            }
        )
    return messages
