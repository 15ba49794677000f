"""The door of the command line: hostile arguments to every command that starts nothing."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from hypothesis import strategies as st
from typer.main import get_command

from agent_eval import cli
from benchmarks.fuzz.holding import is_printable
from benchmarks.fuzz.hostile import texts

NOT_TRIED = {
    "run": "starts a run",
    "ui": "serves until it is stopped",
    "judge mock": "serves until it is stopped",
    "init": "writes wherever it is told to",
    "store backup": "writes wherever it is told to",
    "store copy": "writes wherever it is told to",
}
FURTHER: tuple[list[str], ...] = (
    ["explain", "a", "--metric"], ["plan"], ["plan", "a"], ["plan", "a", "b"], ["import", "openai"], ["import", "openai", "data", "--agent", "a"],
    ["import", "auto", "--agent", "a"], ["import", "auto", "source.json", "--agent", "a", "--slots"], ["export", "openai", "--agent", "a"],
    ["import", "tau2", "source.json", "--agent", "a"], ["methodology"], ["methodology", "diff", "1.0.0"], ["labels"], ["labels", "sheet", "--metric"],
    ["labels", "import", "source.json"], ["ui", "--port"], ["simulate", "a", "--suite"], ["scenarios", "check", "--suite"], ["run", "--nosuch"], [],
)  # fmt: skip


def _commands() -> Iterator[list[str]]:
    """Yield every command that is declared and starts nothing, alone and with its required arguments."""
    for name, command in get_command(cli.app).commands.items():  # type: ignore[attr-defined]
        for path, leaf in (
            [((name, part), found) for part, found in command.commands.items()]
            if hasattr(command, "commands")
            else [((name,), command)]
        ):
            if " ".join(path) not in NOT_TRIED and not leaf.hidden:
                yield [*path]
                given = ["a" for p in leaf.params if p.param_type_name == "argument" and p.required]
                yield from [[*path, *given]] if given else []


COMMANDS = (*_commands(), *FURTHER)
OPTIONS = st.sampled_from(
    ["--agent", "--methodology", "--template", "--format", "--score", "-k", "--category", "--session", "--task-set", "--difference", "--json", "--", "-", "/dev/zero", "source.json"]
)  # fmt: skip


def _can_be_given(text: str) -> bool:
    return "\x00" not in text and "--help" not in text


words = st.lists(OPTIONS | texts.filter(_can_be_given), max_size=4)
inputs = st.builds(lambda command, rest: [*command, *rest], st.sampled_from(COMMANDS), words).filter(
    lambda given: given[:2] != ["ui", "--port"] or len(given) == 2 or not given[2].strip().isdecimal()
)


def check(given: list[str], root: Path, *, store: bool = False) -> None:
    """An exit code of 0 to 2; with an error one line, and nothing that steers a terminal."""
    (root / "data" / "source.json").write_text("[]")
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, {"AGENT_EVAL_HOME": str(root)}),
        mock.patch.object(sys, "argv", ["agent-eval", *given]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(root / "data"),
    ):
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
    assert code in (0, 1, 2)
    said = err.getvalue()
    assert is_printable(said)
    assert is_printable(out.getvalue())
    if code == 2 and said.startswith("Error: "):
        assert said.count("\n") == 1
    elif code == 2:
        assert out.getvalue() or said
