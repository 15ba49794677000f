"""Compute pass@k and pass^k of one task from counts: n trials, c correct trials and k attempts.

This module computes the estimates and the posterior of a single task; `hierarchical` computes the posterior for
several tasks. `scores.reliability.trials` decides which trials were correct.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from agent_eval.errors import InvalidValueError

Estimator = Literal["unbiased", "plug_in"]
InteractionEstimator = Literal["unbiased", "plug_in", "bayesian"]
UNIFORM = (1.0, 1.0)
LEVEL = 0.95


def invalid_count(problem: str) -> InvalidValueError:
    """Return the error for invalid numbers of trials, successes or attempts."""
    return InvalidValueError(
        f"{problem}. Allowed: integers with n ≥ 1 trials, 0 ≤ c ≤ n of them correct, k ≥ 1 attempts, "
        "and k ≤ n for estimator 'unbiased'."
    )


def unknown_estimator(estimator: object, allowed: Sequence[str] = get_args(Estimator)) -> InvalidValueError:
    """Return the error if the name of an estimator is unknown."""
    return InvalidValueError(f"Estimator {estimator!r} is unknown. Allowed: {', '.join(allowed)}.")


def _invalid_prior(problem: str) -> InvalidValueError:
    return InvalidValueError(
        f"{problem}. Allowed: a prior of two finite numbers > 0, and a level between 0 and 1."
    )


@dataclass(frozen=True)
class Estimate:
    """Hold the mean of a posterior and the bounds of its equal-tailed interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Posterior:
    """Hold the posterior estimates for one success rate."""

    pass_at_k: Estimate
    pass_hat_k: Estimate
    prior: tuple[float, float]  # of the success rate
    level: float


@dataclass(frozen=True)
class InteractionPass:
    """Hold pass@k and pass^k over the interactions of one conversation, which do not count as trials."""

    interaction_pass_at_k: float
    interaction_pass_hat_k: float
    n_interactions: int
    n_correct: int
    k: int
    estimator: InteractionEstimator
    interaction_pass_at_k_low: float | None = None  # bounds of the credible interval; `bayesian` only
    interaction_pass_at_k_high: float | None = None
    interaction_pass_hat_k_low: float | None = None
    interaction_pass_hat_k_high: float | None = None


def not_identified(k: int, most: int) -> str:
    """Return the reason why there is no posterior for this k."""
    return f"k is {k}, but no task has more than {most} known trials: how trials of one task go together is not identified"


def pass_at_k(n: int, c: int, k: int, *, estimator: Estimator = "unbiased") -> float:
    """Return the probability that at least one of k attempts succeeds, given c correct trials of n for a task.

    The unbiased estimator is 1 − C(n−c, k)/C(n, k). The plug_in estimator is 1 − (1 − c/n)^k, which also allows
    k > n. The result is exact except for the final rounding.

    Raises:
        InvalidValueError: If n < 1, c is not in 0..n, k < 1, a number is not an integer, or k > n with the
            unbiased estimator.
    """
    check_counts(n, c, k, estimator)
    ways = _ways(n, k, estimator)
    return (ways - _ways(n - c, k, estimator)) / ways


def pass_hat_k(n: int, c: int, k: int, *, estimator: Estimator = "unbiased") -> float:
    """Return the probability that all of k attempts succeed, given c correct trials of n for a task.

    The unbiased estimator is C(c, k)/C(n, k). The plug_in estimator is (c/n)^k, which also allows k > n. The
    result is exact except for the final rounding.

    Raises:
        InvalidValueError: As for `pass_at_k`.
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
    """Return pass@k and pass^k over the interactions of one conversation, given c correct interactions of n.

    Turns of a conversation are not independent trials. The result therefore does not predict a repeated run of
    the task and has a different name. The default estimator is plug_in, as in the reference tool. `bayesian` is
    the tool's other mode: the posterior of the conversation's success rate, p ~ Beta(a + c, b + n − c). It is
    exact, while the tool draws samples.

    Raises:
        InvalidValueError: If n < 1, c is not in 0..n, k < 1, a number is not an integer, or k > n with the
            unbiased estimator.
        InvalidValueError: If the prior is not two finite numbers > 0, or the level is not between 0 and 1.
    """
    if estimator != "bayesian":
        at, hat = (f(n, c, k, estimator=estimator) for f in (pass_at_k, pass_hat_k))
        return InteractionPass(at, hat, n, c, k, estimator)
    estimates = posterior(n, c, k, prior=prior, level=level)
    one, every = estimates.pass_at_k, estimates.pass_hat_k
    return InteractionPass(one.mean, every.mean, n, c, k, estimator, one.low, one.high, every.low, every.high)


def posterior(
    n: int, c: int, k: int, *, prior: tuple[float, float] = UNIFORM, level: float = LEVEL
) -> Posterior:
    """Return the exact posterior of pass@k and pass^k of one task, with p ~ Beta(a + c, b + n − c), for any k.

    With A = a + c and B = b + n − c, E[pass^k] = Π (A+i)/(A+B+i) and E[pass@k] = 1 − Π (B+i)/(A+B+i) over i < k.
    Both rise with p, so the bounds of the interval are transformed Beta quantiles.

    Raises:
        InvalidValueError: If n < 1, c is not in 0..n, k < 1, or a number is not an integer,
            or if the prior is not two finite numbers > 0, or the level is not between 0 and 1.
    """
    check_prior(prior, level)
    check_counts(n, c, k, "plug_in")
    a, b = prior[0] + c, prior[1] + n - c
    missed = _power(b, a, k, level)  # at least one success is the complement of only failures
    at = Estimate(1 - missed.mean, 1 - missed.high, 1 - missed.low)
    return Posterior(pass_at_k=at, pass_hat_k=_power(a, b, k, level), prior=prior, level=level)


def check_counts(n: object, c: object, k: object, estimator: str) -> None:
    """Raise InvalidValueError for invalid numbers of trials, successes or attempts; see `pass_at_k`."""
    if estimator not in get_args(Estimator):
        raise unknown_estimator(estimator)
    trials, correct = check_integer("n", n), check_integer("c", c)
    if trials < 1:
        raise invalid_count(f"n is {trials}: without a trial there is nothing to estimate")
    if not 0 <= correct <= trials:
        raise invalid_count(f"c is {correct}, but n is {trials}")
    if check_attempts(k) > trials and estimator == "unbiased":
        raise invalid_count(f"k is {k}, but n is only {trials}: run more trials, or ask for 'plug_in'")


def check_attempts(k: object) -> int:
    """Return k as an integer ≥ 1, or raise InvalidValueError."""
    attempts = check_integer("k", k)
    if attempts < 1:
        raise invalid_count(f"k is {attempts}")
    return attempts


def check_integer(name: str, value: object) -> int:
    """Return the value if it is an integer and not a boolean, else raise InvalidValueError."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid_count(f"{name} is {value!r}, which is not an integer")
    return value


def check_prior(prior: object, level: object) -> None:
    """Raise InvalidValueError for an invalid prior or level."""
    if not isinstance(prior, tuple | list) or len(prior) != 2:
        raise _invalid_prior(f"The prior is {prior!r}")
    for value in prior:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _invalid_prior(f"The prior is {prior!r}")
        if not math.isfinite(value) or value <= 0:
            raise _invalid_prior(f"The prior is {prior!r}")
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise _invalid_prior(f"The level is {level!r}")


def _ways(trials: int, k: int, estimator: Estimator) -> int:
    """Count the ways to draw k of these trials, with replacement for plug_in and without it for unbiased."""
    return math.comb(trials, k) if estimator == "unbiased" else trials**k


def _power(a: float, b: float, k: int, level: float) -> Estimate:
    """Return the mean and equal-tailed interval of p^k for p ~ Beta(a, b)."""
    from scipy.special import betaincinv

    mean = float(math.prod((a + i) / (a + b + i) for i in range(k)))
    low, high = (float(betaincinv(a, b, tail)) ** k for tail in (0.5 - level / 2, 0.5 + level / 2))
    return Estimate(mean, low, high)
