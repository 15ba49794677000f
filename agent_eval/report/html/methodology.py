"""Prepare the page of a methodology version, and the page of differences between two versions."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import polars as pl

from agent_eval.methodology import Methodology, diff
from agent_eval.report.html.tables import Row
from agent_eval.report.names import Paths
from agent_eval.scores.statistics.exact import from_text, rounded


def methodology_page(version: str, methodologies: Mapping[str, Methodology], paths: Paths) -> dict[str, Any]:
    """Return the content of a version's page, with links to its differences from each other version."""
    methodology = methodologies[version]
    order = list(methodologies)
    others = [
        (other, paths.diff(*sorted((version, other), key=order.index))) for other in order if other != version
    ]
    return {"version": version, "methodology": methodology, "others": others}


def diff_page(
    before: str, after: str, methodologies: Mapping[str, Methodology], leaderboard: pl.DataFrame, paths: Paths
) -> dict[str, Any]:
    """Return the changes from one version to another, and each agent's scores under both."""
    changes = diff(methodologies[before], methodologies[after], with_status=True)
    return {
        "before": before,
        "after": after,
        "changes": changes,
        "agents": _side_by_side(leaderboard, before, after, paths),
    }


def _side_by_side(leaderboard: pl.DataFrame, before: str, after: str, paths: Paths) -> list[dict[str, Any]]:
    """Return one row per agent on either board; differences are exact, and None if either score is unknown."""
    rows: dict[str, dict[str, Row]] = {}
    for row in leaderboard.filter(pl.col("methodology_version").is_in([before, after])).to_dicts():
        rows.setdefault(row["agent_id"], {})[row["methodology_version"]] = row
    return [
        {
            "name": next(iter(sides.values()))["name"] or agent_id,
            "before": sides.get(before),
            "after": sides.get(after),
            "href_before": paths.agent(agent_id, before),
            "href_after": paths.agent(agent_id, after),
            "difference": _difference(sides.get(before), sides.get(after)),
        }
        for agent_id, sides in sorted(rows.items())
    ]


def _difference(before: Row | None, after: Row | None) -> str | None:
    old, new = (
        from_text(r["composite_exact"]) if r and r["composite_exact"] else None for r in (before, after)
    )
    if old is None or new is None:
        return None
    by = Fraction(new - old)
    return f"{'+' if by > 0 else '−' if by < 0 else '±'}{rounded(abs(by))}"
