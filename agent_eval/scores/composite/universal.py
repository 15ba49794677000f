"""Compute universal scores: U1–U6, rated once per session and averaged exactly over the sessions."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from agent_eval.methodology.models import Methodology
from agent_eval.scores.composite.ratings import RatedTarget, methodology_of, pairs_of, rated
from agent_eval.scores.statistics.exact import as_float, as_text
from agent_eval.tables import table
from agent_eval.tables.frames import RubricRatings, UniversalScores


def universal_0to100(ratings: Sequence[Fraction | None]) -> Fraction | None:
    """Return the exact sum of U1–U6 / 30 × 100; None if any of the six is None. The range is 20 to 100.

    Source: methodology 1.0.0, Score calculation.
    """
    scored = [rating for rating in ratings if rating is not None]
    if len(scored) < len(ratings):
        return None
    return sum(scored, Fraction()) / (5 * len(ratings)) * 100


def universal_scores(
    rubric_ratings: RubricRatings, methodologies: Mapping[str, Methodology]
) -> UniversalScores:
    """Return table `universal_scores`: one row per pair that has ratings.

    A dimension is the exact mean of its effective ratings over the sessions. If any session lacks a rating,
    the dimension is null and named in `missing`: nulls are not filled with zero, and a mean never omits a
    session.

    Raises:
        InputError: If two effective ratings rate one dimension of one session,
            or if rows name a version without a methodology.
    """
    expected = {
        pair: [
            RatedTarget(d.id, None)
            for d in methodology_of(pair.methodology_version, methodologies).dimensions
        ]
        for pair in pairs_of(rubric_ratings)
    }
    rows = []
    for pair, pair_ratings in rated(rubric_ratings, expected).items():
        score = universal_0to100(list(pair_ratings.means.values()))
        rows.append(
            {
                **pair._asdict(),
                **{part.target.lower(): as_float(value) for part, value in pair_ratings.means.items()},
                "n_sessions": pair_ratings.n_sessions,
                "session_ids": pair_ratings.session_ids,
                "session_universal": [
                    None if total is None else total / (5 * len(pair_ratings.means)) * 100
                    for total in pair_ratings.session_sums
                ],
                "universal_0to100": as_float(score),
                "universal_exact": as_text(score),
                "judges": pair_ratings.judges,
                "judge_models": pair_ratings.judge_models,
                "n_unscored": pair_ratings.n_unscored,
                "missing": pair_ratings.missing,
                "is_disputed": pair_ratings.is_disputed,
            }
        )
    return table("universal_scores").frame(rows)
