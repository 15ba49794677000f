"""What a run remembers, and what it must not: stores, homes, verdicts and agents that come and go."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent_eval.cli import app
from agent_eval.commands.run import run
from agent_eval.methodology.registry import PACKAGED
from agent_eval.project import Project
from benchmarks.warm import agent_eval
from tests.commands.conftest import use
from tests.conftest import copy_sample

pytestmark = pytest.mark.slow


def board(version: str = "1.3.0") -> dict[str, dict[str, object]]:
    rows = Project.open().table("leaderboard").filter(methodology_version=version)
    return {row["agent_id"]: row for row in rows.iter_rows(named=True)}


def test_the_data_folder_of_the_settings_holds_for_versions_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = use(monkeypatch, tmp_path / "elsewhere")
    copy_sample(root, "quill-help")
    (root / "data").rename(root / "evals")
    (root / "agent_eval.toml").write_text('data_dir = "evals"\n')
    own = root / "evals" / "methodologies"
    own.mkdir()
    text = (PACKAGED / "1.3.0.yaml").read_text().replace('version: "1.3.0"', 'version: "1.4.0"', 1)
    for kind, share in (("universal", "0.40"), ("domain", "0.60")):
        text = text.replace(f'{kind}: "{share}"', f'{kind}: "0.50"')
    (own / "1.4.0.yaml").write_text(text)
    session = next((root / "evals" / "sessions" / "quill-help").glob("*/session.yaml"))
    session.write_text(session.read_text().replace("- 1.3.0\n", "- 1.3.0\n- 1.4.0\n"))
    done = agent_eval(
        root, "run", "--methodology", "1.4.0"
    )  # partitions are read when the definitions are loaded
    assert done.returncode == 0, done.stderr
    # quill-help: U 90, D 73 1/3; 0.5 × 90 + 0.5 × 73 1/3 = 81 2/3, minus 10
    assert board("1.4.0")["quill-help"]["composite_exact"] == "215/3"


def test_what_a_removed_agent_an_edited_verdict_and_a_refused_record_leave(sample_copy: Path) -> None:
    a_removed_agent_leaves_every_board_even_version_by_version(sample_copy)
    a_refused_record_keeps_the_exit_code_until_it_is_fixed_and_a_verdict_is_edited_and_withdrawn(sample_copy)


def a_removed_agent_leaves_every_board_even_version_by_version(root: Path) -> None:
    """Also if the home of Dagster is lost: the boards keep all other agents."""
    sessions, others = root / "data" / "sessions", set(board()) - {"quill-help"}
    shutil.copytree(sessions / "forge-coder", sessions / "newcomer")
    result = CliRunner().invoke(app, ["gate", "--agent", "newcomer", "--json"])
    assert result.exit_code == 2  # it was never run
    assert [(row["gate"], row["result"]) for row in json.loads(result.stdout)] == [("status", "unknown")]
    shutil.rmtree(sessions / "newcomer")

    shutil.rmtree(sessions / "quill-help")
    shutil.rmtree(root / ".dagster")
    edited = next((sessions / "harbor-desk").glob("*/session.yaml"))
    edited.write_text(edited.read_text() + "# looked at again\n")
    assert set(run(Project.open(), versions=["1.3.0"]).stale["agent_id"]) == {"harbor-desk", "quill-help"}
    assert set(board("1.3.0")) == others
    assert "quill-help" in board("1.2.0")


def a_refused_record_keeps_the_exit_code_until_it_is_fixed_and_a_verdict_is_edited_and_withdrawn(
    root: Path,
) -> None:
    """In the run that takes the removed agent from the other boards. No escape sequence of the record reaches the terminal."""
    talk = next((root / "data" / "sessions" / "harbor-desk").glob("*/conversations.jsonl"))
    lines = [json.loads(line) for line in talk.read_text().splitlines()]
    lines[0]["messages"][0]["content"] = "\x1b[2Jgone\x9b31m"
    good = "".join(json.dumps(c) + "\n" for c in lines)
    talk.write_text(good + "{\n")
    file = root / "data" / "verdicts" / "sample.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        if row["metric"] == "U1" and row["verdict"]["rating_1to5"] == 5:
            row["verdict"]["rating_1to5"] = 4
    before = float(str(board("1.2.0")["forge-coder"]["raw_composite_score"]))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(Project.open()).exit_code == 1
    # one universal point is 20/15 of the composite
    assert float(str(board("1.2.0")["forge-coder"]["raw_composite_score"])) == pytest.approx(before - 20 / 15)
    shown = CliRunner().invoke(app, ["explain", "harbor-desk", "--score", "D1"]).stdout
    assert "gone" in shown
    assert not {"\x1b", "\x9b"} & {*shown}
    assert "quill-help" not in board("1.2.0")
    again = run(Project.open())
    assert (again.stale.is_empty(), again.exit_code) == (True, 1)
    assert "quill-help" not in Project.open().known_agents()

    file.write_text("")
    talk.write_text(good)
    assert run(Project.open(), versions=["1.2.0"]).exit_code == 0
    assert board("1.2.0")["forge-coder"]["status"] == "incomplete"
    assert Project.open().table("judge_cache").is_empty()
