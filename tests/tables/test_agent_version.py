"""AgentVersion: mypy refuses a pair whose ids are swapped."""

import subprocess
import sys
from pathlib import Path

SWAPPED = """
from agent_eval.tables.agent_version import AgentId, AgentVersion, MethodologyVersion

agent, version = AgentId("lumen"), MethodologyVersion("1.3.0")
AgentVersion(agent, version)
AgentVersion(version, agent)
AgentVersion("1.3.0", "lumen")
AgentVersion.of("1.3.0", "lumen")
pair = AgentVersion.of(agent_id="lumen", methodology_version="1.3.0")
first: MethodologyVersion = pair.agent_id
"""


def test_mypy_refuses_a_pair_in_the_wrong_order(tmp_path: Path) -> None:
    file = tmp_path / "swapped.py"
    file.write_text(SWAPPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary"]
    found = subprocess.run(
        [*command, f"--cache-dir={tmp_path}", str(file)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    refused = {int(line.split(":")[1]) for line in found.stdout.splitlines() if "error:" in line}
    assert refused == {6, 7, 8, 10}, found.stdout + found.stderr
