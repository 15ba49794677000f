"""What the commands create can be read by its owner only."""

import json
import os
import subprocess
import sys
from pathlib import Path


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
