"""Compute the worst and best case of a row of `reliability`, given its unknown trials."""

import heapq
from collections.abc import Callable, Iterator, Sequence

from agent_eval.scores.reliability.attempts import LEVEL, UNIFORM
from agent_eval.scores.reliability.over_tasks import POSTERIORS, Alike, of_task, posterior_over_tasks

TOLERANCE = 1e-9  # rounding errors of means of exact shares
ENDS = ("worst", "best")
_Value = Callable[[int, int], float]
_Counts = Sequence[tuple[int, int, int]]  # trials, passed trials, and number of tasks with these counts
_LOOKED_AT = 64  # maximum number of refused records assumed for one task


def within_bounds(row: dict[str, object]) -> dict[str, object]:
    """Return the row with estimates limited to the range that the unknown trials allow.

    A task with too few known trials is excluded from an estimate, although a known failure may already decide
    its value. The estimate from the other tasks can therefore lie outside the worst and best case. In this case,
    it is replaced by the nearer bound.
    """
    for name in ("pass_at_k", "pass_hat_k"):
        value, worst, best = (row[f"{name}{end}"] for end in ("", "_worst", "_best"))
        if not (isinstance(value, float) and isinstance(worst, float) and isinstance(best, float)):
            continue
        allowed = min(max(value, worst), best)
        if abs(allowed - value) > TOLERANCE:
            sign = "pass@k" if name == "pass_at_k" else "pass^k"
            row |= {name: allowed, f"{name}_low": None, f"{name}_high": None}
            row["interval"] = (
                f"{sign} is the {'best' if allowed < value else 'worst'} case: the {row['n_tasks']} tasks with enough known "
                f"trials give {value:.3f}, which the other tasks exclude"
            )
    return row


def over_all(tasks: Sequence[Alike], n_refused: int) -> dict[str, object]:
    """Return pass@1 over all tasks with a known trial, independent of the largest k, with worst and best case."""
    tasks_with_trials = [t for t in tasks if t.n]
    n_known = sum(t.times for t in tasks_with_trials)
    bounds = worst_and_best(tasks, 1, "unbiased", 1, n_refused)
    return {
        "pass_at_1": sum(t.c / t.n * t.times for t in tasks_with_trials) / n_known if n_known else None,
        "pass_at_1_worst": bounds["pass_at_k_worst"],
        "pass_at_1_best": bounds["pass_at_k_best"],
        "n_tasks_known": n_known,
    }


def worst_and_best(
    tasks: Sequence[Alike],
    k: int,
    estimator: str,
    least: int,
    n_refused: int,
    prior: tuple[float, float] = UNIFORM,
) -> dict[str, float | None]:
    """Return the estimates with every unknown trial counted as failed (worst) or passed (best).

    The best case also counts the failures that an error of unknown cause ended as passed: if the harness failed, the
    agent may have passed. A refused record can be a trial of any of these tasks or of another task; the bounds hold in either case.
    """
    counting = [t for t in tasks if t.n + t.n_open >= least]
    if estimator in POSTERIORS:
        return _posterior_bounds(counting, k, estimator, n_refused, prior)
    bounds: dict[str, float | None] = {}
    for end in ENDS:
        is_best = end == "best"
        counts = [(t.n + t.n_open, t.c + is_best * (t.n_open + t.n_doubted), t.times) for t in counting]
        for part, kind in enumerate(("at", "hat")):

            def value(n: int, c: int, part: int = part) -> float:
                return of_task(n, c, k, estimator)[part]

            n_tasks = sum(times for *_, times in counts)
            total = sum(value(n, c) * times for n, c, times in counts)
            if is_best:
                changes = _rises(counts, value, n_refused)
            elif k == 1 or kind == "hat":
                changes = _falls_in_order(counts, value, n_refused)
            else:
                changes = _falls(counts, value, n_refused)
            means = [
                min(max(total + change, 0.0), n_tasks) + is_best * (n_refused - n_here)
                for n_here, change in enumerate(changes)
            ]
            bounds[f"pass_{kind}_k_{end}"] = _extreme(means, n_tasks, n_refused, is_best=is_best)
    return bounds


def _extreme(totals: Sequence[float], n_tasks: int, n_refused: int, *, is_best: bool) -> float | None:
    """Return the highest or lowest mean over tasks; `totals[i]` assumes i refused records in counted tasks."""
    sizes = (n_tasks + n_refused - n_here for n_here in range(len(totals)))
    means = [total / size for total, size in zip(totals, sizes, strict=True) if size]
    return (max(means) if is_best else min(means)) if means else None


def _falls_in_order(counts: _Counts, value: _Value, n_refused: int) -> Iterator[float]:
    """Yield the largest change of the sum of `value` over tasks by 0, 1, 2 … additional failed trials.

    The result is exact if each additional failure of a task lowers its value by less than the one before.
    """
    yield 0.0
    if not counts:
        return
    steps = [(value(n + 1, c) - value(n, c), n, c, times) for n, c, times in counts if n_refused]
    heapq.heapify(steps)
    total = 0.0
    for _ in range(n_refused):
        step, n, c, times = heapq.heappop(steps)
        total += step
        yield total
        if times > 1:
            heapq.heappush(steps, (step, n, c, times - 1))
        heapq.heappush(steps, (value(n + 2, c) - value(n + 1, c), n + 1, c, 1))


def _falls(counts: _Counts, value: _Value, n_refused: int) -> Iterator[float]:
    """Return lower bounds of the change of the sum by 0, 1, 2 … additional failed trials.

    Each trial is assumed to cause the largest mean decrease per trial of any task.
    """
    averages = (
        (value(n, c) - value(n + i, c)) / i
        for n, c, _ in counts
        for i in range(1, min(n_refused, _LOOKED_AT) + 1)
    )
    most = max([*averages, (n_refused > _LOOKED_AT) / _LOOKED_AT])
    return (-most * n for n in range(n_refused + 1 if counts else 1))


def _rises(counts: _Counts, value: _Value, n_refused: int) -> Iterator[float]:
    """Return upper bounds of the change of the sum by 0, 1, 2 … additional passed trials.

    Each trial is assumed to cause the largest mean increase per trial of any task.
    """
    averages = (
        (value(n + i, c + i) - value(n, c)) / i
        for n, c, _ in counts
        for i in range(1, min(n_refused, _LOOKED_AT) + 1)
    )
    most = max([*averages, (n_refused > _LOOKED_AT) / _LOOKED_AT])
    return (most * n for n in range(n_refused + 1 if counts else 1))


def _posterior_bounds(
    tasks: Sequence[Alike], k: int, estimator: str, n_refused: int, prior: tuple[float, float]
) -> dict[str, float | None]:
    """Return the posterior means with all unknown trials failed or passed; each refused record adds a task.

    With several tasks and k > 1, the mean of pass^k is not monotone: a task with passed and failed trials lowers the
    estimated consistency of all tasks, also by a passed trial. Both ends of pass^k are then null, unless it is known
    which way every unknown trial went.
    """
    bounds: dict[str, float | None] = {}
    for end in ENDS:
        passed = int(end == "best")
        counts = [(t.n + t.n_open, t.c + passed * (t.n_open + t.n_doubted), t.times) for t in tasks]
        counts += [(1, passed, n_refused)] if n_refused else []
        most = max((n for n, _, _ in counts), default=0)
        is_identified = estimator == "pooled" or sum(times for *_, times in counts) == 1 or k <= most
        both = posterior_over_tasks(counts, k, estimator, prior, LEVEL) if counts and is_identified else None
        bounds[f"pass_at_k_{end}"] = None if both is None else both[0].mean
        bounds[f"pass_hat_k_{end}"] = None if both is None else both[1].mean
    is_open = n_refused > 0 or any(t.n_open or t.n_doubted for t in tasks)
    if estimator != "pooled" and k > 1 and is_open and sum(t.times for t in tasks) + n_refused > 1:
        bounds |= dict.fromkeys([f"pass_hat_k_{end}" for end in ENDS])
    return bounds
