"""100 agents × 4 versions through every asset, on SQLite; the same in Dagster alone; a second run with nothing new."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import yaml

from agent_eval.definitions import defs
from agent_eval.defs.launch import by_stage
from benchmarks.bare_graph import SETTINGS
from benchmarks.measuring import cost

AGENTS = 100
DATA = Path(__file__).parents[1] / "data"


def measure(agents: int = AGENTS) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_project(root / "data", agents)
        shutil.copy(SETTINGS, root)
        env = {"AGENT_EVAL_HOME": folder, "DAGSTER_HOME": str(root / ".dagster")}
        command = [sys.executable, "-m", "agent_eval", "run"]
        first = cost(command, env=env)
        stages = {name: len(keys) for name, keys in by_stage(defs).items()}
        shapes = {
            "agent": stages["agent"],
            "agent x version": stages["agent x version"] + stages["gate_results"],
            "version": stages["version"],
        }
        n = agents * shapes["agent"] + 4 * agents * shapes["agent x version"] + 4 * shapes["version"]
        yield f"{agents} agents × 4 versions, {n:,} asset-partitions: {first}: {1000 * first.wall_s / n:.1f} ms each (bar 20), {1000 * first.cpu_s / n:.1f} CPU ms"
        for event_log in ("stock", "batched"):
            sizes = [event_log, str(agents), *map(str, shapes.values())]
            bare = cost([sys.executable, "-W", "ignore", "-m", "benchmarks.bare_graph", *sizes])
            each = 1000 * bare.wall_s / n
            yield f"empty assets of the same shapes, {event_log} event log: {bare}: {each:.1f} ms each; ours / bare: {first.cpu_s / bare.cpu_s:.2f} CPU, {first.wall_s / bare.wall_s:.2f} wall"
        yield f"nothing new: {cost(command, env=env)} (bar 5 s)"


def make_project(data: Path, agents: int) -> None:
    """One sample session per agent, under names of its own."""
    shutil.copytree(DATA / "verdicts", data / "verdicts")
    source = DATA / "sessions" / "harbor-desk"
    entry = next(
        e for e in yaml.safe_load((DATA / "agents.yaml").read_text()) if e["agent_id"] == "harbor-desk"
    )
    for i in range(agents):
        shutil.copytree(source, data / "sessions" / f"agent-{i:03}")
    entries = [entry | {"agent_id": f"agent-{i:03}", "name": f"Agent {i}"} for i in range(agents)]
    (data / "agents.yaml").write_text(yaml.safe_dump(entries))
