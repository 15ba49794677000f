"""Prepare the board of one methodology version: ranks, reliability and pairwise comparisons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from agent_eval.methodology import Methodology
from agent_eval.report import board as words
from agent_eval.report.charts import IntervalMark, RankedAgent, Scatter, scatter, span
from agent_eval.report.conclusions import gates_answer, leader, next_steps, unknown, worst_of
from agent_eval.report.html.summary import Badge, badge, log_rows
from agent_eval.report.html.tables import Row
from agent_eval.report.names import Paths
from agent_eval.scores.composite.leaderboard import ORDER_OF_STATUS, in_reading_order
from agent_eval.scores.composite.ratings import grouped

LAST = 10**6  # sorts after every rank
CHANGES = 100  # maximum number of changes, latest first; `agent-eval leaderboard --changes` prints all


@dataclass(frozen=True)
class Standing:
    """Represent one row of a board for display."""

    row: Row
    href: str
    rank: str
    rank_order: int
    composite: str
    span: IntervalMark | None
    interval: str
    badges: tuple[Badge, ...]
    missing: tuple[str, ...]
    disputed: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return the display name of the agent, else its id."""
        return str(self.row["name"] or self.row["agent_id"])


def board_page(
    version: str,
    methodologies: Mapping[str, Methodology],
    paths: Paths,
    *,
    leaderboard: pl.DataFrame,
    reliability: pl.DataFrame,
    pairwise: pl.DataFrame,
    changes: pl.DataFrame,
    logs: pl.DataFrame,
    gates: pl.DataFrame,
    worst: pl.DataFrame,
) -> dict[str, Any]:
    """Return the content of a version's board; the frames may contain other versions too.

    `worst` is the worst error cluster of the version with the day of `first_days`; no row without errors.
    Agents in table log_leaderboard (`logs`) are listed in a separate section, not among agents with a composite.
    """
    of_version = pl.col("methodology_version") == version
    on_board, of_logs = leaderboard.filter(of_version), logs.filter(of_version)
    names = {row["agent_id"]: row["name"] or row["agent_id"] for row in on_board.to_dicts()}
    rows = in_reading_order(on_board.join(of_logs, on="agent_id", how="anti", maintain_order="left"))
    standings = tuple(standing(row, paths) for row in rows.to_dicts())
    of_gates = gates.filter(of_version)
    of_board = changes.filter(of_version).sort("changed_at", descending=True, maintain_order=True)
    return {
        "version": version,
        "methodology": methodologies[version],
        "standings": standings,
        "logs": log_rows(of_logs, paths),
        "leads": words.leads(rows) or [leader(rows, of_logs)],
        "worst": worst_of(worst),
        "gates": gates_answer(of_gates),
        "picture": _picture(standings),
        "outcomes": [
            unknown(rows, of_gates, 0, 0),
            *words.outcomes(in_reading_order(on_board)),
            *_next(worst, rows, of_logs),
        ],
        "templates": sorted({s.row["template"] or "no template" for s in standings}),
        "statuses": [s for s in ORDER_OF_STATUS if s in set(rows["status"])],
        "n_ranked": rows["rank"].count(),
        "reliability": _reliability(reliability.filter(of_version), names, version, paths),
        "pairwise": _pairwise(pairwise.filter(of_version), names, version, paths),
        "changes": words.readable_changes(of_board.head(CHANGES)).rows(),
        "n_changes": of_board.height,
    }


def _next(worst: pl.DataFrame, rows: pl.DataFrame, logs: pl.DataFrame) -> list[str]:
    """Return the commands to continue with, for the agent with the worst error, else for the first one."""
    agents = pl.concat([frame.select("agent_id") for frame in (worst, rows, logs)])
    is_unasked = logs["n_unasked"].sum() > 0 and logs["n_scored"].sum() == 0
    return [next_steps(agents["agent_id"][0], is_unasked)] if agents.height else []


def _picture(standings: Sequence[Standing]) -> Scatter | None:
    """Return the plot of all ranked agents: the composite over the cost per conversation; None for a single agent."""
    ranked = [
        RankedAgent(
            name=s.name,
            template=s.row["template"] or "no template",
            score=s.row["composite_score"],
            low=s.row["low"],
            high=s.row["high"],
            cost_usd=s.row["cost_usd_per_conversation"],
            is_front=bool(s.row["is_pareto"]),
        )
        for s in standings
        if s.row["rank"] is not None and s.row["composite_score"] is not None
    ]
    return scatter(ranked) if len(ranked) > 1 else None


def standing(row: Row, paths: Paths) -> Standing:
    """Return a row of table leaderboard for display."""
    return Standing(
        row=row,
        href=paths.agent(row["agent_id"], row["methodology_version"]),
        rank=words.rank(row),
        rank_order=LAST if row["rank"] is None else row["rank"],
        composite=words.composite(row),
        span=span(row["composite_score"], row["low"], row["high"]),
        interval=words.interval(row),
        badges=badges(row),
        missing=tuple(grouped(row["missing"] or ())),
        disputed=tuple(row["disputed"] or ()),
    )


def badges(row: Row) -> tuple[Badge, ...]:
    """Return the disclosures of a row of table leaderboard as badges."""
    return tuple(badge(text) for text in words.badges(row))


def spans(row: Row, name: str) -> IntervalMark | None:
    """Return the mark of `pass_at_k` or `pass_hat_k` (`name`) of a reliability row, on a scale from 0 to 1."""
    return span(row[name], row[f"{name}_low"], row[f"{name}_high"], scale=1)


def _reliability(
    rows: pl.DataFrame, names: Mapping[str, str], version: str, paths: Paths
) -> list[dict[str, Any]]:
    order = rows.sort("task_set", "k", "estimator", "rank", "agent_id", nulls_last=True)
    return [
        {
            "row": row,
            "name": names.get(row["agent_id"], row["agent_id"]),
            "href": paths.agent(row["agent_id"], version),
            "pass_at": spans(row, "pass_at_k"),
            "pass_hat": spans(row, "pass_hat_k"),
            "badges": tuple(badge(text) for text in (words.calibration(row),) if text),
        }
        for row in order.to_dicts()
    ]


def _pairwise(
    rows: pl.DataFrame, names: Mapping[str, str], version: str, paths: Paths
) -> Sequence[dict[str, Any]]:
    return [
        {
            "row": row,
            "sides": [(names.get(a, a), paths.agent(a, version)) for a in (row["agent_id"], row["other_agent_id"])],
        }
        for row in rows.to_dicts()
    ]  # fmt: skip
