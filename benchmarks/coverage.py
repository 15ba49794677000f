"""How often the 95 % intervals hold the truth, and how often `compare` finds a difference where there is none.

Simulated with a fixed seed: ratings of 21 parts per session from a skewed distribution, correlated within the
session; trials of tasks whose success rates differ from task to task. `python -m benchmarks coverage`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import comb, ndtri

from agent_eval.scores.composite.leaderboard import SCALE_0TO100
from agent_eval.scores.statistics.compare import compare
from agent_eval.scores.statistics.distribution_free import is_near_an_end
from agent_eval.scores.statistics.intervals import Interval, Sample, bounded_mean, share_mean
from benchmarks.coverage_designs import measured

Floats = NDArray[np.float64]
SEED = 20261217  # the methods were chosen on other seeds

SHAPES = {
    "mild": (0.05, 0.10, 0.20, 0.35, 0.30),
    "skewed": (0.02, 0.03, 0.05, 0.20, 0.70),
    "ceiling": (0.03, 0.01, 0.01, 0.05, 0.90),
    "floor": (0.60, 0.20, 0.10, 0.06, 0.04),
}
SIZES, CORRELATIONS = (5, 20, 100), (0.0, 0.3)
LEAST, MOST = 0.93, 0.97
# what a rating is worth in the composite: 0.40 × 100/30 for U1–U6, 0.60 × 100/75 for the fifteen criteria
WEIGHTS = np.array([0.4 * 100 / 30] * 6 + [0.6 * 100 / 75] * 15)
POINT = float(WEIGHTS.max())


@dataclass(frozen=True)
class Design:
    """Agents whose success rates vary like Beta(a, b), with so many trials a task; what is estimated is pass^k."""

    a: float
    b: float
    trials: int
    k: int

    def __str__(self) -> str:
        trials = "1 trial" if self.trials == 1 else f"{self.trials} trials"
        return f"pass^{self.k}, {trials}, Beta({self.a:g}, {self.b:g})"


DESIGNS = [
    Design(a, b, trials, k)
    for a, b in ((6, 2), (8, 1), (3, 3))
    for trials, k in ((1, 1), (4, 1), (8, 1), (4, 2), (4, 4))
]

# what the methods were not chosen on, and what is harder than the bar
OTHER_SHAPES = {
    "either end": (0.30, 0.10, 0.10, 0.10, 0.40),
    "good": (0.01, 0.02, 0.07, 0.30, 0.60),
    "rarely bad": (0.10, 0.02, 0.02, 0.06, 0.80),
    "middling": (0.05, 0.25, 0.40, 0.25, 0.05),
    "poor": (0.80, 0.10, 0.05, 0.03, 0.02),
}
OTHER_DESIGNS = [
    Design(a, b, trials, k)
    for a, b in ((1, 1), (2, 8), (20, 2), (5, 5))
    for trials, k in ((2, 1), (3, 1), (5, 1), (16, 1), (3, 2), (8, 2), (8, 4), (16, 4))
]
OTHER_SIZES = (3, 5, 10, 50)


def measure(repeats: int = 20_000) -> Iterator[str]:
    random = np.random.default_rng(SEED)
    error = 100 * math.sqrt(0.05 * 0.95 / repeats)
    yield f"95 % intervals, {repeats:,} repetitions (standard error {error:.2f} %)"
    cells: list[Cell] = []
    for correlation in CORRELATIONS:
        for shape, probabilities in SHAPES.items():
            row = [_composite(random, probabilities, correlation, n, repeats) for n in SIZES]
            cells += row
            yield _line(f"composite over sessions, {shape} ratings, correlation {correlation}", SIZES, row)
    for design in DESIGNS:
        for correlation in CORRELATIONS:
            row = [_tasks(random, design, correlation, n, repeats) for n in SIZES]
            cells += row
            yield _line(f"{design}, correlation {correlation}", SIZES, row)
    yield _summary("all of these", cells)
    yield from _others(random, repeats // 20)
    yield from _near_ends(random, repeats // 5)
    yield from _false_positives(random, repeats // 10)
    yield from measured(random, repeats)


def _others(random: np.random.Generator, repeats: int) -> Iterator[str]:
    """Cells that the methods were not chosen on, in sum; by size, as few tasks are where it is hard."""
    for n in OTHER_SIZES:
        sessions = [
            _composite(random, shape, correlation, n, repeats)
            for shape in OTHER_SHAPES.values()
            for correlation in (0.1, 0.3, 0.6)
        ]
        yield _summary(f"other ratings, n = {n}, {repeats:,} repetitions", sessions)
        tasks = [
            _tasks(random, design, correlation, n, repeats)
            for design in OTHER_DESIGNS
            for correlation in (0.0, 0.1, 0.3, 0.6, 0.95)
        ]
        yield _summary(f"other tasks, n = {n}, {repeats:,} repetitions", tasks)


def _near_ends(random: np.random.Generator, repeats: int) -> Iterator[str]:
    """Ratings that stick to an end of the scale and hang together: with and without the rows that a board marks."""
    for shape in ("rarely bad", "poor", "ceiling"):
        probabilities = {**SHAPES, **OTHER_SHAPES}[shape]
        truth = float(np.array([1, 2, 3, 4, 5]) @ np.array(probabilities) * WEIGHTS.sum())
        cells = []
        for n in (3, 5, 10, 20):
            rows = session_ratings(random, probabilities, 0.6, (repeats, n)) @ WEIGHTS
            marked = np.array([is_near_an_end(row.tolist(), SCALE_0TO100) for row in rows])
            every, others = (_over_sessions(iter(some), truth) for some in (rows, rows[~marked]))
            cells.append(
                f"n = {n}: {100 * every.held:.1f} %, of the {100 * (1 - marked.mean()):.0f} % not marked {100 * others.held:.1f} %"
            )
        yield f"composite, {shape} ratings, correlation 0.6, {repeats:,} repetitions: {'; '.join(cells)}"


@dataclass(frozen=True)
class Cell:
    """How often the intervals of one setting held the truth, and how wide they were."""

    held: float
    width: float

    def __str__(self) -> str:
        return f"{100 * self.held:.1f} % (width {self.width:{'.1f' if self.width > 1 else '.2f'}})"


def _line(name: str, sizes: Sequence[int], row: Sequence[Cell]) -> str:
    return f"{name}: " + ", ".join(f"n = {n}: {cell}" for n, cell in zip(sizes, row, strict=True))


def _summary(name: str, cells: Sequence[Cell]) -> str:
    held = sorted(cell.held for cell in cells)
    below, above = sum(h < LEAST for h in held), sum(h > MOST for h in held)
    return (
        f"{name}: {len(cells)} cells from {100 * held[0]:.1f} to {100 * held[-1]:.1f} %, "
        f"{below} below {LEAST:.0%} and {above} above {MOST:.0%}"
    )


def session_ratings(
    random: np.random.Generator, probabilities: tuple[float, ...], correlation: float, shape: tuple[int, ...]
) -> Floats:
    """21 ratings of each session, cut from normals that share a part within the session."""
    cuts = ndtri(np.cumsum(probabilities)[:-1])
    shared = random.standard_normal((*shape, 1)) * math.sqrt(correlation)
    own = random.standard_normal((*shape, len(WEIGHTS))) * math.sqrt(1 - correlation)
    cut = np.searchsorted(cuts, (shared + own).ravel()).reshape(*shape, len(WEIGHTS))
    ratings: Floats = cut.astype(np.float64) + 1
    return ratings


def _composite(
    random: np.random.Generator, probabilities: tuple[float, ...], correlation: float, n: int, repeats: int
) -> Cell:
    truth = float(np.array([1, 2, 3, 4, 5]) @ np.array(probabilities) * WEIGHTS.sum())
    rows = (session_ratings(random, probabilities, correlation, (n,)) @ WEIGHTS for _ in range(repeats))
    return _over_sessions(rows, truth)


def _over_sessions(rows: Iterator[Floats], truth: float) -> Cell:
    found = (bounded_mean(Sample.of(row.tolist()), bounds=SCALE_0TO100, step=POINT) for row in rows)
    return _cell((interval, truth) for interval in found)


def _tasks(random: np.random.Generator, design: Design, correlation: float, n: int, repeats: int) -> Cell:
    return _cell(_intervals_of_tasks(random, design, correlation, n, repeats))


def _intervals_of_tasks(
    random: np.random.Generator, design: Design, correlation: float, n: int, repeats: int
) -> Iterator[tuple[Interval | None, float]]:
    share = comb(np.arange(design.trials + 1), design.k) / comb(design.trials, design.k)
    for _ in range(repeats):
        rate = float(np.clip(random.beta(design.a, design.b), 0.01, 0.99))
        rates, truth = _rates(random, rate, correlation, n, design.k)
        values = share[random.binomial(design.trials, rates)]
        mean, variance = float(values.mean()), float(values.var(ddof=1))
        yield share_mean(mean, variance, n, step=1 / design.trials), truth


def _cell(found: Iterable[tuple[Interval | None, float]]) -> Cell:
    rows = np.array([(*interval, truth) for interval, truth in found if interval])
    low, high, truth = rows.T
    held = (low <= truth + 1e-9) & (truth - 1e-9 <= high)
    return Cell(float(held.mean()), float((high - low).mean()))


def _rates(
    random: np.random.Generator, rate: float, correlation: float, n: int, k: int
) -> tuple[Floats, float]:
    """Success rates of n tasks around an agent's rate, and the mean of pass^k over all such tasks."""
    if correlation == 0:
        return np.full(n, rate), rate**k
    size = 1 / correlation - 1
    a, b = rate * size, (1 - rate) * size
    return random.beta(a, b, n), math.prod((a + i) / (a + b + i) for i in range(k))


def _false_positives(random: np.random.Generator, repeats: int) -> Iterator[str]:
    """Two agents of one kind: how often any row of a whole comparison is called better."""
    no_sessions = pl.DataFrame(
        schema={
            "agent_id": pl.String,
            "quantity": pl.String,
            "values": pl.List(pl.Float64),
            "point": pl.Float64,
        }
    )
    no_tasks = pl.DataFrame(
        schema={
            "agent_id": pl.String,
            "task_set": pl.String,
            "task": pl.String,
            "quantity": pl.String,
            "value": pl.Float64,
        }
    )

    def sessions(n: int) -> pl.DataFrame:
        return compare("a", "b", _session_frame(random, n), no_tasks)

    def tasks(n: int) -> pl.DataFrame:
        return compare("a", "b", no_sessions, _task_frame(random, n))

    for name, made, sizes in (
        ("compare over sessions (composite, U and D)", sessions, (2, 3, 5, 20)),
        ("compare over common tasks (pass@1, a rating, cost)", tasks, (5, 10, 20, 100)),
    ):
        shown = ", ".join(f"n = {n}: {100 * _found(made, n, repeats):.1f} %" for n in sizes)
        yield f"false positives of {name}, {repeats:,} repetitions, bar 5 % for the primary and 5 % for the other quantities: {shown}"
    same = _task_frame(random, 20)
    twins = pl.concat(
        [same.filter(agent_id="a"), same.filter(agent_id="a").with_columns(agent_id=pl.lit("b"))]
    )
    verdicts = compare("a", "b", no_sessions, twins)["verdict"].unique().to_list()
    yield f"two agents with identical data: {', '.join(verdicts)}"


def _found(made: Callable[[int], pl.DataFrame], n: int, repeats: int) -> float:
    found = (made(n)["verdict"].str.ends_with("better").any() for _ in range(repeats))
    return sum(found) / repeats


def _session_frame(random: np.random.Generator, n: int) -> pl.DataFrame:
    ratings = session_ratings(random, SHAPES["skewed"], 0.3, (2, n))
    u, d = ratings[..., :6].sum(axis=-1) * 100 / 30, ratings[..., 6:].sum(axis=-1) * 100 / 75
    rows = [
        (agent, quantity, values[i].tolist(), point)
        for quantity, values, point in (
            ("composite", ratings @ WEIGHTS, POINT),
            ("universal", u, 100 / 30),
            ("domain", d, 100 / 75),
        )
        for i, agent in enumerate("ab")
    ]
    return pl.DataFrame(rows, schema=["agent_id", "quantity", "values", "point"], orient="row")


def _task_frame(random: np.random.Generator, n: int) -> pl.DataFrame:
    """Three quantities of n tasks that are as hard for both agents; costs are heavy-tailed."""
    rates, hardness = random.beta(3, 1.5, n), random.standard_normal(n)
    frames = []
    for agent in "ab":
        values = {
            "pass@1": random.binomial(2, rates) / 2,
            "helpfulness": np.clip(np.round(4 + hardness / 2 + random.standard_normal(n)), 1, 5),
            "cost_usd": np.exp(hardness + random.standard_normal(n)),
        }
        frames += [
            pl.DataFrame(
                {
                    "agent_id": agent,
                    "task_set": "s",
                    "task": [f"t{i}" for i in range(n)],
                    "quantity": q,
                    "value": v,
                }
            )
            for q, v in values.items()
        ]
    return pl.concat(frames)
