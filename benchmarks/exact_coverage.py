"""Exact coverage of the hierarchical posterior: every sample of a design is enumerated, nothing is drawn.

A sample of n tasks with t trials each is how many tasks have 0, 1, … t correct trials. Part of `python -m benchmarks
coverage`.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from agent_eval.scores.reliability.hierarchical import posterior_of_new_tasks

Sample: TypeAlias = tuple[int, ...]
"""How many tasks have 0, 1, … correct trials."""
RATES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
MIXTURES = (0.3, 0.5, 0.8)
DESIGNS = ((20, 1), (10, 2), (6, 4), (5, 4))


class Truth(NamedTuple):
    """Shares of tasks by their success rate."""

    name: str
    shares: Mapping[float, float]

    def pass_hat_k(self, k: int) -> float:
        return sum(share * rate**k for rate, share in self.shares.items())

    def correct_trials(self, trials: int) -> list[float]:
        """The probabilities that a task has 0, 1, … correct trials."""
        return [
            sum(
                share * math.comb(trials, c) * rate**c * (1 - rate) ** (trials - c)
                for rate, share in self.shares.items()
            )
            for c in range(trials + 1)
        ]


TRUTHS = (
    *(Truth(f"p {rate}", {rate: 1.0}) for rate in RATES),
    *(Truth(f"{share:.0%} easy", {0.98: share, 0.02: 1 - share}) for share in MIXTURES),
)


def samples(n_tasks: int, trials: int) -> Iterator[Sample]:
    """Yield every sample of a design."""
    for bars in itertools.combinations(range(n_tasks + trials), trials):
        ends = (-1, *bars, n_tasks + trials)
        yield tuple(high - low - 1 for low, high in itertools.pairwise(ends))


def probability(sample: Sample, correct_trials: Sequence[float]) -> float:
    """Return the multinomial probability of a sample."""
    ways = math.factorial(sum(sample))
    for n in sample:
        ways //= math.factorial(n)
    return ways * math.prod(p**n for p, n in zip(correct_trials, sample, strict=True))


def coverage(n_tasks: int, trials: int, k: int, truths: Sequence[Truth] = TRUTHS) -> list[float]:
    """Return how often the 95 % interval of pass^k holds that of new tasks, for each truth: a probability."""
    held = [0.0] * len(truths)
    chances = [truth.correct_trials(trials) for truth in truths]
    for sample in samples(n_tasks, trials):
        found = [probability(sample, of) for of in chances]
        if max(found) < 1e-9:
            continue
        counts = {(trials, c): n for c, n in enumerate(sample) if n}
        interval = posterior_of_new_tasks(counts, k).pass_hat_k
        for i, (truth, p) in enumerate(zip(truths, found, strict=True)):
            held[i] += p * (interval.low - 1e-9 <= truth.pass_hat_k(k) <= interval.high + 1e-9)
    return held


def measured() -> Iterator[str]:
    """Yield one line per design and k."""
    for n_tasks, trials in DESIGNS:
        for k in (k for k in (1, 2, 4) if k <= trials):
            cells = zip(TRUTHS, coverage(n_tasks, trials, k), strict=True)
            shown = ", ".join(f"{truth.name} {100 * held:.1f}" for truth, held in cells)
            yield f"hierarchical pass^{k}, {n_tasks} × {trials}, exact: {shown} %"
    for rate in (0.46, 0.18, 0.56):
        (held,) = coverage(50, 1, 1, [Truth("", {rate: 1.0})])
        yield f"hierarchical pass^1, 50 × 1 as tau2 airline, p {rate}, exact: {100 * held:.1f} %"
    (held,) = coverage(5, 4, 4, [Truth("", {1.0: 0.8, 0.0: 0.2})])
    yield f"hierarchical pass^4, 5 × 4 as tau2 telecom, 80 % always solved, exact: {100 * held:.1f} %"
