"""Tables fit every width: nothing is cut in what the commands print, whatever the data."""

import io
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType
from rich.text import Text

from agent_eval import commands
from agent_eval.commands import errors, gate, methodology
from agent_eval.commands.results import board_history, compare, leaderboard, plan, reliability, summary
from agent_eval.commands.terminal.tables import FittingTable
from agent_eval.scores.statistics.compare import SCHEMA as COMPARED
from agent_eval.scores.statistics.plan import SCHEMA as PLANNED
from agent_eval.tables import table

NAME = "an-agent-with-a-name-of-forty-characters"
SENTENCE = "a sentence that is longer than any column of a table may be at eighty columns"
FILLED: dict[Any, Any] = {
    pl.String: NAME, pl.Int64: 1_234_567, pl.Float64: 98_765.4321, pl.Boolean: True, pl.List(pl.String): [SENTENCE],
}  # fmt: skip


def rows_of(schema: Any, **own: object) -> pl.DataFrame:
    """Two rows whose every cell is wide; `own`: cells that have a form."""
    row = {name: own.get(name, FILLED.get(dtype)) for name, dtype in schema.items()}
    return pl.DataFrame([row, row], schema=dict(schema))


def stored(name: str, **own: object) -> pl.DataFrame:
    return rows_of(table(name).schema, **own)


EXACT = dict.fromkeys(("composite_exact", "old_composite_exact", "new_composite_exact"), "923/10")
QUANTITY = {"quantity": "helpfulness", "scale_low": 1.0, "scale_high": 5.0}
PRINTED: dict[str, Callable[[Console], RenderableType | None]] = {
    "leaderboard": lambda _: leaderboard._table("Board", stored("leaderboard", status="published", **EXACT)),
    "leaderboard --changes": lambda _: board_history._grid("Changes", stored("board_changes", cause_agents=[], changed_at=datetime(2026, 1, 2, tzinfo=UTC), **EXACT)),
    "compare": lambda _: compare._table(rows_of(COMPARED, unit="tasks", verdict="not distinguishable"), "1.3.0", {}),
    "plan": lambda _: plan._table(rows_of(PLANNED), NAME, "1.3.0", 5),
    "reliability": lambda _: reliability._table(stored("reliability"), "1.3.0"),
    "summary": lambda _: summary._table("Summary", stored("quality_summary", **QUANTITY)),
    "summary: errors": lambda console: summary.print_errors(console, stored("error_clusters", severity="critical")),
    "run: logs": lambda _: summary.logs_table("1.3.0", stored("log_leaderboard")),
    "gate": lambda _: gate.gate_table(stored("gate_results", result="failed"), "1.3.0"),
    "errors": lambda console: errors._print(
        stored("error_trends", severity="critical", trend="regressed").with_columns(
            examples=[], words_of=[], should_have=pl.lit(SENTENCE), root_cause=pl.lit(SENTENCE), same_as=pl.lit(None, pl.String), taxonomy=pl.lit(None, pl.String), category=pl.lit(None, pl.String), since_day=pl.lit(date(2026, 1, 1)), first_seen=pl.lit(date(2026, 1, 1))
        ),
        console, "1.3.0", None, 0,
    ),
    "methodology list": lambda console: methodology._print_table(console, [dict.fromkeys(("version", "source", "hash"), NAME)]),
}  # fmt: skip
NUMBERS = re.compile(r"\d[\d,.]{3,}\d")


def printed(command: str, width: int) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None)
    if (shown := PRINTED[command](console)) is not None:
        console.print(shown)
    return out.getvalue()


@pytest.mark.parametrize("command", PRINTED)
def test_no_number_is_cut_and_no_line_is_longer_than_the_terminal(command: str) -> None:
    whole = sorted(NUMBERS.findall(printed(command, 2_000)))
    for width in (80, 100, 160):
        text = printed(command, width)
        assert max(map(len, text.splitlines())) <= width
        assert "…" not in text
        assert sorted(NUMBERS.findall(text)) == whole, (command, width)


CELLS = st.sampled_from(["", "12", "−1,234,567.2", "98,765.43", "1.3.0", NAME, SENTENCE])


@given(
    columns=st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=12),
    width=st.integers(80, 200),
)
def test_a_table_of_any_cells_fits_every_width_and_loses_none(columns: list[list[str]], width: int) -> None:
    """Below a hundred columns a table that does not fit becomes cards."""

    def shown(width: int) -> str:
        grid = FittingTable("Title", [f"head {i}" for i in range(len(columns))])
        for row in zip(*columns, strict=True):
            grid.add_row(*map(Text, row))
        out = io.StringIO()
        Console(file=out, width=width, color_system=None).print(grid)
        return out.getvalue()

    text = shown(width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for cell in ("−1,234,567.2", "98,765.43"):
        assert text.count(cell) == sum(column.count(cell) for column in columns)
    fits = max(map(len, shown(2_000).splitlines())) <= width
    if fits or width < 100 or len(columns) <= 3:
        assert ("┃" in text) == (fits or width >= 100)
    if "┃" not in text:  # cards: each cell in one piece
        letters = re.sub(r"\s", "", text)
        assert all(re.sub(r"\s", "", cell) in letters for column in columns for cell in column)


def test_all_tables_of_commands_are_such_tables() -> None:
    folder = Path(commands.__path__[0])
    assert [path.name for path in folder.rglob("*.py") if "rich.table" in path.read_text()] == ["tables.py"]


@pytest.mark.parametrize(
    ("quantity", "shows", "expected"),
    [
        ("pass@1", 1.09, "> 1"),
        ("pass@1", 0.31, "0.31"),
        ("composite", 123.0, "> 100"),
        ("cost_usd", 9.0, "9"),
        ("helpfulness", None, "–"),
        ("effort", 4.5, "> 4"),
        ("effort", 1.5, "1.5"),
    ],
)
def test_a_detectable_difference_wider_than_the_scale_is_not_printed_as_a_difference(
    quantity: str, shows: float | None, expected: str
) -> None:
    row = {"quantity": quantity, "value": 0.5, "other_value": 0.25}
    assert compare.detectable(shows, compare._width(row, {"effort": (1.0, 5.0)})) == expected
