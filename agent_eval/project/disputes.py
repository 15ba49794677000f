"""Read disputes between raters, and counts of effective judgments, from the tables of judgments and ratings."""

import polars as pl

from agent_eval.judge.judging_pass import HUMAN
from agent_eval.judge.people import DISPUTED
from agent_eval.project.project import Project
from agent_eval.tables import table

_PAIR = ["methodology_version", "agent_id"]
_SCHEMA = {
    **dict.fromkeys(_PAIR, pl.String),
    "session_id": pl.String,
    "conversation_id": pl.String,
    "turn_index": pl.Int64,
    "target": pl.String,
    "criterion": pl.String,
    "reason": pl.String,
}
_NAMES = {"metric": "target", "unscored_reason": "reason"}


def disputes(project: Project, pairs: pl.DataFrame) -> pl.DataFrame:
    """Return one row per disputed part of the given pairs, with the values of the raters in column `reason`.

    `pairs` has the columns agent_id and methodology_version. Ratings of sessions and scenarios come first, then
    conversations, then turns.
    """
    wanted = pairs.select(_PAIR).unique().with_columns(judge=pl.lit(HUMAN), status=pl.lit(DISPUTED))
    found = []
    with project.store.reading():
        for name in ("rubric_ratings", "conversation_judgments", "turn_judgments"):
            contract = table(name)
            columns = [c for c in (*_SCHEMA, *_NAMES) if c in contract.schema]
            rows = project.store.read(contract, wanted, columns=columns)
            found.append(rows.rename(_NAMES, strict=False))
    joined = pl.concat([pl.DataFrame(schema=_SCHEMA), *found], how="diagonal")
    return joined.select(list(_SCHEMA))


def effective_judgments(project: Project, pairs: pl.DataFrame) -> pl.DataFrame:
    """Count the effective rows of all tables of judgments and ratings, by the columns that `board_facts` needs.

    `pairs` has the columns agent_id and methodology_version; column `n` of the result is the number of rows.
    """
    wanted = pairs.select(_PAIR).unique().with_columns(is_effective=pl.lit(value=True))
    columns = [*_PAIR, "conversation_id", "judge", "status", "seen_share"]
    with project.store.reading():
        return pl.concat(
            project.store.counts(table(name), wanted, columns=[*columns, why]).rename({why: "reason"})
            for name, why in (
                ("turn_judgments", "unscored_reason"),
                ("conversation_judgments", "unscored_reason"),
                ("rubric_ratings", "reason"),
            )
        )
