"""pass@k and pass^k from counts: n trials of a task, c of them correct, k attempts.

The arithmetic only: estimates of one task, and the posterior of one task or of the mean over tasks. Which trial
was correct is told in `scores.reliability.trials`, the table is made in `scores.reliability`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from agent_eval.errors import AgentEvalError

Estimator = Literal["unbiased", "plug_in"]
InteractionEstimator = Literal["unbiased", "plug_in", "bayesian"]
UNIFORM = (1.0, 1.0)
LEVEL = 0.95
MOST_CONVOLVED = 32  # tasks; beyond, the mean's distribution is close enough to normal for four cumulants
_CELLS = 1024  # of 0–1, per task


class TrialCountError(AgentEvalError, ValueError):
    """Numbers that cannot be trials, successes and attempts."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"{problem}. Allowed: integers with n ≥ 1 trials, 0 ≤ c ≤ n of them correct, k ≥ 1 attempts, "
            "and k ≤ n for estimator 'unbiased'."
        )


class UnknownEstimatorError(AgentEvalError, ValueError):
    """No estimator of that name."""

    def __init__(self, estimator: object, allowed: Sequence[str] = get_args(Estimator)) -> None:
        super().__init__(f"Estimator {estimator!r} is unknown. Allowed: {', '.join(allowed)}.")


class PriorError(AgentEvalError, ValueError):
    """A prior or a level that gives no posterior."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"{problem}. Allowed: a prior of two finite numbers > 0, and a level between 0 and 1."
        )


@dataclass(frozen=True)
class Estimate:
    """A posterior in three numbers: its mean, and the ends of its equal-tailed interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Posterior:
    """What the trials say of one task, or of the mean over tasks."""

    pass_at_k: Estimate
    pass_hat_k: Estimate
    prior: tuple[float, float]  # of each task's success rate
    level: float


@dataclass(frozen=True)
class InteractionPass:
    """pass@k and pass^k over the interactions of one conversation: not over trials, and never mixed with those."""

    interaction_pass_at_k: float
    interaction_pass_hat_k: float
    n_interactions: int
    n_correct: int
    k: int
    estimator: InteractionEstimator
    interaction_pass_at_k_low: float | None = None  # bounds of the credible interval; only of 'bayesian'
    interaction_pass_at_k_high: float | None = None
    interaction_pass_hat_k_low: float | None = None
    interaction_pass_hat_k_high: float | None = None


def pass_at_k(n: int, c: int, k: int, *, estimator: Estimator = "unbiased") -> float:
    """Probability that at least one of k attempts is correct, from c correct of n trials of one task.

    unbiased: 1 − C(n−c, k)/C(n, k). plug_in: 1 − (1 − c/n)^k, also for k > n. Exact but for the last rounding.

    Raises:
        TrialCountError: If n < 1, c is not in 0..n, k < 1, one is no integer, or k > n when unbiased.
    """
    check_counts(n, c, k, estimator)
    ways = _ways(n, k, estimator)
    return (ways - _ways(n - c, k, estimator)) / ways


def pass_hat_k(n: int, c: int, k: int, *, estimator: Estimator = "unbiased") -> float:
    """Probability that all of k attempts are correct, from c correct of n trials of one task.

    unbiased: C(c, k)/C(n, k). plug_in: (c/n)^k, also for k > n. Exact but for the last rounding.

    Raises:
        TrialCountError: As for `pass_at_k`.
    """
    check_counts(n, c, k, estimator)
    return _ways(c, k, estimator) / _ways(n, k, estimator)


def interaction_pass_at_k(
    n: int,
    c: int,
    k: int,
    *,
    estimator: InteractionEstimator = "plug_in",
    prior: tuple[float, float] = UNIFORM,
    level: float = LEVEL,
) -> InteractionPass:
    """The reading that counts interactions of one conversation as attempts: c of its n interactions were correct.

    Turns of a conversation are no independent trials, so this says nothing of running the task again; it stands
    under its own name. Default: the plug-in, as the reference tool reads it. `bayesian` is its other mode: the
    posterior of the conversation's success rate, p ~ Beta(a + c, b + n − c), exact where the tool draws samples.

    Raises:
        TrialCountError: If n < 1, c is not in 0..n, k < 1, one is no integer, or k > n when unbiased.
        PriorError: If the prior is not two finite numbers > 0, or the level is not between 0 and 1.
    """
    if estimator != "bayesian":
        at, hat = (f(n, c, k, estimator=estimator) for f in (pass_at_k, pass_hat_k))
        return InteractionPass(at, hat, n, c, k, estimator)
    found = posterior(n, c, k, prior=prior, level=level)
    one, every = found.pass_at_k, found.pass_hat_k
    return InteractionPass(one.mean, every.mean, n, c, k, estimator, one.low, one.high, every.low, every.high)


def posterior(
    n: int, c: int, k: int, *, prior: tuple[float, float] = UNIFORM, level: float = LEVEL
) -> Posterior:
    """Posterior of pass@k and pass^k of one task: p ~ Beta(a + c, b + n − c), any k. Exact, nothing is sampled.

    With A = a + c and B = b + n − c: E[pass^k] = Π (A+i)/(A+B+i), E[pass@k] = 1 − Π (B+i)/(A+B+i), i < k. Both
    rise with p, so the interval's ends are those of the Beta quantiles, transformed.

    Raises:
        TrialCountError: If n < 1, c is not in 0..n, k < 1, or one is no integer.
        PriorError: If the prior is not two finite numbers > 0, or the level is not between 0 and 1.
    """
    check_counts(n, c, k, "plug_in")
    return posterior_over_tasks({(n, c): 1}, k, prior=prior, level=level)


def posterior_mean(n: int, c: int, k: int, *, prior: tuple[float, float] = UNIFORM) -> tuple[float, float]:
    """E[pass@k] and E[pass^k] of one task, without an interval; see `posterior`."""
    check_counts(n, c, k, "plug_in")
    a, b = prior[0] + c, prior[1] + n - c
    return 1 - _moment(b, a, k), _moment(a, b, k)


def posterior_over_tasks(
    tasks: Mapping[tuple[int, int], int],
    k: int,
    *,
    prior: tuple[float, float] = UNIFORM,
    level: float = LEVEL,
) -> Posterior:
    """Posterior of the mean over these tasks, each with the prior and its own trials, independent of each other.

    The interval covers these tasks, run again; it says nothing of tasks that were not run. With few trials a task
    is drawn towards the prior, and so is the mean. One task: exact. Up to 32 tasks: the distributions convolved
    on a grid of 1/1024, else Cornish and Fisher's expansion on four exact cumulants; nothing is sampled.

    Args:
        tasks: How many tasks have n trials of which c are correct, by (n, c).
        k: Attempts.
        prior: Beta(a, b) of each task's success rate.
        level: What the interval holds.

    Raises:
        TrialCountError: If there is no task, or as for `posterior`.
        PriorError: As for `posterior`.
    """
    check_prior(prior, level)
    for (n, c), times in tasks.items():
        check_counts(n, c, k, "plug_in")
        if check_integer(f"the number of tasks with n = {n} and c = {c}", times) < 0:
            raise TrialCountError(f"the number of tasks with n = {n} and c = {c} is {times}")
    if not sum(tasks.values()):
        raise TrialCountError("There is no task")
    beta = [(prior[0] + c, prior[1] + n - c, times) for (n, c), times in sorted(tasks.items()) if times]
    mirrored = _mean_of_powers([(b, a, times) for a, b, times in beta], k, level)
    return Posterior(
        # at least one right = not all wrong
        pass_at_k=Estimate(1 - mirrored.mean, 1 - mirrored.high, 1 - mirrored.low),
        pass_hat_k=_mean_of_powers(beta, k, level),
        prior=prior,
        level=level,
    )


def check_counts(n: object, c: object, k: object, estimator: str) -> None:
    """Refuse numbers that are no trials, successes and attempts; see `pass_at_k`."""
    if estimator not in get_args(Estimator):
        raise UnknownEstimatorError(estimator)
    trials, correct = check_integer("n", n), check_integer("c", c)
    if trials < 1:
        raise TrialCountError(f"n is {trials}: without a trial there is nothing to estimate")
    if not 0 <= correct <= trials:
        raise TrialCountError(f"c is {correct}, but n is {trials}")
    if check_attempts(k) > trials and estimator == "unbiased":
        raise TrialCountError(f"k is {k}, but n is only {trials}: run more trials, or ask for 'plug_in'")


def check_attempts(k: object) -> int:
    """K as an integer ≥ 1, or TrialCountError."""
    attempts = check_integer("k", k)
    if attempts < 1:
        raise TrialCountError(f"k is {attempts}")
    return attempts


def check_integer(name: str, value: object) -> int:
    """The value, if it is an integer and no boolean, else TrialCountError."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TrialCountError(f"{name} is {value!r}, which is no integer")
    return value


def check_prior(prior: object, level: object) -> None:
    """Refuse a prior or a level that gives no posterior; see `PriorError`."""
    if not isinstance(prior, tuple | list) or len(prior) != 2:
        raise PriorError(f"The prior is {prior!r}")
    for value in prior:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise PriorError(f"The prior is {prior!r}")
        if not math.isfinite(value) or value <= 0:
            raise PriorError(f"The prior is {prior!r}")
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise PriorError(f"The level is {level!r}")


def _ways(trials: int, k: int, estimator: Estimator) -> int:
    """Ways to draw k of these trials: without putting back when unbiased, with it for the plug-in."""
    return math.comb(trials, k) if estimator == "unbiased" else trials**k


_Beta: TypeAlias = tuple[float, float, int]  # its two parameters, and how many tasks have it


def _moment(a: float, b: float, power: int) -> float:
    """E[p^power] for p ~ Beta(a, b)."""
    return float(math.prod((a + i) / (a + b + i) for i in range(power)))


def _mean_of_powers(tasks: Sequence[_Beta], k: int, level: float) -> Estimate:
    """Mean and interval of the mean over tasks of p^k."""
    n_tasks = sum(times for _, _, times in tasks)
    mean = math.fsum(times * _moment(a, b, k) for a, b, times in tasks) / n_tasks
    tails = (0.5 - level / 2, 0.5 + level / 2)
    if n_tasks == 1:
        bounds = _one_task(tasks[0], k, tails)
    elif n_tasks <= MOST_CONVOLVED:
        bounds = _convolved(tasks, k, tails)
    else:
        bounds = _expanded(tasks, k, tails)
    return Estimate(mean, *bounds)


def _one_task(task: _Beta, k: int, tails: tuple[float, float]) -> tuple[float, float]:
    from scipy.special import betaincinv

    a, b, _ = task
    low, high = (float(betaincinv(a, b, tail)) ** k for tail in tails)
    return low, high


def _convolved(tasks: Sequence[_Beta], k: int, tails: tuple[float, float]) -> tuple[float, float]:
    """Quantiles of the mean: the tasks' exact masses in cells of 1/1024, convolved."""
    import numpy as np
    from scipy.special import betainc

    n_tasks = sum(times for _, _, times in tasks)
    size = 1 << (n_tasks * _CELLS + 1).bit_length()
    edges = np.clip((np.arange(_CELLS + 2) - 0.5) / _CELLS, 0, 1) ** (1 / k)
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    for a, b, times in tasks:
        spectrum *= np.fft.rfft(np.diff(betainc(a, b, edges)), size) ** times
    below = np.cumsum(np.fft.irfft(spectrum, size)[: n_tasks * _CELLS + 1])
    ends = (np.arange(n_tasks * _CELLS + 1) + 0.5) / _CELLS / n_tasks
    low, high = (min(max(float(np.interp(tail, below, ends)), 0.0), 1.0) for tail in tails)
    return low, high


def _expanded(tasks: Sequence[_Beta], k: int, tails: tuple[float, float]) -> tuple[float, float]:
    """Quantiles of the mean by Cornish and Fisher's expansion on four cumulants."""
    from scipy.special import ndtri

    n_tasks = sum(times for _, _, times in tasks)
    sums = [0.0] * 4
    for a, b, times in tasks:
        for i, cumulant in enumerate(_cumulants([_moment(a, b, k * j) for j in (1, 2, 3, 4)])):
            sums[i] += times * cumulant
    mean, variance, third, fourth = (s / n_tasks ** (i + 1) for i, s in enumerate(sums))
    skew, excess = third / variance**1.5, fourth / variance**2

    def quantile(tail: float) -> float:
        z = float(ndtri(tail))
        w = z + (z**2 - 1) * skew / 6 + (z**3 - 3 * z) * excess / 24 - (2 * z**3 - 5 * z) * skew**2 / 36
        return min(max(float(mean + w * math.sqrt(variance)), 0.0), 1.0)

    return quantile(tails[0]), quantile(tails[1])


def _cumulants(moments: Sequence[float]) -> tuple[float, float, float, float]:
    """Mean, variance, third and fourth cumulant from four raw moments."""
    m1, m2, m3, m4 = moments
    variance = m2 - m1**2
    third = m3 - 3 * m2 * m1 + 2 * m1**3
    fourth = m4 - 4 * m3 * m1 + 6 * m2 * m1**2 - 3 * m1**4 - 3 * variance**2
    return m1, variance, third, fourth
