"""The commands of README and docs run as they stand: each page in order, in one shell, in a copy of the sample.

Blocks marked `sh` run. What cannot run here is named in NOT_RUN with its reason, whether its fence says `sh` or `console`.
A judge model is the stand-in of the benchmarks; ports are free ones.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.judge_server import MockJudge, mock_judge
from benchmarks.warm import on_path
from tests.conftest import REPOSITORY

PAGES = sorted([REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")])
PORT = "8901"  # of the stand-in, in the pages

# By the first words of a block.
NOT_RUN = {
    "python3 -m venv .venv": "installs from the package index; CI does it before the tests",
    ".venv/bin/pip install": "installs from the package index; CI does it before the tests",
    ".venv/bin/ruff check": "the test command itself; CI runs this very line",
    "agent-eval ui": "serves until it is stopped; tests/defs/test_live.py runs it",
    "dagster api grpc": "needs Redis and several machines; benchmarks/cluster.py starts the same processes",
    "OPENAI_API_KEY=…": "needs keys, or a local server of a model",
    "agent-eval run --judge openai/gpt-4o-mini --judge anthropic": "needs two providers; ensembles: tests/judge",
    "agent-eval run --judge MODEL": "needs a judge model; tests/report/test_sheets_browser.py makes and labels a sheet",
    "agent-eval labels import labels-": "needs a labelled sheet; tests/report/test_sheets_browser.py has one",
    "agent-eval run --agent quill-help --methodology 1.3.0 --judge openai/gpt-4o-mini --max-cost 2": "add-a-metric.md runs the same command with the same options",
    "curl -H": "needs a running UI; tests/defs/test_live.py has one",
    "agent-eval init my-benchmark --benchmark": "needs a judge model; tests/simulate/test_suites.py runs init and simulate",
    "pytest --agent my-agent": "needs an agent; tests/test_testing.py runs it",
    "agent-eval scenarios check": "needs an agent; tests/simulate/test_end_to_end.py runs the same commands",
    "ollama pull": "needs Ollama and downloads a model",
    "export OPENAI_BASE_URL=http://127.0.0.1:8000/v1": "needs a server of a model; tests/judge/test_real_model.py has one",
}

# Pages that name agents of the sample other than the two of the smaller project.
OF_ALL_AGENTS = {"clusters.md"}

# Pages that ask a judge about quill-help: it keeps the conversations of this slot, so that few questions are asked.
ASKING = {"add-a-metric.md": "D3"}

# What a page must print, in this order: what its prose says.
PRINTED = {
    "tutorial.md": ["Logs", "ignored tool result", "exit code 2", "90.0", "published", "exit code 1"],
    "from-fair-forge.md": ["1 conversation imported", "my-agent", "1.000"],
    "gate-a-pull-request.md": ["exit code 1", "::error", "exit code 1"],
    "publish-a-methodology-version.md": ["1.4.0", "Quill Help", "71.7"],  # 0.5 × 90 + 0.5 × 73.3 − 10
}


def blocks(page: Path) -> list[tuple[str, str]]:
    """Every shell block of a page: how its fence is marked, and the commands without prompts."""
    found = re.findall(
        r"^```(sh|console)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    return [(mark, re.sub(r"^\$ ", "", text, flags=re.MULTILINE)) for mark, text in found]


def is_exempt(text: str) -> bool:
    return text.startswith(tuple(NOT_RUN))


def script(page: Path) -> str:
    """The page as one script that stops at the first command that fails, naming the block."""
    free = str(free_port())
    lines = ["set -euo pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for number, (mark, text) in enumerate(blocks(page), start=1):
        if mark == "sh" and not is_exempt(text):
            lines += [f"echo 'block {number}' >&2", text.replace(PORT, free)]
    return "\n".join(lines)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


RUN = [page for page in PAGES if any(m == "sh" and not is_exempt(text) for m, text in blocks(page))]


@pytest.fixture(scope="module")
def judge() -> Iterator[MockJudge]:
    with mock_judge() as judge:
        judge.reset(latency_ms=1)
        yield judge


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_the_commands_of_a_page_run(
    page: Path, sample_root: Path, two_agents: Path, judge: MockJudge, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    shutil.copytree(sample_root if page.name in OF_ALL_AGENTS else two_agents, project)
    if slot := ASKING.get(page.name):
        file = min((project / "data" / "sessions" / "quill-help").glob("*/conversations.jsonl"))
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        file.write_text(
            "".join(line for line in lines if json.loads(line)["scenario"] == slot), encoding="utf-8"
        )
    names = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONDONTWRITEBYTECODE")
    environment = {name: os.environ[name] for name in names if name in os.environ} | {
        "PATH": f"{on_path(tmp_path / 'bin')}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        "COLUMNS": "160",
        "OPENAI_BASE_URL": judge.environment["OPENAI_BASE_URL"],
        "OPENAI_API_KEY": "none",
    }
    command = ["bash", "-c", script(page)]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{page.name}: {done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    position = 0
    for words in PRINTED.get(page.name, []):
        position = done.stdout.find(words, position)
        assert position >= 0, f"{page.name} does not print {words!r} there:\n{done.stdout[-6000:]}"


def test_only_what_is_named_with_a_reason_is_left_out() -> None:
    left_out = [text for page in PAGES for mark, text in blocks(page) if mark == "console" or is_exempt(text)]
    assert [text for text in left_out if not is_exempt(text)] == []
    assert [start for start in NOT_RUN if not any(text.startswith(start) for text in left_out)] == []


def test_shell_is_marked_in_no_other_way() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    marks = set(re.findall(r"^```(\S+)", text, re.MULTILINE))
    assert marks <= {"sh", "console", "yaml", "toml", "json", "python", "csv", "nginx", "ini"}
