"""Compute the history of an agent: its composite by version and run, and its figures over sessions by date."""

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from agent_eval.clusters.failures import n_findings
from agent_eval.report.charts import IntervalMark, ShareLine, line, span
from agent_eval.report.html.tables import Row
from agent_eval.scores.statistics.agreement import share_interval
from agent_eval.tables.judging import HUMAN

SHOWN = 200  # maximum number of sessions, or of runs, latest first


def means_of_counts() -> dict[str, pl.Expr]:
    """Return expressions over counts (`n`) of answers by `rating_1to5`, `judge`, `is_effective` and `is_counted`.

    People and judges are never averaged as one: `mean_rating` is the mean of the judges' answers that enter means,
    `mean_by_people` that of people's answers that count, and each is null without such answers. `n_judged` is the number
    of all answers.
    """
    rating, is_by_people = pl.col("rating_1to5"), pl.col("judge") == HUMAN
    is_entering = pl.coalesce("is_counted", "is_effective") & ~is_by_people

    def mean(counts: pl.Expr) -> pl.Expr:
        n = pl.col("n").filter(counts & rating.is_not_null())
        total = (rating * pl.col("n")).filter(counts & rating.is_not_null()).sum()
        return pl.when(n.sum() > 0).then(total / n.sum())

    means = {"mean_rating": is_entering, "mean_by_people": pl.col("is_effective") & is_by_people}
    return {name: mean(counts) for name, counts in means.items()} | {"n_judged": pl.col("n").sum()}


@dataclass(frozen=True)
class SessionStanding:
    """Represent one session; unknown values are None."""

    session_id: str
    date: datetime.date | None
    n_conversations: int  # that count under the version
    composite: float | None  # 0-100, before the penalty
    composite_mark: IntervalMark | None
    n_correct: int
    n_known: int  # conversations with a known outcome
    mean_rating: float | None  # of turns by judges, 1-5
    mean_by_people: float | None  # of turns that people rated, 1-5
    rating_mark: IntervalMark | None
    n_failures: int | None  # None: no turn was judged


def session_history(
    sessions: pl.DataFrame,
    conversations: pl.DataFrame,
    transcripts: pl.DataFrame,
    turn_ratings: pl.DataFrame,
    failures: pl.DataFrame,
    composite: Row,
) -> list[SessionStanding]:
    """Return the latest sessions of one agent with conversations that count under one version, oldest first.

    Args:
        sessions: The sessions with their dates; sessions without a date come first, by id.
        conversations: The conversations with their outcomes.
        transcripts: The transcripts, which define the conversations that count.
        turn_ratings: The counts (`n`) of scored answers about turns, by conversation, rating and judge; the mean rating
            of a session is taken over all of its turns.
        failures: The failures of judged turns.
        composite: The agent's row of composite_scores; empty without one.
    """
    admitted = transcripts.filter("is_admitted").select("conversation_id")
    of = conversations.join(admitted, on="conversation_id", how="semi")
    place = of.select("conversation_id", "session_id")
    ratings = turn_ratings.join(place, on="conversation_id").group_by("session_id").agg(**means_of_counts())
    by_session = (
        of.group_by("session_id")
        .agg(
            n_conversations=pl.len(),
            n_correct=pl.col("outcome_correct").sum(),
            n_known=pl.col("outcome_correct").count(),
        )
        .join(ratings, on="session_id", how="left")
        .join(failures.join(place, on="conversation_id").group_by("session_id").agg(n_failures=n_findings()), on="session_id", how="left")
        .join(sessions.select("session_id", "session_date"), on="session_id", how="left")
        .sort("session_date", "session_id", nulls_last=False)
    )  # fmt: skip
    scores = dict(
        zip(composite.get("session_ids") or (), composite.get("session_scores") or (), strict=False)
    )
    return [_standing(row, scores.get(row["session_id"])) for row in by_session.tail(SHOWN).to_dicts()]


def history_line(history: Sequence[SessionStanding]) -> ShareLine | None:
    """Return the share of correct conversations by session, with Jeffreys' intervals; None below two known shares."""
    return line([_share(session) for session in history])


def version_line(leaderboard: pl.DataFrame) -> ShareLine | None:
    """Return the composite of an agent under each version, in the order of the rows; None below two known ones."""
    return line([_composite(row["methodology_version"], row) for row in leaderboard.to_dicts()], unit="")


def run_line(board_history: pl.DataFrame) -> ShareLine | None:
    """Return the composite of an agent under one version at each run that changed its row; None below two known ones."""
    rows = board_history.sort("recorded_at").tail(SHOWN).to_dicts()
    return line([_composite(f"{row['recorded_at']:%Y-%m-%d %H:%M}", row) for row in rows], unit="")


def _composite(name: str, row: Row) -> tuple[str, float | None, float | None, float | None]:
    bounds = (row["composite_score"], row["low"], row["high"])
    is_known = row.get("is_on_board", True)
    share, low, high = (value / 100 if is_known and value is not None else None for value in bounds)
    return name, share, low, high


def _share(session: SessionStanding) -> tuple[str, float | None, float | None, float | None]:
    if not session.n_known:
        return session.session_id, None, None, None
    share = session.n_correct / session.n_known
    return session.session_id, share, *share_interval(share, 0.0, session.n_known, math.inf)


def _standing(row: Row, score: float | None) -> SessionStanding:
    rating = row["mean_rating"]
    return SessionStanding(
        session_id=row["session_id"],
        date=row["session_date"],
        n_conversations=row["n_conversations"],
        composite=score,
        composite_mark=span(score, None, None),
        n_correct=row["n_correct"],
        n_known=row["n_known"],
        mean_rating=rating,
        mean_by_people=row["mean_by_people"],
        rating_mark=None if rating is None else span(rating - 1, None, None, scale=4),
        n_failures=(row["n_failures"] or 0) if row["n_judged"] else None,
    )
