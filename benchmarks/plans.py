"""The numbers of `agent-eval plan` against simulation, on the project of the working directory.

For each row with a smallest detectable difference the units are drawn again and again with the spread that the data have and
a true difference, and tested as `compare` does; printed is the difference that is found in 80 % of the draws. Run it in a
project with agents that were run: `AGENT_EVAL_HOME=… python -m benchmarks plans`. Two agents: each with the next by name.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import stats

from agent_eval.commands.results.compare import Compared, compared
from agent_eval.project import Project
from agent_eval.scores.reliability.attempts import pass_hat_k
from agent_eval.scores.statistics.clustered import ClusteredMean, clustered_difference, clustered_mean
from agent_eval.scores.statistics.intervals import paired
from agent_eval.scores.statistics.plan import plan_one, plan_two
from agent_eval.scores.statistics.unpaired import clusters

Floats = NDArray[np.float64]
Found = Callable[[np.random.Generator, float], float | None]
"""A draw with this true difference → its p value."""
SEED, REPEATS = 20261122, 800
POINTS = 10.0


def measure() -> Iterator[str]:
    project = Project.open()
    version = project.registry.current.version
    agents = sorted(project.known_agents())
    for agent in agents:
        of = compared(project, version, agent, None)
        yield from _one(agent, of)
    for agent, other in pairwise(agents):
        yield from _two(agent, other, compared(project, version, agent, other))


def _one(agent: str, of: Compared) -> Iterator[str]:
    counts = _counts(of.outcomes, agent)
    rows = plan_one(agent, of.sessions, counts, of.conversations, POINTS)
    for row in rows.drop_nulls("smallest_detectable").iter_rows(named=True):
        if row["unit"] == "sessions":
            values = of.sessions.filter(agent_id=agent, quantity=row["quantity"])["values"].item().to_list()
            yield _line(agent, row, _of_sessions(len(values), float(np.std(values, ddof=1))))
        elif row["unit"] == "conversations":
            values = of.conversations.filter(agent_id=agent, quantity=row["quantity"])
            mean = clustered_mean(values["value"].to_list(), clusters(values))
            assert mean is not None
            yield _line(agent, row, _of_clusters(mean, clusters(values)))
        elif row["reason"] is None:
            k = 1 if row["quantity"] == "pass@1" else int(row["quantity"].removeprefix("pass^"))
            tasks = list(counts.filter(task_set=row["task_set"]).select("n", "c").iter_rows())
            yield _line(agent, row, _of_trials(tasks, k))


def _two(agent: str, other: str, of: Compared) -> Iterator[str]:
    if of.rows is None or of.rows.is_empty():
        return
    mine, theirs = (_counts(of.outcomes, name) for name in (agent, other))
    common = mine.join(theirs.rename({"n": "other_n", "c": "other_c"}), on=["task_set", "task"])
    rows = plan_two(of.rows, common, POINTS)
    for row in rows.drop_nulls("smallest_detectable").iter_rows(named=True):
        if row["quantity"] == "pass@1" and row["unit"] == "tasks":
            tasks = common.filter(task_set=row["task_set"])
            differences = (tasks["c"] / tasks["n"] - tasks["other_c"] / tasks["other_n"]).to_list()
            yield _line(f"{agent} and {other}", row, _of_pairs(differences))


def _counts(outcomes: pl.DataFrame, agent: str) -> pl.DataFrame:
    known = outcomes.filter(agent_id=agent).drop_nulls(["task", "is_correct"])
    return known.group_by("task_set", "task").agg(
        n=pl.len().cast(pl.Int64), c=pl.col("is_correct").sum().cast(pl.Int64)
    )


def _line(name: str, row: dict[str, object], found: Found) -> str:
    planned = float(str(row["smallest_detectable"]))
    simulated = _at_80_percent(found, planned)
    return (
        f"{name}, {row['quantity']} over {row['n']} {row['unit']}: planned {planned:.4g}, simulated {simulated:.4g}, "
        f"ratio {simulated / planned:.2f}"
    )


def _at_80_percent(found: Found, planned: float) -> float:
    """The difference that is found with 80 % probability, between 0.6 and 1.6 times the planned one."""
    low, high = 0.6 * planned, 1.6 * planned
    for _ in range(7):
        middle = (low + high) / 2
        random = np.random.default_rng(SEED)  # the same draws for every difference
        p_values = [found(random, middle) for _ in range(REPEATS)]
        power = np.mean([p is not None and p < 0.05 for p in p_values])
        low, high = (low, middle) if power >= 0.8 else (middle, high)
    return (low + high) / 2


def _of_sessions(n: int, deviation: float) -> Found:
    def p_value(random: np.random.Generator, difference: float) -> float:
        ours, theirs = random.normal(difference, deviation, n), random.normal(0, deviation, n)
        return float(stats.ttest_ind(ours, theirs, equal_var=False).pvalue)

    return p_value


def _of_clusters(mean: ClusteredMean, names: Sequence[str]) -> Found:
    """Conversations of a cluster are equal to each other; the clusters' spread gives the observed standard error."""
    places, sizes = np.unique(names, return_inverse=True)[1], np.unique(names, return_counts=True)[1]
    deviation = mean.error / math.sqrt(float(((sizes / sizes.sum()) ** 2).sum()))

    def p_value(random: np.random.Generator, difference: float) -> float | None:
        ours, theirs = (
            clustered_mean((random.normal(at, deviation, len(sizes))[places]).tolist(), names)
            for at in (difference, 0.0)
        )
        assert ours is not None
        return clustered_difference(ours, theirs).p_value

    return p_value


def _of_trials(tasks: Sequence[tuple[int, int]], k: int) -> Found:
    """Two agents on the same tasks: rates from a Beta with the mean and the variance between tasks of the data.

    The better agent's rates are the others' moved towards 1, so that pass^k differs by the wanted difference on average.
    """
    trials = np.array([n for n, _ in tasks if n > k])
    shares = np.array([c / n for n, c in tasks if n > k])
    mean = float(shares.mean())
    within = float((shares * (1 - shares) / (trials - 1)).mean())
    between = max(float(shares.var(ddof=1)) - within, 1e-6)
    size = max(mean * (1 - mean) / between - 1, 1e-3)

    def p_value(random: np.random.Generator, difference: float) -> float | None:
        rates = random.beta(mean * size, (1 - mean) * size, len(trials))
        lower, upper = _moved(rates, -difference / 2, k), _moved(rates, difference / 2, k)
        values = [
            np.array([pass_hat_k(int(n), int(c), k) for n, c in zip(trials, random.binomial(trials, of), strict=True)])
            for of in (upper, lower)
        ]  # fmt: skip
        return paired((values[0] - values[1]).round(12).tolist()).p_value

    return p_value


def _moved(rates: Floats, by: float, k: int) -> Floats:
    """Rates whose mean of p^k differs by so much: moved on the scale of log-odds."""
    odds = np.log(np.clip(rates, 1e-9, 1 - 1e-9) / np.clip(1 - rates, 1e-9, 1))
    low, high = -30.0, 30.0
    wanted = min(max(float((rates**k).mean()) + by, 1e-6), 1 - 1e-6)
    for _ in range(40):
        middle = (low + high) / 2
        reached = float((1 / (1 + np.exp(-np.clip(odds + middle, -500, 500))) ** k).mean())
        low, high = (middle, high) if reached < wanted else (low, middle)
    return np.asarray(1 / (1 + np.exp(-np.clip(odds + low, -500, 500))))


def _of_pairs(differences: Sequence[float]) -> Found:
    """Tasks drawn from those of the data, of which some change their winner so that the mean is the wanted one."""
    sizes = np.abs(differences)
    differing = float(sizes.mean())

    def p_value(random: np.random.Generator, difference: float) -> float | None:
        drawn = random.choice(sizes, len(sizes))
        wins = random.random(len(sizes)) < (1 + min(difference / differing, 1.0)) / 2
        return paired(np.where(wins, drawn, -drawn).tolist()).p_value

    return p_value
