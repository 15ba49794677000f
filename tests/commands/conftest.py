"""A judge model that answers from a script, and a project for it to judge."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from agent_eval.cli import app
from agent_eval.judge.llm.client import CallError
from benchmarks.warm import home_of
from tests.conftest import copy_sample
from tests.judge.fakes import ScriptedClient

AGENT = "quill-help"
KEY = "sk-planted-0123456789abcdef"


def use(monkeypatch: pytest.MonkeyPatch, root: Path) -> Path:
    """Make a root the project of the commands in this process; return it."""
    for name, value in home_of(root).items():
        monkeypatch.setenv(name, value)
    return root


def invoke(*arguments: str) -> Result:
    """Run a command in this process; an error that ends it is raised."""
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


class Model:
    """Stands for litellm: every client that a run makes answers from here."""

    def __init__(self) -> None:
        self.always: CallError | None = None
        self.answers: dict[str, object] = {}
        self.clients: list[ScriptedClient] = []

    def client(self, model: str, *_: object) -> ScriptedClient:
        self.clients.append(ScriptedClient(model=model, answers=self.answers, always=self.always))
        return self.clients[-1]

    def n_asked(self) -> int:
        """Calls since the last time this was asked."""
        n = sum(len(client.asked) for client in self.clients)
        self.clients.clear()
        return n


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    model = Model()
    monkeypatch.setattr("agent_eval.project.project.LiteLLMClient", model.client)
    monkeypatch.setattr("agent_eval.project.project.price_of", lambda _: None)
    monkeypatch.setattr("agent_eval.project.project.problem_of", lambda _model, is_listed: None)
    monkeypatch.setattr("agent_eval.judge.llm.requests.FIRST_PAUSE_S", 0.0001)
    return model


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The sample with one agent, before any run; a key in the environment."""
    copy_sample(tmp_path, AGENT)
    shutil.rmtree(tmp_path / "data" / "verdicts")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    yield use(monkeypatch, tmp_path)
    held = [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert held == []
