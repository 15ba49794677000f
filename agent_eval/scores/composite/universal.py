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
    known = [rating for rating in ratings if rating is not None]
    if len(known) < len(ratings):
        return None
    return sum(known, Fraction()) / (5 * len(ratings)) * 100


def universal_scores(
    rubric_ratings: RubricRatings, methodologies: Mapping[str, Methodology]
) -> UniversalScores:
    """Return table `universal_scores`: one row per pair that has ratings.

    A dimension is the exact mean of its effective ratings over the sessions. If any session lacks a rating,
    the dimension is null and named in `missing`: nulls are not filled with zero, and a mean never omits a
    session.

    Raises:
        DuplicateRatingError: If two effective ratings rate one dimension of one session.
        VersionNotGivenError: If rows name a version without a methodology.
    """
    expected = {
        pair: [
            RatedTarget(d.id, None)
            for d in methodology_of(pair.methodology_version, methodologies).dimensions
        ]
        for pair in pairs_of(rubric_ratings)
    }
    rows = []
    for pair, found in rated(rubric_ratings, expected).items():
        score = universal_0to100(list(found.means.values()))
        rows.append(
            {
                **pair._asdict(),
                **{part.target.lower(): as_float(value) for part, value in found.means.items()},
                "n_sessions": found.n_sessions,
                "session_ids": found.session_ids,
                "session_universal": [
                    None if total is None else total / (5 * len(found.means)) * 100
                    for total in found.session_sums
                ],
                "universal_0to100": as_float(score),
                "universal_exact": as_text(score),
                "judges": found.judges,
                "judge_models": found.judge_models,
                "n_unscored": found.n_unscored,
                "missing": found.missing,
                "is_disputed": found.is_disputed,
            }
        )
    return table("universal_scores").frame(rows)
