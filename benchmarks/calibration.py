"""How far corrected rates are from the truth, and how often their 95 % intervals hold it.

A judge with known sensitivity and specificity judges a pool of conversations; people label some of them, as many
that it passed as that it failed, with the sampling weights. The rate of another agent (its own share of passes) is
corrected with these labels. Simulated with a fixed seed. `python -m benchmarks calibration`.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent_eval.scores.statistics.agreement import Pairs
from agent_eval.scores.statistics.corrected_rate import CorrectedRate, accuracy, corrected_rate

SEED = 20261123
POOL, JUDGED = 2_000, 1_000  # conversations that labels are drawn from, and those of the other agent
SIZES, ENDS = (50, 100, 200), (0.7, 0.95)
RATES = (0.2, 0.5, 0.8)


class Design(NamedTuple):
    """A number of labels, the true rate of the agent, and the judge; None: drawn evenly from 0.7–0.95."""

    labels: int
    rate: float
    sensitivity: float | None = None
    specificity: float | None = None


class Result(NamedTuple):
    """What the replicates of a design found; the refused ones are left out of bias and coverage."""

    bias: float
    error: float  # Monte Carlo standard error of the bias
    coverage: float
    refused: float


def measure(repeats: int = 2_000) -> Iterator[str]:
    random = np.random.default_rng(SEED)
    results = []
    for labels in SIZES:
        for rate in RATES:
            results.append(simulate(Design(labels, rate), repeats, random))
            yield _line(f"n {labels}, rate {rate}, judges of all kinds", results[-1])
    yield _line("all of these", pooled(results))
    for labels in (SIZES[0], SIZES[-1]):
        for ends in ((ENDS[0], ENDS[0]), (ENDS[0], ENDS[1]), (ENDS[1], ENDS[0]), (ENDS[1], ENDS[1])):
            yield _line(
                f"n {labels}, rate 0.3, judge {ends}", simulate(Design(labels, 0.3, *ends), repeats, random)
            )
    chance = simulate(Design(100, 0.3, 0.5, 0.5), repeats, random)
    yield f"a judge at chance, n 100: refused in {100 * chance.refused:.1f} %"


def simulate(design: Design, repeats: int, random: np.random.Generator) -> Result:
    """Return bias and coverage of one design; the pool's own rate is drawn evenly from 0.3–0.7."""
    found, refused = [], 0
    for _ in range(repeats):
        drawn = random.uniform(*ENDS, 2)
        judge = [d if given is None else given for given, d in zip(design[2:], drawn, strict=True)]
        corrected = one(design, float(judge[0]), float(judge[1]), random)
        if corrected.value is None or corrected.low is None or corrected.high is None:
            refused += 1
        else:
            found.append((corrected.value - design.rate, corrected.low <= design.rate <= corrected.high))
    if not found:
        return Result(np.nan, np.nan, np.nan, refused / repeats)
    off, holds = np.array(found, dtype=np.float64).T
    return Result(
        float(off.mean()), float(off.std() / np.sqrt(len(off))), float(holds.mean()), refused / repeats
    )


def one(design: Design, sensitivity: float, specificity: float, random: np.random.Generator) -> CorrectedRate:
    """Draw a pool, its labels and the other agent's verdicts, and correct the agent's rate."""
    truth = random.random(POOL) < random.uniform(0.3, 0.7)
    verdicts = _judged(truth, sensitivity, specificity, random)
    chosen = [
        random.choice(np.flatnonzero(verdicts == side), design.labels // 2, replace=False)
        for side in (True, False)
    ]
    drawn = np.concatenate(chosen)
    of_judge = verdicts[drawn]
    strata = of_judge.tolist()
    weights = np.where(of_judge, verdicts.sum(), (~verdicts).sum()) / (design.labels // 2)
    pairs = Pairs(strata, truth[drawn].tolist(), drawn.tolist(), weights.tolist(), strata)
    rate = float(_judged(random.random(JUDGED) < design.rate, sensitivity, specificity, random).mean())
    return corrected_rate(rate, rate * (1 - rate) / JUDGED, accuracy(pairs, positive=True))


def pooled(results: list[Result]) -> Result:
    """Return the mean over designs of equally many replicates."""
    of_all = np.array(results).mean(axis=0)
    error = float(np.sqrt((np.array([r.error for r in results]) ** 2).sum()) / len(results))
    return Result(float(of_all[0]), error, float(of_all[2]), float(of_all[3]))


def _judged(
    truth: NDArray[np.bool_], sensitivity: float, specificity: float, random: np.random.Generator
) -> NDArray[np.bool_]:
    return np.asarray(random.random(len(truth)) < np.where(truth, sensitivity, 1 - specificity))


def _line(name: str, result: Result) -> str:
    return (
        f"{name}: bias {result.bias:+.4f} (± {result.error:.4f}), coverage {100 * result.coverage:.1f} %, "
        f"refused {100 * result.refused:.1f} %"
    )
