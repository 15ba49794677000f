"""Reliability: does the agent do it again? pass@k and pass^k over independent trials of a task.

A trial is one admitted conversation; its session, task and number say which run it was, and sessions are pooled.
`scores.reliability.trials` decides whether a trial was correct; `scores.reliability.attempts` holds the arithmetic of one task.
"""

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import polars as pl

from agent_eval.scores.reliability.attempts import (
    LEVEL,
    UNIFORM,
    Estimate,
    Estimator,
    InteractionEstimator,
    InteractionPass,
    Posterior,
    PriorError,
    TrialCountError,
    UnknownEstimatorError,
    check_attempts,
    check_prior,
    interaction_pass_at_k,
    not_identified,
    pass_at_k,
    pass_hat_k,
    posterior,
)
from agent_eval.scores.reliability.refused import refused_records
from agent_eval.scores.reliability.trials import (
    ANSWER_THRESHOLD,
    GROUP,
    SOURCES,
    TRIAL,
    TrialTables,
    trial_outcomes,
)
from agent_eval.scores.statistics.clustered import FEWEST_CLUSTERS, clustered_share
from agent_eval.scores.statistics.intervals import share_mean
from agent_eval.tables import table
from agent_eval.tables.frames import Reliability

__all__ = [
    "Estimate",
    "Estimator",
    "InteractionPass",
    "Posterior",
    "PriorError",
    "TrialCountError",
    "TrialTables",
    "UnknownEstimatorError",
    "interaction_pass_at_k",
    "pass_at_k",
    "pass_hat_k",
    "posterior",
    "trial_outcomes",
]

StoredEstimator = Literal["unbiased", "plug_in", "bayesian", "pooled"]
ESTIMATORS: tuple[StoredEstimator, ...] = get_args(StoredEstimator)

POSTERIORS = ("bayesian", "pooled")
NEW_TASKS, THESE_TASKS = "new tasks of this kind", "these tasks again"
NOT_RATED = "between (not rated)"  # the assessment where no row of the table holds
LARGEST_DEFAULT_K = 8
FEW_TRIALS = 30  # below it the Bayesian interval is the one to show
_TOLERANCE = 1e-9  # means of exact shares may miss a bound by the last bit


def reliability(
    tables: TrialTables,
    *,
    ks: Sequence[int] | None = None,
    estimators: Sequence[StoredEstimator] = ("unbiased",),
    answer_threshold: float = ANSWER_THRESHOLD,
    tools_count: bool = True,
    prior: tuple[float, float] = UNIFORM,
    level: float = LEVEL,
) -> pl.DataFrame:
    """pass@k and pass^k, the mean over tasks, with 95 % intervals. Conversations without a task id do not count.

    unbiased: over the tasks with at least as many trials of known outcome as the largest k, so that pass^k never rises
    with k; the others are excluded, counted and named.
    plug_in, bayesian and pooled: over every task with a known trial; tasks without one are excluded. plug_in and pooled
    also for k > n. bayesian: hierarchical (`posterior_of_new_tasks`), null for a k that no task has trials for; of a
    single task Beta(a + c, b + n − c), any k. pooled: Fair Forge's, Beta(a + c, b + n − c) of all trials together, as if
    all tasks were equally hard.
    Worst and best: the same if every trial that is not known (unknown, lost to the harness) had failed or passed, over
    the tasks that have enough trials then; a refused record may be a trial of any of these tasks, or of another one (of
    bayesian and pooled rows: another one). An estimate beyond them is set to the nearer one.
    `estimand` says what the interval covers: new tasks of this kind (null for one task of the first two), or these tasks
    again (a single task, pooled), both posteriors at `level`. An agent without any known outcome keeps its row for k = 1,
    with null estimates.

    Args:
        tables: What is known of the conversations.
        ks: The k to report for every task set; default 1 to the largest k that half of its tasks with a known trial
            have trials for, at most 8.
        estimators: Which rows to give.
        answer_threshold: When an answer is correct.
        tools_count: Whether tools decide, too.
        prior: Beta(a, b) of the success rate of a single task, and of all trials together for `pooled`.
        level: What the intervals of `bayesian` and `pooled` hold.

    Returns:
        Table `reliability`: one row per version, agent, task set, k and estimator, sorted.

    Raises:
        TrialCountError: If a k is no integer ≥ 1.
        UnknownEstimatorError: If an estimator is not known.
        AnswerThresholdError: If the threshold is no number from 0 to 1.
        PriorError: If the prior is not two finite numbers > 0, or the level is not between 0 and 1.
    """
    check_prior(prior, level)
    for k in ks or ():
        check_attempts(k)
    _check_estimators(estimators)
    outcomes = trial_outcomes(tables, answer_threshold=answer_threshold, tools_count=tools_count).drop_nulls(
        "task"
    )
    if outcomes.is_empty():
        return table("reliability").empty()
    tasks = outcomes.group_by(*GROUP, "task").agg(
        n=pl.col("is_correct").count().cast(pl.Int64),
        c=pl.col("is_correct").sum().cast(pl.Int64),
        n_open=pl.col("is_correct").null_count().cast(pl.Int64),
        n_harness=pl.col("is_harness_error").sum().cast(pl.Int64),
        n_judge_failed=pl.col("judge_failed").sum(),
        family=pl.col("task_family").drop_nulls().first(),
        **{source: (pl.col("source") == source).any() for source in SOURCES},
    )
    errors = table("import_errors").empty() if tables.import_errors is None else tables.import_errors
    asked = _counted(_asked(tasks, ks), refused_records(errors, tables.transcripts)).join(
        pl.DataFrame({"estimator": list(dict.fromkeys(estimators))}), how="cross"
    )
    rows = _with_estimates(asked, tasks, prior, level).with_columns(
        n_tasks_excluded=pl.col("n_tasks_in_set") - pl.col("n_tasks"), **_assessed()
    )
    return _as_table("reliability", rows).sort(*GROUP, "k", "estimator")


def interaction_reliability(
    outcomes: pl.DataFrame,
    ks: Sequence[int] = (1, 3),
    *,
    estimators: Sequence[str] = ("plug_in",),
    prior: tuple[float, float] = UNIFORM,
    level: float = LEVEL,
) -> pl.DataFrame:
    """`interaction_pass_at_k` of each conversation whose interactions are all scored.

    Args:
        outcomes: From `trial_outcomes`.
        ks: Attempts.
        estimators: plug_in and bayesian for every k; unbiased where k is at most the number of interactions.
        prior: Beta(a, b) of each conversation's success rate, for `bayesian`.
        level: What the interval of `bayesian` holds.

    Returns:
        One row per version, agent, conversation, k and estimator, sorted: `n_interactions`,
        `n_interactions_correct`, `interaction_pass_at_k`, `interaction_pass_hat_k`, and for `bayesian` their
        bounds (`…_low`, `…_high`).

    Raises:
        TrialCountError: If a k is no integer ≥ 1.
        UnknownEstimatorError: If an estimator is not known.
        PriorError: If the prior is not two finite numbers > 0, or the level is not between 0 and 1.
    """
    check_prior(prior, level)
    _check_estimators(estimators, get_args(InteractionEstimator))
    wanted = pl.DataFrame({"k": sorted({check_attempts(k) for k in ks})}, schema={"k": pl.Int64})
    asked = (
        outcomes.filter(pl.col("n_interactions").is_not_null())
        .select(*TRIAL, "task_set", "n_interactions", "n_interactions_correct")
        .join(wanted, how="cross")
        .join(pl.DataFrame({"estimator": list(dict.fromkeys(estimators))}), how="cross")
        .filter((pl.col("estimator") != "unbiased") | (pl.col("k") <= pl.col("n_interactions")))
    )
    counts = ["n_interactions", "n_interactions_correct", "k", "estimator"]
    found = [
        {
            "n_interactions_correct": c,
            **vars(interaction_pass_at_k(n, c, k, estimator=estimator, prior=prior, level=level)),
        }
        for n, c, k, estimator in asked.select(counts).unique().iter_rows()
    ]
    schema = {name: asked.schema[name] for name in counts} | dict.fromkeys(_OF_INTERACTIONS, pl.Float64())
    estimates = pl.DataFrame([{c: row[c] for c in schema} for row in found], schema=schema)
    return asked.join(estimates, on=counts).sort(*TRIAL, "k", "estimator")


_OF_INTERACTIONS = tuple(
    f"interaction_pass_{kind}_k{end}" for kind in ("at", "hat") for end in ("", "_low", "_high")
)


def _check_estimators(named: Sequence[str], known: Sequence[str] = ESTIMATORS) -> None:
    for estimator in named:
        if estimator not in known:
            raise UnknownEstimatorError(estimator, known)


def largest_n(outcomes: pl.DataFrame) -> int:
    """The most trials of known outcome that any task has, from `trial_outcomes`; 0 when none is known."""
    known = outcomes.drop_nulls(["is_correct", "task"])
    return max(known.group_by(*GROUP, "task").len()["len"], default=0)


def reliability_leaderboard(reliability: Reliability) -> pl.DataFrame:
    """Agents ranked by pass^k within version, task set, k and estimator: 1, 2, 2, 4.

    Only agents that have tasks in common are ranked together: those whose estimates cover the task that most agents
    cover form group 1, the same of the rest group 2, and so on. An agent that shares no task with another one has no
    group and no rank, unless it is the only one with an estimate. Where the tasks of a row are not known (null: a
    store of an earlier release) all agents of its board form one group. Equal to twelve decimals is a tie; without an
    estimate there is no rank, and the row comes last. A rank that worst and best could turn is not known: `rank_low` to
    `rank_high` are the ranks they allow, and `reason` says so.
    """
    board = ["methodology_version", "task_set", "k", "estimator"]
    grouped = _with_task_groups(reliability, board)
    is_alone = pl.col("pass_hat_k").count().over(board) == 1
    has_rank = pl.col("pass_hat_k").is_not_null() & (pl.col("task_group").is_not_null() | is_alone)
    ranked = _with_ranks(grouped.with_columns(_has_rank=has_rank), [*board, "task_group"])
    return _as_table("reliability_leaderboard", ranked).sort(
        *board, "rank", "task_group", "agent_id", nulls_last=True
    )


def _with_task_groups(reliability: pl.DataFrame, board: Sequence[str]) -> pl.DataFrame:
    """The rows with `task_group` and `n_common_tasks`, the tasks that all agents of the group cover."""
    memory: dict[tuple[tuple[str, tuple[str, ...] | None], ...], _TaskGroups] = {}
    found = []
    for key, rows in reliability.group_by(board, maintain_order=True):
        lists = rows.select("agent_id", "tasks").iter_rows()
        covered = {agent: None if tasks is None else tuple(tasks) for agent, tasks in lists}
        memo = tuple(sorted(covered.items()))  # several k and estimators cover the same tasks
        if memo not in memory:
            memory[memo] = task_groups(covered)
        found += [(*key, agent, *memory[memo].get(agent, (None, None))) for agent in covered]
    schema = {name: reliability.schema[name] for name in [*board, "agent_id"]}
    groups = pl.DataFrame(
        found, schema=schema | {"task_group": pl.Int64(), "n_common_tasks": pl.Int64()}, orient="row"
    )
    return reliability.join(groups, on=[*board, "agent_id"], how="left", maintain_order="left")


_TaskGroups = dict[str, tuple[int, int | None]]


def task_groups(covered: Mapping[str, Collection[str] | None]) -> _TaskGroups:
    """Agent → the group it is ranked in, counted from 1, and the number of tasks that all of the group cover.

    Agents of a group all cover the task that most of the remaining agents cover (ties: the group of the first agent
    by name). Agents that share no task with a remaining one are left out. Tasks that are not known: one group.
    """
    if None in covered.values():
        return dict.fromkeys(covered, (1, None))
    left = {agent: set(covered[agent] or ()) for agent in sorted(covered)}
    found: _TaskGroups = {}
    for number in itertools.count(1):
        counts = Counter(task for tasks in left.values() for task in tasks)
        most = max(counts.values(), default=0)
        if most < 2:
            return found
        candidates = {task for task, n in counts.items() if n == most}
        first = next(tasks & candidates for tasks in left.values() if tasks & candidates)
        members = [agent for agent, tasks in left.items() if min(first) in tasks]
        common = set.intersection(*(left.pop(agent) for agent in members))
        found |= dict.fromkeys(members, (number, len(common)))
    raise AssertionError("unreachable")


def _with_ranks(grouped: pl.DataFrame, board: Sequence[str]) -> pl.DataFrame:
    """With the ranks that worst and best allow; where they allow several the rank is null, with the reason."""
    worst, best = (pl.col(f"pass_hat_k_{end}").fill_null(pl.col("pass_hat_k")).round(12) for end in _ENDS)
    rows = grouped.with_row_index("_row").with_columns(_worst=worst, _best=best)
    known = rows.filter("_has_rank").select("_row", "_worst", "_best", *board)
    others = known.select("_worst", "_best", *board)
    pairs = known.join(others, on=list(board), suffix="_other", nulls_equal=True)
    ranges = pairs.group_by("_row").agg(
        rank_low=1 + (pl.col("_worst_other") > pl.col("_best")).sum().cast(pl.Int64),
        rank_high=1
        + (pl.col("_best_other") > pl.col("_worst")).sum().cast(pl.Int64)
        - (pl.col("_best") > pl.col("_worst")).first().cast(pl.Int64),  # itself
    )
    turned = pl.col("rank_low") < pl.col("rank_high")
    why = pl.format(
        "rank is unknown: trials that are not known allow ranks {} to {}", "rank_low", "rank_high"
    )
    return (
        rows.join(ranges, on="_row", how="left")
        .with_columns(
            rank=pl.when(~turned).then("rank_low"),
            reason=pl.concat_str(
                "reason", pl.when(turned.fill_null(False)).then(why), separator="; ", ignore_nulls=True
            ).replace("", None),
        )
        .drop("_row", "_worst", "_best", "_has_rank")
    )


def _assessed() -> dict[str, pl.Expr]:
    """`assessment`, unknown where worst and best give other words, and then the `reason`."""
    word = assessment()
    worst, best = (assessment(pl.col(f"pass_at_k_{end}"), pl.col(f"pass_hat_k_{end}")) for end in _ENDS)
    turned = (word.is_not_null() & ((worst != word) | (best != word))).fill_null(False)
    n_open = pl.col("n_planned") - pl.col("n_known")
    why = pl.format(
        "assessment is unknown: {} of {} trials are not known; {} at worst, {} at best",
        n_open, "n_planned", worst.fill_null("no estimate"), best.fill_null("no estimate"),
    )  # fmt: skip
    return {
        "assessment": pl.when(turned).then(pl.lit("unknown")).otherwise(word),
        "reason": pl.when(turned).then(why),
    }


def assessment(at: pl.Expr | None = None, hat: pl.Expr | None = None) -> pl.Expr:
    """What pass@k and pass^k of one k say in words; null without an estimate, 'single run' for k = 1."""
    at = pl.col("pass_at_k") if at is None else at
    hat = pl.col("pass_hat_k") if hat is None else hat
    high = at > 0.95 + _TOLERANCE
    return (
        pl.when(at.is_null())
        .then(pl.lit(None, dtype=pl.String))
        .when(pl.col("k") == 1)
        .then(pl.lit("single run"))
        .when(high & (hat > 0.70 + _TOLERANCE))
        .then(pl.lit("reliable"))
        .when(high & (hat < 0.50 - _TOLERANCE))
        .then(pl.lit("inconsistent"))
        .when(at < 0.70 - _TOLERANCE)
        .then(pl.lit("needs improvement"))
        .otherwise(pl.lit(NOT_RATED))
    )


def _asked(tasks: pl.DataFrame, ks: Sequence[int] | None) -> pl.DataFrame:
    """One row per group and k, with what does not depend on k."""
    known = pl.col("n").filter(pl.col("n") > 0)
    groups = tasks.group_by(GROUP).agg(
        pl.len().alias("n_tasks_in_set"),
        pl.col("n_open").sum().alias("n_trials_unknown"),
        pl.col("n_judge_failed").sum().alias("n_trials_judge_failed"),
        pl.col("n").sum().alias("n_known"),
        pl.col("n_harness").sum().alias("n_harness_errors"),
        # half of the tasks have that many trials
        known.sort(descending=True)
        .get((known.len() - 1) // 2, null_on_oob=True)
        .fill_null(1)
        .clip(1, LARGEST_DEFAULT_K)
        .alias("largest"),
    )
    if ks is not None:
        wanted = pl.DataFrame({"k": sorted(set(ks))}, schema={"k": pl.Int64})
        return groups.with_columns(largest=pl.lit(max(ks), pl.Int64)).join(wanted, how="cross")
    every = pl.int_ranges(1, pl.col("largest") + 1).alias("k")
    return groups.with_columns(every).explode("k")


def _counted(asked: pl.DataFrame, refused: pl.DataFrame) -> pl.DataFrame:
    """With what was planned: known, lost to the harness, unknown and refused."""
    none = pl.lit([], pl.List(pl.String))
    return asked.join(refused, on=list(GROUP), how="left").with_columns(
        n_refused=pl.col("n_refused").fill_null(0),
        refused_sessions=pl.col("refused_sessions").fill_null(none),
        n_unknown=pl.col("n_trials_unknown") - pl.col("n_harness_errors"),
        n_planned=pl.col("n_known") + pl.col("n_trials_unknown") + pl.col("n_refused").fill_null(0),
    )


class _Alike(NamedTuple):
    """Tasks of one group with equal counts, computed once."""

    n: int
    c: int
    n_open: int  # trials that are not known
    times: int
    sources: tuple[str, ...]


_Group = tuple[str, str, str]


def _with_estimates(
    asked: pl.DataFrame, tasks: pl.DataFrame, prior: tuple[float, float], level: float
) -> pl.DataFrame:
    """The rows asked for, each with counts, estimates and what the interval is."""
    alike, names, families = _alike(tasks), _names(tasks), _families(tasks)
    memory: dict[tuple[object, ...], dict[str, object]] = {}
    found = []
    columns = (*GROUP, "k", "estimator", "largest", "n_refused")
    for version, agent, task_set, k, estimator, largest, n_refused in asked.select(columns).iter_rows():
        group = (version, agent, task_set)
        least = largest if estimator == "unbiased" else 1
        counting = [a for a in alike[group] if a.n >= least]
        excluded = [name for name, n in names[group] if n < least] if counting != alike[group] else []
        counted = [name for name, n in names[group] if n >= least]
        of_families = tuple(f for f in families.get(group, ()) if f.n >= least)
        memo = (estimator, k, least, n_refused, *alike[group], of_families)  # versions share their trials
        if memo not in memory:
            made = _estimated(counting, k, estimator, prior, level)
            memory[memo] = _within_bounds(
                (made | _over_families(of_families, k, estimator) if of_families else made)
                | _bounds(alike[group], k, estimator, least, n_refused, prior)
                | _over_all(alike[group], n_refused)
            )
        found.append({**memory[memo], "tasks": counted, "excluded_tasks": excluded})
    schema = {c: d for c, d in table("reliability").schema.items() if c in found[0]} if found else None
    return pl.concat([asked, pl.DataFrame(found, schema=schema)], how="horizontal")


def _alike(tasks: pl.DataFrame) -> dict[_Group, list[_Alike]]:
    # sums of floats depend on their order: sorted rows make them the same in every run
    counts = (
        tasks.group_by(*GROUP, "n", "c", "n_open")
        .agg(pl.len().cast(pl.Int64).alias("times"), *(pl.col(source).any() for source in SOURCES))
        .sort(*GROUP, "n", "c", "n_open")
    )
    found = defaultdict[_Group, list[_Alike]](list)
    for version, agent, task_set, n, c, n_open, times, *used in counts.iter_rows():
        sources = tuple(s for s, is_used in zip(SOURCES, used, strict=True) if is_used)
        found[version, agent, task_set].append(_Alike(n, c, n_open, times, sources))
    return found


class _InFamily(NamedTuple):
    """A task with its family."""

    n: int
    c: int
    family: str


def _families(tasks: pl.DataFrame) -> dict[_Group, list[_InFamily]]:
    """The tasks of each group of which every task has a family."""
    found = defaultdict[_Group, list[_InFamily]](list)
    lacking = set()
    for version, agent, task_set, n, c, family in (
        tasks.select(*GROUP, "n", "c", "family").sort(*GROUP, "family", "n", "c").iter_rows()
    ):
        if family is None:
            lacking.add((version, agent, task_set))
        else:
            found[version, agent, task_set].append(_InFamily(n, c, family))
    return {group: of for group, of in found.items() if group not in lacking}


def _over_families(tasks: Sequence[_InFamily], k: int, estimator: str) -> dict[str, object]:
    """The bounds of one row where tasks of a family depend on each other: families are the units."""
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
    found: dict[str, object] = {"interval": f"over {n_families} families of tasks; covers {NEW_TASKS}"}
    for part, kind in enumerate(("at", "hat")):
        values = [_of_task(task.n, task.c, k, estimator)[part] for task in tasks]
        ends = clustered_share(values, names, step=step)
        found |= dict(zip((f"pass_{kind}_k_low", f"pass_{kind}_k_high"), ends or (None, None), strict=True))
    return found


def _names(tasks: pl.DataFrame) -> dict[_Group, list[tuple[str, int]]]:
    """Every task of each group with its known trials, sorted by name."""
    found = defaultdict[_Group, list[tuple[str, int]]](list)
    for version, agent, task_set, task, n in (
        tasks.select(*GROUP, "task", "n").sort(*GROUP, "task").iter_rows()
    ):
        found[version, agent, task_set].append((task.partition(":")[2], n))
    return found


def _estimated(
    tasks: Sequence[_Alike], k: int, estimator: str, prior: tuple[float, float], level: float
) -> dict[str, object]:
    """One row's counts and estimates, over these tasks."""
    n_tasks = sum(t.times for t in tasks)
    n_trials = sum(t.n * t.times for t in tasks)
    sources = sorted({source for t in tasks for source in t.sources})
    row: dict[str, object] = {
        "n_tasks": n_tasks,
        "n_trials": n_trials,
        "n_successes": sum(t.c * t.times for t in tasks),
        "correctness_source": " + ".join(sources) or None,
        "estimand": None,
    } | dict.fromkeys(_ESTIMATES)
    if not tasks:
        return row
    few = f"; fewer than {FEW_TRIALS} trials: more data are needed" if n_trials < FEW_TRIALS else ""
    if estimator == "bayesian" and k > max(t.n for t in tasks) and n_tasks > 1:
        return row | {"interval": f"no estimate: {not_identified(k, max(t.n for t in tasks))}"}
    if estimator in POSTERIORS:
        at, hat = _posterior([(t.n, t.c, t.times) for t in tasks], k, estimator, prior, level)
        is_again = n_tasks == 1 or estimator == "pooled"
        over = "one success rate for all trials, " if estimator == "pooled" else ""
        says = f"{over}{said_of(prior, level)}" if is_again else f"{_level(level)}hierarchical over tasks"
        row["estimand"] = THESE_TASKS if is_again else NEW_TASKS
        says = f"{says}; covers {row['estimand']}{few}"
        return row | dict(zip(_ESTIMATES, (*vars(at).values(), *vars(hat).values(), says), strict=True))
    how: Estimator = "unbiased" if estimator == "unbiased" else "plug_in"
    step = sum(t.times / t.n for t in tasks) / n_tasks
    one = _over_tasks([(pass_at_k(t.n, t.c, k, estimator=how), t.times) for t in tasks], step)
    every = _over_tasks([(pass_hat_k(t.n, t.c, k, estimator=how), t.times) for t in tasks], step)
    row["estimand"] = NEW_TASKS
    says = f"over tasks; covers {NEW_TASKS}" if n_tasks > 1 else "one task: no interval"
    return row | dict(zip(_ESTIMATES, (*one, *every, says), strict=True))


def _within_bounds(row: dict[str, object]) -> dict[str, object]:
    """The row with estimates that the trials which are not known allow.

    Tasks with a lost trial are left out of an estimate for as many trials, though a known failure may decide them. What
    the other tasks give can lie beyond the worst or best case; the nearer of these is then the better estimate.
    """
    for name in ("pass_at_k", "pass_hat_k"):
        value, worst, best = (row[f"{name}{end}"] for end in ("", "_worst", "_best"))
        if not (isinstance(value, float) and isinstance(worst, float) and isinstance(best, float)):
            continue
        allowed = min(max(value, worst), best)
        if abs(allowed - value) > _TOLERANCE:
            sign = "pass@k" if name == "pass_at_k" else "pass^k"
            row |= {name: allowed, f"{name}_low": None, f"{name}_high": None}
            row["interval"] = (
                f"{sign} is the {'best' if allowed < value else 'worst'} case: the {row['n_tasks']} tasks with enough known "
                f"trials give {value:.3f}, which the other tasks exclude"
            )
    return row


def _posterior(
    counts: Sequence[tuple[int, int, int]], k: int, estimator: str, prior: tuple[float, float], level: float
) -> tuple[Estimate, Estimate]:
    """pass@k and pass^k of the posterior over all these tasks."""
    if estimator == "pooled" or (len(counts) == 1 and counts[0][2] == 1):
        n, c = (sum(count[i] * count[2] for count in counts) for i in (0, 1))
        made = posterior(n, c, k, prior=prior, level=level)
        return made.pass_at_k, made.pass_hat_k
    tasks = Counter[tuple[int, int]]()
    for n, c, times in counts:
        tasks[n, c] += times
    from agent_eval.scores.reliability.hierarchical import posterior_of_new_tasks  # loads numpy

    found = posterior_of_new_tasks(tasks, k, level=level)
    return found.pass_at_k, found.pass_hat_k


def _level(level: float) -> str:
    return "" if level == LEVEL else f"{100 * level:g} % interval, "


def said_of(prior: tuple[float, float], level: float) -> str:
    """The prior in words, and the level where it is not the usual one."""
    return f"{_level(level)}prior Beta({prior[0]:g}, {prior[1]:g})"


_ESTIMATES = (
    *(f"pass_{kind}_k{end}" for kind in ("at", "hat") for end in ("", "_low", "_high")),
    "interval",
)


_ENDS = ("worst", "best")


def _bounds(
    tasks: Sequence[_Alike],
    k: int,
    estimator: str,
    least: int,
    n_refused: int,
    prior: tuple[float, float] = UNIFORM,
) -> dict[str, float | None]:
    """The estimates if every trial that is not known had failed (worst) or passed (best).

    A refused record may have been a trial of any of these tasks or of another task: the bounds hold for each case.
    """
    counting = [t for t in tasks if t.n + t.n_open >= least]
    if estimator in POSTERIORS:
        return _posterior_bounds(counting, k, estimator, n_refused, prior)
    found: dict[str, float | None] = {}
    for end in _ENDS:
        is_best = end == "best"
        counts = [(t.n + t.n_open, t.c + is_best * t.n_open, t.times) for t in counting]
        for part, kind in enumerate(("at", "hat")):

            def value(n: int, c: int, part: int = part) -> float:
                return _of_task(n, c, k, estimator)[part]

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
            found[f"pass_{kind}_k_{end}"] = _extreme(means, n_tasks, n_refused, is_best=is_best)
    return found


_Value = Callable[[int, int], float]
_Counts = Sequence[tuple[int, int, int]]  # trials, passed trials, and how many tasks have them
_LOOKED_AT = 64  # refused records that are tried on one task


def _extreme(totals: Sequence[float], n_tasks: int, n_refused: int, *, is_best: bool) -> float | None:
    """The highest or lowest mean over tasks; `totals[i]`: when i refused records belong to tasks that are counted."""
    sizes = (n_tasks + n_refused - n_here for n_here in range(len(totals)))
    means = [total / size for total, size in zip(totals, sizes, strict=True) if size]
    return (max(means) if is_best else min(means)) if means else None


def _falls_in_order(counts: _Counts, value: _Value, n_refused: int) -> Iterator[float]:
    """How much 0, 1, 2 … failed trials more can lower the sum of `value` over tasks.

    For values of which each further failure takes less than the one before: the largest decreases come first.
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
    """At least how far 0, 1, 2 … failed trials more can lower the sum: each as far as any can on average."""
    averages = (
        (value(n, c) - value(n + i, c)) / i
        for n, c, _ in counts
        for i in range(1, min(n_refused, _LOOKED_AT) + 1)
    )
    most = max([*averages, (n_refused > _LOOKED_AT) / _LOOKED_AT])
    return (-most * n for n in range(n_refused + 1 if counts else 1))


def _rises(counts: _Counts, value: _Value, n_refused: int) -> Iterator[float]:
    """At least how far 0, 1, 2 … passed trials more can raise the sum: each as far as any can on average."""
    averages = (
        (value(n + i, c + i) - value(n, c)) / i
        for n, c, _ in counts
        for i in range(1, min(n_refused, _LOOKED_AT) + 1)
    )
    most = max([*averages, (n_refused > _LOOKED_AT) / _LOOKED_AT])
    return (most * n for n in range(n_refused + 1 if counts else 1))


def _posterior_bounds(
    tasks: Sequence[_Alike], k: int, estimator: str, n_refused: int, prior: tuple[float, float]
) -> dict[str, float | None]:
    """The posterior means if all that is not known had failed or passed; a refused record is one more task."""
    found: dict[str, float | None] = {}
    for end in _ENDS:
        passed = int(end == "best")
        counts = [(t.n + t.n_open, t.c + passed * t.n_open, t.times) for t in tasks]
        counts += [(1, passed, n_refused)] if n_refused else []
        most = max((n for n, _, _ in counts), default=0)
        is_identified = estimator == "pooled" or sum(times for *_, times in counts) == 1 or k <= most
        made = _posterior(counts, k, estimator, prior, LEVEL) if counts and is_identified else None
        found[f"pass_at_k_{end}"] = None if made is None else made[0].mean
        found[f"pass_hat_k_{end}"] = None if made is None else made[1].mean
    return found


def _of_task(n: int, c: int, k: int, estimator: str) -> tuple[float, float]:
    """pass@k and pass^k of one task."""
    how: Estimator = "unbiased" if estimator == "unbiased" else "plug_in"
    return pass_at_k(n, c, k, estimator=how), pass_hat_k(n, c, k, estimator=how)


def _over_all(tasks: Sequence[_Alike], n_refused: int) -> dict[str, object]:
    """pass@1 over all tasks with a known trial, whatever the largest k, with worst and best."""
    known = [t for t in tasks if t.n]
    n_known = sum(t.times for t in known)
    bounds = _bounds(tasks, 1, "unbiased", 1, n_refused)
    return {
        "pass_at_1": sum(t.c / t.n * t.times for t in known) / n_known if n_known else None,
        "pass_at_1_worst": bounds["pass_at_k_worst"],
        "pass_at_1_best": bounds["pass_at_k_best"],
        "n_tasks_known": n_known,
    }


def _over_tasks(values: Sequence[tuple[float, int]], step: float) -> tuple[float, float | None, float | None]:
    """Mean over tasks and its interval, from values and how many tasks have each; `step` as for `share_mean`."""
    n = sum(times for _, times in values)
    mean = sum(value * times for value, times in values) / n
    if n < 2:
        return mean, None, None
    variance = sum((value - mean) ** 2 * times for value, times in values) / (n - 1)
    found = share_mean(mean, variance, n, step=step)
    return (mean, *found) if found else (mean, None, None)


def _as_table(name: str, rows: pl.DataFrame) -> pl.DataFrame:
    """The columns of a table from rows that hold at least those that may not be null."""
    target = table(name)
    absent = [column for column in target.schema if column not in rows.columns]
    typed = rows.with_columns(pl.lit(None).alias(column) for column in absent)
    return target.conform(typed.select(pl.col(c).cast(dtype) for c, dtype in target.schema.items()))
