"""How far corrected rates are from the truth, and how often their 95 % intervals hold it.

A judge with known sensitivity and specificity judges conversations; people label some of them, drawn by the judge's
answer, with the sampling weights. First the rate of these conversations is corrected, then the mean of ratings from 1
to 5, then the rate of an agent without labels, with the labels of other agents on which the judge is better or worse.
Simulated with a fixed seed; the
environment variable CALIBRATION sets the number of repetitions. `python -m benchmarks calibration`.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent_eval.scores.corrected_mean import corrected_mean
from agent_eval.scores.statistics.agreement import Pairs
from agent_eval.scores.statistics.corrected_rate import (
    CorrectedRate,
    DoubleSample,
    accuracy,
    accuracy_for_others,
    corrected_rate,
    double_sampled_rate,
)

SEED = 20261123
POOL, JUDGED = 2_000, 1_000  # conversations that labels are drawn from, and those of the other agent
OWN = 1_000  # answers of the rate that has labels of its own
SIZES, ENDS = (50, 100, 200), (0.7, 0.95)
RATES = (0.2, 0.5, 0.8)
FEW, ALL_RATES = (15, 30, 60), (0.05, 0.2, 0.5, 0.8, 0.95)
JUDGES = ((0.1, 0.1), (0.5, 0.5), (0.9, 0.1), (0.7, 0.7), (0.6, 0.95), (0.95, 0.95), (1.0, 1.0))
AGENTS, APART = (
    3,
    0.1,
)  # labelled agents, and how far the judge's accuracy on an agent is from its mean at most


class Design(NamedTuple):
    """A number of labels, the true rate of the agent, and the judge; None: drawn evenly from 0.7–0.95."""

    labels: int
    rate: float
    sensitivity: float | None = None
    specificity: float | None = None
    is_halved: bool = True  # as many labels of each answer of the judge; else as its answers are
    turns: int = 1  # of a conversation
    correlation: float = 0.0  # of the truth and of the judge's errors within a conversation
    answers: int = OWN


class Result(NamedTuple):
    """What the replicates of a design found; the refused ones are left out of bias and coverage."""

    bias: float
    error: float  # Monte Carlo standard error of the bias
    coverage: float
    refused: float
    missed: float  # share of the replicates whose interval is above the truth, or below it; the larger one
    width: float  # mean width of the interval


SHARES = {
    "even": (0.2, 0.2, 0.2, 0.2, 0.2),
    "mostly 4 and 5": (0.02, 0.03, 0.05, 0.1, 0.8),
    "nearly all 5": (0.01, 0.01, 0.03, 0.05, 0.9),
    "mostly 1": (0.6, 0.2, 0.1, 0.05, 0.05),
    "both ends": (0.45, 0.05, 0.0, 0.05, 0.45),
    "middle": (0.05, 0.2, 0.5, 0.2, 0.05),
}
"""Shares of the ratings 1 to 5 in truth."""
Ratings = NDArray[np.float64]
RATERS: dict[str, Callable[[Ratings, np.random.Generator], Ratings]] = {
    "perfect": lambda truth, _: truth,
    "off by one in 20 %": lambda truth, r: np.clip(
        truth + r.choice((-1, 0, 1), len(truth), p=(0.1, 0.8, 0.1)), 1, 5
    ),
    "random in 5 %": lambda truth, r: np.where(
        r.random(len(truth)) < 0.05, r.integers(1, 6, len(truth)), truth
    ),
    "5 in 70 %": lambda truth, r: np.where(r.random(len(truth)) < 0.7, 5, truth),
    "near the middle": lambda truth, _: np.round(3 + (truth - 3) / 2),
    "random": lambda truth, r: r.integers(1, 6, len(truth)).astype(np.float64),
    "always 5": lambda truth, _: np.full(len(truth), 5.0),
    "inverted": lambda truth, _: 6 - truth,
}
"""Judges of ratings: from the true ratings to their answers."""


Replicate = Callable[[Design, float, float, np.random.Generator], CorrectedRate]


def measure(repeats: int = int(os.environ.get("CALIBRATION", "2000"))) -> Iterator[str]:
    random = np.random.default_rng(SEED)
    for is_halved, answers in product((False, True), (60, OWN)):
        yield f"Labels of {answers} conversations of the rate{', half of them of each answer' if is_halved else ''}"
        cells = [
            Design(n, rate, *judge, is_halved, answers=answers)
            for n, rate, judge in product(FEW, ALL_RATES, JUDGES)
        ]
        yield from _table(cells, repeats, random)
    yield "Labels of the conversations of the rate, 5 turns each, correlation 0.3"
    yield from _table(
        [
            Design(n, rate, is_halved=is_halved, turns=5, correlation=0.3)
            for is_halved, n, rate in product((True, False), SIZES, RATES)
        ],
        repeats,
        random,
    )
    yield "Labels of the conversations of a mean of ratings from 1 to 5"
    yield from _means(repeats, random)
    yield "Labels of other conversations"
    others = [Design(n, rate) for n, rate in product(SIZES, RATES)]
    corners = [
        Design(n, 0.3, sensitivity, specificity)
        for n, sensitivity, specificity in product((SIZES[0], SIZES[-1]), ENDS, ENDS)
    ]
    yield from _table(others, repeats, random, of_another_agent)
    yield from _table(corners, repeats, random, of_another_agent)
    chance = simulate(Design(100, 0.3, 0.5, 0.5), repeats, random, of_another_agent)
    yield f"a judge at chance, labels of other agents: refused in {100 * chance.refused:.1f} %"


def simulate(
    design: Design, repeats: int, random: np.random.Generator, one: Replicate | None = None
) -> Result:
    """Return bias and coverage of one design; by default with labels of the rate's own conversations."""
    found, refused = [], 0
    for _ in range(repeats):
        drawn = random.uniform(*ENDS, 2)
        given = (design.sensitivity, design.specificity)
        judge = [d if fixed is None else fixed for fixed, d in zip(given, drawn, strict=True)]
        corrected = (one or of_own_labels)(design, float(judge[0]), float(judge[1]), random)
        if corrected.value is None or corrected.low is None or corrected.high is None:
            refused += 1
        else:
            found.append((corrected.value - design.rate, corrected.low, corrected.high))
    if not found:
        return Result(np.nan, np.nan, np.nan, refused / repeats, np.nan, np.nan)
    off, low, high = np.array(found, dtype=np.float64).T
    above, below = (low > design.rate).mean(), (high < design.rate).mean()
    return Result(
        bias=float(off.mean()),
        error=float(off.std() / np.sqrt(len(off))),
        coverage=float(1 - above - below),
        refused=refused / repeats,
        missed=float(max(above, below)),
        width=float((high - low).mean()),
    )


def of_own_labels(
    design: Design, sensitivity: float, specificity: float, random: np.random.Generator
) -> CorrectedRate:
    """Draw an agent's conversations, the judge's answers and some labels, and correct the agent's rate."""
    n = design.answers // design.turns
    clusters = np.repeat(np.arange(n), design.turns)
    truth = random.random(len(clusters)) < _of_clusters(design, design.rate, random, n)[clusters]
    hit, passed_over = (_of_clusters(design, p, random, n)[clusters] for p in (sensitivity, specificity))
    verdicts = np.asarray(random.random(len(clusters)) < np.where(truth, hit, 1 - passed_over))
    drawn, weights = _drawn(verdicts, design, random)
    names = clusters.tolist()
    human, of_label = np.full(len(clusters), np.nan), np.ones(len(clusters))
    human[drawn], of_label[drawn] = truth[drawn], weights
    shares = np.full(len(clusters), 1 / len(clusters))
    sample = DoubleSample(verdicts.astype(np.float64), human, shares, of_label, names)
    return double_sampled_rate(sample)


def of_ratings(
    shares: Sequence[float],
    judge: str,
    n_labels: int,
    n: int,
    random: np.random.Generator,
    *,
    by_answer: bool,
) -> CorrectedRate:
    """Draw an agent's true ratings, the judge's answers and some labels, evenly or by answer, and correct the mean."""
    truth = random.choice(np.arange(1.0, 6.0), n, p=shares)
    answers = np.asarray(RATERS[judge](truth, random), dtype=np.float64)
    weights = np.full(n, np.nan)
    if by_answer:
        sides = [np.flatnonzero(answers == value) for value in np.unique(answers)]
        sizes = [min(2, len(side)) for side in sides]
        while sum(sizes) < n_labels:
            left = [
                len(side) / size if size < len(side) else 0.0 for side, size in zip(sides, sizes, strict=True)
            ]
            sizes[int(np.argmax(left))] += 1
        for side, size in zip(sides, sizes, strict=True):
            weights[random.choice(side, size, replace=False)] = len(side) / size
    else:
        weights[random.choice(n, n_labels, replace=False)] = n / n_labels
    human = np.where(np.isfinite(weights), truth, np.nan)
    sample = DoubleSample(answers, human, np.full(n, 1 / n), weights, [str(i) for i in range(n)])
    return corrected_mean(sample, (1.0, 5.0), 1.0)


def _means(repeats: int, random: np.random.Generator) -> Iterator[str]:
    """Yield a line for each design of `of_ratings`, and one for all of them."""
    cells = [cell for cell in product((True, False), SHARES, RATERS, FEW, (60, OWN)) if cell[3] < cell[4]]
    results = []
    for by_answer, name, judge, n_labels, n in cells:
        mean = float(np.dot(SHARES[name], range(1, 6)))
        ends = np.array(
            [
                of_ratings(SHARES[name], judge, n_labels, n, random, by_answer=by_answer)[:3]
                for _ in range(repeats)
            ],
            dtype=np.float64,
        )
        off, (above, below) = ends[:, 0] - mean, ((ends[:, 1] > mean).mean(), (ends[:, 2] < mean).mean())
        results.append(
            Result(
                float(off.mean()),
                float(off.std() / np.sqrt(repeats)),
                float(1 - above - below),
                0.0,
                float(max(above, below)),
                float((ends[:, 2] - ends[:, 1]).mean()),
            )
        )
        by = "by answer" if by_answer else "evenly"
        yield _line(f"n {n_labels} of {n}, drawn {by}, ratings {name}, judge {judge}", results[-1])
    yield _of_all(results)


def of_another_agent(
    design: Design, sensitivity: float, specificity: float, random: np.random.Generator
) -> CorrectedRate:
    """Draw labelled agents and another agent's verdicts; the rates of the labelled ones are drawn from 0.3–0.7."""
    known = []
    for _ in range(AGENTS):
        truth = random.random(POOL) < random.uniform(0.3, 0.7)
        verdicts = _judged(truth, *_on_an_agent(sensitivity, specificity, random), random)
        drawn, weights = _drawn(verdicts, design, random)
        strata = verdicts[drawn].tolist()
        pairs = Pairs(strata, truth[drawn].tolist(), drawn.tolist(), weights.tolist(), strata)
        known.append(accuracy(pairs, positive=True))
    verdicts = _judged(
        random.random(JUDGED) < design.rate, *_on_an_agent(sensitivity, specificity, random), random
    )
    rate = float(verdicts.mean())
    of_judge = accuracy_for_others([one for one in known if one is not None])
    return corrected_rate(rate, rate * (1 - rate) / JUDGED, of_judge)


def _on_an_agent(sensitivity: float, specificity: float, random: np.random.Generator) -> tuple[float, float]:
    found = np.array([sensitivity, specificity]) + random.uniform(-APART, APART, 2)
    hit, passed_over = np.clip(found, 0.0, 1.0).tolist()
    return hit, passed_over


def _drawn(
    verdicts: NDArray[np.bool_], design: Design, random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return which parts are labelled, by the judge's answer, and their weights."""
    n_passed = int(verdicts.sum())
    share = 0.5 if design.is_halved else n_passed / len(verdicts)
    wanted = min(max(2, round(design.labels * share)), design.labels - 2)
    drawn, weights = [], []
    for side, n in ((True, wanted), (False, design.labels - wanted)):
        of_side = np.flatnonzero(verdicts == side)
        n = min(n, len(of_side))
        drawn.append(random.choice(of_side, n, replace=False))
        weights.append(np.full(n, len(of_side) / max(n, 1)))
    return np.concatenate(drawn), np.concatenate(weights)


def _of_clusters(design: Design, share: float, random: np.random.Generator, n: int) -> NDArray[np.float64]:
    """Return a probability for each conversation, with the given mean and correlation of its turns."""
    if not design.correlation:
        return np.full(n, share)
    size = 1 / design.correlation - 1
    return random.beta(share * size, (1 - share) * size, n)


def _judged(
    truth: NDArray[np.bool_], sensitivity: float, specificity: float, random: np.random.Generator
) -> NDArray[np.bool_]:
    return np.asarray(random.random(len(truth)) < np.where(truth, sensitivity, 1 - specificity))


def _table(
    designs: list[Design], repeats: int, random: np.random.Generator, one: Replicate | None = None
) -> Iterator[str]:
    """Yield a line for each design, and one for all of them."""
    results = []
    for design in designs:
        results.append(simulate(design, repeats, random, one))
        judge = "judges of all kinds" if design.sensitivity is None else f"judge {design[2:4]}"
        by = "" if one else ", in halves" if design.is_halved else ", as answered"
        yield _line(f"n {design.labels}{by}, rate {design.rate}, {judge}", results[-1])
    yield _of_all(results)


def _of_all(results: list[Result]) -> str:
    bias, _, coverage, refused, missed, _ = np.array(results).T
    kept = bias * (1 - refused)
    return (
        f"{len(results)} designs: bias {bias.min():+.4f} to {bias.max():+.4f}, of all their replicates "
        f"{kept.sum() / (1 - refused).sum():+.4f}; coverage {100 * coverage.min():.1f} to "
        f"{100 * coverage.max():.1f} %, mean {100 * coverage.mean():.1f} %; one end missed in at most "
        f"{100 * missed.max():.1f} %"
    )


def _line(name: str, result: Result) -> str:
    return (
        f"{name}: bias {result.bias:+.4f} (± {result.error:.4f}), coverage {100 * result.coverage:.1f} %, "
        f"one end missed {100 * result.missed:.1f} %, width {result.width:.3f}, refused {100 * result.refused:.1f} %"
    )
