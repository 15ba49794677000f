"""Implement `agent-eval summary --spend`: the money, tokens and calls of the ledger that the caps count."""

import datetime

import polars as pl
from rich.console import Console
from rich.text import Text

from agent_eval.commands.results.leaderboard import end_of
from agent_eval.commands.terminal.output import print_json
from agent_eval.commands.terminal.tables import short_table
from agent_eval.formats.plain_text import count_of, sanitize_line
from agent_eval.project import Project

_KEY = ("day", "model", "started_by")
_COUNTS = ("n_calls", "n_unknown_cost", "n_tokens_in", "n_tokens_out", "cost_usd")
_AGENT = "agent "  # the ledger's name of an agent under test begins so; other names are models


def spend(project: Project, out: Console, *, since: str | None, as_json: bool) -> None:
    """Print what was spent by day, model and starter; JSON rows have these and the sums of table spending.

    An agent under test has the name 'agent' and its id in place of a model.

    Args:
        project: The project.
        out: Console for the table.
        since: ISO 8601 date; earlier days (UTC) are left out.
        as_json: Print rows as JSON instead.

    Raises:
        InputError: If `since` is not a date.
    """
    rows = project.beside_store.spent()
    if since is not None:
        first = datetime.datetime.fromtimestamp(end_of(since), datetime.UTC).date().isoformat()
        rows = rows.filter(pl.col("day").cast(pl.String) >= first)
    sums = rows.group_by(_KEY).agg(pl.col(_COUNTS).sum()).sort(_KEY)
    if as_json:
        print_json(sums)
        return
    n_calls, n_unknown = int(sums["n_calls"].sum()), int(sums["n_unknown_cost"].sum())
    calls = f"{count_of(n_calls, 'call')}{f' since {since}' if since else ''}"
    known = f"Spent ${sums['cost_usd'].sum():.4f} in {calls}"
    if n_unknown:
        known = f"{known}; the cost of {count_of(n_unknown, 'call')} is unknown"
    is_unknown = n_calls and n_unknown == n_calls
    out.print(f"{calls}, at unknown cost." if is_unknown else f"{known}.", markup=False)
    if sums.is_empty():
        return
    grid = short_table("day", "by", "for", "calls", "tokens in", "out", "US dollars", names="for")
    for row in sums.iter_rows(named=True):
        is_agent = row["model"].startswith(_AGENT)
        cost = f"{row['cost_usd']:.4f}" + (
            f" + {row['n_unknown_cost']:,} unknown" if row["n_unknown_cost"] else ""
        )
        grid.add_row(
            str(row["day"]), row["started_by"], Text(sanitize_line(row["model"] if is_agent else f"model {row['model']}")),
            f"{row['n_calls']:,}", f"{row['n_tokens_in']:,}", f"{row['n_tokens_out']:,}", cost,
        )  # fmt: skip
    out.print(grid)
