"""What litellm says of a model is kept, and asked again when it could be another answer."""

import json
import re
from pathlib import Path

import pytest

from agent_eval.judge.llm.sharing import model_facts
from agent_eval.judge.llm.sharing.model_facts import keep_in, kept

ASKED: list[str] = []


def ask(model: str = "m", *, lasts: bool = True) -> object:
    def answer() -> dict[str, str]:
        ASKED.append(model)
        return {"of": model}

    return kept("info", model, ask=answer, is_lasting=lambda _: lasts)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(model_facts, "_file", None)
    keep_in(tmp_path / "store.models")
    return tmp_path / "store.models"


def test_a_fact_is_asked_again_only_if_it_may_have_changed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def n_asked(model: str = "m", *, lasts: bool = True) -> int:
        ASKED.clear()
        assert ask(model, lasts=lasts) == {"of": model}
        return len(ASKED)

    assert [n_asked(), n_asked()] == [1, 0]
    assert [n_asked("n"), n_asked("n"), n_asked()] == [1, 0, 0]
    assert [n_asked("of a server", lasts=False) for _ in range(2)] == [1, 1]
    monkeypatch.setenv("SOME_API_KEY", "a secret")
    assert [n_asked(), n_asked()] == [1, 0]
    monkeypatch.setenv("SOME_API_KEY", "")  # litellm accepts an empty key
    assert n_asked() == 1
    assert "secret" not in file.read_text()
    monkeypatch.setattr("importlib.metadata.version", lambda _: "another")
    assert [n_asked(), n_asked()] == [1, 0]
    whole = file.read_text()
    for edited in (whole.replace('"of": "m"', '"of": "x"'), re.sub(r'\{"value".*?"hash"', '{"hash"', whole)):
        assert edited != whole
        file.write_text(edited)
        assert n_asked() == 1, edited
    for broken in ("{", "[]", '{"litellm": "another", "facts": 3}', '"\\ud800"'):
        file.write_text(broken)
        assert n_asked() == 1, broken
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "False")  # litellm loads the prices of the day
    assert n_asked() == 1


def test_the_file_does_not_grow_without_end(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_facts, "MOST_FACTS", 3)
    for number in range(9):
        ask(str(number))
    assert len(json.loads(file.read_text())["facts"]) == 4
    ASKED.clear()
    ask("8")
    assert ASKED == []


def test_without_a_file_or_a_folder_nothing_is_kept(file: Path) -> None:
    keep_in(file.parent / "absent" / "store.models")
    assert [ask(), ask()] == [{"of": "m"}] * 2
    keep_in(None)
    assert ask() == {"of": "m"}
    assert list(file.parent.iterdir()) == []
