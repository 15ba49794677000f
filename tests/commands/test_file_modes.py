"""What the commands create can be read by its owner only."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_eval.defs.assets.ingest import INGESTED

pytestmark = pytest.mark.slow


def test_files_of_a_command_are_private(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    chat = tmp_path / "chat.jsonl"
    chat.write_text(json.dumps({"id": "c", "correct": True, "messages": [{"role": "user", "content": "Hi"}]}))
    command = [sys.executable, "-m", "agent_eval", "import", "openai", str(chat), "--agent", "bot"]
    environment = os.environ | {"AGENT_EVAL_HOME": str(tmp_path)}
    subprocess.run(command, env=environment, check=True, capture_output=True, umask=0o022)
    made = list((tmp_path / "data").rglob("*"))
    assert len(made) > 3
    assert [str(path) for path in made if path.stat().st_mode & 0o077] == []


def test_the_store_of_a_run_that_dagster_started_is_private(tmp_path: Path) -> None:
    """`dagster dev` starts runs without this project's command."""
    test_files_of_a_command_are_private(tmp_path)
    (tmp_path / ".dagster").mkdir(mode=0o700)
    environment = os.environ | {"AGENT_EVAL_HOME": str(tmp_path), "DAGSTER_HOME": str(tmp_path / ".dagster")}
    add = "import dagster as dg; dg.DagsterInstance.get().add_dynamic_partitions('agent', ['bot'])"
    wanted = ["--select", ",".join(INGESTED), "--partition", "bot", "-m", "agent_eval.definitions"]
    for command in (["-c", add], ["-m", "dagster", "asset", "materialize", *wanted]):
        subprocess.run(
            [sys.executable, *command],
            env=environment,
            cwd=tmp_path,
            check=True,
            capture_output=True,
            umask=0o022,
        )
    assert (tmp_path / "data" / "agent_eval.duckdb").is_file()
    made = [path for path in (tmp_path / "data").rglob("*") if path.stat().st_mode & 0o077]
    assert [str(path) for path in made if not path.name.startswith("agent_eval.duckdb.lock")] == []
