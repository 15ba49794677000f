"""Implement `agent-eval leaderboard --changes`: show the changes of a board and their causes."""

from collections.abc import Sequence

import polars as pl
from rich.console import Console
from rich.text import Text

from agent_eval.commands.results.leaderboard import check_template
from agent_eval.commands.terminal.output import print_csv, print_json
from agent_eval.commands.terminal.tables import FittingTable
from agent_eval.formats.plain_text import sanitize_line
from agent_eval.methodology.models import in_version_order
from agent_eval.project import Project
from agent_eval.report.board import readable_changes
from agent_eval.report.markdown import markdown_table
from agent_eval.tables import table


def show_changes(
    project: Project,
    console: Console,
    *,
    versions: Sequence[str],
    template: str | None = None,
    output_format: str = "table",
) -> None:
    """Print the changes of the boards of the given versions, latest first; the format `json` is one array of rows.

    Raises:
        NotFoundError: If a version is not published, or if a version does not have the template.
    """
    for version in versions:
        check_template(project, version, template)
    keys = pl.DataFrame({"methodology_version": list(versions)})
    changes = project.store.read(table("board_changes"), keys)
    if template is not None:
        changes = changes.filter(pl.col("template") == template)
    changes = in_version_order(changes).sort("changed_at", descending=True, maintain_order=True)
    if output_format == "json":
        print_json(changes)
    elif output_format == "csv":
        print_csv(changes)
    elif output_format == "md":
        print(markdown_table(readable_changes(changes)))  # noqa: T201
    elif changes.is_empty():
        console.print(
            f"Nothing has changed on the board of {', '.join(versions)} since it was first created."
        )
    else:
        console.print(_grid(f"Changes of the board · methodology {', '.join(versions)}", changes))


def _grid(title: str, changes: pl.DataFrame) -> FittingTable:
    texts = readable_changes(changes)
    grid = FittingTable(title, texts.columns)
    for row in texts.iter_rows():
        grid.add_row(*(Text(sanitize_line(cell)) for cell in row))
    return grid
