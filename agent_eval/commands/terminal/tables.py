"""Lay out tables for the terminal so that numbers, names and statuses are never truncated."""

from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

SHORT = 20  # characters; shorter cells are never wrapped
NARROWEST = 14  # characters; minimum width of a wrapped column
CARDS_BELOW = 100  # characters; in narrower terminals, a table that does not fit becomes cards


class FittingTable(Table):
    """Render a table with long texts wrapped to fit the terminal, or one card per row if it still does not fit."""

    def __init__(self, title: str, columns: Iterable[str] = (), *, numbers: Iterable[str] = ()) -> None:
        """Create a table with these columns; columns in `numbers` are right-aligned."""
        super().__init__(title=title, title_justify="left", header_style="bold")
        right = set(numbers)
        for name in columns:
            self.add_column(name, justify="right" if name in right else "left", overflow="fold")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render as a table if it fits, as a table with wrapped texts if the short cells fit, else as cards."""
        widths = [self._natural(console, options, column) for column in self.columns]
        borders = 3 * len(self.columns) + 1
        least = sum(w if w <= SHORT else min(w, NARROWEST) for w in widths) + borders
        is_whole = sum(widths) + borders <= options.max_width
        if not is_whole and (least > options.max_width or options.max_width < CARDS_BELOW):
            yield from self._cards()
            return
        for column, width in zip(self.columns, widths, strict=True):
            column.no_wrap = width <= SHORT
            column.overflow = "fold"
        yield from super().__rich_console__(console, options)

    @staticmethod
    def _natural(console: Console, options: ConsoleOptions, column: Column) -> int:
        """Return the width of the widest line of a column, including its heading."""
        cells = (column.header, *column.cells)
        wide = options.update(width=10_000)
        return max(Measurement.get(console, wide, cell).maximum for cell in cells)

    def _cards(self) -> Iterable[RenderableType]:
        """Yield one block per row, with a line for each cell that is not empty."""
        if self.title:
            yield Text(str(self.title), style="italic")
        rows = zip(*(column.cells for column in self.columns), strict=True)
        for i, cells in enumerate(rows):
            if i:
                yield Text("")
            card = Table.grid(padding=(0, 1))
            card.add_column(style="dim", no_wrap=True)
            card.add_column(overflow="fold")
            for column, cell in zip(self.columns, cells, strict=True):
                if str(cell):
                    card.add_row(Text(str(column.header)), cell)
            yield card


def short_table(*heads: str, names: str) -> Table:
    """Return a table without borders that fits 80 columns: the column `names` wraps, the others have short cells."""
    grid = Table(box=SIMPLE_HEAD, header_style="bold", padding=(0, 1), pad_edge=False)
    for head in heads:
        grid.add_column(head, no_wrap=head != names, overflow="fold")
    return grid


def signed(text: str) -> str:
    """Return a number as text with a typographic minus sign."""
    return text.replace("-", "−")
