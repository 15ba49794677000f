"""What the commands create can be read by its owner only."""

import json
import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from agent_eval.defs.assets.ingest import INGESTED
from benchmarks.warm import home_of

pytestmark = pytest.mark.slow


def ran(command: list[str], root: Path) -> None:
    """Run Python with a umask that lets everyone read."""
    environment = os.environ | home_of(root)
    program = [sys.executable, *command]
    subprocess.run(program, env=environment, cwd=root, check=True, capture_output=True, umask=0o022)


def test_files_of_a_command_and_of_a_run_that_dagster_started_are_private(tmp_path: Path) -> None:
    """`dagster dev` starts runs without this project's command."""
    (tmp_path / "data").mkdir()
    chat = tmp_path / "chat.jsonl"
    chat.write_text(json.dumps({"id": "c", "correct": True, "messages": [{"role": "user", "content": "Hi"}]}))
    ran(["-m", "agent_eval", "import", "openai", str(chat), "--agent", "bot"], tmp_path)
    made = list((tmp_path / "data").rglob("*"))
    assert len(made) > 3
    assert [str(path) for path in made if path.stat().st_mode & 0o077] == []

    (tmp_path / ".dagster").mkdir(mode=0o700)
    with dg.DagsterInstance.from_config(str(tmp_path / ".dagster")) as instance:
        instance.add_dynamic_partitions("agent", ["bot"])
    wanted = ["--select", ",".join(INGESTED), "--partition", "bot", "-m", "agent_eval.definitions"]
    ran(["-m", "dagster", "asset", "materialize", *wanted], tmp_path)
    assert (tmp_path / "data" / "agent_eval.duckdb").is_file()
    made = [path for path in (tmp_path / "data").rglob("*") if path.stat().st_mode & 0o077]
    assert [str(path) for path in made if not path.name.startswith("agent_eval.duckdb.lock")] == []
