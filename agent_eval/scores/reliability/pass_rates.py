"""Estimate reliability: pass@k and pass^k over independent trials of a task.

A trial is one admitted conversation, identified by its session, task and trial number; sessions are pooled.
`scores.reliability.trials` decides whether a trial was correct, and `scores.reliability.attempts` computes the
estimates of a single task.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, get_args

import polars as pl

from agent_eval.scores.reliability.attempts import (
    LEVEL,
    UNIFORM,
    Estimate,
    Estimator,
    InteractionEstimator,
    InteractionPass,
    Posterior,
    check_attempts,
    check_prior,
    interaction_pass_at_k,
    pass_at_k,
    pass_hat_k,
    posterior,
    unknown_estimator,
)
from agent_eval.scores.reliability.labelled import with_labels
from agent_eval.scores.reliability.over_tasks import (
    Alike,
    InFamily,
    estimated,
    no_estimate,
    over_families,
    said_of,
)
from agent_eval.scores.reliability.ranking import as_table, assessed, assessment, reliability_leaderboard
from agent_eval.scores.reliability.refused import refused_records
from agent_eval.scores.reliability.trials import (
    ANSWER_THRESHOLD,
    GROUP,
    SOURCES,
    TRIAL,
    TrialTables,
    trial_outcomes,
)
from agent_eval.scores.reliability.worst_and_best import over_all, within_bounds, worst_and_best
from agent_eval.tables import table

__all__ = [
    "Estimate",
    "Estimator",
    "InteractionPass",
    "Posterior",
    "TrialTables",
    "assessment",
    "interaction_pass_at_k",
    "pass_at_k",
    "pass_hat_k",
    "posterior",
    "reliability_leaderboard",
    "said_of",
    "trial_outcomes",
]

StoredEstimator = Literal["unbiased", "plug_in", "bayesian", "pooled"]
ESTIMATORS: tuple[StoredEstimator, ...] = get_args(StoredEstimator)
LARGEST_DEFAULT_K = 8


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
    """Return pass@k and pass^k with 95 % intervals, as means over tasks, from conversations with a task id.

    The estimators are:

    - unbiased: the mean over tasks with at least k trials of known outcome, for each k on its own, so that a further
      k changes no other row. Other tasks are excluded, counted and named.
    - plug_in: the mean over every task with a known trial, which also allows k > n.
    - bayesian: the hierarchical posterior (`posterior_of_new_tasks`) over every task with a known trial, null for
      a k that exceeds every task's trials. A single task has the posterior Beta(a + c, b + n − c), for any k.
    - pooled: the posterior Beta(a + c, b + n − c) of all trials together, as if all tasks were equally hard, for
      any k. This is Fair Forge's estimator.

    Worst and best are the same estimates with every unknown trial, including those lost to the harness, counted
    as failed or passed, over the tasks that then have enough trials. A failure that ended in an error of unknown cause
    counts as passed in the best case, because the harness may have failed instead of the agent. A refused record can be a trial of one of
    these tasks or of another task; for bayesian and pooled it is a trial of another task. An estimate outside
    these bounds is replaced by the nearer bound.

    `estimand` names the target of the interval: new tasks of this kind, or these tasks again (for pooled, and for
    bayesian with a single task). A single task has no unbiased or plug_in interval. An agent without a known
    outcome has a row for k = 1 with null estimates.

    Args:
        tables: The tables of the conversations.
        ks: The values of k to report for every task set. The default is 1 to the largest k for which at least
            half of the tasks with a known trial have k trials, at most 8.
        estimators: The estimators to report.
        answer_threshold: The minimum score of a correct answer.
        tools_count: Whether tool use also counts.
        prior: Beta(a, b) of the success rate of a single task, and of all trials together for `pooled`.
        level: The probability that the intervals of `bayesian` and `pooled` cover.

    Returns:
        Table `reliability`: one row per version, agent, task set, k and estimator, sorted.

    Raises:
        InvalidValueError: If a k is not an integer ≥ 1, or if an estimator is unknown,
            or if the threshold is not a number from 0 to 1.
        InvalidValueError: If the prior is not two finite numbers > 0, or the level is not between 0 and 1.
    """
    check_prior(prior, level)
    for k in ks or ():
        check_attempts(k)
    _check_estimators(estimators)
    trials = trial_outcomes(tables, answer_threshold=answer_threshold, tools_count=tools_count)
    without_task = trials.filter(pl.col("task").is_null()).group_by(GROUP[:2]).len("n_without_task")
    outcomes = trials.drop_nulls("task")
    if outcomes.is_empty():
        return table("reliability").empty()
    tasks = outcomes.group_by(*GROUP, "task").agg(
        n=pl.col("is_correct").count().cast(pl.Int64),
        c=pl.col("is_correct").sum().cast(pl.Int64),
        n_open=pl.col("is_correct").null_count().cast(pl.Int64),
        n_doubted=(pl.col("is_unexplained_error") & ~pl.col("is_correct")).sum().cast(pl.Int64),
        n_harness=pl.col("is_harness_error").sum().cast(pl.Int64),
        n_unexplained=pl.col("is_unexplained_error").sum().cast(pl.Int64),
        n_judge_failed=pl.col("judge_failed").sum(),
        family=pl.col("task_family").drop_nulls().first(),
        **{source: (pl.col("source") == source).any() for source in SOURCES},
    )
    errors = table("import_errors").empty() if tables.import_errors is None else tables.import_errors
    requested = _counted(_asked(tasks, ks), refused_records(errors, tables.transcripts)).join(
        pl.DataFrame({"estimator": list(dict.fromkeys(estimators))}), how="cross"
    )
    rows = (
        with_labels(_with_estimates(requested, tasks, prior, level), outcomes, tables)
        .with_columns(n_tasks_excluded=pl.col("n_tasks_in_set") - pl.col("n_tasks"), **assessed())
        .join(without_task, on=list(GROUP[:2]), how="left")
        .with_columns(pl.col("n_without_task").fill_null(0))
    )
    return as_table("reliability", rows).sort(*GROUP, "k", "estimator")


def interaction_reliability(
    outcomes: pl.DataFrame,
    ks: Sequence[int] = (1, 3),
    *,
    estimators: Sequence[str] = ("plug_in",),
    prior: tuple[float, float] = UNIFORM,
    level: float = LEVEL,
) -> pl.DataFrame:
    """Return `interaction_pass_at_k` for each conversation whose interactions are all scored.

    Args:
        outcomes: From `trial_outcomes`.
        ks: The numbers of attempts.
        estimators: The estimators to report: plug_in and bayesian for every k, unbiased for k up to the number
            of interactions.
        prior: Beta(a, b) of each conversation's success rate, for `bayesian`.
        level: The probability that the interval of `bayesian` covers.

    Returns:
        One row per version, agent, conversation, k and estimator, sorted, with `n_interactions`,
        `n_interactions_correct`, `interaction_pass_at_k`, `interaction_pass_hat_k`, and for `bayesian` their
        bounds (`…_low`, `…_high`).

    Raises:
        InvalidValueError: If a k is not an integer ≥ 1, or if an estimator is unknown,
            or if the prior is not two finite numbers > 0, or the level is not between 0 and 1.
    """
    check_prior(prior, level)
    _check_estimators(estimators, get_args(InteractionEstimator))
    requested_ks = pl.DataFrame({"k": sorted({check_attempts(k) for k in ks})}, schema={"k": pl.Int64})
    requested = (
        outcomes.filter(pl.col("n_interactions").is_not_null())
        .select(*TRIAL, "task_set", "n_interactions", "n_interactions_correct")
        .join(requested_ks, how="cross")
        .join(pl.DataFrame({"estimator": list(dict.fromkeys(estimators))}), how="cross")
        .filter((pl.col("estimator") != "unbiased") | (pl.col("k") <= pl.col("n_interactions")))
    )
    counts = ["n_interactions", "n_interactions_correct", "k", "estimator"]
    estimate_rows = [
        {
            "n_interactions_correct": c,
            **vars(interaction_pass_at_k(n, c, k, estimator=estimator, prior=prior, level=level)),
        }
        for n, c, k, estimator in requested.select(counts).unique().iter_rows()
    ]
    schema = {name: requested.schema[name] for name in counts} | dict.fromkeys(_OF_INTERACTIONS, pl.Float64())
    estimates = pl.DataFrame([{c: row[c] for c in schema} for row in estimate_rows], schema=schema)
    return requested.join(estimates, on=counts).sort(*TRIAL, "k", "estimator")


_OF_INTERACTIONS = tuple(
    f"interaction_pass_{kind}_k{end}" for kind in ("at", "hat") for end in ("", "_low", "_high")
)


def _check_estimators(estimators: Sequence[str], allowed: Sequence[str] = ESTIMATORS) -> None:
    for estimator in estimators:
        if estimator not in allowed:
            raise unknown_estimator(estimator, allowed)


def _asked(tasks: pl.DataFrame, ks: Sequence[int] | None) -> pl.DataFrame:
    """Return one row per group and requested k, with the values that do not depend on k."""
    n_of_tasks = pl.col("n").filter(pl.col("n") > 0)
    groups = tasks.group_by(GROUP).agg(
        pl.len().alias("n_tasks_in_set"),
        pl.col("n_open").sum().alias("n_trials_unknown"),
        pl.col("n_judge_failed").sum().alias("n_trials_judge_failed"),
        pl.col("n").sum().alias("n_known"),
        pl.col("n_harness").sum().alias("n_harness_errors"),
        pl.col("n_unexplained").sum().alias("n_unexplained_errors"),
        # at least half of the tasks have this many trials
        n_of_tasks.sort(descending=True)
        .get((n_of_tasks.len() - 1) // 2, null_on_oob=True)
        .fill_null(1)
        .clip(1, LARGEST_DEFAULT_K)
        .alias("largest"),
    )
    if ks is not None:
        requested_ks = pl.DataFrame({"k": sorted(set(ks))}, schema={"k": pl.Int64})
        return groups.drop("largest").join(requested_ks, how="cross")
    every = pl.int_ranges(1, pl.col("largest") + 1).alias("k")
    return groups.with_columns(every).drop("largest").explode("k")


def _counted(requested: pl.DataFrame, refused: pl.DataFrame) -> pl.DataFrame:
    """Add the counts of planned, refused and unknown trials."""
    none = pl.lit([], pl.List(pl.String))
    return requested.join(refused, on=list(GROUP), how="left").with_columns(
        n_refused=pl.col("n_refused").fill_null(0),
        refused_sessions=pl.col("refused_sessions").fill_null(none),
        n_unknown=pl.col("n_trials_unknown") - pl.col("n_harness_errors"),
        n_planned=pl.col("n_known") + pl.col("n_trials_unknown") + pl.col("n_refused").fill_null(0),
    )


_Group = tuple[str, str, str]


def _with_estimates(
    requested: pl.DataFrame, tasks: pl.DataFrame, prior: tuple[float, float], level: float
) -> pl.DataFrame:
    """Return the requested rows with counts, estimates and the kind of interval."""
    alike, names, families = _alike(tasks), _names(tasks), _families(tasks)
    memory: dict[tuple[object, ...], dict[str, object]] = {}
    estimates = []
    columns = (*GROUP, "k", "estimator", "n_refused")
    for version, agent, task_set, k, estimator, n_refused in requested.select(columns).iter_rows():
        group = (version, agent, task_set)
        least = k if estimator == "unbiased" else 1
        counting = [a for a in alike[group] if a.n >= least]
        excluded = [name for name, n in names[group] if n < least] if counting != alike[group] else []
        task_names = [name for name, n in names[group] if n >= least]
        of_families = tuple(f for f in families.get(group, ()) if f.n >= least)
        memo = (estimator, k, least, n_refused, *alike[group], of_families)  # versions share trials
        if memo not in memory:
            estimate = estimated(counting, k, estimator, prior, level)
            if not counting:
                estimate["interval"] = no_estimate(k, max(a.n for a in alike[group]))
            memory[memo] = within_bounds(
                (estimate | over_families(of_families, k, estimator) if of_families else estimate)
                | worst_and_best(alike[group], k, estimator, least, n_refused, prior)
                | over_all(alike[group], n_refused)
            )
        estimates.append({**memory[memo], "tasks": task_names, "excluded_tasks": excluded})
    schema = (
        {c: d for c, d in table("reliability").schema.items() if c in estimates[0]} if estimates else None
    )
    return pl.concat([requested, pl.DataFrame(estimates, schema=schema)], how="horizontal")


def _alike(tasks: pl.DataFrame) -> dict[_Group, list[Alike]]:
    # rows are sorted because float sums depend on the order of addition
    counts = (
        tasks.group_by(*GROUP, "n", "c", "n_open", "n_doubted")
        .agg(pl.len().cast(pl.Int64).alias("times"), *(pl.col(source).any() for source in SOURCES))
        .sort(*GROUP, "n", "c", "n_open", "n_doubted")
    )
    tasks_of_group = defaultdict[_Group, list[Alike]](list)
    for version, agent, task_set, n, c, n_open, n_doubted, times, *used in counts.iter_rows():
        sources = tuple(s for s, is_used in zip(SOURCES, used, strict=True) if is_used)
        tasks_of_group[version, agent, task_set].append(Alike(n, c, n_open, n_doubted, times, sources))
    return tasks_of_group


def _families(tasks: pl.DataFrame) -> dict[_Group, list[InFamily]]:
    """Return the tasks of each group whose tasks all have a family."""
    tasks_of_group = defaultdict[_Group, list[InFamily]](list)
    lacking = set()
    for version, agent, task_set, n, c, family in (
        tasks.select(*GROUP, "n", "c", "family").sort(*GROUP, "family", "n", "c").iter_rows()
    ):
        if family is None:
            lacking.add((version, agent, task_set))
        else:
            tasks_of_group[version, agent, task_set].append(InFamily(n, c, family))
    return {group: of for group, of in tasks_of_group.items() if group not in lacking}


def _names(tasks: pl.DataFrame) -> dict[_Group, list[tuple[str, int]]]:
    """Return every task of each group with its number of known trials, sorted by name."""
    names_of_group = defaultdict[_Group, list[tuple[str, int]]](list)
    for version, agent, task_set, task, n in (
        tasks.select(*GROUP, "task", "n").sort(*GROUP, "task").iter_rows()
    ):
        names_of_group[version, agent, task_set].append((task.partition(":")[2], n))
    return names_of_group
