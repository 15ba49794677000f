"""Calibration gates follow people's labels: stored rows, command, check and report agree after one run."""

import shutil
from pathlib import Path

import dagster as dg
import pytest

from agent_eval.commands.gate import gate_rows
from agent_eval.commands.run import run, what_is_stale
from agent_eval.project import Project
from tests.conftest import TWO_AGENTS
from tests.defs.test_gates import evaluations

pytestmark = pytest.mark.slow

VERSION, QUILL, NEW = "1.3.0", "quill-help", "quill-new"
HEADER = (
    "agent_id,session_id,conversation_id,turn_index,methodology_version,target,criterion,rating_1to5,"
    "rationale,evidence,rater,rated_at\n"
)
COLUMNS = ("agent_id", "gate", "subject", "result", "evidence")


def label(root: Path, name: str, scenario: str) -> Path:
    """Write a file with a label of helpfulness of the first turn of a scenario."""
    file = root / "data" / "ratings" / f"{name}.csv"
    row = f"{QUILL},,quill-2026-04-{scenario},0,any,helpfulness,,5,good,,anna,2026-11-01T10:00:00Z\n"
    file.write_text(HEADER + row)
    return file


def calibrated(root: Path, agents: list[str], *, boards: bool = False) -> set[str]:
    """Run for these agents; return the results of helpfulness in the calibration gates.

    The stored rows equal those of the command, nothing is stale, and the check of the UI is red if one of them is.
    """
    run(Project.open(), agents, [VERSION], boards=boards)
    project = Project.open()
    stored = project.table("gate_results").filter(methodology_version=VERSION)
    computed = gate_rows(project, VERSION)
    assert sorted(stored.select(COLUMNS).rows()) == sorted(computed.select(COLUMNS).rows())
    assert what_is_stale(project, project.known_agents(), [VERSION])[1].is_empty()
    of_gate = stored.filter(gate="calibration")
    results = {*of_gate["result"]}
    with dg.DagsterInstance.from_config(str(root / ".dagster")) as instance:
        assert evaluations(instance, "gate_results")["calibration"][0] == (results <= {"passed"})
    return results


def test_calibration_gates_follow_labels_in_one_run(two_agents_copy: Path) -> None:
    root = two_agents_copy
    rules = '[gates.calibration]\nmin_n = 2\nmetrics = ["helpfulness"]\n'
    (root / "agent_eval.toml").write_text(rules)
    label(root, "one", "D1")
    assert calibrated(root, []) == {"failed"}

    second = label(root, "two", "D2")
    assert calibrated(root, [QUILL]) == {"passed"}  # the gates of the other agent change too

    second.unlink()
    sessions = root / "data" / "sessions"
    shutil.copytree(sessions / QUILL, sessions / NEW)
    assert calibrated(root, [], boards=True) == {"failed"}
    folder = root / "data" / "report" / "agents" / VERSION
    pages = "".join(page.read_text() for page in folder.glob("*.html"))
    assert pages.count("judge and people on n = 1, at least 2") >= len([*TWO_AGENTS, NEW])
