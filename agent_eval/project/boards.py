"""Record the history of a project's boards: the changes of each new board, and the boards of earlier days."""

from collections.abc import Collection
from datetime import UTC, datetime

import polars as pl

from agent_eval.project.project import Project
from agent_eval.scores.composite.history import board_changes, new_history, seeded
from agent_eval.storage.lineage import written_by_partition
from agent_eval.tables import table


def recorded(
    project: Project, board: pl.DataFrame, composite_scores: pl.DataFrame, versions: Collection[str]
) -> dict[str, pl.DataFrame]:
    """Return the rows of board_changes and board_history that a new board adds, and its board_inputs.

    Args:
        project: The project; its store contains the earlier records.
        board: The new rows of table leaderboard for these versions.
        composite_scores: The scores that the board was computed from.
        versions: The versions whose boards were computed.
    """
    keys = pl.DataFrame({"methodology_version": sorted(versions)}, schema={"methodology_version": pl.String})
    names = ("leaderboard", "board_history", "board_inputs")
    with project.store.reading():
        stored, history, before = (project.store.read(table(name), keys) for name in names)
        made_at = _made_at(project)
    earlier = seeded(stored, history, made_at)
    inputs = composite_scores.select(table("board_inputs").schema.names())
    history, now = pl.concat([history, earlier]), datetime.now(UTC).isoformat(timespec="microseconds")
    return {
        "board_changes": board_changes(board, history, inputs, before, at=now),
        "board_history": pl.concat([earlier, new_history(board, history, keys, at=now)]),
        "board_inputs": inputs,
    }


def _made_at(project: Project) -> dict[str, str]:
    """Return the time at which each version's stored board was computed, in ISO 8601 format."""
    written = written_by_partition(project.store, {"leaderboard": table("leaderboard")})
    version_times = written.select("methodology_version", "last_written").iter_rows()
    return {version: at.isoformat(timespec="microseconds") for version, at in version_times}
