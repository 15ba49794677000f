"""Evaluate the severity gate: no error cluster at or above a severity level, and enough turns judged for failures."""

from collections.abc import Collection, Mapping
from fractions import Fraction

import polars as pl

from agent_eval.formats.plain_text import count_of
from agent_eval.gates.finding import GateFinding, listed, short
from agent_eval.metrics.base import NO_FAILURE, SEVERITIES, UNANSWERED
from agent_eval.metrics.metric_set import BUILT_IN_NAMES
from agent_eval.scores.composite.ratings import PAIR
from agent_eval.settings.gate_spec import Rules
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.transcripts.scenario_names import scenario_name

Looked = tuple[int, int]
"""A number of failure questions, and how many of them are answered."""


def looked_for_failures(
    turn_judgments: pl.DataFrame, failure_metrics: Collection[str]
) -> dict[AgentVersion, Looked]:
    """Count, per pair, the applicable failure questions and how many of them a person or model answered.

    A rule reports only failures, so its answer counts only if the question is not open for anyone else; the absence of
    a finding is not an answer. A question on which people disagree counts as unanswered. A pair without a row of these
    metrics is missing: no turn could have a failure.

    Args:
        turn_judgments: Table turn_judgments.
        failure_metrics: The metrics whose labels are failures.
    """
    counts = _questions(turn_judgments, failure_metrics).group_by(PAIR)
    sums = counts.agg(pl.col("is_asked").sum(), pl.col("is_judged").sum())
    return {AgentVersion(agent, version): (n, n_judged) for version, agent, n, n_judged in sums.iter_rows()}


Unclustered = Mapping[tuple[str, str], int]
"""Numbers of turns by metric and label."""


def unclustered_failures(
    turn_judgments: pl.DataFrame, failure_metrics: Collection[str]
) -> dict[AgentVersion, Unclustered]:
    """Count, per pair, the turns with each failure label of metrics of the project, which have no clusters.

    Args:
        turn_judgments: Table turn_judgments.
        failure_metrics: The metrics whose labels are failures.
    """
    own = [metric for metric in failure_metrics if metric not in BUILT_IN_NAMES]
    answers = turn_judgments.filter(
        pl.col("metric").is_in(own), pl.col("status") == "scored", pl.col("is_effective")
    )
    every = pl.concat_list(pl.col("label"), pl.col("further_labels").fill_null([])).list.unique()
    labels = answers.with_columns(label=every).explode("label").filter(pl.col("label") != NO_FAILURE)
    counts_of_pair: dict[AgentVersion, dict[tuple[str, str], int]] = {}
    for version, agent, metric, label, n in labels.group_by(*PAIR, "metric", "label").len().iter_rows():
        counts_of_pair.setdefault(AgentVersion(agent, version), {})[metric, label] = n
    return dict(counts_of_pair)


def looked_in_scenarios(
    turn_judgments: pl.DataFrame,
    transcripts: pl.DataFrame,
    failure_metrics: Collection[str],
    scenarios: Collection[str],
) -> dict[AgentVersion, dict[str, Looked]]:
    """Count the same per pair and scenario, for the named scenarios that have such a question."""
    looked: dict[AgentVersion, dict[str, Looked]] = {}
    if not scenarios:
        return looked
    key = [*PAIR, "conversation_id"]
    places = transcripts.filter(pl.col("is_admitted"), pl.col("task_id").is_not_null()).select(
        *key, scenario=scenario_name()
    )
    in_scenario = places.filter(pl.col("scenario").is_in(list(scenarios)))
    counts = _questions(turn_judgments, failure_metrics).join(in_scenario, on=key).group_by(*PAIR, "scenario")
    sums = counts.agg(pl.col("is_asked").sum(), pl.col("is_judged").sum())
    for version, agent, scenario, n, n_judged in sums.iter_rows():
        looked.setdefault(AgentVersion(agent, version), {})[scenario] = (n, n_judged)
    return looked


def _questions(turn_judgments: pl.DataFrame, failure_metrics: Collection[str]) -> pl.DataFrame:
    """Return one row per turn and failure metric: whether the question arises, and whether it is answered."""
    is_scored = (pl.col("status") == "scored") & (pl.col("judge") != "rule")
    arises = pl.col("status").is_in(["scored", "unscored", "disputed"]) | pl.col("unscored_reason").is_in(
        UNANSWERED
    )
    is_found = (pl.col("label") != NO_FAILURE).fill_null(False)
    by_rule = (pl.col("status") == "scored") & (pl.col("judge") == "rule") & is_found
    is_open = (pl.col("status") == "unscored") | pl.col("unscored_reason").is_in(UNANSWERED).fill_null(False)
    return (
        turn_judgments.lazy()
        .filter(pl.col("metric").is_in(list(failure_metrics)))
        .group_by(*PAIR, "conversation_id", "turn_index", "metric")
        .agg(
            is_asked=arises.fill_null(False).any(),
            is_judged=(is_scored.any() | (by_rule.any() & ~is_open.any()))
            & ~(pl.col("status") == "disputed").any(),
        )
        .collect()
    )


def severity_finding(
    rules: Rules,
    error_clusters: pl.DataFrame,
    looked: Looked | None,
    unclustered: Unclustered | None = None,
    severities: Mapping[str, str] | None = None,
) -> GateFinding | None:
    """Return the finding of the severity gate, or None if the gate is switched off.

    It is failed if a cluster, or a label of a metric of the project, is at or above the level, else unknown if too many failure questions are unanswered,
    else passed, also if no turn could have a failure (`looked` is None). Severities come from the cluster registry, where a severity set by a person takes precedence.

    Args:
        rules: The gate rules with the level and the allowed share of unanswered questions.
        error_clusters: The error clusters of the pair.
        looked: Number of questions and of answers for the pair, from `looked_for_failures`.
        unclustered: The turns with failure labels of metrics of the project, from `unclustered_failures`.
        severities: The severity of each failure label.
    """
    level = rules.fail_on_error_severity
    if level == "none":
        return None
    severe_clusters = clusters_at(level, error_clusters)
    severity_text = level if level == SEVERITIES[-1] else f"{level} or more severe"
    if not severe_clusters.is_empty():
        evidence = f"{count_of(severe_clusters.height, 'error cluster')} that {'is' if severe_clusters.height == 1 else 'are'} {severity_text}: {clusters_listed(severe_clusters)}"
        return GateFinding("errors", "failed", evidence, level)
    failing = SEVERITIES[SEVERITIES.index(level) :]
    of_metrics = {
        key: n for key, n in (unclustered or {}).items() if (severities or {}).get(key[1]) in failing
    }
    if of_metrics:
        cluster_list = listed(
            f"{label} of metric {metric} ({count_of(n, 'turn')})"
            for (metric, label), n in sorted(of_metrics.items())
        )
        return GateFinding("errors", "failed", f"{severity_text}: {cluster_list}", level)
    if looked is None:
        return GateFinding("errors", "passed", "nothing to look for: no turn can have a failure", level)
    n, n_judged = looked
    coverage_text = f"{n_judged} of {n} questions about failures answered"
    if n_judged == 0 or Fraction(n - n_judged, n) > rules.max_unscored_share:
        return GateFinding("errors", "unknown", f"none {severity_text} found, but {coverage_text}", level)
    return GateFinding("errors", "passed", f"no error cluster is {severity_text}; {coverage_text}", level)


def issue_finding(rules: Rules, error_issues: pl.DataFrame) -> GateFinding | None:
    """Return the finding about issues that were fixed: failed if one came back.

    It is None if the gate is switched off or no issue was ever fixed.

    Args:
        rules: The gate rules.
        error_issues: Table `error_issues` of the pair.
    """
    fixed = error_issues.drop_nulls("fixed_in")
    if not rules.issues or fixed.is_empty():
        return None
    returned = fixed.filter(pl.col("status").cast(pl.String) == "came back").sort("rank")
    if returned.is_empty():
        return GateFinding("issues", "passed", f"{count_of(fixed.height, 'fixed issue')}; none came back")
    names = listed(
        f"{short(row['title'] or row['label'])} ({row['cluster_id']}, fixed in {short(row['fixed_in'])}, came back in "
        f"{short(row['returned_in'])}: {row['n_conversations']} of {count_of(row['n_conversations_looked'], 'conversation')})"
        for row in returned.iter_rows(named=True)
    )
    return GateFinding("issues", "failed", f"{count_of(returned.height, 'issue')} came back: {names}")


def clusters_at(level: str, error_clusters: pl.DataFrame) -> pl.DataFrame:
    """Return the error clusters at or above a severity level, the most severe first."""
    failing = SEVERITIES[SEVERITIES.index(level) :]
    rank = {name: i for i, name in enumerate(SEVERITIES)}
    return (
        error_clusters.filter(pl.col("severity").is_in(list(failing)))
        .with_columns(rank=pl.col("severity").replace_strict(rank, return_dtype=pl.Int8))
        .sort("rank", "n_turns", "cluster_id", descending=[True, True, False])
    )


def clusters_listed(error_clusters: pl.DataFrame) -> str:
    """Return a list of error clusters as text, with an example of each."""
    return listed(
        f"{row['severity']}: {short(row['title'] or row['label'])} ({row['cluster_id']}, {count_of(row['n_turns'], 'turn')}, "
        f"e.g. {row['examples'][0]})"
        for row in error_clusters.iter_rows(named=True)
    )
