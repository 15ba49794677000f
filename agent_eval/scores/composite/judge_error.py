"""Include a judge's error in composites of which people rated a part and a judge the rest.

People's ratings replace the judge's, so the composite of such an agent rests on two instruments. Composites that a judge
alone rated, or people alone, are unchanged. Functions take and return frames.
"""

from collections.abc import Collection, Mapping

import polars as pl

from agent_eval.methodology.models import Methodology
from agent_eval.scores.calibration import HUMAN, compared_with_people
from agent_eval.scores.composite.ratings import PAIR
from agent_eval.scores.statistics.intervals import LEVEL

POINTS_PER_RATING = 20.0  # of a composite, if all ratings are one point higher
_UNIVERSAL = r"^U\d$"
_RULED = "rule"


def with_judge_error(
    composite_scores: pl.DataFrame,
    ratings: pl.DataFrame,
    calibration: pl.DataFrame,
    methodologies: Mapping[str, Methodology],
) -> pl.DataFrame:
    """Return the scores with the columns n_ratings, n_ratings_by_people and judge_error_0to100.

    The judge's error is a standard error of the composite, in points: 20 points per rating point, times the judge's share
    of the composite, times the end of the 95 % interval of its mean bias that is farther from 0, as a standard error. It
    is null for composites that are not mixed, and if no mean bias of the judge has an interval.

    Args:
        composite_scores: Rows with methodology_version, agent_id and composite.
        ratings: Numbers (n) of effective, scored rubric ratings by methodology_version, agent_id, target and judge.
        calibration: Table judge_calibration.
        methodologies: The methodology of each version of the ratings.
    """
    rows = []
    for (version, agent), of_pair in ratings.group_by(PAIR):
        n, by_people = _n(of_pair), _n(of_pair.filter(judge=HUMAN))
        judge_ratings = of_pair.filter(~pl.col("judge").is_in([HUMAN, _RULED]))
        error = None
        if by_people and judge_ratings.height:
            weights = methodologies[str(version)].weights
            is_universal = pl.col("target").str.contains(_UNIVERSAL)
            share = float(weights.universal) * _share(judge_ratings, of_pair, is_universal)
            share += float(weights.domain) * _share(judge_ratings, of_pair, ~is_universal)
            bias = _largest_bias(calibration.filter(methodology_version=version), judge_ratings)
            error = None if bias is None else POINTS_PER_RATING * share * bias
        rows.append((version, agent, n, by_people, error))
    schema = {**dict.fromkeys(PAIR, pl.String), "n_ratings": pl.Int64, "n_ratings_by_people": pl.Int64, "judge_error_0to100": pl.Float64}  # fmt: skip
    error_columns = pl.DataFrame(rows, schema=schema, orient="row")
    return composite_scores.join(error_columns, on=list(PAIR), how="left", maintain_order="left")


def _largest_bias(calibration: pl.DataFrame, judge_ratings: pl.DataFrame) -> float | None:
    """Return the standard error, in rating points, of a judge whose mean bias is as large as its interval allows.

    The targets are pooled by their numbers of labels, as if their errors were completely correlated.
    """
    from scipy.special import ndtri

    targets: Collection[str] = judge_ratings["target"].unique().to_list()
    bias_rows = calibration.filter(
        compared_with_people(),
        pl.col("judge").is_in(judge_ratings["judge"].unique().implode()),
        pl.col("metric").is_in(list(targets)),
        ~pl.col("is_stale").fill_null(value=False),
        pl.col("mean_bias_low").is_not_null(),
    )
    if bias_rows.is_empty():
        return None
    weighted = pl.col("mean_bias_low", "mean_bias_high") * pl.col("n")
    ends = bias_rows.select(weighted.sum() / pl.col("n").sum()).row(0)
    return float(max(map(abs, ends))) / float(ndtri(0.5 + LEVEL / 2))


def _share(judge_ratings: pl.DataFrame, of_pair: pl.DataFrame, is_part: pl.Expr) -> float:
    """Return the share of the ratings of a part of the composite that are the judge's."""
    return _n(judge_ratings.filter(is_part)) / max(_n(of_pair.filter(is_part)), 1)


def _n(ratings: pl.DataFrame) -> int:
    return int(ratings["n"].sum())
