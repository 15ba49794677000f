"""The numbers of `agent-eval compare --plan` against simulation, on the project of the working directory.

For each row with a smallest detectable difference the units are drawn again and again with the spread that the data have and
a true difference, and tested as `compare` does; printed is the difference that is found in 80 % of the draws. Where the row
says that a wanted difference needs so many units (up to 1,000), as many are drawn, too, and one less if fewer could do. Run
it in a project with agents that were run: `AGENT_EVAL_HOME=… python -m benchmarks plans`. Two agents: each with the next by name.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import stats

from agent_eval.commands.results.compare import Compared, compared
from agent_eval.commands.results.reliability import pairs_of, trial_tables
from agent_eval.judge.sampling import UNASKED
from agent_eval.project import Project
from agent_eval.scores.reliability.attempts import pass_hat_k
from agent_eval.scores.reliability.trials import trial_outcomes
from agent_eval.scores.statistics.clustered import clustered_difference, clustered_mean, paired_by_cluster
from agent_eval.scores.statistics.compared_values import task_values
from agent_eval.scores.statistics.intervals import paired
from agent_eval.scores.statistics.plan import plan_one, plan_two
from agent_eval.scores.statistics.sign_flips import repeats
from agent_eval.scores.statistics.unpaired import CONVERSATIONS, clusters

Floats = NDArray[np.float64]
Row = Mapping[str, Any]
Found = Callable[[np.random.Generator, float], float | None]
"""A draw with this true difference → its p value."""
Units = Callable[[int | None], Found]
"""So many units (of each agent), or None: those of the data → their draws."""
SEED, REPEATS = 20261122, 800
POINTS = 10.0
MOST_DRAWN = 1_000


class Sessions(NamedTuple):
    n: int
    deviation: float


class Conversations(NamedTuple):
    sizes: tuple[int, ...]  # of the clusters
    deviation: float  # of a cluster


def measure() -> Iterator[str]:
    project = Project.open()
    version = project.registry.current.version
    agents = sorted(project.known_agents())
    for agent in agents:
        yield from _one(agent, compared(project, version, agent, None))
    for agent, other in pairwise(agents):
        yield from _two(project, version, agent, other)


def _one(agent: str, of: Compared) -> Iterator[str]:
    counts = _counts(of.outcomes, agent)
    rows = plan_one(agent, of.sessions, counts, of.conversations, POINTS)
    for row in rows.drop_nulls("smallest_detectable").iter_rows(named=True):
        if row["unit"] == "tasks":
            k = 1 if row["quantity"] == "pass@1" else int(row["quantity"].removeprefix("pass^"))
            tasks = list(counts.filter(task_set=row["task_set"]).select("n", "c").iter_rows())
            yield from _lines(agent, row, partial(_of_trials, tasks, k))
        else:
            yield from _lines(agent, row, _unpaired(of, row, agent, agent))


def _two(project: Project, version: str, agent: str, other: str) -> Iterator[str]:
    of = compared(project, version, agent, other)
    if of.rows is None:
        return
    mine, theirs = (_counts(of.outcomes, name) for name in (agent, other))
    common = mine.join(theirs.rename({"n": "other_n", "c": "other_c"}), on=["task_set", "task"])
    values = _task_values(project, version, agent, other)
    rows = plan_two(of.rows, common, POINTS)
    for row in rows.drop_nulls("smallest_detectable").iter_rows(named=True):
        if row["unit"] != "tasks":
            draws = _unpaired(of, row, agent, other)
        elif row["quantity"].startswith("pass^"):
            k = int(row["quantity"].removeprefix("pass^"))
            tasks = common.filter(
                pl.col("task_set") == row["task_set"], pl.min_horizontal("n", "other_n") >= k
            )
            counts = tasks.select("n", "c", "other_n", "other_c").iter_rows()
            draws = partial(
                _of_pairs, [pass_hat_k(n, c, k) - pass_hat_k(m, d, k) for n, c, m, d in counts], None
            )
        else:
            tasks = values.filter(task_set=row["task_set"], quantity=row["quantity"]).sort("task")
            differences = (tasks["value"] - tasks["value_other"]).to_list()
            families = tasks["family"].to_list() if _clusters_of(of, row) else None
            draws = partial(_of_pairs, differences, families)
        yield from _lines(f"{agent} and {other}", row, draws)


def _counts(outcomes: pl.DataFrame, agent: str) -> pl.DataFrame:
    known = outcomes.filter(agent_id=agent).drop_nulls(["task", "is_correct"])
    return known.group_by("task_set", "task").agg(
        n=pl.len().cast(pl.Int64), c=pl.col("is_correct").sum().cast(pl.Int64)
    )


def _task_values(project: Project, version: str, agent: str, other: str) -> pl.DataFrame:
    known = trial_tables(project, pairs_of(project, version, [agent, other]))
    outcomes = trial_outcomes(known, answer_threshold=project.settings.answer_threshold)
    values = task_values(
        outcomes, known.conversations, known.turn_judgments, known.conversation_judgments, unasked=UNASKED
    ).drop_nulls("value")
    key = ["task_set", "quantity", "task"]
    return values.filter(agent_id=agent).join(values.filter(agent_id=other), on=key, suffix="_other")


def _clusters_of(of: Compared, row: Row) -> int | None:
    assert of.rows is not None
    same = of.rows.filter(task_set=row["task_set"], quantity=row["quantity"])
    n: int | None = same["n_clusters"].item()
    return n


def _unpaired(of: Compared, row: Row, agent: str, other: str) -> Units:
    if row["unit"] == CONVERSATIONS:
        one, two = (_conversations(of, row["quantity"], name) for name in (agent, other))
        return partial(_of_clusters, one, two)
    first, second = (_sessions(of, row["quantity"], name) for name in (agent, other))
    return partial(_of_sessions, first, second)


def _sessions(of: Compared, quantity: str, agent: str) -> Sessions:
    """The deviation is at least that of one rating point in one session, as `compare` takes it."""
    found = of.sessions.filter(agent_id=agent, quantity=quantity)
    values, point = found["values"].item().to_list(), found["point"].item() or 0.0
    return Sessions(len(values), max(float(np.std(values, ddof=1)), point / math.sqrt(len(values))))


def _conversations(of: Compared, quantity: str, agent: str) -> Conversations:
    """Conversations of a cluster are equal to each other; the clusters' spread gives the observed standard error."""
    values = of.conversations.filter(agent_id=agent, quantity=quantity)
    names = clusters(values)
    mean = clustered_mean(values["value"].to_list(), names)
    assert mean is not None
    sizes = np.unique(names, return_counts=True)[1]
    deviation = mean.error / math.sqrt(float(((sizes / sizes.sum()) ** 2).sum()))
    return Conversations(tuple(int(size) for size in sizes), deviation)


def _lines(name: str, row: Row, draws: Units) -> Iterator[str]:
    of, planned, wanted = f"{name}, {row['quantity']} over", row["smallest_detectable"], row["wanted"]
    simulated = _at_80_percent(draws(None), planned)
    yield f"{of} {row['n']} {row['unit']}: planned {planned:.4g}, simulated {simulated:.4g}, ratio {simulated / planned:.2f}"
    if row["n_needed"] is not None and row["n_needed"] <= MOST_DRAWN:
        ratio = _at_80_percent(draws(row["n_needed"]), wanted) / wanted
        fewer = row["n_needed"] - _unit(draws)
        less = ""
        if ratio < 0.9 and row["unit"] != "tasks" and fewer >= 2 * _unit(draws):
            less = f", of {fewer} {_at_80_percent(draws(fewer), wanted) / wanted:.2f}"
        yield f"{of} {row['n_needed']} needed {row['unit']}: wanted {wanted:.4g}, ratio {ratio:.2f}{less}"


def _unit(draws: Any) -> int:
    """What comes at once: the conversations of a cluster, on average."""
    sizes = draws.args[0].sizes if isinstance(draws.args[0], Conversations) else (1,)
    return max(1, round(sum(sizes) / len(sizes)))


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


def _of_sessions(ours: Sessions, theirs: Sessions, n: int | None) -> Found:
    def p_value(random: np.random.Generator, difference: float) -> float:
        a = random.normal(difference, ours.deviation, n or ours.n)
        b = random.normal(0, theirs.deviation, n or theirs.n)
        return float(stats.ttest_ind(a, b, equal_var=False).pvalue)

    return p_value


def _of_clusters(ours: Conversations, theirs: Conversations, n: int | None) -> Found:
    """More conversations come in more clusters, of the sizes of the data in turn."""
    sizes = [_repeated(side.sizes, n) for side in (ours, theirs)]
    names = [np.repeat(np.arange(len(of)), of).astype(str).tolist() for of in sizes]

    def p_value(random: np.random.Generator, difference: float) -> float | None:
        means = []
        for side, of, name, at in zip((ours, theirs), sizes, names, (difference, 0.0), strict=True):
            values = np.repeat(random.normal(at, side.deviation, len(of)), of)
            means.append(clustered_mean(values.tolist(), name))
        a, b = means
        assert a is not None
        return clustered_difference(a, b).p_value

    return p_value


def _repeated(sizes: Sequence[int], n: int | None) -> list[int]:
    times = 1 if n is None else n / sum(sizes)
    return [sizes[i % len(sizes)] for i in range(round(times * len(sizes)))]


def _of_trials(tasks: Sequence[tuple[int, int]], k: int, n_tasks: int | None) -> Found:
    """Two agents on the same tasks: rates from a Beta with the mean and the variance between tasks of the data.

    The better agent's rates are the others' moved towards 1, so that pass^k differs by the wanted difference on average.
    With one trial of each task the rates are equal: no other ones have a larger spread within tasks.
    """
    known = [(n, c) for n, c in tasks if n > k] or list(tasks)
    trials = np.array([known[i % len(known)][0] for i in range(n_tasks or len(known))])
    shares = np.array([c / n for n, c in known])
    mean = float(shares.mean())
    size = None
    if trials.min() > 1:
        within = float((shares * (1 - shares) / (np.array([n for n, _ in known]) - 1)).mean())
        between = max(float(shares.var(ddof=1)) - within, 1e-6)
        size = max(mean * (1 - mean) / between - 1, 1e-3)

    def p_value(random: np.random.Generator, difference: float) -> float | None:
        rates = np.full(len(trials), mean)
        if size is not None:
            rates = random.beta(mean * size, (1 - mean) * size, len(trials))
        lower, upper = _moved(rates, -difference / 2, k), _moved(rates, difference / 2, k)
        values = [
            np.array([pass_hat_k(int(n), int(c), k) for n, c in zip(trials, random.binomial(trials, of), strict=True)])
            for of in (upper, lower)
        ]  # fmt: skip
        return paired((values[0] - values[1]).round(12).tolist(), plans=False).p_value

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


def _of_pairs(differences: Sequence[float], families: Sequence[str] | None, n: int | None) -> Found:
    """Tasks with differences as in the data, n of them; families are drawn as a whole.

    Where tasks tie they are drawn from those of the data, and those that differ change their winner so that the mean is the
    wanted one. Else all move by the same amount, and are normal with the deviation of the data.
    """
    values = np.asarray(differences).round(12)
    names = list(range(len(values))) if families is None else list(families)
    sums = np.array([values[[name == of for of in names]].sum() for name in sorted({*names})])
    sizes = np.array([names.count(name) for name in sorted({*names})])
    n_units = len(sums) if n is None else round(n * len(sums) / len(values))
    ties, typical = repeats(sums.tolist()), float(np.abs(sums).sum() / sizes.sum())
    mean = clustered_mean(values.tolist(), [str(name) for name in names])
    assert mean is not None
    deviation = mean.error * sizes.sum() / math.sqrt(float((sizes**2).sum()))

    def p_value(random: np.random.Generator, difference: float) -> float | None:
        drawn = random.integers(len(sums), size=n_units)
        if ties:
            wins = random.random(n_units) < (1 + min(difference / typical, 1.0)) / 2
            totals = np.where(wins, 1, -1) * np.abs(sums[drawn])
        else:
            totals = sizes[drawn] * random.normal(difference, deviation, n_units)
        if families is None:
            return paired(totals.tolist(), plans=False).p_value
        of = np.repeat(np.arange(n_units), sizes[drawn]).astype(str).tolist()
        values = np.repeat(totals / sizes[drawn], sizes[drawn]).tolist()
        return paired_by_cluster(values, of, plans=False).p_value

    return p_value
