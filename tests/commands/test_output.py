"""CSV for spreadsheet programs: no cell starts a formula, and no number is changed."""

import csv
import io
import re

import polars as pl
import pytest

from agent_eval.commands.terminal.output import consoles, print_csv

HOSTILE = [
    "=1+1", "=HYPERLINK(\"http://evil.test\",\"x\")", "+1+cmd|' /C calc'!A0", "-2+3+cmd", "@SUM(A1)", " =1+1", "\t=1", "\r=1",
    "\n=1", "＝1+1", "\x00=1", "-", "+", "'=1,=2",
]  # fmt: skip
HARMLESS = ["plain", "a=b", "1-2", "-3.5", "+7", "-5/3", "e@mail.test", ""]


def cells(texts: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_csv(pl.DataFrame({"n": [-1.5] * len(texts), "text": texts}))
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out, newline="")))
    assert all(row[0] == "-1.5" for row in rows[1:])
    return [row[1] for row in rows[1:]]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_that_could_start_a_formula_starts_none(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (cell,) = cells([text], capsys)
    assert cell.startswith("'")


@pytest.mark.parametrize("text", ["a;=1+1;", "a; +1+cmd", "a\t@SUM(A1)", "two\n=1+1", "b; ＝1"])
def test_no_part_of_a_text_starts_one_where_cells_are_parted_otherwise(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (cell,) = cells([text], capsys)
    assert not re.search(r"[;\t\n]\s*[=+\-@＝]", cell)
    assert cell.replace("'", "") == text


def test_other_texts_and_numbers_stay(capsys: pytest.CaptureFixture[str]) -> None:
    assert cells(HARMLESS, capsys) == HARMLESS


def test_lists_are_joined_before(capsys: pytest.CaptureFixture[str]) -> None:
    print_csv(pl.DataFrame({"missing": [["=1", "b"]]}))
    assert capsys.readouterr().out == "missing\n'=1; b\n"


def test_an_id_between_colons_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    for console in consoles():
        console.print("conversation cx:abc: said :smile:", markup=False)
    printed = capsys.readouterr()
    assert printed.out == printed.err == "conversation cx:abc: said :smile:\n"
