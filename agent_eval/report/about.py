"""Prepare the page about the report: runs, inputs, judges and releases."""

from typing import Any

import polars as pl

from agent_eval.methodology.models import in_version_order

JUDGED_BY = ("methodology_version", "judge", "judge_model", "status")
"""The columns of judgments that identify the judge."""


def about_page(
    *,
    written: pl.DataFrame,
    judge_counts: pl.DataFrame,
    sessions: pl.DataFrame,
    import_errors: pl.DataFrame,
    agents: pl.DataFrame,
) -> dict[str, Any]:
    """Return the content of the page.

    `judge_counts` contains counts of judgments by the columns `JUDGED_BY`, with their first and last dates.
    """
    total = judge_counts.group_by("methodology_version", "judge", "judge_model").agg(
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
