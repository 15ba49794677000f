"""Evaluate the gates that a benchmark scenario sets for itself, in place of the project's."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import polars as pl

from agent_eval.gates.error_severity import Looked, severity_finding
from agent_eval.gates.estimates import MeanEstimates
from agent_eval.gates.finding import GateFinding
from agent_eval.gates.names import Scales, limit_problem
from agent_eval.gates.thresholds import Mean, Means, of_mean
from agent_eval.settings.gate_spec import Rules
from agent_eval.transcripts.scenario_names import scenario_name


def scenarios_of(transcripts: pl.DataFrame) -> pl.DataFrame:
    """Return conversation_id and scenario of the admitted conversations with a task."""
    admitted_tasks = transcripts.filter(pl.col("is_admitted") & pl.col("task_id").is_not_null())
    return admitted_tasks.select("conversation_id", scenario=scenario_name())


def threshold_findings_of_scenarios(
    rules: Rules,
    means: Means,
    of_conversations: pl.DataFrame,
    estimates: MeanEstimates | None = None,
    *,
    metrics: Collection[str] | None = None,
    scales: Scales | None = None,
) -> Iterator[GateFinding]:
    """Yield a finding per threshold of each scenario that sets its own thresholds and that the agent was given.

    The scenario's thresholds are added to the project's or replace them. A metric without a score is unknown, and so is
    a threshold that cannot be evaluated: its metric is not in `metrics` (default: all exist), or its limit is outside
    `scales`.
    """
    for name in sorted({*of_conversations["scenario"]} & rules.scenarios.keys()):
        own = rules.scenarios[name]
        if own.invalid_reason is not None:
            yield GateFinding("threshold", "unknown", own.invalid_reason, f"thresholds in {name}")
        if not own.has_thresholds:
            continue
        limits = {**rules.thresholds, **own.thresholds}
        for metric, limit in limits.items():
            is_chosen = own.metrics is None or metric in own.metrics
            mean = means.get(metric, {}).get(name, Mean())
            problem = None
            if metric in own.thresholds and limit is not None and is_chosen and metrics is not None:
                problem = limit_problem(metric, limit, metrics, scales or {})
            if problem is not None:
                yield GateFinding("threshold", "unknown", problem, f"{metric} in {name}", None, limit)
                continue
            if limit is not None and is_chosen and (metric in own.thresholds or mean.n or mean.n_open):
                estimate = (estimates or {}).get((metric, name))
                yield of_mean("threshold", metric, f"{metric} in {name}", limit, mean, rules, estimate)


def clusters_without_scenarios(
    rules: Rules, error_clusters: pl.DataFrame, failures: pl.DataFrame | None, of_conversations: pl.DataFrame
) -> pl.DataFrame:
    """Return the error clusters that occur outside of the scenarios with a severity of their own."""
    own = _with_severity(rules, of_conversations)
    if failures is None or own.is_empty():
        return error_clusters
    others = failures.join(own, on="conversation_id", how="anti")
    return error_clusters.filter(pl.col("cluster_id").is_in(others["cluster_id"].implode()))


def severity_findings_of_scenarios(
    rules: Rules,
    error_clusters: pl.DataFrame,
    failures: pl.DataFrame | None,
    of_conversations: pl.DataFrame,
    looked: Mapping[str, Looked],
) -> Iterator[GateFinding]:
    """Yield the finding of `severity_finding` for each scenario with a severity of its own, on its own conversations.

    Args:
        rules: The gate rules.
        error_clusters: The error clusters of the pair.
        failures: Table failures of the pair; None if it was not read.
        of_conversations: From `scenarios_of`.
        looked: The questions about failures and their answers by scenario, from `looked_in_scenarios`.
    """
    own = _with_severity(rules, of_conversations)
    for name in sorted({*own["scenario"]}):
        level = rules.scenarios[name].fail_on_error_severity
        if level is None or failures is None:
            continue
        there = failures.join(own.filter(scenario=name), on="conversation_id", how="semi")
        of = error_clusters.filter(pl.col("cluster_id").is_in(there["cluster_id"].implode()))
        finding = severity_finding(replace(rules, fail_on_error_severity=level), of, looked.get(name))
        if finding is not None:
            yield replace(finding, subject=f"{level} in {name}")


def _with_severity(rules: Rules, of_conversations: pl.DataFrame) -> pl.DataFrame:
    scenario_names = [name for name, own in rules.scenarios.items() if own.fail_on_error_severity is not None]
    return of_conversations.filter(pl.col("scenario").is_in(scenario_names))
