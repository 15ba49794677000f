"""A frozen version that was edited is scored by nobody; its boards stay, and say so."""

import contextlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from typer.testing import CliRunner, Result

from agent_eval.cli import app, main
from agent_eval.commands.estimate import estimate_run
from agent_eval.commands.run import run
from agent_eval.commands.terminal.output import consoles
from agent_eval.methodology import EditedVersionError, freeze, registry
from agent_eval.methodology.registry import PACKAGED
from agent_eval.project import Project
from agent_eval.project.report import publish
from agent_eval.tables import TABLES, table
from benchmarks.warm import agent_eval, home_of
from tests.commands.conftest import use
from tests.conftest import at_home, copy_sample, made_once

pytestmark = pytest.mark.slow

AGENTS = ("quill-help", "harbor-desk")
EDITED = (
    r"^Methodology 1\.4\.0 was published with hash \w+, but its content now has hash \w+; undo the change"
)


@pytest.fixture(scope="module")
def published_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two agents of the sample under 1.3.0 and a frozen version of the user's own; one was never run for it."""
    return made_once(tmp_path_factory, "published", publish_own_version)


def publish_own_version(root: Path) -> None:
    copy_sample(root, *AGENTS)
    (session,) = (root / "data" / "sessions" / "quill-help").glob("*/session.yaml")
    session.write_text(session.read_text().replace("- 1.3.0\n", "- 1.3.0\n- 1.4.0\n"))
    text = (PACKAGED / "1.3.0.yaml").read_text(encoding="utf-8")
    for old, new in (
        ('version: "1.3.0"', 'version: "1.4.0"'),
        ("superseded_by: null", 'supersedes: "1.3.0"'),
        ("    points: 10", "    points: 5"),
        ("Ten points are taken", "Five points are taken"),
    ):
        assert old in text
        text = text.replace(old, new)
    own = root / "data" / "methodologies"
    own.mkdir(exist_ok=True)
    (own / "1.4.0.yaml").write_text(text, encoding="utf-8")
    assert freeze(own) == ("1.4.0",)
    done = agent_eval(root, "run", "--methodology", "1.3.0", "--methodology", "1.4.0", **home_of(root))
    assert done.returncode == 0, done.stderr


def edit(root: Path, old: str, new: str) -> None:
    """Replace a text of the frozen version, where it occurs first."""
    file = root / "data" / "methodologies" / "1.4.0.yaml"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.fixture
def edited(published_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same after an edit of one digit, in a folder of the test's own."""
    root = use(monkeypatch, Path(shutil.copytree(published_root, tmp_path / "edited")))
    edit(root, "    points: 5\n", "    points: 6\n")
    return root


@contextlib.contextmanager
def no_table_changes() -> Iterator[None]:
    store = Project.open().store
    before = {name: store.read(table(name)) for name in TABLES}
    yield
    assert [name for name in TABLES if not before[name].equals(store.read(table(name)))] == []


def printed(*command: str, version: str = "1.4.0") -> Result:
    return CliRunner().invoke(app, [*command, "--methodology", version])


def test_a_run_and_its_estimate_are_refused_in_one_line_until_the_edit_is_undone(
    edited: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["agent-eval", "run", "--boards"])
    with no_table_changes(), pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("Error: Methodology 1.4.0 was published with hash")
    assert said.err.count("\n") == 1
    with pytest.raises(EditedVersionError, match=EDITED):
        estimate_run(Project.open(), consoles()[0], (), (), as_json=False)
    edit(edited, "points: 6\n", "points: 5\n")
    report = run(Project.open(), versions=("1.3.0", "1.4.0"))
    assert (report.exit_code, report.stale.height) == (0, 0)


def test_a_run_of_another_version_goes_on_and_leaves_the_edited_board_alone(edited: Path) -> None:
    """It also names an unknown version of a session by file and line."""
    expected: list[str] = []
    for agent, version, in_file in (
        ("harbor-desk", "1.9.0", "- 1.3.0\n- 1.9.0\n"),
        ("quill-help", "1.31.0", "- 1.3.0\n- '1.31.0'  # 1.9.0\n"),
    ):
        (session,) = (edited / "data" / "sessions" / agent).glob("*/session.yaml")
        session.write_text(session.read_text().replace("- 1.3.0\n", in_file))
        line = next(i for i, text in enumerate(session.read_text().splitlines(), 1) if version in text)
        where = f"{agent}/{session.parent.name}/session.yaml:{line}"
        expected.append(f"{where}: methodology_versions names {version}, which does not exist")
    project = Project.open()
    before = project.table("leaderboard")
    report = run(project, versions=("1.3.0",), boards=True)
    assert report.exit_code == 0
    assert any("1.4.0 was published with hash" in warning for warning in report.warnings)
    named = [text for text in report.warnings if "which does not exist" in text]
    assert [text.partition(", so")[0] for text in named] == expected
    after = project.table("leaderboard")
    assert after.filter(methodology_version="1.4.0").equals(before.filter(methodology_version="1.4.0"))


def test_a_frozen_version_that_cannot_be_read_stops_runs_of_every_version(edited: Path) -> None:
    edit(edited, "points: 6", "points: 5")
    edit(edited, 'universal: "0.40"', 'universal: "0.41"')
    said = "1.4.0 was published, but its file cannot be read now"
    with no_table_changes(), pytest.raises(EditedVersionError, match=re.escape(said)):
        run(Project.open(), versions=("1.3.0",), boards=True)
    assert said in CliRunner().invoke(app, ["leaderboard"]).output
    assert said in publish(Project.open()).index.read_text(encoding="utf-8")


MATERIALISE = """
import os
import dagster as dg
from agent_eval.definitions import defs

boards = dg.AssetSelection.assets("leaderboard").required_multi_asset_neighbors()
with dg.DagsterInstance.from_config(os.environ["DAGSTER_HOME"]) as instance:
    made = defs.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance,
        asset_selection=sorted(boards.resolve(defs.resolve_asset_graph())),
        partition_key="1.4.0",
        raise_on_error=False,
    )
(failure,) = [e.step_failure_data.error for e in made.filter_events(lambda e: e.is_step_failure)]
print(made.success, failure.cause or failure)
"""


def test_an_asset_of_the_edited_version_fails_with_the_same_line(edited: Path) -> None:
    """In a process of its own: the definitions have the partitions of the versions that they were loaded with."""
    command = [sys.executable, "-c", MATERIALISE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("False"), done.stderr
    assert "1.4.0 was published with hash" in done.stdout


def test_the_board_of_the_edited_version_says_so_everywhere(edited: Path) -> None:
    board = printed("leaderboard")
    assert board.exit_code == 0
    assert board.output.startswith("Edited after it was frozen: 1.4.0 was published with hash")
    (row,) = json.loads(printed("leaderboard", "--json").output)
    assert row["methodology_edited"] is True
    assert row["methodology_content_hash"] in board.output  # the one it was made with
    page = publish(Project.open()).index.read_text(encoding="utf-8")
    assert "Version 1.4.0 was edited after it was frozen." in page


@pytest.mark.parametrize("record", ["with the new hash", "without the line", "removed", "as a draft"])
def test_a_changed_record_does_not_release_a_version_with_scores(edited: Path, record: str) -> None:
    file = edited / "data" / "methodologies" / "published.yaml"
    lines = [line for line in file.read_text().splitlines() if "1.4.0" not in line]
    file.write_text("\n".join([*lines, ""]))
    if record == "with the new hash":
        assert freeze(file.parent) == ("1.4.0",)
    elif record == "removed":
        file.unlink()
    elif record == "as a draft":
        edit(edited, "status: current", "status: draft")
    said = (
        r"1\.4\.0 was scored in this project with hash \w+, but its content now has hash \w+; undo the change"
    )
    with no_table_changes(), pytest.raises(EditedVersionError, match=said):
        run(Project.open(), versions=("1.4.0",))
    assert re.search(said, printed("leaderboard").output.replace("\n", " "))
    (row,) = json.loads(printed("leaderboard", "--json").output)
    assert row["methodology_edited"] is True
    edit(edited, "points: 6\n", "points: 5\n")
    assert list(Project.open().registry.edited()) == ["1.4.0"] * (record == "with the new hash")


def test_a_packaged_version_that_was_scored_stays_frozen_if_its_file_and_its_record_both_change(
    published_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = Path(shutil.copytree(PACKAGED, tmp_path / "versions"))
    file = changed / "1.3.0.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("    points: 10", "    points: 4"), "utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(registry, "PACKAGED", changed)
        patch.setattr(registry, "PACKAGED_RECORD", record := tmp_path / "published.yaml")
        registry._packaged.cache_clear()
        new = registry.Registry.read()
        record.write_text("".join(f'"{m.version}": {m.content_hash}\n' for m in new.methodologies))
        assert not registry.Registry.read().edited()  # nothing to compare with but the store
        project = Project.open(use(monkeypatch, published_root))
        said = r"1\.3\.0 was scored in this project with hash \w+, but its content now has hash \w+"
        with no_table_changes(), pytest.raises(EditedVersionError, match=said):
            run(project, versions=("1.3.0",))
        (row, *_) = json.loads(printed("leaderboard", "--json", version="1.3.0").output)
        assert row["methodology_edited"] is True
    registry._packaged.cache_clear()


def test_an_edited_packaged_version_is_refused_too(
    published_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "published.yaml"
    text = registry.PACKAGED_RECORD.read_text(encoding="utf-8")
    record.write_text(text.replace('"1.3.0": ', '"1.3.0": 0'), encoding="utf-8")
    monkeypatch.setattr(registry, "PACKAGED_RECORD", record)
    with pytest.raises(EditedVersionError, match=r"1\.3\.0 was published with hash 0"):
        run(Project.open(published_root))


# Superseded versions, and agents that never entered one


def test_a_superseded_board_says_so_and_names_the_current_one(published_root: Path) -> None:
    with at_home(published_root):
        old = [printed("leaderboard", "--format", f, version="1.3.0").output for f in ("table", "md")]
        rows = json.loads(printed("leaderboard", "--json", version="1.3.0").output)
        current = CliRunner().invoke(app, ["leaderboard"]).output
    words = "Methodology 1.3.0 is superseded by 1.4.0"
    assert old[0].startswith(f"{words}. Current board: agent-eval leaderboard --methodology 1.4.0")
    assert old[1].startswith(words)
    assert {(row["methodology_status"], row["superseded_by"]) for row in rows} == {("superseded", "1.4.0")}
    assert "superseded" not in current
    assert "methodology 1.4.0" in current


def test_the_report_links_a_superseded_board_to_the_current_one(published_root: Path, tmp_path: Path) -> None:
    publish(Project.open(published_root), tmp_path / "report")
    old = (tmp_path / "report" / "boards" / "1.3.0" / "index.html").read_text(encoding="utf-8")
    assert 'is superseded by 1.4.0. <a href="../../index.html">Current version: 1.4.0</a>' in old
    assert "is superseded by" not in (tmp_path / "report" / "index.html").read_text(encoding="utf-8")


def test_the_asset_page_links_a_superseded_board_to_the_current_one(published_root: Path) -> None:
    wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey("leaderboard"), asset_partitions=["1.3.0"])
    with dg.DagsterInstance.from_config(str(published_root / ".dagster")) as instance:
        [record] = instance.fetch_materializations(wanted, limit=1).records
    assert record.asset_materialization is not None
    assert record.asset_materialization.metadata["Superseded"].value == (
        "Version 1.3.0 is superseded by 1.4.0. Current version: "
        "[1.4.0](/assets/leaderboard?view=partitions&partition=1.4.0)."
    )


def test_an_agent_without_a_session_for_the_version_is_not_on_its_board(published_root: Path) -> None:
    boards = Project.open(published_root).table("leaderboard")
    assert set(boards.filter(methodology_version="1.3.0")["agent_id"]) == set(AGENTS)
    assert set(boards.filter(methodology_version="1.4.0")["agent_id"]) == {"quill-help"}


def test_a_version_that_is_superseded_later_has_its_board_made_again_and_nothing_else(
    published_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = use(monkeypatch, Path(shutil.copytree(published_root, tmp_path / "later")))
    own = root / "data" / "methodologies"
    (own / "1.4.0.yaml").rename(tmp_path / "1.4.0.yaml")  # as if it had not been published yet
    (own / "published.yaml").unlink()
    said: list[str] = []
    report = run(Project.open(), versions=("1.3.0",), say=said.append)
    assert report.stale.is_empty()
    assert said == ["version: 1.3.0"]
    board = Project.open().table("leaderboard").filter(methodology_version="1.3.0")
    assert set(board["superseded_by"]) == {None}
    said.clear()
    run(Project.open(), versions=("1.3.0",), say=said.append)
    assert said == []


def test_board_rows_carry_what_they_rest_on(published_root: Path) -> None:
    with at_home(published_root) as project:
        rows = json.loads(printed("leaderboard", "--json", version="1.3.0").output)
        csv = printed("leaderboard", "--format", "csv", version="1.3.0").output
        content_hash = project.registry.get("1.3.0").content_hash
        scores = [project.store.read(table(f"{kind}_scores")) for kind in ("universal", "domain")]
    row = next(r for r in rows if r["agent_id"] == "quill-help")
    for stored in scores:
        stored = stored.filter(agent_id="quill-help", methodology_version="1.3.0").select("^[ud][1-6]$")
        assert stored.to_dicts() == [{name: row[name] for name in stored.columns}]
    assert (row["benchmark_id"], row["session_dates"], row["evaluators"]) == (
        "quill-2026-04", ["2026-04-18"], ["agent_eval authors"],
    )  # fmt: skip
    assert (row["methodology_content_hash"], row["n_harness_failures_dropped"]) == (content_hash, 0)
    assert set(row) == set(csv.split("\n", maxsplit=1)[0].split(","))


# Every command that shows results of an edited version marks them on stderr

MARK = "Edited after it was frozen: 1.4.0 was published with hash"
SHOWING = (
    "explain quill-help",
    "compare quill-help harbor-desk",
    "reliability",
    "reliability --interactions",
    "errors",
    "gate",
)


def test_every_command_that_shows_an_edited_version_marks_it_on_stderr(edited: Path) -> None:
    for command in (*map(str.split, SHOWING), ["leaderboard", "--changes"]):
        for_machines = printed(*command, "--json")
        assert for_machines.stderr.startswith(MARK), command
        json.loads(for_machines.stdout)
        if "leaderboard" not in command:  # which prints the mark above its table
            assert printed(*command).stderr.startswith(MARK), command
            assert printed(*command, version="1.3.0").stderr == "", command


def test_the_explanation_of_an_edited_version_says_that_it_may_not_give_the_stored_score(
    edited: Path,
) -> None:
    rows = json.loads(printed("explain", "quill-help", "--json").stdout)
    told = "the edited file of methodology 1.4.0; the result may differ from the stored score"
    assert told in rows[0]["detail"].split("\n")[0]
    assert told in " ".join(printed("explain", "quill-help").stdout.replace("│", " ").split())
    assert "edited" not in printed("explain", "quill-help", version="1.3.0").output


@pytest.mark.parametrize("is_readable", [True, False])
def test_gates_never_pass_on_an_edited_version(edited: Path, tmp_path: Path, is_readable: bool) -> None:
    lenient = tmp_path / "lenient.toml"
    lenient.write_text(
        '[gates]\nfail_on_error_severity = "none"\nsilent_turns = false\nassertions = "none"\n'
    )
    gate = ("gate", "--config", str(lenient), "--json", "--agent", "quill-help")
    version, reason = ("1.4.0", MARK) if is_readable else ("1.3.0", "its file cannot be read now")
    if not is_readable:
        edit(edited, "weights:", "weights: broken:")
    shown = printed(*gate, version=version)
    [row] = [r for r in json.loads(shown.stdout) if r["result"] != "passed"]
    assert (row["gate"], row["subject"], row["result"]) == ("status", f"methodology {version}", "unknown")
    assert reason in row["evidence"]
    assert shown.exit_code == 2
    if not is_readable:
        edit(edited, "weights: broken:", "weights:")
    edit(edited, "points: 6\n", "points: 5\n")
    assert printed(*gate, version=version).exit_code == 0
