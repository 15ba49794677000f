"""A new project: `init`, what an empty one says, commands without a project, the judge without a model."""

import json
from pathlib import Path

import pytest

from agent_eval import __version__
from agent_eval.commands.setup.mock_judge import _cluster_names, instance
from agent_eval.errors import AgentEvalError
from agent_eval.judge.clusters.naming import ERROR_DEDUPLICATION
from tests.commands.conftest import invoke


def said(*arguments: str) -> str:
    done = invoke(*arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory without a project at or above it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGENT_EVAL_HOME", raising=False)
    return tmp_path


def test_init_makes_a_project_that_names_the_next_command_and_keeps_what_is_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "agent_eval.toml").write_text("max_calls = 7\n")
    assert "cd mine && agent-eval import auto" in said("init", "mine")
    assert (folder / "mine" / "agent_eval.toml").read_text() == "max_calls = 7\n"
    assert (folder / "mine" / "data" / "sessions").is_dir()
    assert {"workspace.yaml", ".gitignore"} <= {path.name for path in (folder / "mine").iterdir()}
    monkeypatch.chdir(folder / "mine")
    for command in ("leaderboard", "summary"):
        assert "agent-eval import auto" in said(command)


def test_init_names_the_folder_and_says_when_the_project_was_there(folder: Path) -> None:
    assert said("init", ".").startswith(f"Project made: {folder}\nNext: agent-eval import")
    assert said("init", ".").startswith(f"The project already exists; its files are kept: {folder}\n")


@pytest.mark.parametrize("command", ["leaderboard", "report", "summary"])
def test_a_folder_without_a_project_names_init(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("AGENT_EVAL_HOME", str(folder))
    with pytest.raises(AgentEvalError, match="In a new project, run `agent-eval init DIR`") as refused:
        said(command)
    assert "lock" not in str(refused.value)


def test_the_sample_is_copied_whole_and_without_a_store(folder: Path) -> None:
    said("init", "demo", "--sample")
    data = folder / "demo" / "data"
    assert (data / "agents.yaml").is_file()
    assert len(list((data / "sessions").iterdir())) == 8
    assert not list(data.glob("*.duckdb*"))


def test_commands_that_need_no_project_need_none_and_the_others_say_how_to_make_one() -> None:
    assert said("--version") == f"agent-eval {__version__}\n"
    assert json.loads(said("methodology", "list", "--json"))
    assert "You judge the work of an AI agent" in said("prompts", "--metric", "helpfulness")
    with pytest.raises(AgentEvalError, match="agent-eval init"):
        said("leaderboard")


def test_the_judge_without_a_model_keeps_the_words_of_error_clusters() -> None:
    members = [{"quote": "rm -rf /", "reason": "why"}]
    case = {"id": "E-1", "label": "unsafe action", "tool": None, "members": members}
    form = {"type": "object", "properties": {"E-1": {"type": "object", "properties": {}}}}
    asked = {"messages": [{"content": ERROR_DEDUPLICATION.question}, {"content": json.dumps(case)}]}
    named = _cluster_names(asked, form)["E-1"]
    assert isinstance(named, dict)
    assert (named["title"], named["root_cause"]) == ("unsafe action: “rm -rf /”", "why")
    assert named["severity"] == "critical"
    assert _cluster_names({"messages": [{"content": "Rate it."}]}, form) == {}
    assert instance({"type": "integer", "maximum": 5}) == 5


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("smollm2",), "write --sample smollm2"),
        (("--sample", "smollm3"), "There is no sample 'smollm3'. Samples: smollm2"),
    ],
)
def test_a_name_without_a_sample_is_an_error(arguments: tuple[str, ...], reason: str) -> None:
    with pytest.raises(AgentEvalError, match=reason):
        said("init", "demo", *arguments)
