"""Resolve differing ratings of a part: decide which rating counts, or that the part is disputed.

A later rating replaces only earlier ratings by the same rater.
"""

from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple

import polars as pl

from agent_eval.judge.inputs.human_ratings import ADJUDICATOR, PART, latest_ratings

RaterRule = Literal["adjudicator", "median", "latest"]
"""Rule if raters differ and no adjudicator decides: disputed, the lower median, or the latest rating."""
Rating = dict[str, Any]
"""Row of the table human_ratings."""

_KEY = ["methodology_version", *PART]


class Decision(NamedTuple):
    """Represent the decision on the rating that counts. `decided_by` and `dispute` are None if the raters agree."""

    counts: int | None  # index of the effective rating; None if disputed
    decided_by: str | None = None
    dispute: str | None = None


def decided_ratings(human_ratings: pl.DataFrame, versions: Collection[str], rule: RaterRule) -> pl.DataFrame:
    """Return the latest rating of each rater for each part and version, and whether it is effective.

    The result has three additional columns: `is_effective`; `decided_by`, the rule and the ratings if raters differed;
    and `dispute`, the ratings if the difference is not resolved, so that no rating of the part is effective.

    Args:
        human_ratings: Ratings by people, from `placed_ratings`.
        versions: The methodology versions of the result.
        rule: Rule that resolves differing ratings.
    """
    standing = latest_ratings(human_ratings, versions, by=("rater",))
    several = standing.filter(pl.len().over(_KEY) > 1)
    single = standing.filter(pl.len().over(_KEY) == 1).with_columns(
        is_effective=pl.lit(value=True),
        decided_by=pl.lit(None, pl.String),
        dispute=pl.lit(None, pl.String),
    )
    parts: dict[tuple[Any, ...], list[Rating]] = {}
    for row in several.iter_rows(named=True):
        parts.setdefault(tuple(row[name] for name in _KEY), []).append(row)
    rows = []
    for ratings in parts.values():
        decision = decide(ratings, rule)
        for i, rating in enumerate(ratings):
            decision_columns = {"decided_by": decision.decided_by, "dispute": decision.dispute}
            rows.append(rating | decision_columns | {"is_effective": i == decision.counts})
    return pl.concat([single, pl.DataFrame(rows, schema=single.schema)])


def decide(ratings: Sequence[Rating], rule: RaterRule) -> Decision:
    """Decide which rating of a part counts, given the latest rating of each rater, ordered by time.

    If all raters agree, the last rating counts. If they differ, the adjudicators decide if they agree with each other.
    Otherwise, the rule is applied, to the adjudicators' ratings if there are any.
    """
    everyone = range(len(ratings))
    if _agree(ratings, everyone):
        return Decision(len(ratings) - 1)
    adjudicators = [i for i in everyone if ratings[i]["role"] == ADJUDICATOR]
    ratings_text = ", ".join(sorted(f"{rating['rater']} {shown_answer(rating)}" for rating in ratings))
    if adjudicators and _agree(ratings, adjudicators):
        names = " and ".join(ratings[i]["rater"] for i in adjudicators)
        return Decision(adjudicators[-1], f"adjudicator {names}: {ratings_text}")
    deciders = adjudicators or list(everyone)
    counts = {"latest": deciders[-1], "median": _middle(ratings, deciders), "adjudicator": None}[rule]
    if counts is None:
        return Decision(None, dispute=ratings_text)
    return Decision(counts, f"rule {rule}: {ratings_text}")


def shown_answer(rating: Rating) -> str:
    """Return the answer of a rating as text, e.g. '4', '0.5' or 'false information + repetition'."""
    if rating["label"] is not None:
        return " + ".join([rating["label"], *(rating["further_labels"] or ())])
    answer = rating["value"] if rating["rating_1to5"] is None else rating["rating_1to5"]
    return f"{answer:g}"


def _agree(ratings: Sequence[Rating], which: Collection[int]) -> bool:
    return len({_answer(ratings[i]) for i in which}) == 1


def _answer(rating: Rating) -> tuple[float | None, frozenset[str]]:
    labels = (
        frozenset([rating["label"], *(rating["further_labels"] or ())]) if rating["label"] else frozenset()
    )
    number = rating["value"] if rating["rating_1to5"] is None else rating["rating_1to5"]
    return (None if number is None else float(number)), labels


def _middle(ratings: Sequence[Rating], which: Sequence[int]) -> int | None:
    """Return the index of the lower median, or for labels that of the most frequent answer; None on a tie."""
    answers = [_answer(ratings[i]) for i in which]
    if all(number is not None for number, _ in answers):
        return sorted(which, key=lambda i: _answer(ratings[i])[0] or 0.0)[(len(which) - 1) // 2]
    votes = sorted((answers.count(answer) for answer in set(answers)), reverse=True)
    if len(votes) > 1 and votes[0] == votes[1]:
        return None
    return max(which, key=lambda i: (answers.count(_answer(ratings[i])), i))
