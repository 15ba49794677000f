"""Compute the estimates and intervals of one row of `reliability`, over its tasks or their families."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from agent_eval.formats.plain_text import count_of
from agent_eval.scores.reliability.attempts import (
    LEVEL,
    Estimate,
    Estimator,
    not_identified,
    pass_at_k,
    pass_hat_k,
    posterior,
)
from agent_eval.scores.statistics.clustered import FEWEST_CLUSTERS, clustered_share
from agent_eval.scores.statistics.intervals import share_mean

POSTERIORS = ("bayesian", "pooled")
NEW_TASKS, THESE_TASKS = "new tasks of this kind", "these tasks again"
FEW_TRIALS = 30  # with fewer trials the Bayesian interval is recommended
ESTIMATES = (
    *(f"pass_{kind}_k{end}" for kind in ("at", "hat") for end in ("", "_low", "_high")),
    "interval",
)


class Alike(NamedTuple):
    """Group tasks with equal counts, so that they are computed once."""

    n: int
    c: int
    n_open: int  # trials with unknown outcome
    n_doubted: int  # failed trials that ended in an error of unknown cause
    times: int
    sources: tuple[str, ...]


class InFamily(NamedTuple):
    """Hold a task with its family."""

    n: int
    c: int
    family: str


def estimated(
    tasks: Sequence[Alike], k: int, estimator: str, prior: tuple[float, float], level: float
) -> dict[str, object]:
    """Return the counts and estimates of one row, over these tasks."""
    n_tasks = sum(t.times for t in tasks)
    n_trials = sum(t.n * t.times for t in tasks)
    sources = sorted({source for t in tasks for source in t.sources})
    row: dict[str, object] = {
        "n_tasks": n_tasks,
        "n_trials": n_trials,
        "n_successes": sum(t.c * t.times for t in tasks),
        "correctness_source": " + ".join(sources) or None,
        "estimand": None,
    } | dict.fromkeys(ESTIMATES)
    if not tasks:
        return row
    few = f"; fewer than {FEW_TRIALS} trials: more data are needed" if n_trials < FEW_TRIALS else ""
    if estimator == "bayesian" and k > max(t.n for t in tasks) and n_tasks > 1:
        return row | {"interval": f"no estimate: {not_identified(k, max(t.n for t in tasks))}"}
    if estimator in POSTERIORS:
        at, hat = posterior_over_tasks([(t.n, t.c, t.times) for t in tasks], k, estimator, prior, level)
        is_again = n_tasks == 1 or estimator == "pooled"
        over = "one success rate for all trials, " if estimator == "pooled" else ""
        says = f"{over}{said_of(prior, level)}" if is_again else f"{_level(level)}hierarchical over tasks"
        row["estimand"] = THESE_TASKS if is_again else NEW_TASKS
        says = f"{says}; covers {row['estimand']}{few}"
        return row | dict(zip(ESTIMATES, (*vars(at).values(), *vars(hat).values(), says), strict=True))
    how: Estimator = "unbiased" if estimator == "unbiased" else "plug_in"
    step = sum(t.times / t.n for t in tasks) / n_tasks
    one = _over_tasks([(pass_at_k(t.n, t.c, k, estimator=how), t.times) for t in tasks], step)
    every = _over_tasks([(pass_hat_k(t.n, t.c, k, estimator=how), t.times) for t in tasks], step)
    row["estimand"] = NEW_TASKS
    says = f"over tasks; covers {NEW_TASKS}" if n_tasks > 1 else "one task: no interval"
    return row | dict(zip(ESTIMATES, (*one, *every, says), strict=True))


def no_estimate(k: int, most: int) -> str:
    """Return the reason why no task counts for this k, where `most` is the largest number of known trials of a task."""
    if not most:
        return "no estimate: no trial has a known outcome"
    return f"no estimate: k is {k}, but no task has more than {count_of(most, 'trial')} with a known outcome"


def over_families(tasks: Sequence[InFamily], k: int, estimator: str) -> dict[str, object]:
    """Return the bounds of one row with families as the units, because tasks of a family depend on each other."""
    names = [task.family for task in tasks]
    n_families, bounds = (
        len({*names}),
        [f"pass_{kind}_k_{end}" for kind in ("at", "hat") for end in ("low", "high")],
    )
    none = dict.fromkeys(bounds)
    if estimator == "pooled" or len(tasks) < 2:
        return {}
    if estimator == "bayesian":
        return none | {
            "interval": "no interval: the posterior takes tasks as independent, and families are declared"
        }
    if n_families < FEWEST_CLUSTERS:
        return none | {
            "interval": f"no interval: too few families, {n_families} of at least {FEWEST_CLUSTERS}"
        }
    step = sum(1 / task.n for task in tasks) / len(tasks)
    row: dict[str, object] = {"interval": f"over {n_families} families of tasks; covers {NEW_TASKS}"}
    for part, kind in enumerate(("at", "hat")):
        values = [of_task(task.n, task.c, k, estimator)[part] for task in tasks]
        ends = clustered_share(values, names, step=step)
        row |= dict(zip((f"pass_{kind}_k_low", f"pass_{kind}_k_high"), ends or (None, None), strict=True))
    return row


def posterior_over_tasks(
    counts: Sequence[tuple[int, int, int]], k: int, estimator: str, prior: tuple[float, float], level: float
) -> tuple[Estimate, Estimate]:
    """Return the posterior estimates of pass@k and pass^k over all these tasks."""
    if estimator == "pooled" or (len(counts) == 1 and counts[0][2] == 1):
        n, c = (sum(count[i] * count[2] for count in counts) for i in (0, 1))
        task_posterior = posterior(n, c, k, prior=prior, level=level)
        return task_posterior.pass_at_k, task_posterior.pass_hat_k
    tasks = Counter[tuple[int, int]]()
    for n, c, times in counts:
        tasks[n, c] += times
    from agent_eval.scores.reliability.hierarchical import posterior_of_new_tasks  # imports numpy

    new_task_posterior = posterior_of_new_tasks(tasks, k, level=level)
    return new_task_posterior.pass_at_k, new_task_posterior.pass_hat_k


def of_task(n: int, c: int, k: int, estimator: str) -> tuple[float, float]:
    """Return pass@k and pass^k of one task."""
    how: Estimator = "unbiased" if estimator == "unbiased" else "plug_in"
    return pass_at_k(n, c, k, estimator=how), pass_hat_k(n, c, k, estimator=how)


def said_of(prior: tuple[float, float], level: float) -> str:
    """Describe the prior, and the level if it is not the default."""
    return f"{_level(level)}prior Beta({prior[0]:g}, {prior[1]:g})"


def _level(level: float) -> str:
    return "" if level == LEVEL else f"{100 * level:g} % interval, "


def _over_tasks(values: Sequence[tuple[float, int]], step: float) -> tuple[float, float | None, float | None]:
    """Return the mean over tasks and its interval from pairs of value and task count; for `step` see `share_mean`."""
    n = sum(times for _, times in values)
    mean = sum(value * times for value, times in values) / n
    if n < 2:
        return mean, None, None
    variance = sum((value - mean) ** 2 * times for value, times in values) / (n - 1)
    interval = share_mean(mean, variance, n, step=step)
    return (mean, *interval) if interval else (mean, None, None)
