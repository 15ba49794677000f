"""Rank agents from pairwise verdicts on the same tasks: ratings, win matrix and problems with the verdicts.

A verdict compares two answers to a task, shown in a certain order. Only pairs that were judged in both orders
count. A pair is a win if both verdicts name the same winner. If the winner changes with the order, the pair is
a tie and indicates position bias.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from agent_eval.errors import InvalidValueError
from agent_eval.formats.plain_text import count_of
from agent_eval.scores.composite.leaderboard import SIGNIFICANCE, competition_ranks, rank_ranges
from agent_eval.scores.statistics.intervals import Interval, binomial_p

WINNERS = ("first", "second", "tie")
VERDICTS = {
    "task": pl.String,  # the task of both answers; unique within a task set
    "task_set": pl.String,
    "first": pl.String,  # the agent whose answer was shown first
    "second": pl.String,
    "winner": pl.String,  # first, second or tie; null if the judge's verdict was unreadable
    "judge": pl.String,
}
_QUANTILE = 1.959963984540054
_PAIR = ("judge", "task_set", "task", "a", "b")


def _invalid_verdicts(problem: str) -> InvalidValueError:
    return InvalidValueError(
        f"{problem}. Allowed: two different agents as first and second, winner {', '.join(WINNERS)} or null, "
        "and each judge once per task and order."
    )


@dataclass(frozen=True)
class PositionBias:
    """Measure position bias, from pairs whose winner changed with the order."""

    n_pairs: int  # pairs judged in both orders
    n_changed: int  # pairs with different winners in the two orders
    n_first: int  # changed pairs in which the answer shown first won
    n_second: int
    p_value: float  # two-sided sign test; without bias, both positions are equally likely to win

    @property
    def is_biased(self) -> bool:
        """Return whether the changes favour one position more often than chance would."""
        return self.p_value < SIGNIFICANCE

    def __str__(self) -> str:
        if not self.n_changed:
            return f"No verdict changed with the order ({count_of(self.n_pairs, 'pair')} judged both ways round)."
        place = "first" if self.n_first >= self.n_second else "second"
        text = f"{self.n_changed} of {self.n_pairs} pairs changed their winner with the order; {max(self.n_first, self.n_second)} went to the answer shown {place} (p = {self.p_value:.3g})"
        if self.is_biased:
            return f"Position bias: {text}. The judge favours the {place} place; changed pairs count as ties."
        return f"{text}: no sign of a position bias. Changed pairs count as ties."


@dataclass(frozen=True)
class Tournament:
    """Hold the ranking of agents on these tasks, which does not depend on the order of agents, rows or answers.

    Attributes:
        standings: One row per agent with rank, rank_low, rank_high, strength (Bradley–Terry, log-odds, mean 0)
            with its limits low and high, wins, losses and ties.
        wins: One row per ordered pair of agents with wins, losses, ties, and the win_probability that follows
            from the strengths.
        cycles: A shortest cycle for each set of agents that beat each other in a cycle; such agents have no
            consistent ranking.
        position_bias: The effect of the order of answers.
        n_one_way: The number of ignored pairs that were judged in one order only.
        n_unscored: The number of unreadable verdicts, whose pairs are ignored.
    """

    standings: pl.DataFrame
    wins: pl.DataFrame
    cycles: tuple[tuple[str, ...], ...]
    position_bias: PositionBias
    n_one_way: int
    n_unscored: int

    @property
    def is_transitive(self) -> bool:
        """Return whether the wins contain no cycle."""
        return not self.cycles


def tournament(verdicts: pl.DataFrame) -> Tournament:
    """Rate agents from pairwise verdicts with the Bradley–Terry model.

    The model is fitted by penalised likelihood. A win counts as 1 and a tie as half a win for each agent. Every
    agent has one additional tie against an agent of average strength, so that the rating of an agent with only
    wins is finite. The 95 % intervals use the curvature of this likelihood; pairs on the same task are assumed
    independent.

    Args:
        verdicts: One row per task, order and judge, with the columns of `VERDICTS`.

    Raises:
        InvalidValueError: If an agent is compared with itself, a winner is unknown, or a judge judged a task twice in
            the same order.
    """
    pairs, n_one_way, n_unscored = _both_ways(verdicts)
    agents = sorted({*verdicts["first"].to_list(), *verdicts["second"].to_list()})
    index = {agent: i for i, agent in enumerate(agents)}
    wins = [[0] * len(agents) for _ in agents]
    ties = [[0] * len(agents) for _ in agents]
    for a, b, result in pairs.select("a", "b", "result").iter_rows():
        i, j = index[a], index[b]
        if result == "tie":
            ties[i][j] += 1
            ties[j][i] += 1
        else:
            winner, loser = (i, j) if result == "a" else (j, i)
            wins[winner][loser] += 1
    strengths, errors = _bradley_terry(wins, ties)
    return Tournament(
        standings=_standings(agents, wins, ties, strengths, errors),
        wins=_win_rows(agents, wins, ties, strengths),
        cycles=tuple(_cycles(agents, wins)),
        position_bias=_position_bias(pairs),
        n_one_way=n_one_way,
        n_unscored=n_unscored,
    )


def _both_ways(verdicts: pl.DataFrame) -> tuple[pl.DataFrame, int, int]:
    """Return a row per judge, task and agents a < b judged in both orders, and the counts of ignored pairs."""
    _check(verdicts)
    straight = pl.col("first") < pl.col("second")
    with_sides = verdicts.with_columns(
        a=pl.min_horizontal("first", "second"),
        b=pl.max_horizontal("first", "second"),
        is_straight=straight,
        won=pl.when(pl.col("winner") == "tie")
        .then(pl.lit("tie"))
        .when((pl.col("winner") == "first") == straight)
        .then(pl.lit("a"))
        .when(pl.col("winner").is_not_null())
        .then(pl.lit("b")),
    )
    straight_rows, turned_rows = (with_sides.filter(pl.col("is_straight") == side) for side in (True, False))
    both = straight_rows.join(
        turned_rows.select(*_PAIR, "won"), on=list(_PAIR), how="inner", nulls_equal=True, suffix="_turned"
    )
    complete_pairs = both.drop_nulls(["won", "won_turned"])
    same = pl.col("won") == pl.col("won_turned")
    pairs = complete_pairs.with_columns(result=pl.when(same).then("won").otherwise(pl.lit("tie"))).sort(_PAIR)
    return pairs, verdicts.height - 2 * both.height, verdicts["winner"].null_count()


def _check(verdicts: pl.DataFrame) -> None:
    itself = verdicts.filter(pl.col("first") == pl.col("second"))
    if not itself.is_empty():
        raise _invalid_verdicts(f"Agent {itself['first'][0]!r} meets itself in task {itself['task'][0]!r}")
    strange = verdicts.filter(pl.col("winner").is_not_null() & ~pl.col("winner").is_in(WINNERS))
    if not strange.is_empty():
        raise _invalid_verdicts(f"winner is {strange['winner'][0]!r} in task {strange['task'][0]!r}")
    order = ["judge", "task_set", "task", "first", "second"]
    twice = verdicts.filter(verdicts.select(order).is_duplicated()).sort(order)
    if not twice.is_empty():
        row = twice.row(0, named=True)
        raise _invalid_verdicts(
            f"Judge {row['judge']!r} judged {row['first']!r} before {row['second']!r} twice in task {row['task']!r}"
        )


def _position_bias(pairs: pl.DataFrame) -> PositionBias:
    # won: winner with a shown first; won_turned: with b first. A changed winner was first or second both times.
    to_first = pairs.filter(pl.col("won") == "a", pl.col("won_turned") == "b").height
    to_second = pairs.filter(pl.col("won") == "b", pl.col("won_turned") == "a").height
    changed = to_first + to_second
    return PositionBias(pairs.height, changed, to_first, to_second, binomial_p(to_first, changed))


_Matrix = Sequence[Sequence[int]]


def _bradley_terry(wins: _Matrix, ties: _Matrix) -> tuple[list[float], list[float]]:
    """Return strengths (log-odds, mean 0) and their standard errors, by Newton's method."""
    import numpy as np

    n = len(wins)
    if n == 0:
        return [], []
    scored = np.array(wins, dtype=np.float64) + np.array(ties, dtype=np.float64) / 2
    met = scored + scored.T
    theta = np.zeros(n)
    for _ in range(100):
        chance = 1 / (1 + np.exp(theta[None, :] - theta[:, None]))  # probability that row beats column
        against = 1 / (1 + np.exp(-theta))  # probability that it beats the average agent
        slope = (scored - met * chance).sum(axis=1) + 0.5 - against
        weight = met * chance * (1 - chance)
        curvature = np.diag(weight.sum(axis=1) + against * (1 - against)) - weight
        step = np.linalg.solve(curvature, slope)
        theta = theta + step / max(1.0, float(np.abs(step).max()))
        if float(np.abs(step).max()) < 1e-12:
            break
    centring = np.eye(n) - 1 / n
    spread = centring @ np.linalg.inv(curvature) @ centring
    # rounded so that float errors do not break ties
    centred = np.round(centring @ theta, 9) + 0.0
    return centred.tolist(), np.sqrt(np.clip(np.diag(spread), 0, None)).tolist()


def _standings(
    agents: Sequence[str], wins: _Matrix, ties: _Matrix, strengths: Sequence[float], errors: Sequence[float]
) -> pl.DataFrame:
    from fractions import Fraction

    ranks = competition_ranks([Fraction(s) for s in strengths])
    intervals = [
        Interval(s - _QUANTILE * e, s + _QUANTILE * e) for s, e in zip(strengths, errors, strict=True)
    ]
    ranges = rank_ranges(list(intervals))
    rows = [
        {
            "rank": ranks[i],
            "rank_low": ranges[i][0],
            "rank_high": ranges[i][1],
            "agent_id": agent,
            "strength": strengths[i],
            "low": intervals[i].low,
            "high": intervals[i].high,
            "wins": sum(wins[i]),
            "losses": sum(row[i] for row in wins),
            "ties": sum(ties[i]),
        }
        for i, agent in enumerate(agents)
    ]
    integers = dict.fromkeys(("rank", "rank_low", "rank_high"), pl.Int64)
    floats = dict.fromkeys(("strength", "low", "high"), pl.Float64)
    counts = dict.fromkeys(("wins", "losses", "ties"), pl.Int64)
    schema = pl.Schema({**integers, "agent_id": pl.String, **floats, **counts})
    return pl.DataFrame(rows, schema=schema).sort("rank", "agent_id")


def _win_rows(
    agents: Sequence[str], wins: _Matrix, ties: _Matrix, strengths: Sequence[float]
) -> pl.DataFrame:
    rows = [
        (a, b, wins[i][j], wins[j][i], ties[i][j], 1 / (1 + math.exp(strengths[j] - strengths[i])))
        for i, a in enumerate(agents)
        for j, b in enumerate(agents)
        if i != j
    ]
    schema = ["agent_id", "other_agent_id", "wins", "losses", "ties", "win_probability"]
    types = (pl.String, pl.String, pl.Int64, pl.Int64, pl.Int64, pl.Float64)
    return pl.DataFrame(rows, schema=dict(zip(schema, types, strict=True)), orient="row")


def _cycles(agents: Sequence[str], wins: _Matrix) -> Iterable[tuple[str, ...]]:
    """Yield a shortest cycle for each set of agents that beat each other in a cycle of majority wins."""
    beats = {i: [j for j in range(len(agents)) if wins[i][j] > wins[j][i]] for i in range(len(agents))}
    reported = set[int]()
    for start in range(len(agents)):
        if start in reported:
            continue
        reached = _reached(start, beats)
        circle = [i for i in sorted(reached) if start in _reached(i, beats)]
        if start not in reached:
            continue
        reported |= set(circle)
        yield tuple(agents[i] for i in min((_circle(i, beats) for i in circle), key=lambda c: (len(c), c)))


def _reached(start: int, edges: Mapping[int, Sequence[int]]) -> set[int]:
    """Return every node that a path of at least one edge reaches from `start`."""
    nodes = set[int]()
    todo = list(edges[start])
    while todo:
        node = todo.pop()
        if node not in nodes:
            nodes.add(node)
            todo += edges[node]
    return nodes


def _circle(start: int, edges: Mapping[int, Sequence[int]]) -> list[int]:
    """Return the shortest cycle through a node, which must exist."""
    ways = [[start]]
    while True:
        longer = [[*way, node] for way in ways for node in edges[way[-1]] if node == start or node not in way]
        for way in longer:
            if way[-1] == start:
                return way[:-1]
        ways = list({way[-1]: way for way in reversed(longer)}.values())
