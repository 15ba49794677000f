"""Every command, by walking what is declared: what an addition has to bring, and that reading it stays fast."""

import ast
import inspect
import io
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer
from typer.main import get_command

from agent_eval import cli
from agent_eval.commands import declared
from agent_eval.commands.declared import common
from benchmarks.fuzz.arguments import COMMANDS, NOT_TRIED

PANELS = (common.START, common.READ, common.DECIDE, common.JUDGES, common.OPERATE)
SLOW = ("dagster", "duckdb", "polars", "litellm", "rich", "pydantic", "agent_eval.project", "agent_eval.defs")
"""What no declaration may import: all are read for every call."""


def leaves() -> dict[str, Any]:
    """Every command, also hidden ones, by its full name."""
    found: dict[str, Any] = {}
    for name, command in get_command(cli.app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found |= {name: command} if inner is None else {f"{name} {part}": one for part, one in inner.items()}
    return found


LEAVES = leaves()
SHOWN = {name: command for name, command in LEAVES.items() if not command.hidden}
DECLARED = {
    node.name: node
    for path in Path(declared.__path__[0]).glob("*.py")
    for node in ast.parse(path.read_text(encoding="utf-8")).body
    if isinstance(node, ast.FunctionDef) and node.decorator_list
}
every_command = pytest.mark.parametrize("name", SHOWN)


def test_every_declared_command_is_collected() -> None:
    assert {command.callback.__name__ for command in LEAVES.values()} == DECLARED.keys()


@every_command
def test_a_command_and_each_of_its_options_says_what_it_does(name: str) -> None:
    command = SHOWN[name]
    first = command.help.partition("\n\n")[0].strip()
    assert first.endswith(".")
    assert not first.startswith("Exit code")
    assert [p.name for p in command.params if not (getattr(p, "help", None) or "").strip()] == []
    top = get_command(cli.app).commands[name.partition(" ")[0]]  # type: ignore[attr-defined]
    assert top.rich_help_panel in PANELS


@every_command
def test_a_command_with_exit_codes_of_its_own_names_them(name: str) -> None:
    body = DECLARED[SHOWN[name].callback.__name__]
    exits = any(isinstance(n, ast.Raise) and n.exc and "Exit" in ast.unparse(n.exc) for n in ast.walk(body))
    assert exits == ("Exit code: 0 " in SHOWN[name].help)


@every_command
def test_a_command_drops_no_exit_code(name: str) -> None:
    """What it calls as a statement returns nothing; a code is raised as `typer.Exit(code)`."""
    body = DECLARED[SHOWN[name].callback.__name__]
    statements = (node.value for node in ast.walk(body) if isinstance(node, ast.Expr))
    called = {ast.unparse(node.func) for node in statements if isinstance(node, ast.Call)}
    imports = [node for node in ast.walk(body) if isinstance(node, ast.ImportFrom)]
    returned = {
        alias.name: inspect.signature(getattr(import_module(str(node.module)), alias.name)).return_annotation
        for node in imports
        for alias in node.names
        if (alias.asname or alias.name) in called
    }
    assert {f for f, kind in returned.items() if kind not in (None, "None", NoReturn)} == set()


@every_command
def test_a_command_is_tried_with_hostile_arguments_or_named_with_the_reason_why_not(name: str) -> None:
    assert (name.split() in COMMANDS) != (name in NOT_TRIED)


def test_what_is_not_tried_exists() -> None:
    assert NOT_TRIED.keys() <= SHOWN.keys()


def test_reading_every_declaration_imports_nothing_large() -> None:
    code = f"import sys, agent_eval.cli; print(sorted({{*{SLOW!r}}} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_question_that_is_not_answered_ends_the_command_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(*, standalone_mode: bool) -> None:
        assert not standalone_mode
        typer.confirm("Remove this conversation?")

    monkeypatch.setattr(cli, "app", ask)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert "Nothing was changed" in capsys.readouterr().err
