"""A judge model that answers from a script, and a project for it to judge."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from agent_eval.cli import app
from agent_eval.judge.llm.client import CallError
from benchmarks.warm import home_of
from tests.conftest import at_home, copy_sample, made_once, own_copy
from tests.judge.fakes import ScriptedClient

AGENT = "quill-help"
KEY = "sk-planted-0123456789abcdef"
MARK = "zyxw-planted-text"


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


def scripted(patch: pytest.MonkeyPatch) -> Model:
    model = Model()
    patch.setattr("agent_eval.project.judges.LiteLLMClient", model.client)
    patch.setattr("agent_eval.project.judges.price_of", lambda _: None)
    patch.setattr("agent_eval.project.judges.problem_of", lambda *_, **__: None)
    patch.setattr("agent_eval.judge.llm.requests.FIRST_PAUSE_S", 0.0001)
    patch.setenv("OPENAI_API_KEY", KEY)
    return model


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    return scripted(monkeypatch)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The sample with one agent, before any run; a key in the environment."""
    unjudged(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    yield use(monkeypatch, tmp_path)
    assert files_with_the_key(tmp_path) == []


@pytest.fixture
def judged_copy(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The same after a run of version 1.3.0 with the scripted model; MARK is in the text of its first conversation."""
    root = own_copy(made_once(tmp_path_factory, "judged", judge_once), tmp_path, monkeypatch)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    yield root
    assert files_with_the_key(root) == []


def judge_once(root: Path) -> None:
    unjudged(root)
    file = first_session(root)
    lines = file.read_text().splitlines()
    first = json.loads(lines[0])
    first["messages"][0]["content"] += f" {MARK}"
    file.write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
    with pytest.MonkeyPatch.context() as patch, at_home(root):
        scripted(patch)
        done = invoke("run", "--methodology", "1.3.0", "--judge", "some/model")
        assert done.exit_code == 0, done.output


def unjudged(root: Path) -> None:
    copy_sample(root, AGENT)
    shutil.rmtree(root / "data" / "verdicts")


def first_session(root: Path) -> Path:
    return min((root / "data" / "sessions" / AGENT).glob("*/conversations.jsonl"))


def files_with_the_key(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
