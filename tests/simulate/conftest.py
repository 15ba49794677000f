"""A scripted agent server, and an empty project for commands in this process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.conftest import use
from tests.simulate.agent_server import Server, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project."""
    (tmp_path / "data" / "sessions").mkdir(parents=True)
    (tmp_path / "agent_eval.toml").write_text("")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")  # nothing listens there
    monkeypatch.setattr(
        "agent_eval.simulate.preparation.problem_of", lambda *_, **__: None
    )  # imports litellm
    return use(monkeypatch, tmp_path)
