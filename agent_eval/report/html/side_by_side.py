"""Prepare the page that shows agents side by side: one row per figure, one column per agent."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from agent_eval.methodology import Methodology
from agent_eval.methodology.models import SCENARIOS
from agent_eval.report import board as words
from agent_eval.report.html.tables import Row, by_key
from agent_eval.report.names import Paths
from agent_eval.report.quality import headline_interval, name_of, reading_order, value_of

MOST = 60  # maximum number of agents, ranked agents first; `agent-eval compare` compares any two


@dataclass(frozen=True)
class Figure:
    """Represent one figure: its value and a note for each agent, or None for agents whose value is unknown."""

    name: str
    values: Sequence[tuple[str, str] | None]


def side_by_side_page(
    version: str, methodology: Methodology, paths: Paths, leaderboard: pl.DataFrame, summary: pl.DataFrame
) -> dict[str, Any]:
    """Return the content of the page: the first agents of the board with all of their figures.

    Args:
        version: The methodology version.
        methodology: The rules of this version.
        paths: The paths of the report's pages.
        leaderboard: Table leaderboard; it may contain other versions.
        summary: Table quality_summary; it may contain other versions.
    """
    rows = leaderboard.filter(methodology_version=version).to_dicts()
    ranked = Counter(r["template"] for r in rows if r["rank"] is not None)
    rows.sort(
        key=lambda r: (
            -ranked[r["template"]],
            r["template"] or "~",
            r["rank"] is None,
            r["rank"] or 0,
            r["agent_id"],
        )
    )  # agents that are compared with each other come first
    first_agents = rows[:MOST]
    names = [(r["name"] or r["agent_id"], paths.agent(r["agent_id"], version)) for r in first_agents]
    of_agents = by_key(summary.filter(methodology_version=version), "agent_id")
    quality = [{q["quantity"]: q for q in of_agents.get((r["agent_id"],), ())} for r in first_agents]
    return {
        "version": version,
        "methodology": methodology,
        "agents": names,
        "n_left_out": len(rows) - len(first_agents),
        "sections": [
            (title, [figure for figure in figures if any(figure.values)])
            for title, figures in (
                ("Board", _of_board(first_agents)),
                ("Universal dimensions, 1 to 5", [_plain(f"{d.id} {d.name}", first_agents, d.id.lower(), 2) for d in methodology.dimensions]),
                ("Scenarios, 0 to 100", [_plain(s, first_agents, s.lower(), 1) for s in SCENARIOS]),
                ("Conversations", _of_conversations(quality)),
            )
        ],
    }  # fmt: skip


def _of_board(rows: Sequence[Row]) -> Iterator[Figure]:
    yield Figure("status", [(r["status"].replace("_", " "), "") for r in rows])
    yield Figure("template", [(r["template"], "") if r["template"] else None for r in rows])
    yield Figure("rank", [(words.rank(r), "") if r["rank"] is not None else None for r in rows])
    yield Figure(
        "composite",
        [(words.composite(r), words.interval(r)) if r["composite_score"] is not None else None for r in rows],
    )
    for name, column, places in (
        ("universal", "universal_0to100", 1), ("domain", "domain_0to100", 1), ("penalty", "repeatability_penalty", 0),
        ("pass@1", "pass_at_1", 3), ("sessions", "n_sessions", 0), ("conversations", "n_conversations", 0),
    ):  # fmt: skip
        yield _plain(name, rows, column, places)
    yield Figure("judge", [(r["judge"], "") if r["judge"] != "none" else None for r in rows])


def _plain(name: str, rows: Sequence[Row], column: str, places: int) -> Figure:
    return Figure(name, [None if r[column] is None else (f"{r[column]:.{places}f}", "") for r in rows])


def _note(row: Row) -> str:
    """Return the interval of a mean and, if answers or costs are unknown, their number."""
    interval = headline_interval(row)
    return f"{interval} ({row['n_unscored']:,} unknown)" if row["n_unscored"] else interval


def _of_conversations(quality: Sequence[Mapping[str, Row]]) -> Iterator[Figure]:
    row_of_quantity = {name: row for of in quality for name, row in of.items()}
    for name, row in sorted(row_of_quantity.items(), key=lambda item: reading_order(item[1])):
        values = []
        for of in quality:
            own = of.get(name)
            is_known = own is not None and own["mean"] is not None
            values.append((value_of(own), _note(own)) if own is not None and is_known else None)
        yield Figure(name_of(row), values)
