"""One conversation of 500 turns and one of 5,000, each with a tool call: CPU of import, run and report by the command."""

import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measuring import cost

SHORT, LONG, BAR = 500, 5_000, 12
COMMANDS = (
    ("import", "openai", "chat.jsonl", "--agent", "bot"),
    ("run", "--methodology", "1.3.0"),
    ("report",),
)


def measure() -> Iterator[str]:
    short, long = _cpu(SHORT), _cpu(LONG)
    for command, a, b in zip(COMMANDS, short, long, strict=True):
        yield f"{command[0]}: {SHORT:,} turns {a:.2f} CPU s, {LONG:,} turns {b:.2f}: {b / a:.1f} times (bar {BAR})"
    a, b = sum(short), sum(long)
    yield f"together {b / a:.1f} times"


def _cpu(n_turns: int) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "chat.jsonl").write_text(json.dumps(_chat(n_turns)) + "\n")
        home = {"AGENT_EVAL_HOME": folder, "PYTHONPATH": str(Path(__file__).parents[1])}
        return [
            cost([sys.executable, "-m", "agent_eval", *command], env=home, cwd=Path(folder)).cpu_s
            for command in COMMANDS
        ]


def _chat(n_turns: int) -> dict[str, object]:
    draw = random.Random(1)
    words = [f"w{i}" for i in range(500)]

    def text(n: int) -> str:
        return " ".join(draw.choices(words, k=n))

    messages: list[dict[str, object]] = []
    for i in range(n_turns):
        function = {"name": "get_order", "arguments": json.dumps({"id": i})}
        messages += [
            {"role": "user", "content": text(12)},
            {"role": "assistant", "tool_calls": [{"id": f"c{i}", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": f"c{i}", "content": text(20)},
            {"role": "assistant", "content": text(40)},
        ]
    return {"id": "c", "messages": messages}
