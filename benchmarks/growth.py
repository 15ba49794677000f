"""Growth: import, run, report and a run with nothing stale, on ever more conversations, judged by rules alone.

`python -m benchmarks.growth 2000 10000 30000` takes other sizes; 100,000 conversations are run by hand. The
conversations are divided between 20 agents, or as many as stand after a slash: `50000/1` is one large agent.
"""

import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.measuring import cost

SIZES = ("2000", "10000")
N_AGENTS = 20  # by default
N_TURNS = 5
STEPS = (("run",), ("report",), ("run",))
NAMES = ("run", "report", "nothing stale")


def measure(sizes: Sequence[str] = SIZES) -> Iterator[str]:
    """Yield a line per step, for each number of conversations or conversations/agents."""
    for given in sizes:
        size, _, n_agents = given.partition("/")
        with tempfile.TemporaryDirectory() as folder:
            steps = _grown(Path(folder), int(size), int(n_agents or N_AGENTS))
            yield from (f"{given} conversations of {N_TURNS} turns: {line}" for line in steps)


def _grown(root: Path, size: int, n_agents: int) -> Iterator[str]:
    env = {
        "AGENT_EVAL_HOME": str(root),
        "DAGSTER_HOME": str(root / ".dagster"),
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    command = [sys.executable, "-m", "agent_eval"]
    for agent in range(n_agents):
        file = root / f"agent-{agent:02}.jsonl"
        with file.open("w") as lines:
            lines.writelines(json.dumps(c) + "\n" for c in _conversations(agent, size // n_agents))
        imported = cost([*command, "import", "openai", str(file), "--agent", file.stem], env=env, cwd=root)
        file.unlink()
    yield f"import of the last agent: {imported}"
    for name, step in zip(NAMES, STEPS, strict=True):
        yield f"{name}: {cost([*command, *step], env=env, cwd=root)}"
    sizes = (p.stat().st_size for p in root.rglob("*.duckdb"))
    yield f"store: {sum(sizes) / 1e6:.0f} MB"


def _conversations(agent: int, n: int) -> Iterator[dict[str, object]]:
    draw = random.Random(agent)
    words = [f"w{i}" for i in range(2_000)]

    def text(n_words: int) -> str:
        return " ".join(draw.choices(words, k=n_words))

    for number in range(n):
        messages: list[dict[str, object]] = []
        for turn in range(N_TURNS):
            call = {"name": "get_order", "arguments": json.dumps({"id": f"{number}-{turn}"})}
            failed = draw.random() < 0.1
            messages += [
                {"role": "user", "content": text(12)},
                {
                    "role": "assistant",
                    "tool_calls": [{"id": f"c{turn}", "type": "function", "function": call}],
                },
                {
                    "role": "tool",
                    "tool_call_id": f"c{turn}",
                    "content": "Error: order not found" if failed else text(20),
                },
                {"role": "assistant", "content": ("Done. " if failed else "") + text(40)},
            ]
        yield {"id": f"a{agent}-c{number}", "messages": messages}


if __name__ == "__main__":
    for line in measure(sys.argv[1:] or SIZES):
        print(line, flush=True)
