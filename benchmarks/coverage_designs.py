"""Designs that are hard for intervals and tests: breakdowns, unequal shapes, few tasks, families, twenty equal agents.

Part of `python -m benchmarks coverage`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

import numpy as np
import polars as pl
from numpy.typing import NDArray

from agent_eval.scores.composite.leaderboard import SCALE_0TO100, pairwise_comparisons
from agent_eval.scores.reliability.hierarchical import posterior_of_new_tasks
from agent_eval.scores.statistics.clustered import clustered_share, paired_by_cluster
from agent_eval.scores.statistics.distribution_free import any_spread_mean
from agent_eval.scores.statistics.exact import to_text
from agent_eval.scores.statistics.intervals import Interval, Sample, bounded_mean, paired, share_mean, welch
from agent_eval.tables import table
from benchmarks import exact_coverage

Floats = NDArray[np.float64]
POINT = 4 / 3
TAU1 = np.repeat([0, 0.25, 0.5, 0.75, 1], [14, 12, 10, 4, 10])  # shares of four trials of 50 tasks
SIZES = (3, 5, 10, 20)
Draw = Callable[[np.random.Generator, int], Floats]


def steady(mean: float, sd: float) -> Draw:
    return lambda random, n: np.clip(random.normal(mean, sd, n), *SCALE_0TO100)


def erratic(mean: float, sd: float, depth: float) -> Draw:
    """One session in ten `depth` points below the others; `mean` is that of all."""

    def draw(random: np.random.Generator, n: int) -> Floats:
        usual = mean + 0.1 * depth
        return np.clip(
            random.normal(np.where(random.random(n) < 0.1, usual - depth, usual), sd), *SCALE_0TO100
        )

    return draw


def measured(random: np.random.Generator, repeats: int) -> Iterator[str]:
    """All lines; `repeats` for the cheap cells."""
    yield from _breakdowns(random, repeats // 20)
    yield from _posteriors(random, repeats // 10)
    yield from _families(random, repeats // 10)
    yield from _margins(random, repeats // 10)
    yield from _boards(random, repeats // 10)


def _breakdowns(random: np.random.Generator, repeats: int) -> Iterator[str]:
    methods: Mapping[str, Callable[[Floats], Interval | None]] = {
        "t": lambda row: bounded_mean(Sample.of(row.tolist()), bounds=SCALE_0TO100, step=POINT),
        "bounded": lambda row: any_spread_mean(row.tolist(), SCALE_0TO100),
    }
    for depth, sd in ((35, 1), (35, 4), (60, 4)):
        draw = erratic(81.5, sd, depth)
        for name, method in methods.items():
            cells = []
            for n in (5, 20, 100):
                found = [method(draw(random, n)) for _ in range(repeats)]
                held = np.mean([f is not None and f.low <= 81.5 <= f.high for f in found])
                width = np.mean([f.high - f.low for f in found if f])
                cells.append(f"n = {n}: {100 * held:.1f} % (width {width:.1f})")
            yield f"one session in ten {depth} points lower, sd {sd}, {name}, {repeats:,} repetitions: {', '.join(cells)}"


def _posteriors(random: np.random.Generator, repeats: int) -> Iterator[str]:
    """Coverage of the hierarchical posterior of pass^k: exact, and drawn where there are too many samples to enumerate."""
    yield from exact_coverage.measured()
    for k in (1, 4):
        truth, held = float(np.mean(TAU1**k)), 0
        for _ in range(repeats):
            counts = Counter((4, int(c)) for c in random.binomial(4, random.choice(TAU1, 50)))
            found = posterior_of_new_tasks(counts, k).pass_hat_k
            held += found.low <= truth <= found.high
        yield f"hierarchical pass^{k}, 50 × 4 with the shares of tau1 airline, {repeats:,} repetitions: {100 * held / repeats:.1f} %"


def _families(random: np.random.Generator, repeats: int) -> Iterator[str]:
    """Five tasks in each family, single trials; rates of families with correlation 0.3."""
    a, b = 0.6 * (1 / 0.3 - 1), 0.4 * (1 / 0.3 - 1)
    for n_families in (5, 10, 20):
        names = np.repeat(np.arange(n_families), 5).astype(str).tolist()
        held, alone, false = 0, 0, {"families": 0, "tasks": 0}
        for _ in range(repeats):
            ours, theirs = random.binomial(1, random.beta(a, b, (2, n_families)).repeat(5, axis=1)).astype(
                float
            )
            found = clustered_share(ours.tolist(), names, step=1)
            over_tasks = share_mean(float(ours.mean()), float(ours.var(ddof=1)), len(ours), step=1)
            held += found is not None and found.low <= 0.6 <= found.high
            alone += over_tasks is not None and over_tasks.low <= 0.6 <= over_tasks.high
            difference = (ours - theirs).tolist()
            for name, made in (
                ("families", paired_by_cluster(difference, names)),
                ("tasks", paired(difference)),
            ):
                false[name] += made.p_value is not None and made.p_value < 0.05
        shares = {name: f"{100 * n / repeats:.1f} %" for name, n in false.items()}
        yield (
            f"pass^1 of {n_families} families of 5 tasks, correlation 0.3, {repeats:,} repetitions: over families "
            f"{100 * held / repeats:.1f} %, over tasks {100 * alone / repeats:.1f} %; false positives of compare over families "
            f"{shares['families']}, over tasks {shares['tasks']}"
        )


def _margins(random: np.random.Generator, repeats: int) -> Iterator[str]:
    """How often the regression gate with margin 5 passes; sd of sessions 5."""
    for truth, n in ((-10.0, 5), (-5.0, 5), (-5.0, 20), (0.0, 5), (0.0, 20)):
        passed = 0
        for _ in range(repeats):
            ours, theirs = (Sample.of(random.normal(mean, 5, n).tolist()) for mean in (75 + truth, 75))
            low = welch(ours, theirs, step=POINT).low
            passed += low is not None and low > -5
        yield f"regression gate, margin 5, truly {truth:+g}, n = {n}: passes in {100 * passed / repeats:.1f} %"


def _boards(random: np.random.Generator, repeats: int) -> Iterator[str]:
    """Twenty agents of one mean: how often any of the 190 pairs is called better."""
    fields: Mapping[str, list[Draw]] = {
        "equal shapes, sd 4": [steady(81.5, 4)] * 20,
        "all erratic": [erratic(81.5, 4, 35)] * 20,
        "one erratic, sd 1": [erratic(81.5, 1, 35), *[steady(81.5, 1)] * 19],
        "half erratic, sd 1": [*[erratic(81.5, 1, 35)] * 10, *[steady(81.5, 1)] * 10],
        "half erratic and deeper, sd 4": [*[erratic(81.5, 4, 60)] * 10, *[steady(81.5, 4)] * 10],
    }
    for name, field in fields.items():
        for method, times in (("auto", repeats), ("t", repeats // 10)):
            cells = []
            for n in SIZES:
                found = sum(_finds(random, field, n, method) for _ in range(times))
                cells.append(f"n = {n}: {100 * found / times:.1f} %")
            yield (
                f"any false 'better' among 20 agents of one mean, {name}, interval {method}, {times:,} repetitions: "
                f"{', '.join(cells)}"
            )


def _finds(random: np.random.Generator, field: list[Draw], n: int, method: str) -> bool:
    rows = []
    for i, draw in enumerate(field):
        values = draw(random, n)
        exact = to_text(Fraction(float(values.mean())).limit_denominator(10**6))
        rows.append(
            {"methodology_version": "1.3.0", "agent_id": f"a{i:02}", "template": "t", "status": "published"}
            | {
                "session_scores": values.tolist(),
                "n_sessions": n,
                "n_conversations": n,
                "point_0to100": POINT,
            }
            | {"composite_exact": exact, "raw_composite_exact": exact, "repeatability_penalty": 0.0}
        )
    compared = pairwise_comparisons(table("composite_scores").frame(rows), method)  # type: ignore[arg-type]
    return bool(compared.select(pl.col("verdict").is_in(["better", "worse"]).any()).item())
