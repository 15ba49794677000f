"""The page about the report itself: what was run when, on what, judged by whom, made by which release."""

from typing import Any

import polars as pl

from agent_eval.methodology.models import in_version_order

JUDGED_BY = ("methodology_version", "judge", "judge_model", "status", "judged_at")
"""The columns of judgments that say who judged when."""


def judges(judgments: pl.DataFrame) -> pl.DataFrame:
    """Return one row per version and judge: how many judgments, how many scored, first and last date.

    Args:
        judgments: Columns `JUDGED_BY` of turn_judgments, conversation_judgments or both.
    """
    return judgments.group_by("methodology_version", "judge", "judge_model").agg(
        n=pl.len(),
        n_scored=(pl.col("status") == "scored").sum(),
        first=pl.col("judged_at").min(),
        last=pl.col("judged_at").max(),
    )


def about_page(
    *,
    written: pl.DataFrame,
    judged: pl.DataFrame,
    sessions: pl.DataFrame,
    import_errors: pl.DataFrame,
    agents: pl.DataFrame,
) -> dict[str, Any]:
    """Return what the page shows; `judged` holds rows of `judges`, of any number of agents."""
    total = judged.group_by("methodology_version", "judge", "judge_model").agg(
        pl.col("n").sum(), pl.col("n_scored").sum(), pl.col("first").min(), pl.col("last").max()
    )
    return {
        "written": written.sort("table").to_dicts(),
        "judged": in_version_order(total, "judge", "judge_model").to_dicts(),
        "sessions": sessions.sort("agent_id", "session_id").to_dicts(),
        "import_errors": import_errors.to_dicts(),
        "n_agents": agents.height,
    }
