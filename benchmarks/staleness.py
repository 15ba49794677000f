"""Whether Dagster calls stale what `agent-eval run` would compute, after each of twelve kinds of change.

A project of many agents × 4 versions is run, changed, looked at in a process of its own, and run again. Dagster marks
what reads a changed input; what depends on that is stale too, and is derived here from the tables' declared inputs.
After each run nothing may be stale. `python -m benchmarks.staleness 99 100 150` takes other numbers of agents.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import yaml

from agent_eval.tables.schema import MADE_FROM, SOURCES, shape_of
from benchmarks.live import environment, run_in_process
from benchmarks.scoring import make_project

SIZES = ("99", "100", "150")  # agents: Dagster ignores an input with 100 or more parents
VERSIONS = ("1.0.0", "1.1.0", "1.2.0", "1.3.0")
AGENT = "agent-007"
Stale = dict[str, list[str]]


def measure(sizes: Sequence[str] = SIZES) -> Iterator[str]:
    """Yield a line per kind of change and number of agents."""
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            make_project(root / "data", int(size))
            run_in_process(root)
            for name, change in CHANGES.items():
                change(root)
                by_dagster, by_command = _stale(root)
                agents = {each.split("|")[0] for keys in by_command.values() for each in keys} - {*VERSIONS}
                agents |= {file.name for file in (root / "data" / "sessions").iterdir()}
                expected = with_all_below(by_dagster, sorted(agents))
                same = _places(expected) == _places(by_command) != set()
                run_in_process(root)
                left = [len(_places(each)) for each in _stale(root)]
                yield (
                    f"{size} agents, {name}: Dagster marks {len(_places(by_dagster))} partitions, the command computes "
                    f"{len(_places(by_command))}: {'equal' if same else 'DIFFERENT'}; after a run {left}"
                )
                if not same:
                    yield f"  only Dagster: {sorted(_places(expected) - _places(by_command))[:5]}"
                    yield f"  only the command: {sorted(_places(by_command) - _places(expected))[:5]}"


def with_all_below(stale: Stale, agents: Sequence[str]) -> Stale:
    """The partitions and all that depends on them: of the same agent and version, or of all agents."""
    partitions = {asset: {*keys} for asset, keys in stale.items()}
    for asset, parents in MADE_FROM.items():  # parents first
        of_asset = partitions.setdefault(asset, set())
        for parent in (name for name in parents if name not in SOURCES):
            for key in partitions.get(parent, ()):
                of_asset |= set(_reading(shape_of(parent), key, shape_of(asset), agents))
    return {asset: sorted(keys) for asset, keys in partitions.items() if keys}


def _reading(shape: str, key: str, shape_of_child: str, agents: Sequence[str]) -> Iterator[str]:
    agent, _, version = key.partition("|") if shape != "version" else ("", "", key)
    for each in [agent] if agent else agents:
        for of_version in [version] if version else VERSIONS:
            yield {"agent": each, "version": of_version, "agent x version": f"{each}|{of_version}"}[
                shape_of_child
            ]


def _places(stale: Stale) -> set[tuple[str, str]]:
    return {(asset, key) for asset, keys in stale.items() for key in keys}


def _stale(root: Path) -> tuple[Stale, Stale]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.defs.stale_keys"]
    path = str(Path(__file__).parents[1])
    done = subprocess.run(
        command, env=environment(root, PYTHONPATH=path), cwd=root, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    by_dagster, by_command = json.loads(done.stdout.splitlines()[-1])
    return by_dagster, by_command


def _replace(root: Path, pattern: str, before: str, after: str) -> None:
    file = next((root / "data").glob(pattern))
    text = file.read_text()
    if before not in text:
        raise ValueError(f"{file} lacks {before!r}")
    file.write_text(text.replace(before, after, 1))


def _set(root: Path, text: str) -> None:
    with (root / "agent_eval.toml").open("a") as file:
        file.write(f"\n{text}\n")


def _rate(root: Path, rating: int) -> None:
    head = "agent_id,session_id,conversation_id,turn_index,methodology_version,target,criterion,rating_1to5,rationale,evidence,rater,rated_at"
    name = next((root / "data" / "sessions" / AGENT).iterdir()).name
    (root / "data" / "ratings").mkdir(exist_ok=True)
    (root / "data" / "ratings" / "late.csv").write_text(
        f"{head}\n{AGENT},{name},,,1.3.0,U1,,{rating},seen,,kim,2026-11-01T10:00:00Z\n"
    )


def _add_agent(root: Path) -> None:
    data = root / "data"
    shutil.copytree(data / "sessions" / AGENT, data / "sessions" / "newcomer")
    entries = yaml.safe_load((data / "agents.yaml").read_text())
    entry = next(each for each in entries if each["agent_id"] == AGENT)
    (data / "agents.yaml").write_text(yaml.safe_dump([*entries, entry | {"agent_id": "newcomer"}]))


def _copy_session(root: Path) -> None:
    [first] = (root / "data" / "sessions" / AGENT).iterdir()
    again = first.with_name("again")
    shutil.copytree(first, again)
    for file in again.iterdir():
        file.write_text(file.read_text().replace(first.name, "again"))


CHANGES: dict[str, Callable[[Path], object]] = {
    "a comment": lambda root: _replace(root, f"sessions/{AGENT}/*/session.yaml", "date:", "# seen\ndate:"),
    "a reply": lambda root: _replace(
        root, f"sessions/{AGENT}/*/conversations.jsonl", '"role": "assistant", "content": "', '"role": "assistant", "content": "So: '
    ),
    "a name": lambda root: _replace(root, "agents.yaml", "name: Agent 7\n", "name: Agent seven\n"),
    "a rating": lambda root: _rate(root, 1),
    "another rating": lambda root: _rate(root, 4),
    "no rating": lambda root: (root / "data" / "ratings" / "late.csv").unlink(),
    "a new agent": _add_agent,
    "an agent without sessions": lambda root: shutil.rmtree(root / "data" / "sessions" / "newcomer"),
    "a second session": _copy_session,
    "a removed session": lambda root: shutil.rmtree(root / "data" / "sessions" / AGENT / "again"),
    "a gate": lambda root: _set(root, "[gates.overall]\ncomposite = 60"),
    "a setting of the outcome": lambda root: _replace(root, "../agent_eval.toml", "[gates", "answer_threshold = 0.9\n[gates"),
}  # fmt: skip


if __name__ == "__main__":
    for line in measure(sys.argv[1:] or SIZES):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
