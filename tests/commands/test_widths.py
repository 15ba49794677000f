"""Every command that prints results, driven at 80, 100 and 160 columns: no number is cut, and none is lost."""

import contextlib
import io
import os
import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest

from agent_eval import cli
from tests.commands.test_labels import LINES

COMMANDS = (
    "labels import labels.csv",
    "run",
    "run --dry-run",
    "labels sheet --n 3",
    "leaderboard",
    "leaderboard --methodology 1.0.0",
    "leaderboard --changes",
    "summary",
    "summary --agent lumen-support",
    "reliability",
    "compare lumen-support harbor-desk",
    "plan lumen-support harbor-desk",
    "explain lumen-support",
    "explain lumen-support --metric helpfulness",
    "explain lumen-support --metric helpfulness --worst 3",
    "errors",
    "gate",
    "tournament",
    "audit",
    "methodology list",
    "methodology show 1.3.0",
    "methodology diff 1.2.0 1.3.0",
    "methodology validate",
    "prompts",
    "import openai chats.jsonl --agent other",
    "store check",
    "backup copy.duckdb --force",
)
WHOLE = 4_000
NUMBERS = re.compile(r"(?<![\w.,:#/-])[−+-]?\d[\d,]*(?:\.\d+)?(?![\w:/-]|[.,]\w)")
"""Numbers that are no part of a name, a date, a path or a version."""


def said(command: str, width: int) -> str:
    """What a command prints on both streams at a width."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, {"COLUMNS": str(width)}),
        mock.patch.object(sys, "argv", ["agent-eval", *command.split()]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        cli.main()
    assert ended.value.code in (None, 0, 1, 2)
    return out.getvalue() + err.getvalue()


@pytest.mark.by_hand
def test_no_command_cuts_a_number_at_any_width(sample_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(sample_copy)
    (sample_copy / "labels.csv").write_text("\n".join(LINES))
    message = '{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}'
    (sample_copy / "chats.jsonl").write_text(f'{{"messages": [{message}]}}\n' * 2)
    for command in COMMANDS:
        said(command, WHOLE)  # commands that write have written now, and print the same from here on
        shutil.rmtree(sample_copy / "data" / "sheets", ignore_errors=True)
        whole = Counter(NUMBERS.findall(said(command, WHOLE)))
        for width in (80, 100, 160):
            shutil.rmtree(sample_copy / "data" / "sheets", ignore_errors=True)
            text = said(command, width)
            found = Counter(NUMBERS.findall(text))  # cards repeat the headings, which may hold numbers
            assert (set(found), whole - found) == (set(whole), Counter()), (command, width, text)
            assert not re.search(r"\d…", text), (command, width)
