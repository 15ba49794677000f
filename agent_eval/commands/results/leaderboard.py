"""Implement `agent-eval leaderboard`: print a board as a table, JSON, CSV or Markdown."""

import datetime
from collections.abc import Iterable, Iterator, Sequence

import polars as pl
from rich.console import Console
from rich.text import Text

from agent_eval.commands.results.summary import NO_TRANSCRIPTS, logs_table
from agent_eval.commands.terminal.output import print_csv, print_json
from agent_eval.commands.terminal.tables import FittingTable, short_table
from agent_eval.errors import InputError, NotFoundError
from agent_eval.formats.plain_text import count_of, sanitize_line
from agent_eval.formats.timestamps import parse_timestamp
from agent_eval.methodology import Methodology, Registry
from agent_eval.methodology.models import Template
from agent_eval.project import Project
from agent_eval.report.board import (
    BOARD,
    UNCHECKED,
    badges,
    leads,
    one_decimal,
    outcomes,
    rank,
    readable,
    uncalibrated,
)
from agent_eval.report.conclusions import leader, score_rows
from agent_eval.report.markdown import escape, markdown_table
from agent_eval.report.quality import headline, interval_of, labels_text, value_of
from agent_eval.scores.composite.history import board_at
from agent_eval.scores.composite.leaderboard import in_reading_order, one_version, penalty_what_if
from agent_eval.scores.composite.ratings import grouped
from agent_eval.tables import table

MOST_LINES = 5  # of a short board, on evidence that is incomplete
FORMATS = ("table", "json", "csv", "md")
_STYLES = {"published": "green", "provisional": "yellow", "invalid": "red"}


def board_of(
    project: Project, version: str, template: str | None = None, as_of: str | None = None
) -> pl.DataFrame:
    """Return the stored board of one version in display order; empty before the first run.

    Args:
        project: The project.
        version: The methodology version.
        template: Include only agents with this domain template.
        as_of: ISO 8601 date or time; return the board that was stored at that time.

    Raises:
        NotFoundError: If the version does not have the template.
        InputError: If `as_of` is not a date.
    """
    check_template(project, version, template)
    key = pl.DataFrame({"methodology_version": [version]})
    if as_of is None:
        board = project.store.read(table("leaderboard"), key)
    else:
        until = end_of(as_of)
        board = board_at(project.store.read(table("board_history"), key), until)
    if template is not None:
        board = board.filter(pl.col("template") == template)
    return in_reading_order(one_version(board))


def logs_of(project: Project, version: str) -> pl.DataFrame:
    """Return the `log_leaderboard` table of one version, which contains the agents without slots."""
    return project.store.read(table("log_leaderboard"), pl.DataFrame({"methodology_version": [version]}))


def check_template(project: Project, version: str, template: str | None) -> None:
    """Raise NotFoundError if the version does not exist, or if `template` is given and the version does not have it."""
    methodology = project.registry.get(version)
    if template is not None:
        template_named(methodology, template)


def template_named(methodology: Methodology, slug: str) -> Template:
    """Return a template of a version, or raise NotFoundError if the version does not have it."""
    template = next((t for t in methodology.templates if t.slug == slug), None)
    if template is None:
        slugs = ", ".join(t.slug for t in methodology.templates)
        raise NotFoundError(f"Template {slug!r} is not in this methodology version. Templates: {slugs}.")
    return template


def end_of(date: str) -> float:
    """Return the end of a date (UTC), or a point in time, in seconds since 1970.

    Raises:
        InputError: If the string is neither a date nor a time.
    """
    try:
        if len(date) <= len("2026-01-31"):
            day = datetime.date.fromisoformat(date)
            return datetime.datetime.combine(day, datetime.time.max, datetime.UTC).timestamp()
        return parse_timestamp(date).timestamp()
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"{date!r} is not a date. Expected ISO 8601, such as 2026-01-31 or 2026-01-31T12:00+02:00."
        ) from error


def leaderboard(
    project: Project,
    console: Console,
    *,
    version: str,
    template: str | None = None,
    output_format: str = "table",
    as_of: str | None = None,
) -> None:
    """Print the current board, or the board as it was stored at `as_of`; the format `json` is one array of rows.

    The status of the version is shown only with the current board.
    """
    board = board_of(project, version, template, as_of)
    registry = project.registry if as_of is None else None
    rows = board if registry is None else with_standing(board, registry)
    if output_format == "json":
        print_json(rows)
    elif output_format == "csv":
        print_csv(rows)
    elif output_format == "md":
        notes = "".join(
            f"{escape(note)}\n\n" for note in (standing_notes(registry, version) if registry else ())
        )
        print(f"{notes}{markdown_table(readable(board))}")  # noqa: T201
        for line in outcomes(board):
            print(f"\n{sanitize_line(line)}")  # noqa: T201
    else:
        if board.is_empty() and as_of is None and not project.known_agents():
            console.print(NO_TRANSCRIPTS, markup=False)
            return
        logs = None if as_of is not None or template is not None else logs_of(project, version)
        standing = [] if registry is None else [*standing_notes(registry, version)]  # they come first
        if not standing and (board.height or (logs is not None and logs.height)):
            says = leader(board, table("log_leaderboard").empty() if logs is None else logs)
            console.print(says, markup=False)
        print_board(console, board, project.registry.get(version), registry, as_of, logs)


def side_by_side(
    project: Project,
    console: Console,
    *,
    versions: Sequence[str],
    template: str | None = None,
    output_format: str = "table",
    as_of: str | None = None,
) -> None:
    """Print the boards of several versions in one table with a version column.

    Scores of different versions are not comparable, so there is no common rank; `what_if_composite` applies the
    current version's penalty to each raw composite.
    """
    current = project.registry.current
    boards = [board_of(project, version, template, as_of) for version in project.methodologies(versions)]
    board = penalty_what_if(pl.concat(boards), current)
    rows = board if as_of is not None else with_standing(board, project.registry)
    if output_format == "json":
        print_json(rows)
    elif output_format == "csv":
        print_csv(rows)
    else:
        for note in (n for v in versions for n in standing_notes(project.registry, v) if as_of is None):
            console.print(sanitize_line(note), style="yellow", markup=False, soft_wrap=True)
        if_now = f"under {current.version}'s penalty"
        texts = (
            readable(board)
            .drop("missing", "badges")
            .insert_column(0, board["methodology_version"].alias("version"))
        )
        texts = texts.with_columns(
            pl.Series(if_now, [one_decimal(value) for value in board["what_if_composite"]], dtype=pl.String)
        )
        if output_format == "md":
            print(markdown_table(texts))  # noqa: T201
            return
        console.print(
            _plain_grid(f"Leaderboards · methodology {', '.join(versions)} · not comparable", texts)
        )


def with_standing(board: pl.DataFrame, registry: Registry) -> pl.DataFrame:
    """Add the current state of the version to the rows: its status, its successor, and whether its file was edited."""
    edited = registry.edited()
    versions = pl.DataFrame(
        [(m.version, m.status, m.superseded_by, m.version in edited) for m in registry.all()],
        schema={
            "methodology_version": pl.String,
            "methodology_status": pl.String,
            "superseded_by": pl.String,
            "methodology_edited": pl.Boolean,
        },
        orient="row",
    )
    return board.drop("superseded_by").join(
        versions, on="methodology_version", how="left", maintain_order="left"
    )


def edited_notes(registry: Registry, version: str) -> Iterator[str]:
    """Yield a warning if the version was edited after it was frozen, or if a frozen file cannot be read."""
    for unreadable in registry.unreadable().values():
        yield f"{unreadable.reason}. Until it can be read, the current version is unknown."
    if (problem := registry.edited().get(version)) is not None:
        yield (
            f"Edited after it was frozen: {problem.reason}. This board was computed with the frozen content; "
            "`agent-eval run` does not use the edited file."
        )


def print_edited(registry: Registry, versions: Iterable[str], err: Console) -> None:
    """Print the warnings of `edited_notes` to stderr, for commands whose stdout contains only results."""
    for note in dict.fromkeys(n for version in versions for n in edited_notes(registry, version)):
        err.print(sanitize_line(note), style="yellow", markup=False, soft_wrap=True)


def standing_notes(registry: Registry, version: str) -> Iterator[str]:
    """Yield a note if a version was edited or superseded, or is a draft."""
    yield from edited_notes(registry, version)
    methodology = registry.get(version)
    if methodology.superseded_by:
        current = registry.current.version
        yield (
            f"Methodology {version} is superseded by {methodology.superseded_by}. "
            f"Current board: agent-eval leaderboard --methodology {current}"
        )
    elif methodology.status == "draft":
        yield f"Methodology {version} is a draft and may still change."


def print_board(
    console: Console,
    board: pl.DataFrame,
    methodology: Methodology,
    registry: Registry | None,
    as_of: str | None = None,
    logs: pl.DataFrame | None = None,
) -> None:
    """Print the board: notes on its version, one table per template, and the reasons why rows are unranked.

    The agents in `logs` (rows of the `log_leaderboard` table) are printed in a separate table instead.
    """
    for note in standing_notes(registry, methodology.version) if registry else ():
        console.print(sanitize_line(note), style="yellow", markup=False, soft_wrap=True)
    if board.is_empty() and as_of is not None:
        console.print(f"No board of {methodology.version} was stored by {as_of}.", markup=False)
    elif board.is_empty():
        console.print("The board has no rows yet. Next: agent-eval run", markup=False)
    on = "" if as_of is None else f" · as of {as_of}"
    if logs is not None and logs.height:
        console.print(logs_table(methodology.version, logs))
        slotted = board.join(logs, on="agent_id", how="anti", maintain_order="left")
    else:
        slotted = board
    for (template,), rows in slotted.group_by("template", maintain_order=True):
        title = f"Leaderboard · methodology {methodology.version} · {template or 'no template'}{on}"
        console.print(_table(title, rows))
    for line in [*leads(board), *outcomes(board), *_uncalibrated(board, logs)]:
        console.print(sanitize_line(line), markup=False)
    notes = [row for row in slotted.iter_rows(named=True) if row["missing"]]
    for row in notes:
        console.print(Text(f"{row['name'] or row['agent_id']} is {row['status']}: ", style="bold"), end="")
        console.print(Text("; ".join(grouped(row["missing"]))))
    for row in board.iter_rows(named=True):
        if row["disputed"]:
            console.print(Text(f"{row['name'] or row['agent_id']} is disputed: ", style="bold"), end="")
            console.print(Text("; ".join(row["disputed"])))


def print_short_board(
    console: Console, board: pl.DataFrame, methodology: Methodology, registry: Registry, logs: pl.DataFrame
) -> None:
    """Print rank, agent, score and status of each row by template, then the logs; the table fits 80 columns."""
    for note in standing_notes(registry, methodology.version):
        console.print(sanitize_line(note), style="yellow", markup=False, soft_wrap=True)
    slotted = board.join(logs, on="agent_id", how="anti", maintain_order="left")
    if slotted.height:
        grid = short_table(
            "rank", "agent", f"score under {methodology.version} (95 %)", "status", names="agent"
        )
        for (template,), rows in slotted.group_by("template", maintain_order=True):
            grid.add_row("", Text(str(template or "no template"), style="italic"), "", "")
            for row, (agent, score, status) in zip(rows.to_dicts(), score_rows(rows), strict=True):
                grid.add_row(
                    rank(row), Text(agent), Text(score), Text(status, style=_STYLES.get(status, "dim"))
                )
        console.print(grid)
    if logs.height:
        grid = short_table("Logs", "success (95 %)", "behavior failures", "conversations", names="Logs")
        for row in logs.iter_rows(named=True):
            success, failures = headline(row, "success_rate"), headline(row, "behavior_failure_rate")
            rate = value_of(success) + ("" if success["low"] is None else f" ({interval_of(success)})")
            grid.add_row(
                Text(sanitize_line(row["name"] or row["agent_id"])),
                rate,
                value_of(failures),
                f"{row['n_conversations']:,}",
            )
        console.print(grid)
        for row in logs.to_dicts() if slotted.height else ():  # else the first line of the run says it
            if labels := labels_text(headline(row, "success_rate")):
                console.print(
                    sanitize_line(f"{row['name'] or row['agent_id']}: success {labels}."), markup=False
                )
    lacking = outcomes(board)
    more = (
        [f"… and {count_of(len(lacking) - MOST_LINES, 'more line')}: --all"]
        if len(lacking) > MOST_LINES
        else []
    )
    for line in [*lacking[:MOST_LINES], *more, *_uncalibrated(board, logs)]:
        console.print(sanitize_line(line), markup=False)
    console.print("Scores in full: agent-eval run --all · why: agent-eval explain AGENT", markup=False)


def _uncalibrated(*boards: pl.DataFrame | None) -> list[str]:
    """Return the sentences on judges that are not calibrated; an agent on several boards is listed once."""
    names = ["agent_id", "name", "calibration", "calibration_n"]
    board_columns = [board.select(names) for board in boards if board is not None]
    sentence = uncalibrated(pl.concat(board_columns).unique("agent_id", maintain_order=True))
    return [sentence] if sentence else []


def _badges(row: dict[str, object]) -> list[str]:
    """Return a row's badges, except "not checked", which is printed once below the table."""
    return [badge for badge in badges(row) if not badge.endswith(UNCHECKED)]


_NUMBERS = ("composite", "U", "D", "penalty")
_ELSEWHERE = ("template", "cost", "missing")
"""The columns of the board that the terminal shows in a title or in lines of their own, or that `summary` shows."""


def _table(title: str, rows: pl.DataFrame) -> FittingTable:
    heads = [head for head in BOARD if head not in _ELSEWHERE]
    grid = FittingTable(title, heads, numbers=("rank", *_NUMBERS, "detectable"))
    for row, text in zip(rows.iter_rows(named=True), readable(rows).iter_rows(named=True), strict=True):
        styles = {"composite": "bold", "status": _STYLES.get(text["status"], "dim")}
        cells = text | {"badges": "\n".join(_badges(row))}
        grid.add_row(*(Text(cells[head], style=styles.get(head, "")) for head in heads))
    return grid


def _plain_grid(title: str, texts: pl.DataFrame) -> FittingTable:
    grid = FittingTable(title, texts.columns)
    for row in texts.iter_rows():
        grid.add_row(*(Text(sanitize_line(cell)) for cell in row))
    return grid
