"""Compute exact means of the ratings of a pair (agent and version), and name every part without a rating.

Universal and domain scores both use this module. The methodology defines the parts. Only rows with
`is_effective` count; if a part has several raters, the effective one is chosen before this step.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import polars as pl

from agent_eval.errors import InputError
from agent_eval.methodology.models import Methodology
from agent_eval.tables.agent_version import AgentVersion

PAIR = ("methodology_version", "agent_id")
PART = (*PAIR, "session_id", "conversation_id", "target", "criterion")
LOST = ("unscored", "invalid")  # lost to judge or harness, not to the agent
DISPUTED = "disputed"  # people disagree and the dispute is not resolved
RECORDED = "recorded"
NO_MODELS = ("human", "rule", "none")  # judges that are not models


class RatedTarget(NamedTuple):
    """Identify a universal dimension (criterion None) or a criterion of a scenario."""

    target: str
    criterion: str | None


@dataclass(frozen=True)
class Rated:
    """Hold the ratings of one pair, with a mean per part that is None unless the part is rated in every session."""

    n_sessions: int
    means: Mapping[RatedTarget, Fraction | None]
    session_ids: Sequence[str]  # sorted
    session_sums: Sequence[float | None]  # sum of each session's part means; None unless all are rated
    judges: tuple[str, ...]
    judge_models: tuple[str, ...]  # including the models of recorded verdicts; an ensemble counts as one
    n_unscored: int
    missing: tuple[str, ...]
    is_disputed: bool  # ratings are missing, all of them because people disagree


def methodology_of(version: str, methodologies: Mapping[str, Methodology]) -> Methodology:
    """Return the methodology of a version, or raise InputError if it was not passed."""
    if version not in methodologies:
        passed_versions = ", ".join(sorted(methodologies)) or "none"
        raise InputError(
            f"Rows name methodology {version!r}, which was not passed. Passed: {passed_versions}. "
            "Pass its methodology as well, or remove its rows."
        )
    return methodologies[version]


def pairs_of(frame: pl.DataFrame) -> list[AgentVersion]:
    """Return the distinct pairs of a frame, sorted."""
    return [
        AgentVersion(agent, version) for version, agent in frame.select(PAIR).unique().sort(PAIR).iter_rows()
    ]


def effective(rubric_ratings: pl.DataFrame) -> pl.DataFrame:
    """Return the effective rows, one per part; a scored rating off the scale becomes 'invalid', with a reason.

    Raises:
        InputError: If two effective rows rate one part.
    """
    rows = rubric_ratings.filter(pl.col("is_effective"))
    parts = rows.select(PART)
    # comparing hashes is cheap: the parts themselves are compared only if two hashes are equal
    if parts.hash_rows().n_unique() < parts.height and (twice := rows.filter(parts.is_duplicated())).height:
        part = twice.sort(PART).row(0, named=True)
        part_text = ", ".join(f"{name} {part[name]!r}" for name in PART if part[name] is not None)
        raise InputError(
            f"Rated twice: {part_text}. One rating of a part may be effective (human > rule > model or recorded); "
            "set is_effective to false on the others."
        )
    on_scale = pl.col("rating_1to5").is_between(1, 5).fill_null(False)
    broken = (pl.col("status") == "scored") & ~on_scale
    rating_text = pl.col("rating_1to5").cast(pl.String).fill_null("null")
    return rows.with_columns(
        status=pl.when(broken).then(pl.lit("invalid")).otherwise("status"),
        reason=pl.when(broken)
        .then(pl.format("rating {} is off the scale, allowed are integers 1–5", rating_text))
        .otherwise("reason"),
    )


def rated(
    rubric_ratings: pl.DataFrame, expected: Mapping[AgentVersion, Sequence[RatedTarget]]
) -> dict[AgentVersion, Rated]:
    """Return the ratings of each pair, with the exact mean of each expected part in the given order.

    The ratings of a slot's conversations are averaged per session, and then over sessions. If a session lacks
    a rating of a part, the part's mean is None and the part is named in `missing`; a mean never omits a
    session. Rows of other parts are ignored.
    """
    parts, sessions = _numbered_parts(expected), _numbered_sessions(rubric_ratings)
    rows = _on_grid(rubric_ratings, parts, sessions)
    sums = _sums(rows, parts, sessions)
    facts = _facts(rows, parts, sessions)
    means, missing = _means(sums, parts), _missing(rows, sums, parts, sessions)
    by_session, disputed = _by_session(sums, sessions), _disputed(rows, parts)
    ratings_of_pair = {}
    for pair, of_pair in expected.items():
        n_sessions, judges, n_unscored, models = facts.get(pair, (0, (), 0, ()))
        names, totals = by_session.get(pair, ((), ()))
        ratings_of_pair[pair] = Rated(
            n_sessions=n_sessions,
            means={part: means.get((pair, part)) for part in of_pair},
            session_ids=names,
            session_sums=totals,
            judges=tuple(judges),
            judge_models=tuple(model for model in models if model not in NO_MODELS),
            n_unscored=n_unscored,
            missing=tuple(missing[pair]),
            is_disputed=pair in disputed,
        )
    return ratings_of_pair


def _numbered_parts(expected: Mapping[AgentVersion, Sequence[RatedTarget]]) -> pl.DataFrame:
    """Number the expected parts in order, because grouping a million rows is faster by number than by name."""
    part_rows = [(*pair, *part) for pair, of_pair in expected.items() for part in of_pair]
    schema = dict.fromkeys((*AgentVersion._fields, *RatedTarget._fields), pl.String)
    return pl.DataFrame(part_rows, schema=schema, orient="row").with_row_index("part")


def _numbered_sessions(rubric_ratings: pl.DataFrame) -> pl.DataFrame:
    """Number the sessions of each pair; a pair without sessions gets one null session.

    Effective rows without a session therefore count only if the pair has no session at all.
    """
    has_session = pl.col("session_id").is_not_null()
    sessions = rubric_ratings.filter("is_effective").select(*PAIR, "session_id").unique()
    return sessions.filter(has_session | ~has_session.any().over(PAIR)).with_row_index("session")


def _on_grid(rubric_ratings: pl.DataFrame, parts: pl.DataFrame, sessions: pl.DataFrame) -> pl.DataFrame:
    """Return the effective rows of the expected parts, by number, with a 'missing' row for each part without one."""
    targets = parts["target"].unique()
    model = pl.when(pl.col("judge") == RECORDED).then("rater").otherwise("judge").alias("model")
    used = rubric_ratings.select(*PART, "rating_1to5", "status", "reason", "judge", model, "is_effective")
    rows = (
        effective(used.filter(pl.col("target").is_in(targets.implode())))
        .join(parts, on=[*PAIR, *RatedTarget._fields], nulls_equal=True)
        .join(sessions, on=[*PAIR, "session_id"], nulls_equal=True)
        .select("part", "session", "conversation_id", "rating_1to5", "status", "reason", "judge", "model")
    )
    absent = _absent(rows, parts, sessions).with_columns(status=pl.lit("missing"), reason=pl.lit("no rating"))
    return pl.concat([rows, absent], how="diagonal_relaxed")


def _absent(rows: pl.DataFrame, parts: pl.DataFrame, sessions: pl.DataFrame) -> pl.DataFrame:
    """Return each part and session without a row, comparing only parts with fewer rated sessions than expected."""
    n_present = rows.group_by("part").agg(n_present=pl.col("session").n_unique())
    lacking = (
        parts.join(sessions.group_by(PAIR).agg(n_sessions=pl.len()), on=PAIR)
        .join(n_present, on="part", how="left")
        .filter(pl.col("n_present").fill_null(0) < pl.col("n_sessions"))
    )
    cells = lacking.join(sessions, on=PAIR).select("part", "session")
    return cells.join(rows, on=["part", "session"], how="anti")


def _sums(rows: pl.DataFrame, parts: pl.DataFrame, sessions: pl.DataFrame) -> pl.DataFrame:
    """Return the sum of ratings and the numbers of ratings and of scored ratings, per part and session."""
    is_scored = pl.col("status") == "scored"
    if rows.height == parts.join(sessions, on=PAIR).height:  # every cell of the grid has a row
        return rows.select(
            "part",
            "session",
            total=pl.col("rating_1to5").fill_null(0),
            n=pl.lit(1, dtype=pl.UInt32),
            n_scored=is_scored.cast(pl.UInt32),
        )
    return rows.group_by("part", "session").agg(
        total=pl.col("rating_1to5").sum(), n=pl.len(), n_scored=is_scored.sum()
    )


def _facts(
    rows: pl.DataFrame, parts: pl.DataFrame, sessions: pl.DataFrame
) -> dict[AgentVersion, tuple[int, list[str], int, list[str]]]:
    """Return the number of sessions, the raters, the number of lost ratings and the rating models of each pair."""
    is_scored = pl.col("status") == "scored"
    by_part = rows.group_by("part").agg(
        judges=pl.col("judge").filter(is_scored).unique(),
        models=pl.col("model").filter(is_scored).unique(),
        n_lost=pl.col("status").is_in(LOST).sum(),
    )
    per_pair = (
        parts.join(by_part, on="part")
        .group_by(PAIR)
        .agg(pl.col("judges", "models").explode().drop_nulls().unique().sort(), pl.col("n_lost").sum())
        .join(sessions.group_by(PAIR).agg(n_sessions=pl.col("session_id").count()), on=PAIR)
        .select(*PAIR, "n_sessions", "judges", "n_lost", "models")
    )
    return {
        AgentVersion(agent, version): (n, judges, lost, models)
        for version, agent, n, judges, lost, models in per_pair.iter_rows()
    }


def _means(
    sums: pl.DataFrame, parts: pl.DataFrame
) -> dict[tuple[AgentVersion, RatedTarget], Fraction | None]:
    """Compute exact means from integer sums and counts; sessions with equal counts are added first for speed."""
    equal = sums.group_by("part", "n").agg(
        pl.col("total").sum(), n_sessions=pl.len(), is_complete=(pl.col("n_scored") == pl.col("n")).all()
    )
    mean_rows = parts.join(equal, on="part").select(
        *PAIR, *RatedTarget._fields, "n", "total", "n_sessions", "is_complete"
    )
    collected: dict[tuple[AgentVersion, RatedTarget], list[tuple[Fraction, int, bool]]] = defaultdict(list)
    for version, agent, target, criterion, n, total, n_sessions, is_complete in mean_rows.iter_rows():
        key_of = AgentVersion(agent, version), RatedTarget(target, criterion)
        collected[key_of].append((Fraction(total, n), n_sessions, is_complete))
    return {
        part: sum((total for total, _, _ in values), Fraction()) / sum(n for _, n, _ in values)
        if all(is_complete for _, _, is_complete in values)
        else None
        for part, values in collected.items()
    }


def _by_session(
    sums: pl.DataFrame, sessions: pl.DataFrame
) -> Mapping[AgentVersion, tuple[list[str], list[float | None]]]:
    """Return each pair's sessions, sorted, with the sum of part means (over conversations) of each session."""
    # rounded because float sums depend on the order of addition
    total = (pl.col("total") / pl.col("n")).sum().round(9)
    is_complete = (pl.col("n_scored") == pl.col("n")).all()
    per_session = (
        sums.group_by("session")
        .agg(pl.when(is_complete).then(total).alias("total"))
        .join(sessions.drop_nulls("session_id"), on="session")
        .sort(*PAIR, "session_id")
        .group_by(PAIR, maintain_order=True)
        .agg("session_id", "total")
    )
    return {
        AgentVersion(agent, version): (names, totals)
        for version, agent, names, totals in per_session.iter_rows()
    }


def _disputed(rows: pl.DataFrame, parts: pl.DataFrame) -> set[AgentVersion]:
    """Return the pairs whose missing ratings are all missing because people disagree."""
    lacking = rows.filter(pl.col("status") != "scored").join(parts, on="part")
    per_pair = lacking.group_by(PAIR).agg(is_disputed=(pl.col("status") == DISPUTED).all())
    return {
        AgentVersion(agent, version)
        for version, agent in per_pair.filter("is_disputed").select(PAIR).iter_rows()
    }


def _missing(
    rows: pl.DataFrame, sums: pl.DataFrame, parts: pl.DataFrame, sessions: pl.DataFrame
) -> defaultdict[AgentVersion, list[str]]:
    """Return texts such as 'U4: reason' and 'D2.accuracy (session b): reason' for each pair's missing ratings.

    Ratings that the transcript contradicts, which have a reason too, are also named.
    If all criteria of a slot are missing for the same reason, the slot is named once.
    """
    unrated = (
        rows.filter((pl.col("status") != "scored") | pl.col("reason").is_not_null())
        .join(sums.select("part", "session", "n"), on=["part", "session"])
        .join(parts, on="part")
        .join(sessions.select("session", "session_id", n_sessions=pl.len().over(PAIR)), on="session")
        .sort(*PAIR, "part", "session_id", "conversation_id")
    )
    n_criteria = {
        (AgentVersion(agent, version), target): n
        for version, agent, target, n in parts.group_by(*PAIR, "target").len().iter_rows()
    }
    lacking: dict[tuple[AgentVersion, str, str, str], list[str]] = defaultdict(list)
    for row in unrated.iter_rows(named=True):
        pair = AgentVersion(row["agent_id"], row["methodology_version"])
        places = [f"session {row['session_id']}"] if row["n_sessions"] > 1 else []
        if row["n"] > 1:
            places.append(f"conversation {row['conversation_id']}")
        where = f" ({', '.join(places)})" if places else ""
        reason = row["reason"] or row["status"]
        why = f"{DISPUTED} ({reason})" if row["status"] == DISPUTED else reason
        lacking[pair, row["target"], where, why].append(row["criterion"])
    texts: defaultdict[AgentVersion, list[str]] = defaultdict(list)
    for (pair, target, where, reason), criteria in lacking.items():
        is_whole = len(criteria) == n_criteria[pair, target]
        names = [target] if is_whole else [f"{target}.{criterion}" for criterion in criteria]
        texts[pair] += [f"{name}{where}: {reason}" for name in names]
    return texts


def grouped(missing: Iterable[str]) -> list[str]:
    """Group missing parts by reason, as in 'U1, U2: no session declared for 1.3.0'."""
    reasons: dict[str, list[str]] = {}
    for text in missing:
        part, _, reason = text.partition(": ")
        reasons.setdefault(reason, []).append(part)
    return [
        f"{', '.join(parts)}: {reason}" if reason else ", ".join(parts) for reason, parts in reasons.items()
    ]
