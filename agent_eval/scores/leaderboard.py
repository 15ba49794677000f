"""The leaderboard of a methodology version: ranks on exact composites, unpublished agents below with their reasons."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import polars as pl

from agent_eval.errors import AgentEvalError
from agent_eval.methodology.models import Version
from agent_eval.scores.exact import from_text
from agent_eval.scores.ratings import PAIR, Pair
from agent_eval.tables import table

ORDER_OF_STATUS = ("published", "provisional", "incomplete", "invalid", "not_applicable")


class MixedVersionsError(AgentEvalError):
    """A view would rank agents of several methodology versions against each other."""

    def __init__(self, versions: Iterable[str]) -> None:
        super().__init__(
            f"The board mixes methodology versions {', '.join(sorted(versions, key=Version.parse))}. "
            "Scores of two versions are not comparable: choose one version, or ask for several explicitly."
        )


def leaderboard(
    composite_scores: pl.DataFrame, agents: pl.DataFrame, reliability: pl.DataFrame
) -> pl.DataFrame:
    """Table `leaderboard`: one row per row of `composite_scores`, of one or more versions.

    Only published rows are ranked, within their version and template, 1, 2, 2, 4 on the exact composite.
    No interval is computed yet: `low`, `high` and both ends of the rank range are null.
    `pass_at_1` is the unbiased estimate, null unless the agent has exactly one task set.
    Sorted by version, template, published rows by rank, then the others by status; row order never matters.
    """
    names = dict(agents.select("agent_id", "name").iter_rows())
    ranks, overall = _ranks(composite_scores, ["template"]), _ranks(composite_scores, [])
    passes = _pass_at_1(reliability)
    shared = [c for c in table("leaderboard").schema if c in composite_scores.columns]
    rows = []
    for row in composite_scores.select(shared).iter_rows(named=True):
        pair = Pair(row["methodology_version"], row["agent_id"])
        rank = ranks.get(pair)
        rows.append(
            row
            | {"name": names.get(pair.agent_id) or pair.agent_id}
            | {"rank": rank, "rank_overall": overall.get(pair)}
            | passes.get(pair, {})
        )
    return table("leaderboard").frame(sorted(rows, key=_place))


def in_reading_order(board: pl.DataFrame) -> pl.DataFrame:
    """A stored board as `leaderboard` made it: version, template, rank, then the others by status."""
    return table("leaderboard").frame(sorted(board.iter_rows(named=True), key=_place))


def competition_ranks(values: Sequence[Fraction]) -> list[int]:
    """Standard competition ranks, the highest value first: equal values share a rank, 1, 2, 2, 4."""
    rank_of: dict[Fraction, int] = {}
    place = 1
    for value, n in sorted(Counter(values).items(), reverse=True):
        rank_of[value] = place
        place += n
    return [rank_of[value] for value in values]


def one_version(board: pl.DataFrame) -> pl.DataFrame:
    """The board as it is, if all its rows are of one methodology version (or it has none).

    Raises:
        MixedVersionsError: If it holds several; a view of several must be asked for explicitly.
    """
    versions = board["methodology_version"].unique().to_list()
    if len(versions) > 1:
        raise MixedVersionsError(versions)
    return board


def _ranks(composite_scores: pl.DataFrame, within: Sequence[str]) -> dict[Pair, int]:
    columns = [*PAIR, "composite_exact", *within]
    published = composite_scores.filter(pl.col("status") == "published").select(columns)
    fields: dict[tuple[str, ...], list[tuple[Pair, Fraction]]] = defaultdict(list)
    for version, agent, exact, *field in published.iter_rows():
        fields[version, *field].append((Pair(version, agent), from_text(exact)))
    return {
        pair: rank
        for entries in fields.values()
        for (pair, _), rank in zip(entries, competition_ranks([v for _, v in entries]), strict=True)
    }


def _pass_at_1(reliability: pl.DataFrame) -> dict[Pair, dict[str, object]]:
    single = (
        reliability.filter(pl.col("task_set").n_unique().over(PAIR) == 1)
        .filter(pl.col("k") == 1, pl.col("estimator") == "unbiased")
        .select(*PAIR, "pass_at_k", "n_tasks")
    )
    return {
        Pair(version, agent): {"pass_at_1": value, "n_tasks": n}
        for version, agent, value, n in single.iter_rows()
    }


def _place(row: Mapping[str, object]) -> tuple[object, ...]:
    template, rank = row["template"], row["rank"]
    return (
        Version.parse(str(row["methodology_version"])),
        template is None,
        template or "",
        rank is None,
        rank or 0,
        ORDER_OF_STATUS.index(str(row["status"])),
        row["name"],
        row["agent_id"],
    )
