"""Read from the store what people and judges said of the same parts, and compare it."""

from collections.abc import Sequence

import polars as pl

from agent_eval.project.project import Project
from agent_eval.tables import table

_COLUMNS = (
    *("methodology_version", "agent_id", "conversation_id", "metric", "judge", "judge_model", "rubric_hash"),
    *("status", "rating_1to5", "value", "label"),
)


def calibrations(project: Project, versions: Sequence[str]) -> pl.DataFrame:
    """Return table judge_calibration of some versions, from the stored judgments of all agents.

    Only conversations that a person labelled are read.
    """
    from agent_eval.scores.calibration import HUMAN, judge_calibration  # imports numpy: only if there is work

    parts: list[pl.DataFrame] = []
    for name in ("turn_judgments", "conversation_judgments"):
        rated = pl.DataFrame({"methodology_version": versions, "judge": [HUMAN] * len(versions)})
        key = ["methodology_version", "agent_id", "conversation_id", "metric"]
        labelled = project.store.read(table(name), rated, columns=key).unique()
        columns = (*_COLUMNS, *(["turn_index"] if name == "turn_judgments" else []))
        rows = project.store.read(table(name), labelled, columns=columns)
        parts.append(
            rows if "turn_index" in columns else rows.with_columns(turn_index=pl.lit(None, pl.Int64))
        )
    return judge_calibration(pl.concat(parts, how="diagonal"))
