"""Calibration gates follow people's labels: stored rows, command, check and report agree after one run."""

import shutil
from pathlib import Path

import dagster as dg
import pytest

from agent_eval.commands.gate import gate_rows
from agent_eval.commands.run import run
from agent_eval.project import Project
from tests.commands.conftest import use
from tests.conftest import REPOSITORY, copy_sample
from tests.defs.test_gates import evaluations

pytestmark = pytest.mark.slow

VERSION, LUMEN, CONCIERGE, HARBOR = "1.3.0", "lumen-support", "concierge-pa", "harbor-desk"
LABEL = f"{CONCIERGE},,concierge-2026-04-D1,0,any,helpfulness,,5,good,,anna,2026-11-01T10:00:00Z\n"
COLUMNS = ("agent_id", "gate", "subject", "result", "evidence")


def calibrated(root: Path, agents: list[str], *, boards: bool = False) -> tuple[set[str], int]:
    """Run for these agents; return the results of helpfulness in the calibration gates, and the number of stale places.

    The stored rows equal those of the command, and the check of the UI is red if one of them is.
    """
    report = run(Project.open(), agents, [VERSION], boards=boards)
    project = Project.open()
    stored = project.table("gate_results").filter(methodology_version=VERSION)
    computed = gate_rows(project, VERSION)
    assert sorted(stored.select(COLUMNS).rows()) == sorted(computed.select(COLUMNS).rows())
    of_gate = stored.filter(gate="calibration")
    results = {*of_gate["result"]}
    with dg.DagsterInstance.from_config(str(root / ".dagster")) as instance:
        assert evaluations(instance, "gate_results")["calibration"][0] == (results <= {"passed"})
    return results, report.stale.height


def test_calibration_gates_follow_labels_in_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = use(monkeypatch, tmp_path / "project")
    copy_sample(root, LUMEN, CONCIERGE)
    rules = '[gates.calibration]\nmin_n = 2\nmetrics = ["helpfulness"]\n'
    (root / "agent_eval.toml").write_text(rules)
    assert calibrated(root, [])[0] == {"failed"}  # one label

    labels = root / "data" / "ratings" / "more.csv"
    header = (root / "data" / "ratings" / "sample.csv").read_text().splitlines()[0]
    labels.write_text(f"{header}\n{LABEL}")
    results, n_stale = calibrated(root, [CONCIERGE])  # the gates of the other agent change too
    assert (results, n_stale > 0) == ({"passed"}, True)
    for agents in ([LUMEN], []):
        assert calibrated(root, agents) == ({"passed"}, 0)

    labels.unlink()
    shutil.copytree(REPOSITORY / "data" / "sessions" / HARBOR, root / "data" / "sessions" / HARBOR)
    assert calibrated(root, [], boards=True)[0] == {"failed"}
    assert calibrated(root, []) == ({"failed"}, 0)
    folder = root / "data" / "report" / "agents" / VERSION
    pages = "".join(page.read_text() for page in folder.glob("*.html"))
    assert pages.count("judge and people on n = 1, at least 2") >= len([LUMEN, CONCIERGE, HARBOR])
