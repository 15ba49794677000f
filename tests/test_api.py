"""The functions of `import agent_eval`: the page that shows them runs, and wrong input is named."""

import importlib
import json
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import agent_eval
from agent_eval.cli import app, main
from agent_eval.commands.results.notebook import NotebookAnswer
from agent_eval.errors import (
    PLATFORMS,
    AgentEvalError,
    ArgumentError,
    InputError,
    InvalidValueError,
    JudgeError,
    NotFoundError,
)
from agent_eval.project import Project
from agent_eval.settings.home import NoRootError
from agent_eval.tables import UnknownTableError
from tests.conftest import REPOSITORY

TEXTS = {"user": "Hi", "assistant": "Hello, how can I help?"}
SAID = {"conversation_id": "c", "messages": [{"role": r, "content": t} for r, t in TEXTS.items()]}


def rating(judge: Callable[..., Any], **more: Any) -> dict[str, Any]:
    """The row of a judgment of helpfulness."""
    [row] = agent_eval.judge_conversations(SAID, judge, metrics=["helpfulness"], **more).to_dicts()
    return row


def test_the_page_of_python_runs(sample_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(sample_copy)
    page = (REPOSITORY / "docs" / "python.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(blocks) >= 5
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
    board = names["board"]
    assert isinstance(board, pl.DataFrame)
    assert board.equals(Project.open(sample_copy).table("leaderboard"))
    shown = set(re.findall(r"agent_eval\.(\w+)", "".join(blocks)))
    assert {*agent_eval.__all__} - {"__version__"} <= shown | {"run_project", "pass_at_k"}


def test_every_name_is_there_and_no_package_is_shadowed() -> None:
    packages = {path.stem for path in (REPOSITORY / "agent_eval").iterdir()}
    assert not packages & {*agent_eval.__all__}
    for name in agent_eval.__all__:
        assert getattr(agent_eval, name)
        assert name in dir(agent_eval)
    with pytest.raises(AttributeError, match="nothing"):
        getattr(agent_eval, "nothing")  # noqa: B009


def test_windows_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(SystemExit, match="2"):
        main()
    assert capsys.readouterr().err.splitlines() == [f"Error: {PLATFORMS}"]
    with pytest.raises(ImportError, match="Linux and macOS"):
        _ = agent_eval.open_project


def test_the_import_alone_loads_no_library() -> None:
    code = "import sys, agent_eval; print(sorted({'polars', 'dagster', 'duckdb', 'litellm', 'pydantic'} & sys.modules.keys()))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_a_judge_that_raises_cannot_tell_or_leaves_the_scale_leaves_the_metric_unscored() -> None:
    def broken(metric: str, prompt: str) -> int:
        raise ValueError("no answer today")

    row = rating(broken)
    assert (row["status"], row["rating_1to5"]) == ("unscored", None)
    assert "no answer today" in row["rationale"]
    row = rating(lambda *_: None)
    assert (row["status"], row["unscored_reason"], row["rating_1to5"]) == ("unscored", "cannot_tell", None)
    with pytest.warns(UserWarning, match="1 of 1 judgments are unscored"):
        row = rating(lambda *_: 9)
    assert (row["status"] == "scored", row["rating_1to5"]) == (False, None)


def test_labels_and_whole_conversations_are_judged_too_and_a_frame_is_as_good_as_dicts() -> None:
    def script(metric: str, prompt: str) -> int | str:
        assert "how can I help" in prompt
        return "no failure" if metric == "agent_behavior_failure" else 1

    found = agent_eval.judge_conversations([SAID, SAID | {"conversation_id": "d"}], script)
    by_metric = {row["metric"]: row for row in found.filter(conversation_id="d").to_dicts()}
    assert by_metric["agent_behavior_failure"]["label"] == "no failure"
    assert by_metric["goal_completion"]["turn_index"] is None
    assert by_metric["goal_completion"]["value"] == 1.0
    frame = pl.DataFrame([SAID, SAID | {"conversation_id": "d"}])
    assert agent_eval.judge_conversations(frame, script).equals(found)


NO_TURNS = {"conversation_id": "y", "messages": [{}]}
SURROGATE = {"conversation_id": "c", "messages": [{"role": "user", "content": "\ud800"}]}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"conversation_id": "x"}, r"Conversation \d: "),
        ({"messages": "no"}, r"Conversation \d: "),
        (["text"], r"Conversation \d: "),
        ([SAID, NO_TURNS], r"Conversation \d: "),
        ([SAID, SAID], "Conversation 2: another conversation has the id 'c'"),
        (SURROGATE, "unpaired surrogate"),
    ],
)
def test_what_is_no_conversation_is_named(given: Any, named: str) -> None:
    with pytest.raises(InvalidValueError, match=named):
        agent_eval.judge_conversations(given, lambda *_: 1)


def test_reliability_of_a_frame_excludes_and_counts_what_has_too_few_trials() -> None:
    trials = pl.DataFrame({"task_id": ["a", "a", "b", "c"], "is_correct": [True, True, True, None]})
    assert agent_eval.reliability_of(trials)["k"].to_list() == [1]
    [row] = agent_eval.reliability_of(trials, [2]).to_dicts()
    assert (row["pass_hat_k"], row["n_tasks"], row["n_tasks_excluded"], row["n_trials"]) == (1.0, 1, 2, 2)
    with pytest.raises(InvalidValueError, match="k is 5, but no task has more than 2 trials") as caught:
        agent_eval.reliability_of(trials, [5])
    assert "plug_in" not in str(caught.value)
    assert agent_eval.reliability_of(trials.clear()).is_empty()


@pytest.mark.parametrize(
    "frame",
    [
        {"task_id": ["a", "a"], "is_correct": [0.7, 2.0]},
        {"task_id": ["a", "a"], "is_correct": [1, 2]},
        {"task_id": ["a"], "is_correct": ["yes"]},
        {"task": ["a"], "is_correct": [True]},
    ],
)
def test_rewards_and_words_are_no_outcomes(frame: dict[str, list[object]]) -> None:
    with pytest.raises(InvalidValueError, match="frame of trials cannot be used"):
        agent_eval.reliability_of(pl.DataFrame(frame))


def test_outcomes_as_numbers_count_and_trials_without_a_task_do_not() -> None:
    trials = pl.DataFrame({"task_id": ["a", "a", None, None], "is_correct": [1.0, 0.0, 1.0, None]})
    found = agent_eval.reliability_of(trials).select("k", "pass_hat_k", "n_tasks", "n_trials")
    assert found.rows() == [(1, 0.5, 1, 2), (2, 0.0, 1, 2)]


@pytest.mark.parametrize("metrics", ["helpfulness", ["helpfulness", "helpfulness"]], ids=["alone", "twice"])
def test_one_metric_may_be_named_alone_or_twice(metrics: Any) -> None:
    found = agent_eval.judge_conversations(SAID, lambda *_: 4, metrics=metrics)
    assert found["metric"].to_list() == ["helpfulness"]


def test_an_unknown_table_names_the_nearest(sample: Project) -> None:
    with pytest.raises(UnknownTableError, match="Did you mean 'leaderboard'"):
        sample.table("leaderbord")


def test_a_named_folder_wins_over_the_environment(sample_copy: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "data").mkdir(parents=True)
    assert agent_eval.open_project().home.root == sample_copy  # AGENT_EVAL_HOME
    assert agent_eval.open_project(other).home.root == other
    with pytest.raises(NoRootError):
        agent_eval.open_project(other / "missing")


@pytest.mark.slow
def test_a_judge_that_cannot_be_called_is_refused_before_anything_is_stored(sample_copy: Path) -> None:
    project = agent_eval.open_project(sample_copy)
    before = project.table("turn_judgments")
    with pytest.raises(JudgeError, match="zz"):
        agent_eval.run_project(project, methodologies=["1.3.0"], judge="zz")
    assert project.table("turn_judgments").equals(before)


def test_agents_are_compared_as_by_the_command(sample: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_EVAL_HOME", str(sample.home.root))
    rows = agent_eval.compare_agents(sample, "lumen-support", "quill-help", methodology="1.3.0")
    asked = ["compare", "lumen-support", "quill-help", "--methodology", "1.3.0", "--json"]
    said = CliRunner().invoke(app, asked)
    assert json.loads(said.stdout) == json.loads(rows.write_json())
    assert "composite" in rows["quantity"]


RULES = "1.3.0"
U, D = {"U1": 5}, {"D1": (4, 4, 4)}


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("path", lambda _: agent_eval.open_project(5)),  # type: ignore[arg-type]
        ("path", lambda _: agent_eval.open_project("")),
        ("path", lambda _: agent_eval.open_project("a\0b")),
        ("path", lambda project: agent_eval.import_file("", agent="a", project=project)),
        ("session", lambda project: agent_eval.import_file("x", agent="a", project=project, session=3)),  # type: ignore[arg-type]
        ("version", lambda project: project.registry.get(3)),
        ("weights", lambda _: agent_eval.tool_correctness([], [], weights=3)),  # type: ignore[arg-type]
        ("used", lambda _: agent_eval.tool_correctness(3, [])),  # type: ignore[arg-type]
        ("calls", lambda _: agent_eval.match_trajectory(3, [])),  # type: ignore[arg-type]
        ("agent", lambda project: agent_eval.compare_agents(project, "", "")),
        ("trials", lambda _: agent_eval.reliability_of(pl.Series([1, 2]))),  # type: ignore[arg-type]
        ("name", lambda project: project.table(None)),
        ("project", lambda _: agent_eval.import_file("x", agent="a", project="zz")),  # type: ignore[arg-type]
        ("agent", lambda project: agent_eval.import_file("x", agent=None, project=project)),  # type: ignore[arg-type]
        ("project", lambda _: agent_eval.run_project(None)),  # type: ignore[arg-type]
        ("agents", lambda project: agent_eval.run_project(project, agents=[None])),  # type: ignore[list-item]
        ("other", lambda project: agent_eval.compare_agents(project, "lumen-support", None)),  # type: ignore[arg-type]
        ("conversations", lambda _: agent_eval.judge_conversations(None, lambda *_: 1)),  # type: ignore[arg-type]
        ("judge", lambda _: agent_eval.judge_conversations(SAID, None)),  # type: ignore[arg-type]
        ("judge", lambda _: agent_eval.judge_conversations(SAID, lambda metric: 4)),  # type: ignore[arg-type, misc]
        ("metrics", lambda _: agent_eval.judge_conversations(SAID, lambda *_: 1, metrics=5)),  # type: ignore[arg-type]
        ("trials", lambda _: agent_eval.reliability_of(None)),  # type: ignore[arg-type]
        ("ks", lambda _: agent_eval.reliability_of(pl.DataFrame({"task_id": ["a"], "is_correct": [1]}), "1")),  # type: ignore[arg-type]
        ("methodology", lambda _: agent_eval.composite(U, D, RULES, repeatability_tested=True)),  # type: ignore[arg-type]
        (
            "repeatability_tested",
            lambda p: agent_eval.composite(U, D, p.registry.current, repeatability_tested="no"),  # type: ignore[arg-type]
        ),
        ("judge", lambda project: agent_eval.run_project(project, judge="")),
        ("domain", lambda _: agent_eval.composite(U, None, RULES, repeatability_tested=True)),  # type: ignore[arg-type]
    ],
)
def test_an_argument_of_a_wrong_type_is_named_with_what_is_expected(
    name: str, call: Callable[[Any], object], sample: Project
) -> None:
    with pytest.raises(ArgumentError, match=f"^Argument `{name}` is .*Expected ") as caught:
        call(sample)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("model", ["", "zz/none"])
def test_a_model_that_cannot_be_called_is_refused_before_anything_is_asked(model: str) -> None:
    with pytest.raises(JudgeError, match="No judge was called"):
        agent_eval.judge_conversations(SAID, model)


def test_every_error_is_of_one_kind() -> None:
    for module in pkgutil.walk_packages(agent_eval.__path__, "agent_eval."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    kinds = AgentEvalError.__subclasses__()
    assert {kind.__module__ for kind in kinds} - {"tests.sample.check"} == {"agent_eval.errors"}


def test_a_bad_id_and_an_unknown_format_are_raised_before_anything_is_read(sample: Project) -> None:
    for agent in ("a" * 300, "A b"):
        with pytest.raises(InputError) as caught:
            agent_eval.import_file("x", agent=agent, project=sample)
        assert "--agent" not in str(caught.value)
    with pytest.raises(InputError, match="Session id 'A b' cannot be used"):
        agent_eval.import_file("x", agent="a", project=sample, session="A b")
    with pytest.raises(NotFoundError, match="Format 'csv' is not known"):
        agent_eval.import_file("x", agent="a", project=sample, format_name="csv")


def test_an_async_function_judges_and_answers_that_do_not_fit_are_named() -> None:
    async def judge(metric: str, prompt: str) -> int:
        return 4

    assert agent_eval.judge_conversations(SAID, judge, metrics="helpfulness")["rating_1to5"].to_list() == [4]
    with pytest.warns(UserWarning, match="unscored, .*agent_behavior_failure: label must be one of"):
        agent_eval.judge_conversations(SAID, lambda *_: 4)


def test_results_in_a_notebook_open_with_a_sentence(
    sample_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = agent_eval.open_project(sample_root)
    assert len(repr(project).splitlines()) == 3
    assert all(hasattr(project, name) for name in dir(project))
    answers = {
        "leaderboard": project.leaderboard(),
        "summary": project.summary("lumen-support"),
        "errors": project.errors("pilot-chat"),
        "compare": project.compare("lumen-support", "harbor-desk"),
    }
    commands = {
        "summary": ["summary", "--agent", "lumen-support"],
        "compare": ["compare", "lumen-support", "harbor-desk"],
    }
    for name, answer in answers.items():
        shown = answer._repr_html_()
        assert f"<p>{escape(answer.says)}</p>" in shown
        assert ("<img " in shown) == (name != "compare")
        assert repr(answer).startswith(answer.says)
    monkeypatch.chdir(sample_root)
    for name, command in commands.items():
        printed = " ".join(CliRunner().invoke(app, command).stdout.split())
        assert printed.startswith(" ".join(answers[name].says.split()))
    rows = agent_eval.compare_agents(project, "lumen-support", "harbor-desk")
    assert answers["compare"].rows.sort("quantity").equals(rows.sort("quantity"))
    assert "not distinguishable" in answers["compare"].says
    assert answers["errors"].says.startswith("Worst finding (critical): ")
    with pytest.raises(NotFoundError, match="Agent 'nobody' is not known"):
        project.summary("nobody")
    with pytest.raises(ArgumentError):
        project.errors(3)  # type: ignore[arg-type]


def test_texts_of_strangers_are_no_html_in_a_notebook() -> None:
    attack = "<img src=x onerror=alert(1)>"
    shown = NotebookAnswer(
        attack, pl.DataFrame({attack: [attack]}), f"![{attack}](javascript:alert(1))"
    )._repr_html_()
    assert "<img" not in shown
