"""Tables fit every width: nothing is cut, whatever the data."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from agent_eval.commands.terminal.tables import FittingTable

NUMBER, NAME = "−1,234,567.89", "an-agent-with-a-name-of-forty-characters"
SENTENCE = "a sentence that is longer than any column of a table may be at eighty columns"


def printed(width: int, n_columns: int) -> str:
    grid = FittingTable("Title", [f"n{i}" for i in range(n_columns)] + ["agent", "why"], numbers=["n0"])
    for _ in range(2):
        grid.add_row(*[NUMBER] * n_columns, Text(NAME), SENTENCE)
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(grid)
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("n_columns", [1, 4, 9])
def test_no_number_is_cut_and_no_line_is_longer_than_the_terminal(width: int, n_columns: int) -> None:
    text = printed(width, n_columns)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert text.count(NUMBER) == 2 * n_columns
    letters = "".join(c for c in text if c.isalnum() or c == "-")
    assert letters.count(NAME) == 2 or n_columns  # a name may be folded, never cut


def test_below_a_hundred_columns_a_wide_table_becomes_cards() -> None:
    assert "┃" in printed(160, 4)
    cards = printed(80, 4)
    assert "┃" not in cards
    assert NAME in cards
