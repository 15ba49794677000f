"""Text of strangers on a terminal: it says what it says and steers nothing."""

import io
import json
import re

from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from agent_eval.commands.terminal.output import SafeConsole
from agent_eval.formats.plain_text import LONGEST, escaped_json, one_line, sanitize, sanitize_line
from tests.conftest import REPOSITORY

HOSTILE = "\x1b[31mred\x9b1m \u202eevil\u2066 \ud800 \x00\r"


def test_only_letters_are_left() -> None:
    assert sanitize(HOSTILE) == "�[31mred�1m �evil� � ��"
    assert sanitize("line\n\ttab é ש") == "line\n\ttab é ש"


def test_a_line_is_one_and_of_bearable_length() -> None:
    assert one_line(" a\r\nb\u2028c\x1b ") == "a  b c�"
    assert len(one_line("x" * 10_000)) == LONGEST


@given(st.text())
def test_a_name_within_a_sentence_adds_no_line(name: str) -> None:
    assert sanitize_line(f"Rejected: {name}: x").splitlines() == [sanitize_line(f"Rejected: {name}: x")]


def test_commands_print_sentences_with_names_on_one_line() -> None:
    commands = (REPOSITORY / "agent_eval" / "commands").rglob("*.py")
    with_lines = {path.name for path in commands if re.search(r"\bsanitize\(", path.read_text())}
    assert with_lines == {"output.py"}  # the console itself, which prints tables too


@given(st.text())
def test_json_says_the_same_in_characters_that_print(text: str) -> None:
    written = escaped_json(json.dumps(text, ensure_ascii=False))
    assert json.loads(written) == text
    assert sanitize(written) == written


def test_a_console_cleans_whatever_it_is_given() -> None:
    console = SafeConsole(file=io.StringIO(), width=80, color_system="truecolor", force_terminal=True)
    grid = Table("x")
    grid.add_row(Text(HOSTILE, style="red"))
    console.print(grid, HOSTILE)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "\x1b[31m" in shown  # rich's own red
    assert not {"\x9b", "\u202e", "\u2066", "\x00", "\ud800"} & set(shown)
    assert "�[31mred�1m" in shown
