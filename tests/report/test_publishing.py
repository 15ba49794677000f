"""The report on its way out: the command, the asset, and what the nightly run does."""

import shutil
from pathlib import Path

import dagster as dg
import pytest
from typer.testing import CliRunner

from agent_eval.cli import app
from agent_eval.definitions import defs
from tests.defs.test_live import edit_a_session


@pytest.mark.slow
def test_the_command_says_where_the_report_is(
    sample_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_EVAL_HOME", str(sample_root))
    index = tmp_path / "deep" / "site" / "index.html"
    result = CliRunner().invoke(app, ["report", "--out", str(index.parent), "--methodology", "1.2.0"])
    assert result.exit_code == 0, result.output
    assert str(index) in result.stdout.replace("\n", "")
    assert "<title>Leaderboard 1.2.0" in index.read_text()
    assert (index.parent / "boards" / "1.3.0" / "index.html").is_file()


def test_an_unknown_version_is_refused_before_anything_is_written(
    sample_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_EVAL_HOME", str(sample_root))
    result = CliRunner().invoke(app, ["report", "--out", str(tmp_path / "site"), "--methodology", "9.9.9"])
    assert "9.9.9" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_a_project_without_a_store_has_a_report_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("AGENT_EVAL_HOME", str(tmp_path))
    result = CliRunner().invoke(app, ["report"])
    assert result.exit_code == 0, result.output
    assert "No agents yet" in (tmp_path / "data" / "report" / "index.html").read_text()


@pytest.mark.slow
def test_what_stands_in_the_reports_way_does_not_cost_the_run_and_boards_are_published_once_it_is_gone(
    two_agents_copy: Path,
) -> None:
    report = two_agents_copy / "data" / "report"
    report.mkdir()
    (report / "mine.txt").write_text("keep me")
    edit_a_session(two_agents_copy)
    refused = CliRunner().invoke(app, ["run", "--boards"])
    assert "mine.txt" in str(refused.exception) or "other files" in str(refused.exception)
    assert "Nothing was stale" in CliRunner().invoke(app, ["run"]).output
    assert [path.read_text() for path in report.rglob("*")] == ["keep me"]

    shutil.rmtree(report)
    result = CliRunner().invoke(app, ["run", "--boards"])
    assert result.exit_code == 0, result.output
    with dg.DagsterInstance.from_config(str(two_agents_copy / ".dagster")) as instance:
        event = instance.get_latest_materialization_event(dg.AssetKey("html_report"))
    assert event is not None
    assert event.asset_materialization is not None
    metadata = event.asset_materialization.metadata
    assert metadata["n_pages"].value == len([*report.rglob("*.html")])
    assert metadata["path"].value == str(report / "index.html")


def test_no_change_of_files_triggers_the_report() -> None:
    spec = next(s for s in defs.resolve_all_asset_specs() if s.key == dg.AssetKey("html_report"))
    assert spec.automation_condition is None
    assert spec.partitions_def is None
