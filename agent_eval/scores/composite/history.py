"""Record boards over time, with the rows that changed and why, and restore the board at a point in time.

A row of table board_history records a state of one row of table leaderboard. It is valid until the agent's
next row in the history.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import polars as pl

from agent_eval.formats.timestamps import seconds
from agent_eval.scores.composite.ratings import PAIR
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.tables.frames import CompositeScores

CAUSES = {
    "sessions_hash": "session",
    "ratings_hash": "rating",
    "judge_hash": "judge",
    "methodology_hash": "methodology",
    "code_version": "code",
}
"""The cause that a difference indicates, by column of table board_inputs."""
CODE, JUDGE = "code", "judge"

Row = Mapping[str, Any]

_BOARD = table("leaderboard").schema.names()
_OWN = ("composite_exact", "status")  # depend only on the agent's own inputs, unlike its rank


def with_inputs(composite_scores: CompositeScores, inputs: pl.DataFrame) -> CompositeScores:
    """Return composite scores with the input columns of table board_inputs."""
    bare = composite_scores.drop(CAUSES.keys())
    joined = bare.join(inputs, on=PAIR, how="left", maintain_order="left")
    return table("composite_scores").conform(joined)


def board_at(history: pl.DataFrame, until: float) -> pl.DataFrame:
    """Return the board at a point in time (seconds since 1970), in the columns of table leaderboard."""
    rows = [{**row} for row in _states(history, until).values() if row["is_on_board"]]
    return table("leaderboard").frame(rows)


def seeded(stored: pl.DataFrame, history: pl.DataFrame, made_at: Mapping[str, str]) -> pl.DataFrame:
    """Return the first rows of board_history, from the stored boards of versions that have no history yet.

    Args:
        stored: Table leaderboard before the new board is stored.
        history: Table board_history.
        made_at: Creation time of the stored board by version, ISO 8601.
    """
    fresh = stored.join(history, on="methodology_version", how="anti")
    return table("board_history").frame(
        row | {"recorded_at": made_at[row["methodology_version"]], "is_on_board": True}
        for row in fresh.iter_rows(named=True)
    )


def new_history(
    board: pl.DataFrame, history: pl.DataFrame, versions: pl.DataFrame, *, at: str
) -> pl.DataFrame:
    """Return the new rows of board_history: one per board row that was changed, added or removed.

    Args:
        board: The current table leaderboard.
        history: Table board_history so far.
        versions: The versions of the new boards, in column methodology_version.
        at: Time of the change, ISO 8601.
    """
    latest_states = _states(history.join(versions, on="methodology_version", how="semi"))
    now = _by_key(board)
    rows: list[dict[str, Any]] = []
    for key, row in now.items():
        before = latest_states.get(key)
        if before is None or not before["is_on_board"] or any(row[name] != before[name] for name in _BOARD):
            rows.append({**row, "recorded_at": at, "is_on_board": True})
    rows += [
        {**row, "recorded_at": at, "is_on_board": False}
        for key, row in latest_states.items()
        if key not in now and row["is_on_board"]
    ]
    return table("board_history").frame(rows)


def board_changes(
    board: pl.DataFrame, history: pl.DataFrame, inputs: pl.DataFrame, inputs_before: pl.DataFrame, *, at: str
) -> pl.DataFrame:
    """Return one row of table board_changes per board row whose composite, rank or status changed.

    If the agent's composite or status changed, or the agent was added or removed, the cause is the difference
    in its own inputs. If only its rank changed, the causes are those of the agents in the same template that
    did change. If an earlier release stored no inputs for the version, the cause is the code. If all inputs
    are equal, the cause is a judge: it gave a new answer or lost one. The first board of a version is not a
    change.

    Args:
        board: The current table leaderboard; a version that is missing from the history has no earlier board.
        history: Table board_history before this board was added.
        inputs: Inputs of the current board, table board_inputs.
        inputs_before: Inputs of the previous board.
        at: Time of the change, ISO 8601.
    """
    states = {key: row for key, row in _states(history).items() if row["is_on_board"]}
    had_board = set(history["methodology_version"])
    now = {key: row for key, row in _by_key(board).items() if key.methodology_version in had_board}
    why = _Causes(_by_key(inputs), _by_key(inputs_before))
    moved = {key for key in {*states, *now} if _values(states.get(key), _OWN) != _values(now.get(key), _OWN)}
    rows = []
    for key in sorted({*states, *now}):
        old, new = states.get(key), now.get(key)
        if key not in moved and _values(old, ("rank",)) == _values(new, ("rank",)):
            continue
        board_row = new or old or {}
        movers = (
            [key]
            if key in moved
            else _of_template(board_row["template"], key.methodology_version, moved, states, now)
        )
        causes = why.of(movers or [key])
        rows.append(
            {
                **key._asdict(),
                "changed_at": at,
                "name": board_row["name"],
                "template": board_row["template"],
                **_both(old, new),
                "cause": " + ".join(causes),
                "cause_agents": sorted(mover.agent_id for mover in movers or [key]),
            }
        )
    return table("board_changes").frame(rows)


class _Causes:
    """Compare the inputs of two boards."""

    def __init__(self, now: Mapping[AgentVersion, Row], before: Mapping[AgentVersion, Row]) -> None:
        self._now, self._before = now, before

    def of(self, keys: Sequence[AgentVersion]) -> list[str]:
        """Return the distinct causes for these agents, in the order of `CAUSES`."""
        distinct_causes = {cause for key in keys for cause in self._of_one(key)}
        return [cause for cause in CAUSES.values() if cause in distinct_causes]

    def _of_one(self, key: AgentVersion) -> Collection[str]:
        now, before = self._now.get(key), self._before.get(key)
        if now is None:
            return {"session"}  # its sessions were removed
        if before is None:
            return {CODE} if self._is_kept_nowhere(key.methodology_version) else {"session"}
        comparable_inputs = [n for n in CAUSES if now[n] is not None and before[n] is not None]
        return {CAUSES[n] for n in comparable_inputs if now[n] != before[n]} or {JUDGE}

    def _is_kept_nowhere(self, version: str) -> bool:
        return all(earlier_key.methodology_version != version for earlier_key in self._before)


def _of_template(
    template: object,
    version: str,
    moved: Collection[AgentVersion],
    old: Mapping[AgentVersion, Row],
    new: Mapping[AgentVersion, Row],
) -> list[AgentVersion]:
    """Return the agents of a template and version whose row was changed, added or removed."""
    return [
        key
        for key in moved
        if key.methodology_version == version
        and template in {row["template"] for side in (old, new) if (row := side.get(key))}
    ]


def _both(old: Row | None, new: Row | None) -> dict[str, object]:
    columns = {
        "composite": "composite_score",
        "composite_exact": "composite_exact",
        "rank": "rank",
        "status": "status",
    }
    return {
        f"{when}_{name}": None if row is None else row[column]
        for when, row in (("old", old), ("new", new))
        for name, column in columns.items()
    }


def _values(row: Row | None, names: Sequence[str]) -> tuple[object, ...]:
    return tuple(None if row is None else row[name] for name in names)


def _states(history: pl.DataFrame, until: float = float("inf")) -> dict[AgentVersion, Row]:
    """Return the last recorded state of each board row up to that time, including removed rows."""
    dated = [(seconds(row["recorded_at"]), row) for row in history.iter_rows(named=True)]
    dated.sort(key=lambda item: item[0])
    return {_key(row): row for when, row in dated if when <= until}


def _by_key(rows: pl.DataFrame) -> dict[AgentVersion, Row]:
    return {_key(row): row for row in rows.iter_rows(named=True)}


def _key(row: Row) -> AgentVersion:
    return AgentVersion(row["agent_id"], row["methodology_version"])
