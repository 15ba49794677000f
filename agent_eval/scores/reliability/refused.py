"""Count the records refused at import, which are trials that cannot be scored, per agent and session."""

from collections import Counter, defaultdict
from typing import NamedTuple

import polars as pl

from agent_eval.formats.refusals import n_records
from agent_eval.tables.agent_version import AgentVersion

SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "methodology_version": pl.String,
    "agent_id": pl.String,
    "task_set": pl.String,
    "n_refused": pl.Int64,
    "refused_sessions": pl.List(pl.String),
}


def refused_records(import_errors: pl.DataFrame, transcripts: pl.DataFrame) -> pl.DataFrame:
    """Count refused records per version, agent and task set, for sessions that count under the version.

    A refused record has no task, so it is counted in the task set of its session. If its session is unknown or
    has no tasks, it is counted in the agent's first task set, or null if the agent has none. A verbatim copy of
    an imported record is not a lost trial and is not counted.

    Args:
        import_errors: Table import_errors.
        transcripts: Table transcripts, with any versions.

    Returns:
        One row per version, agent and task set with refused records, with `n_refused` and `refused_sessions` (as
        'session: n').
    """
    lost = refused_by_agent(import_errors)
    counts: dict[tuple[str, str, str | None], Counter[str]] = defaultdict(Counter)
    for pair, sessions in _sessions(transcripts.filter(pl.col("agent_id").is_in(list(lost)))).items():
        first = min((one.task_set for one in sessions.values() if one.task_set is not None), default=None)
        is_admitted = any(one.is_admitted for one in sessions.values())
        for session, n in lost[pair.agent_id].items() if is_admitted else ():
            of_session = sessions.get(str(session), _Session(is_admitted=True, task_set=None))
            if of_session.is_admitted:  # otherwise the session does not count under this version
                key = (pair.methodology_version, pair.agent_id, of_session.task_set or first)
                counts[key][session or "no session"] += n
    return pl.DataFrame(
        [
            (*key, sum(of_session.values()), [f"{name}: {n}" for name, n in sorted(of_session.items())])
            for key, of_session in sorted(counts.items(), key=str)
        ],
        schema=SCHEMA,
        orient="row",
    )


def refused_by_agent(import_errors: pl.DataFrame) -> dict[str, Counter[str | None]]:
    """Return the number of refused records by agent and session; None means an unknown session."""
    lost: dict[str, Counter[str | None]] = defaultdict(Counter)
    columns = ("agent_id", "session_id", "line", "reason")
    for agent, session, line, reason in import_errors.select(columns).iter_rows():
        if n := n_records(line, reason):
            lost[agent][session] += n
    return lost


class _Session(NamedTuple):
    """Hold a session's facts under a version; the task set is None if no conversation has a task."""

    is_admitted: bool
    task_set: str | None


def _sessions(transcripts: pl.DataFrame) -> dict[AgentVersion, dict[str, _Session]]:
    sessions_of_pair: dict[AgentVersion, dict[str, _Session]] = defaultdict(dict)
    of_task = pl.when(pl.col("task_id").is_not_null()).then(pl.col("task_set").fill_null("default"))
    rows = (
        transcripts.group_by("methodology_version", "agent_id", "session_id")
        .agg(is_admitted=pl.col("is_admitted").any(), task_set=of_task.filter("is_admitted").min())
        .iter_rows(named=True)
    )
    for row in rows:
        pair = AgentVersion.of(agent_id=row["agent_id"], methodology_version=row["methodology_version"])
        sessions_of_pair[pair][row["session_id"]] = _Session(row["is_admitted"], row["task_set"])
    return sessions_of_pair
