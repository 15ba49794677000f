"""Render the page about the report itself: runs, inputs, judges and releases."""

from typing import Any

import polars as pl

from agent_eval.methodology.models import in_version_order

JUDGED_BY = ("methodology_version", "judge", "judge_model", "status")
"""The columns of judgments that say who judged."""


def about_page(
    *,
    written: pl.DataFrame,
    judged: pl.DataFrame,
    sessions: pl.DataFrame,
    import_errors: pl.DataFrame,
    agents: pl.DataFrame,
) -> dict[str, Any]:
    """Return what the page shows; `judged` has counts of judgments by `JUDGED_BY`, with their first and last date."""
    total = judged.group_by("methodology_version", "judge", "judge_model").agg(
        pl.col("n").sum(),
        pl.col("first").min(),
        pl.col("last").max(),
        n_scored=pl.col("n").filter(pl.col("status") == "scored").sum(),
    )
    return {
        "written": written.sort("table").to_dicts(),
        "judged": in_version_order(total, "judge", "judge_model").to_dicts(),
        "sessions": sessions.sort("agent_id", "session_id").to_dicts(),
        "import_errors": import_errors.to_dicts(),
        "n_agents": agents.height,
    }
