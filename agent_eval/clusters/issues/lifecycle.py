"""Decide of each cluster of an agent whether it is open, fixed, or came back, from the counts of its runs.

A run is evidence only on tasks that occurred while the issue was open, so that easier tasks fix nothing. An issue is
fixed when so many of their conversations were without it that this would happen in at most 5 % of cases at the
lowest plausible rate. It came back when it occurs again significantly more often than since it was fixed, or since it
was last seen: an occurrence by chance does not hide a later return.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from agent_eval.clusters.cluster_registry import targets
from agent_eval.clusters.issues.sightings import ALL
from agent_eval.clusters.trends import wilson
from agent_eval.tables import table

LEVEL = 0.05
OPEN, FIXED, BACK = "open", "fixed", "came back"
NOT_REPEATED = "no task with the issue was repeated"
_PAIR = ("methodology_version", "agent_id")
Tasks = Counter[str]
"""Numbers of conversations by task."""


@dataclass
class Issue:
    """Hold what is known about a cluster of an agent after the runs that were added, in order.

    Attributes:
        failing: Conversations with the issue while it is open, by task.
        looked: Conversations that were looked at while it is open, by task.
        clean: Conversations that were looked at since, in runs without the issue.
        at_fix: Conversations without it that showed that it was fixed.
        since_fixed: The runs since then: name, conversations looked at, and those with the issue.
        n_tests: Tests so far, which share `LEVEL`: one that it is fixed for each run with it while it is open, as after each
            a series of runs without it can begin, and one that it came back for each run while it is fixed.
    """

    first_run: str
    last_run: str
    status: str = OPEN
    fixed_in: str | None = None
    returned_in: str | None = None
    p_value: float | None = None
    failing: Tasks = field(default_factory=Tasks)
    looked: Tasks = field(default_factory=Tasks)
    clean: Tasks = field(default_factory=Tasks)
    at_fix: Tasks = field(default_factory=Tasks)
    since_fixed: list[tuple[str, Tasks, Tasks]] = field(default_factory=list)
    clean_since: str | None = None
    n_clean_runs: int = 0
    n_tests: int = 0

    def add(self, run: str, looked: Tasks, failing: Tasks) -> None:
        """Take a later run into account."""
        if failing:
            self.last_run = run
        if self.status == FIXED:
            self._watch(run, looked, failing)
        elif failing:
            self.n_tests += 1
            self.looked += self.clean + looked
            self.failing += failing
            self.clean, self.clean_since, self.n_clean_runs = Tasks(), None, 0
        elif looked:
            self.clean += looked
            self.clean_since = self.clean_since or run
            self.n_clean_runs += 1
            needed = self.n_needed
            if needed is not None and self.n_clean >= needed:
                self.status, self.fixed_in, self.at_fix = FIXED, self.clean_since, self.clean.copy()
                self.returned_in = self.p_value = None

    def _watch(self, run: str, looked: Tasks, failing: Tasks) -> None:
        if not looked:
            return
        self.n_tests += 1
        self.since_fixed.append((run, looked, failing))
        if not self.again and not failing:
            self.clean += looked
            return
        self.returned_in = self.again[0]
        n_runs = len(self.since_fixed)
        windows = [2**k for k in range(n_runs.bit_length())]
        p_value, window = min((self._chance(n_runs - window), window) for window in windows)
        self.p_value = min(1.0, p_value * len(windows) * LEVEL / spent(self.n_tests))
        if self.p_value <= LEVEL:
            runs = self.since_fixed[n_runs - window :]
            self.status, self.returned_in = BACK, next(name for name, _, failures in runs if failures)
            self.looked, self.failing = self._sums(runs)
            self.n_tests += 1
            self.since_fixed, self.clean, self.clean_since, self.n_clean_runs = [], Tasks(), None, 0

    @property
    def again(self) -> list[str]:
        """Return the runs with the issue since it was fixed."""
        return [run for run, _, failing in self.since_fixed if failing]

    def _chance(self, start: int) -> float:
        """Return the p that the issue occurs more often from this run on (its number in `since_fixed`) only by chance."""
        n_before, n_failed_before = map(self._n_comparable, self._sums(self.since_fixed[:start]))
        n_later, n_again = map(self._n_comparable, self._sums(self.since_fixed[start:]))
        n_at_fix = self._n_comparable(self.at_fix)
        return chance_of_return(n_again, n_later, n_at_fix + n_before, n_failed_before)

    @staticmethod
    def _sums(runs: list[tuple[str, Tasks, Tasks]]) -> tuple[Tasks, Tasks]:
        looked, failing = Tasks(), Tasks()
        for _, of_run, with_issue in runs:
            looked += of_run
            failing += with_issue
        return looked, failing

    def _n_comparable(self, tasks: Tasks) -> int:
        return sum(n for task, n in tasks.items() if task in self.looked)

    @property
    def n_clean(self) -> int:
        """Return the conversations without the issue since it last occurred, on tasks that occurred before."""
        return self._n_comparable(self.clean)

    @property
    def n_needed(self) -> int | None:
        """Return the number of such conversations after which the issue is fixed; None if none of them can tell.

        Tasks count as often as they were tried since: their rates while the issue was open are weighted by it.
        """
        comparable = {task: n for task, n in self.clean.items() if task in self.looked} or dict(self.looked)
        expected = sum(n * self.failing[task] / self.looked[task] for task, n in comparable.items())
        rate = self.failing.total() / self.looked.total()
        share = min(1.0, expected / sum(comparable.values()) / rate)
        lowest = self.bounds[0] * share
        return (
            math.ceil(math.log(spent(self.n_tests)) / math.log1p(-lowest))
            if 0 < lowest < 1
            else 1
            if lowest >= 1
            else None
        )

    @property
    def reason(self) -> str | None:
        """Return why the runs since it last occurred do not count; None if they do, or there are none."""
        is_unknown = self.n_needed is None or (self.n_clean_runs > 0 and self.n_clean == 0)
        return NOT_REPEATED if is_unknown else None

    @property
    def n_runs_needed(self) -> int | None:
        """Return the number of runs with so many conversations, of the size of those that were seen; at least 1."""
        if self.n_needed is None:
            return None
        size = self.n_clean / self.n_clean_runs if self.n_clean_runs and self.n_clean else self.looked.total()
        return max(1, math.ceil(self.n_needed / size))

    @property
    def bounds(self) -> tuple[float, float]:
        """Return Wilson's 95 % bounds of the share of conversations with the issue while it is open."""
        k, n = (np.array([float(c.total())]) for c in (self.failing, self.looked))
        low, high = wilson(k, n, np.array([1.0]))
        return float(low[0]), float(high[0])


def spent(number: int) -> float:
    """Return the share of `LEVEL` that the test with this number, from 1, may use; all tests together use `LEVEL`."""
    return LEVEL / (number * (number + 1))


def chance_of_return(n_again: int, n_later: int, n_before: int, n_failed_before: int = 0) -> float:
    """Return Fisher's one-sided p of at least this many conversations with the issue among the later ones.

    Args:
        n_again: Later conversations with the issue.
        n_later: Later conversations.
        n_before: Conversations before them, since the issue was fixed.
        n_failed_before: Those of them with the issue.
    """
    if n_again == 0:
        return 1.0
    n_failed = n_again + n_failed_before
    ways = _log_ways(n_later + n_before, n_failed)
    most = min(n_failed, n_later)
    least = max(n_again, n_failed - n_before)
    return math.fsum(
        math.exp(_log_ways(n_later, k) + _log_ways(n_before, n_failed - k) - ways)
        for k in range(least, most + 1)
    )


def _log_ways(n: int, k: int) -> float:
    """Return the logarithm of the number of ways to choose k of n."""
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def followed(
    issue_runs: pl.DataFrame, registry: pl.DataFrame
) -> Iterator[tuple[tuple[str, str, str], Issue]]:
    """Yield each cluster that occurred (version, agent, final id) with its state after all runs.

    Args:
        issue_runs: Table `issue_runs`.
        registry: Table `error_registry`.
    """
    final = targets(registry)
    for pair, rows in issue_runs.sort(*_PAIR, "run_key", "benchmark_id").group_by(_PAIR, maintain_order=True):
        order = list(dict.fromkeys(rows["benchmark_id"]))
        counts: dict[tuple[str | None, str], dict[str, Tasks]] = {}
        for cluster, basis, run, tasks, numbers in rows.select(
            "cluster_id", "basis", "benchmark_id", "tasks", "n_conversations"
        ).iter_rows():
            name = None if cluster is None else final.get(cluster)
            if cluster is None or name is not None:
                of_runs = counts.setdefault((name, basis), {})
                of_runs[run] = of_runs.get(run, Tasks()) + Tasks(dict(zip(tasks, numbers, strict=True)))
        names = sorted({name for name, _ in counts if name is not None})
        for name in names:
            metric_bases = [basis for of, basis in counts if of == name and basis != ALL]
            basis = metric_bases[0] if metric_bases else ALL
            totals = counts.get((None, basis), {})
            issue = _after(order, totals, counts[name, basis])
            if issue is not None:
                yield (str(pair[0]), str(pair[1]), name), issue


def _after(order: list[str], looked: Mapping[str, Tasks], failing: Mapping[str, Tasks]) -> Issue | None:
    issue: Issue | None = None
    for run in order:
        covered_tasks, failing_tasks = looked.get(run, Tasks()), failing.get(run, Tasks())
        failing_tasks &= covered_tasks  # a conversation of two merged clusters counts once
        if issue is None and failing_tasks:
            issue = Issue(run, run)
        if issue is not None:
            issue.add(run, covered_tasks, failing_tasks)
    return issue


def error_issues(issue_runs: pl.DataFrame, registry: pl.DataFrame, costs: pl.DataFrame) -> pl.DataFrame:
    """Return table `error_issues`: one row per version, agent and cluster that occurred, the costliest first by rank.

    Args:
        issue_runs: Table `issue_runs`.
        registry: Table `error_registry`.
        costs: As returned by `issue_costs`.
    """
    rows = [
        {
            **dict(zip((*_PAIR, "cluster_id"), key, strict=True)),
            "status": issue.status,
            "first_run": issue.first_run,
            "last_run": issue.last_run,
            "fixed_in": issue.fixed_in,
            "returned_in": issue.returned_in if issue.status == BACK or issue.again else None,
            "n_conversations": issue.failing.total(),
            "n_conversations_looked": issue.looked.total(),
            "rate_low": 100 * issue.bounds[0],
            "rate_high": 100 * issue.bounds[1],
            "n_clean": issue.n_clean,
            "n_clean_needed": issue.n_needed,
            "n_runs_clean": issue.n_clean_runs,
            "n_runs_needed": issue.n_runs_needed,
            "p_value": issue.p_value,
            "reason": issue.reason,
        }
        for key, issue in followed(issue_runs, registry)
    ]
    target = table("error_issues")
    issue_rows = (
        pl.DataFrame(rows, schema={name: target.schema[name] for name in rows[0]}) if rows else target.empty()
    )
    described = registry.select("cluster_id", "label", "title", "severity")
    key = [*_PAIR, "cluster_id"]
    joined = (
        issue_rows.select([name for name in issue_rows.columns if name not in described.columns[1:]])
        .drop(*(name for name in costs.columns if name not in key), "rank", strict=False)
        .join(described, on="cluster_id", how="left")
        .join(costs, on=key, how="left")
    )
    of_cost = ["n_goals_missed", "seconds", "cost_usd", "n_conversations"]
    ranked = joined.sort(
        *_PAIR, *of_cost, "cluster_id", descending=[False] * 2 + [True] * 4 + [False], nulls_last=True
    )
    number = pl.int_range(1, pl.len() + 1).over(_PAIR)
    return target.selected(ranked.with_columns(rank=number)).sort(target.key)


def issue_costs(
    failures: pl.DataFrame, conversations: pl.DataFrame, turns: pl.DataFrame, goals: pl.DataFrame
) -> pl.DataFrame:
    """Return what the conversations with each cluster cost: goals missed, seconds and US dollars.

    A goal is missed if the outcome is failed, or, if it is unknown, if the goal was judged not to be reached. Sums are
    null if no conversation is known; a conversation with several clusters counts for each.

    Args:
        failures: Table `failures`.
        conversations: Table `conversations`; at least agent_id, conversation_id, outcome_class and cost_usd.
        turns: Table `turns`; at least agent_id, conversation_id and latency_ms.
        goals: Effective judgments of goal_completion: methodology_version, agent_id, conversation_id and value.
    """
    where = ["agent_id", "conversation_id"]
    seconds = turns.group_by(where).agg(
        seconds=pl.when(pl.col("latency_ms").count() > 0).then(pl.col("latency_ms").sort().sum() / 1000)
    )
    outcome = pl.col("outcome_class").cast(pl.String)
    is_missed = (
        pl.when(outcome.is_in(["failed", "agent_error"]))
        .then(pl.lit(value=True))
        .when(outcome == "passed")
        .then(pl.lit(value=False))
        .otherwise(pl.col("value") < 1)
    )
    conversation_costs = (
        failures.select(*_PAIR, "conversation_id", "cluster_id")
        .unique()
        .join(conversations.select(*where, "outcome_class", "cost_usd"), on=where, how="left")
        .join(seconds, on=where, how="left")
        .join(goals.unique([*_PAIR, "conversation_id"]), on=[*_PAIR, "conversation_id"], how="left")
        .with_columns(is_missed=is_missed)
    )
    return conversation_costs.group_by(*_PAIR, "cluster_id").agg(
        _sum(pl.col("is_missed").cast(pl.Int64)).alias("n_goals_missed"),
        _sum(pl.col("seconds")).alias("seconds"),
        _sum(pl.col("cost_usd")).alias("cost_usd"),
    )


def _sum(values: pl.Expr) -> pl.Expr:
    """Return the sum of the known values, null without one; added in order of size, so that equal rows have equal sums."""
    return pl.when(values.count() > 0).then(values.sort().sum())
