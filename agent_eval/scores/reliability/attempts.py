"""pass@k and pass^k from counts: n trials of a task, c of them correct, k attempts.

The arithmetic only: estimates and the posterior of one task. That of several tasks is in `hierarchical`; which trial
was correct is decided in `scores.reliability.trials`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from agent_eval.errors import AgentEvalError

Estimator = Literal["unbiased", "plug_in"]
InteractionEstimator = Literal["unbiased", "plug_in", "bayesian"]
UNIFORM = (1.0, 1.0)
LEVEL = 0.95


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
    """What the trials show of one success rate."""

    pass_at_k: Estimate
    pass_hat_k: Estimate
    prior: tuple[float, float]  # of the success rate
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


def not_identified(k: int, most: int) -> str:
    """Return why there is no posterior for this k."""
    return f"k is {k}, but no task has more than {most} known trials: how trials of one task go together is not identified"


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
    check_prior(prior, level)
    check_counts(n, c, k, "plug_in")
    a, b = prior[0] + c, prior[1] + n - c
    missed = _power(b, a, k, level)  # at least one right = not all wrong
    at = Estimate(1 - missed.mean, 1 - missed.high, 1 - missed.low)
    return Posterior(pass_at_k=at, pass_hat_k=_power(a, b, k, level), prior=prior, level=level)


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


def _power(a: float, b: float, k: int, level: float) -> Estimate:
    """Mean and equal-tailed interval of p^k for p ~ Beta(a, b)."""
    from scipy.special import betaincinv

    mean = float(math.prod((a + i) / (a + b + i) for i in range(k)))
    low, high = (float(betaincinv(a, b, tail)) ** k for tail in (0.5 - level / 2, 0.5 + level / 2))
    return Estimate(mean, low, high)
