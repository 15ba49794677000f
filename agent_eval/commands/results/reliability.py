"""Implement `agent-eval reliability`: show pass@k and pass^k per agent and task set."""

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
from rich.console import Console
from rich.text import Text

from agent_eval.commands.terminal.output import print_json
from agent_eval.commands.terminal.tables import FittingTable
from agent_eval.formats.plain_text import sanitize_line
from agent_eval.project import Project
from agent_eval.project.calibration import corrections
from agent_eval.report.conclusions import reliability_answer
from agent_eval.scores.corrected_rates import REFUSED
from agent_eval.scores.reliability import pass_rates as trials
from agent_eval.scores.reliability.attempts import unknown_estimator
from agent_eval.scores.reliability.over_tasks import FEW_TRIALS
from agent_eval.scores.reliability.ranking import NOT_RATED
from agent_eval.scores.reliability.shortfall import bounds, shortfall
from agent_eval.scores.reliability.trials import GOAL_METRIC
from agent_eval.tables import table

_NUMBERS = {"k", "pass@k", "pass^k", "tasks", "trials", "excluded", "interactions", "correct"}


def checked_estimators(estimator_names: Sequence[str]) -> list[trials.StoredEstimator]:
    """Check the given estimators and return them.

    Raises:
        InvalidValueError: If an estimator is unknown.
    """
    for name in estimator_names:
        if name not in trials.ESTIMATORS:
            raise unknown_estimator(name, trials.ESTIMATORS)
    return [estimator for estimator in trials.ESTIMATORS if estimator in estimator_names]


def reliability(
    project: Project,
    out: Console,
    *,
    version: str,
    agents: Sequence[str],
    ks: Sequence[int],
    as_json: bool,
    estimators: Sequence[trials.StoredEstimator] = (),
) -> None:
    """Print reliability rows of one version: the stored rows, or rows computed for `ks` from the stored trials.

    If no task of an agent has k trials, its row for that k has no estimates, and `reason` states why. The default
    estimator is unbiased. The printed table also shows the Bayesian estimate if there are fewer than 30 trials and k
    is identified.

    Raises:
        NotFoundError: If an agent has no rows.
        InvalidValueError: If a requested k is less than 1.
    """
    project.registry.get(version)
    pairs = pairs_of(project, version, agents)
    is_requested = pl.col("estimator").is_in(list(estimators) or ["unbiased"])
    rows = _computed(project, pairs, ks) if ks else project.store.read(table("reliability"), pairs)
    rows = _with_corrections(project, pairs, rows)
    if as_json:
        print_json(rows.filter(is_requested))
        return
    few = (
        (pl.col("estimator") == "bayesian")
        & (pl.col("n_trials") < FEW_TRIALS)
        & pl.col("pass_hat_k").is_not_null()
        & pl.lit(not estimators)
    )
    listed = rows.filter(is_requested | few).sort(
        "agent_id", "task_set", "k", "estimator", descending=[False] * 3 + [True]
    )
    if listed.height and not agents:
        of_version = pl.DataFrame({"methodology_version": [version]})
        out.print(
            reliability_answer(project.store.read(table("reliability_leaderboard"), of_version)), markup=False
        )
    out.print(_table(listed, version))
    for note in (*_labelled(listed), *_corrected(listed), *_notes(listed), *_without_task(project, pairs)):
        out.print(note, markup=False)


def show_interactions(
    project: Project,
    out: Console,
    *,
    version: str,
    agents: Sequence[str],
    ks: Sequence[int],
    as_json: bool,
    estimators: Sequence[trials.StoredEstimator] = (),
) -> None:
    """Print `interaction_pass_at_k`, in which the attempts are the interactions of one conversation rather than trials.

    The default estimator is plug_in; `bayesian` shows the posterior of each conversation with its interval.

    Raises:
        NotFoundError: If an agent has no rows.
        InvalidValueError: If a requested k is less than 1.
    """
    project.registry.get(version)
    outcomes = trials.trial_outcomes(
        trial_tables(project, pairs_of(project, version, agents)),
        answer_threshold=project.settings.answer_threshold,
    )
    s = project.settings
    rows = trials.interaction_reliability(
        outcomes, ks or (1, 3), estimators=estimators or ("plug_in",), prior=s.beta_prior, level=s.credible_level
    )  # fmt: skip
    if as_json:
        print_json(rows)
        return
    heads = (
        "agent",
        "conversation",
        "k",
        "interactions",
        "correct",
        "estimator",
        "interaction pass@k",
        "interval",
        "interaction pass^k",
        "interval",
    )
    grid = FittingTable(f"Interactions · methodology {version}", heads, numbers=_NUMBERS)
    for row in rows.iter_rows(named=True):
        grid.add_row(
            Text(row["agent_id"]), Text(sanitize_line(row["conversation_id"])), str(row["k"]), str(row["n_interactions"]),
            str(row["n_interactions_correct"]), row["estimator"],
            _probability(row["interaction_pass_at_k"]), _interval(row, "interaction_pass_at_k"),
            _probability(row["interaction_pass_hat_k"]), _interval(row, "interaction_pass_hat_k"),
        )  # fmt: skip
    out.print(
        grid if rows.height else "No conversation has interactions with ground truth that are all scored."
    )


def pairs_of(project: Project, version: str, agents: Sequence[str]) -> pl.DataFrame:
    """Return a frame of the given agents (default: all) under one version, for use as keys of stored tables."""
    agent_rows = pl.DataFrame({"agent_id": project.some_agents(agents)}, schema={"agent_id": pl.String})
    return agent_rows.with_columns(pl.lit(version).alias("methodology_version"))


def trial_tables(project: Project, pairs: pl.DataFrame) -> trials.TrialTables:
    """Return the stored tables that determine which trials of these agents were correct."""
    keys = {name: pairs.select("agent_id") for name in ("conversations", "import_errors")}
    fields = trials.TrialTables._fields
    return trials.TrialTables.of(
        {name: project.store.read(table(name), keys.get(name, pairs)) for name in fields}
    )


def _computed(project: Project, pairs: pl.DataFrame, ks: Sequence[int]) -> pl.DataFrame:
    """Compute the `reliability` table for these k; the stored table contains only the default values of k."""
    s = project.settings
    return trials.reliability(
        trial_tables(project, pairs),
        ks=ks,
        estimators=trials.ESTIMATORS,
        answer_threshold=s.answer_threshold,
        prior=s.beta_prior,
        level=s.credible_level,
    )


def _with_corrections(project: Project, pairs: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with the columns of `corrected_rates`, or with the reason why there is no correction.

    A row is corrected only if k = 1 and goal completion decides all trials. If the declared outcome or interactions
    decide some trials, the rate is not the judge's rate.
    """
    correction_rows = corrections(project, pairs, by_task=True).drop("judge").rename({"quantity": "task_set"})
    key = ["methodology_version", "agent_id", "task_set"]
    source = pl.col("correctness_source")
    joined = rows.join(
        correction_rows.with_columns(k=pl.lit(1, pl.Int64)), on=[*key, "k"], how="left", maintain_order="left"
    )
    is_mixed = (
        pl.col("judge_rate").is_not_null()
        & (source != GOAL_METRIC)
        & source.str.contains(GOAL_METRIC, literal=True)
    )
    reason = pl.when(is_mixed).then(pl.concat_str(pl.lit("its trials are decided by "), source))
    columns = [
        pl.when(source == GOAL_METRIC).then(pl.col(name)).alias(name)
        for name in correction_rows.columns
        if name not in key
    ]
    return (
        joined.with_columns(*columns, reason.alias("_mixed"))
        .with_columns(pl.coalesce(REFUSED, "_mixed").alias(REFUSED))
        .drop("_mixed")
    )


def _corrected(rows: pl.DataFrame) -> Iterator[str]:
    """Yield pass@1 corrected for the judge's errors by agent and task set, or the reason why it is not corrected."""
    is_told = pl.any_horizontal(pl.col("corrected", "correction_refused").is_not_null())
    corrected = rows.filter(is_told, pl.col("n_labels_drawn").is_null().all().over("agent_id", "task_set"))
    for row in corrected.unique(["agent_id", "task_set"], maintain_order=True).iter_rows(named=True):
        of = f"{row['agent_id']} on {row['task_set']}: pass@1"
        if row["corrected"] is None:
            yield sanitize_line(f"{of} is not corrected for the judge's errors: {row['correction_refused']}.")
        else:
            low, high = row["corrected_low"], row["corrected_high"]
            yield sanitize_line(
                f"{of} of the judge {row['judge_rate']:.3f}, corrected for its errors {row['corrected']:.3f} "
                f"({low:.3f}–{high:.3f}, 95 %), by {row['corrected_by']}."
            )


def _labelled(rows: pl.DataFrame) -> Iterator[str]:
    """Yield what people's labels do to the rates of each agent and task set that has some."""
    for row in rows.iter_rows(named=True):
        if labels := row["labels"]:
            of = f"{row['agent_id']} on {row['task_set']}, k = {row['k']} ({row['estimator']})"
            yield sanitize_line(f"{of}: {labels}.")


def _table(rows: pl.DataFrame, version: str) -> FittingTable | str:
    if rows.is_empty():
        return "No trials with a known outcome. Import transcripts with outcomes, or judge goal completion, then run agent-eval run."
    heads = (
        "agent", "task set", "k", "estimator", "pass@k", "95 %", "pass^k", "95 %", "tasks", "trials", "excluded", "correct by", "assessment",
    )  # fmt: skip
    grid = FittingTable(f"Reliability · methodology {version}", heads, numbers=_NUMBERS)
    for row in rows.iter_rows(named=True):
        grid.add_row(
            Text(row["agent_id"]), Text(sanitize_line(row["task_set"])), str(row["k"]), row["estimator"],
            _probability(row["pass_at_k"]), _interval(row, "pass_at_k"), _probability(row["pass_hat_k"]), _interval(row, "pass_hat_k"),
            str(row["n_tasks"]), str(row["n_trials"]), str(row["n_tasks_excluded"]), row["correctness_source"] or "–", _assessed(row),
        )  # fmt: skip
    return grid


def _assessed(row: dict[str, Any]) -> str:
    """Return the assessment of a row, with pass^k appended if the combination of rates is not assessed."""
    word = row["assessment"]
    return f"{word}, pass^k {row['pass_hat_k']:.3f}" if word == NOT_RATED else word or "–"


def _notes(rows: pl.DataFrame) -> list[str]:
    """Return notes on the intervals and the excluded tasks."""
    notes = [
        f"{estimator}: {says}."
        for estimator, says in rows.select("estimator", "interval")
        .drop_nulls()
        .unique()
        .sort("estimator", "interval")
        .rows()
    ]
    excluded = rows.filter(pl.col("excluded_tasks").list.len() > 0)
    apart = excluded.select("agent_id", "k", "excluded_tasks").unique(maintain_order=True)
    for agent, k, names in apart.iter_rows():
        more = f" and {len(names) - 10} more (--json lists all)" if len(names) > 10 else ""
        notes.append(sanitize_line(f"{agent}: too few trials for k = {k} of {', '.join(names[:10])}{more}."))
    return notes + [sanitize_line(line) for line in _shortfalls(rows)]


def _shortfalls(rows: pl.DataFrame) -> Iterator[str]:
    """Yield sentences on the unknown trials of each agent and task set, and on their possible effect on the result."""
    for of_set in rows.partition_by("agent_id", "task_set", maintain_order=True):
        first = of_set.row(0, named=True)
        if lacking := shortfall(first):
            yield f"{first['agent_id']} on {first['task_set']}: {lacking}."
            if first["pass_at_1"] is not None:
                over = f"pass@1 over all {first['n_tasks_known']} tasks {first['pass_at_1']:.3f}"
                yield f"  {over}, worst to best case {bounds(first, 'pass_at_1')}"
            for row in of_set.iter_rows(named=True):
                cases = f"pass@k {bounds(row, 'pass_at_k')}, pass^k {bounds(row, 'pass_hat_k')}"
                why = f"; {row['reason']}" if row["reason"] else ""
                yield f"  k = {row['k']} ({row['estimator']}), worst to best case: {cases}{why}"


def _without_task(project: Project, pairs: pl.DataFrame) -> list[str]:
    """Return a sentence for each agent with the number of its conversations without a task set."""
    columns = ["methodology_version", "agent_id", "task_id", "is_admitted"]
    rows = project.store.read(table("transcripts"), pairs, columns=columns)
    lacking = rows.filter("is_admitted", pl.col("task_id").is_null()).group_by("agent_id").len()
    return [
        sanitize_line(f"{agent}: conversations without a task id, which belong to no task set: {n}.")
        for agent, n in lacking.sort("agent_id").iter_rows()
    ]


def _probability(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _interval(row: dict[str, float | None], name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "–" if low is None or high is None else f"{low:.3f}–{high:.3f}"
