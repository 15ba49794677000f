"""A new project: `init`, what an empty one says, commands without a project, the judge without a model."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent_eval import __version__
from agent_eval.cli import app
from agent_eval.commands.setup.mock_judge import _cluster_names, instance
from agent_eval.judge.cluster_naming import ERROR_DEDUPLICATION


def invoke(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory without a project at or above it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGENT_EVAL_HOME", raising=False)
    return tmp_path


def test_init_makes_a_project_and_keeps_what_is_there(folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "agent_eval.toml").write_text("max_calls = 7\n")
    assert "cd mine && agent-eval import auto" in invoke("init", "mine")
    assert (folder / "mine" / "agent_eval.toml").read_text() == "max_calls = 7\n"
    assert (folder / "mine" / "data" / "sessions").is_dir()
    assert {"workspace.yaml", ".gitignore"} <= {path.name for path in (folder / "mine").iterdir()}


def test_init_names_the_folder_and_says_when_the_project_was_there(folder: Path) -> None:
    assert invoke("init", ".").startswith(f"Project made: {folder}\nNext: agent-eval import")
    assert invoke("init", ".").startswith(f"The project already exists; its files are kept: {folder}\n")


@pytest.mark.parametrize("command", ["leaderboard", "report", "summary"])
def test_a_folder_without_a_project_names_init(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("AGENT_EVAL_HOME", str(folder))
    done = CliRunner().invoke(app, [command])
    assert "In a new project, run `agent-eval init DIR`" in str(done.exception)
    assert "lock" not in str(done.exception)


def test_the_sample_is_copied_whole_and_without_a_store(folder: Path) -> None:
    invoke("init", "demo", "--sample")
    data = folder / "demo" / "data"
    assert (data / "agents.yaml").is_file()
    assert len(list((data / "sessions").iterdir())) == 8
    assert not list(data.glob("*.duckdb*"))


def test_an_empty_project_names_the_next_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invoke("init", "mine")
    monkeypatch.chdir(folder / "mine")
    for command in ("leaderboard", "summary"):
        assert "agent-eval import auto" in invoke(command)


def test_commands_that_need_no_project_need_none() -> None:
    assert invoke("--version") == f"agent-eval {__version__}\n"
    assert json.loads(invoke("methodology", "list", "--json"))
    assert "You judge how an AI agent" in invoke("prompts", "--metric", "helpfulness")


def test_a_command_without_a_project_says_how_to_make_one() -> None:
    done = CliRunner().invoke(app, ["leaderboard"])
    assert "agent-eval init" in str(done.exception)


def test_the_judge_without_a_model_keeps_the_words_of_error_clusters() -> None:
    case = {
        "id": "E-1",
        "label": "unsafe action",
        "tool": None,
        "members": [{"quote": "rm -rf /", "reason": "why"}],
    }
    form = {"type": "object", "properties": {"E-1": {"type": "object", "properties": {}}}}
    asked = {"messages": [{"content": ERROR_DEDUPLICATION.question}, {"content": json.dumps(case)}]}
    named = _cluster_names(asked, form)["E-1"]
    assert isinstance(named, dict)
    assert (named["title"], named["root_cause"]) == ("unsafe action: “rm -rf /”", "why")
    assert named["severity"] == "critical"
    assert _cluster_names({"messages": [{"content": "Rate it."}]}, form) == {}
    assert instance({"type": "integer", "maximum": 5}) == 5
