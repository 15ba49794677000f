"""Read the tables of judgments: in parts, disputes between raters, and counts of effective judgments."""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from agent_eval.judge.judging_pass import HUMAN
from agent_eval.judge.people import DISPUTED
from agent_eval.project.project import Project
from agent_eval.tables import table
from agent_eval.tables.judging import enters_means

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


def judgments_in_parts(
    project: Project, pairs: pl.DataFrame, columns: Mapping[str, Sequence[str]], *, in_order: bool
) -> Iterator[dict[str, pl.DataFrame]]:
    """Yield parts of tables turn_judgments and conversation_judgments of the given pairs, by table name.

    A part has all judgments of at most `max_conversations_per_run` conversations, counted once per version. There is
    at least one part. The conversations are in the order of their ids.

    Args:
        project: The project.
        pairs: agent_id and methodology_version, one row per pair.
        columns: The columns to read, by table.
        in_order: Whether the rows of a table are in key order within a part. That takes most of the time of reading.
    """
    distinct_pairs = pairs.select(_PAIR).unique()
    limit = project.settings.max_conversations_per_run
    key = ["agent_id", "conversation_id", "methodology_version"]
    conversation_keys = project.store.read(table("transcripts"), distinct_pairs, columns=key).sort(key)
    several = limit is not None and conversation_keys.height > limit
    for start in range(0, conversation_keys.height, limit or 1) if several else [0]:
        keys = conversation_keys.slice(start, limit) if several else distinct_pairs
        yield {
            name: project.store.read(table(name), keys, columns=read, in_order=in_order)
            for name, read in columns.items()
        }


def disputes(project: Project, pairs: pl.DataFrame) -> pl.DataFrame:
    """Return one row per disputed part of the given pairs, with the values of the raters in column `reason`.

    `pairs` has the columns agent_id and methodology_version. Ratings of sessions and scenarios come first, then
    conversations, then turns.
    """
    disputed_keys = pairs.select(_PAIR).unique().with_columns(judge=pl.lit(HUMAN), status=pl.lit(DISPUTED))
    frames = []
    with project.store.reading():
        for name in ("rubric_ratings", "conversation_judgments", "turn_judgments"):
            contract = table(name)
            columns = [c for c in (*_SCHEMA, *_NAMES) if c in contract.schema]
            rows = project.store.read(contract, disputed_keys, columns=columns)
            frames.append(rows.rename(_NAMES, strict=False))
    joined = pl.concat([pl.DataFrame(schema=_SCHEMA), *frames], how="diagonal")
    return joined.select(list(_SCHEMA))


def answering_models(project: Project, pairs: pl.DataFrame) -> pl.DataFrame:
    """Return the judges of all answers of the given pairs, with the models that answered; one row per combination.

    `pairs` has the columns agent_id and methodology_version. The result also has `judge` and `response_model`.
    """
    distinct_pairs, columns = pairs.select(_PAIR).unique(), [*_PAIR, "judge", "response_model"]
    with project.store.reading():
        return pl.concat(
            project.store.counts(table(name), distinct_pairs, columns=columns).drop("n")
            for name in ("turn_judgments", "conversation_judgments", "rubric_ratings")
        ).unique()


def effective_judgments(project: Project, pairs: pl.DataFrame) -> pl.DataFrame:
    """Count the effective rows of all tables of judgments and ratings, by the columns that `board_facts` needs.

    `pairs` has the columns agent_id and methodology_version; column `n` of the result is the number of rows.
    """
    distinct_pairs = pairs.select(_PAIR).unique()
    columns = [*_PAIR, "conversation_id", "judge", "status", "seen_share", "earlier_profile", "is_effective"]
    names = {
        "turn_judgments": "unscored_reason",
        "conversation_judgments": "unscored_reason",
        "rubric_ratings": "reason",
    }
    frames = []
    with project.store.reading():
        for name, why in names.items():
            contract = table(name)
            is_counted = ["is_counted"] if "is_counted" in contract.schema else []
            rows = project.store.counts(contract, distinct_pairs, columns=[*columns, *is_counted, why])
            effective = rows.filter(enters_means(rows)).rename({why: "reason"})
            frames.append(effective.drop("is_effective", *is_counted))
    return pl.concat(frames)
