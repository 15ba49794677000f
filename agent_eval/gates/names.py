"""Check that each metric, score, agent and version in the gate rules exists, and that each limit can be reached."""

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction

from agent_eval.errors import ConfigurationError
from agent_eval.metrics.metric_set import MetricSet
from agent_eval.settings.gate_spec import (
    Baseline,
    CalibrationLimits,
    GateSpec,
    RegressionLimits,
    ScenarioGates,
    exact,
)

COMPOSED = ("composite", "raw_composite", "universal", "domain")
DIMENSIONS = (*(f"U{i}" for i in range(1, 7)), *(f"D{i}" for i in range(1, 6)))
RELIABILITY = re.compile(r"pass_(at|hat)_[1-9]\d*\Z")
TEST_PASSED = "hallucination_passed"
QUANTITIES = ("composite", "raw composite", "universal", "domain", "pass@1", "cost_usd")


class GateRulesError(ConfigurationError):
    """Raised when a gate rule has an unknown name, a limit outside its scale, or a margin without a baseline.

    Fix: Correct the rule in the table [gates].
    """


def _unknown_name(where: str, name: str, names: Collection[str], kind: str) -> GateRulesError:
    near = difflib.get_close_matches(name, sorted(names), n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return GateRulesError(f"{where}: {kind} {name!r} is not known. {hint}Known: {', '.join(sorted(names))}.")


def is_score(name: str) -> bool:
    """Return whether the name of a threshold is a score of the agent rather than a metric."""
    return name in COMPOSED or name in DIMENSIONS or RELIABILITY.match(name) is not None


def check_names(
    spec: GateSpec, metrics: MetricSet, agents: Collection[str], versions: Collection[str]
) -> None:
    """Check that every name in the rules exists and every threshold can be reached.

    Raises:
        GateRulesError: If a metric, score, agent or version is unknown; the message suggests the closest match,
            or if a threshold is outside its scale, or a margin has no baseline.
    """
    for name in spec.agents:
        _check("gates.agents", name, agents, "agent")
    for name in spec.methodologies:
        _check("gates.methodologies", name, versions, "version")
    for name, own in spec.scenarios.items():
        where = f"Scenario {name}: thresholds"
        for metric in (*own.thresholds, *(own.metrics or ())):
            if is_score(metric):
                raise GateRulesError(f"{where}: {metric!r} is a score of the whole agent. Name a metric.")
            _check_limit(where, metric, own.thresholds.get(metric), metrics)
    layers = list(spec.layers())
    has_baseline = any(isinstance(layer.baseline, Baseline) for _, layer in layers)
    for where, layer in layers:
        if isinstance(layer.regression, RegressionLimits) and not has_baseline:
            raise GateRulesError(
                f"{where}.regression: a margin needs a baseline to compare with. Add [{where}.baseline] with "
                "agent or methodology."
            )
        for part, limits in (("thresholds", layer.thresholds), ("overall", layer.overall)):
            for name, limit in limits.items():
                _check_limit(f"{where}.{part}", name, limit, metrics)
        if isinstance(layer.calibration, CalibrationLimits):
            for name in layer.calibration.metrics:
                metric_names = {*metrics.names, *DIMENSIONS, TEST_PASSED}
                _check(f"{where}.calibration.metrics", name, metric_names, "metric")
        if isinstance(layer.baseline, Baseline):
            _check_baseline(f"{where}.baseline", layer.baseline, metrics, agents, versions)


Scales = Mapping[str, tuple[float, float]]
"""Ends of the scale of each metric with ratings or values; that of other metrics is 0 to 1."""


def scenario_problems(
    own: ScenarioGates, metrics: Collection[str], scales: Scales
) -> Iterator[tuple[str, str]]:
    """Yield each metric in the gates of a scenario file that cannot be evaluated, with the reason.

    Such a threshold is unknown; it stops neither a run nor the other gates.

    Args:
        own: The gates of the scenario.
        metrics: The names of the metrics that are switched on.
        scales: Ends of the scales, from `project.quality.scales`.
    """
    for name in dict.fromkeys((*own.thresholds, *(own.metrics or ()))):
        if (reason := limit_problem(name, own.thresholds.get(name), metrics, scales)) is not None:
            yield name, reason


def limit_problem(name: str, limit: Fraction | None, metrics: Collection[str], scales: Scales) -> str | None:
    """Return why the limit of a scenario file on a metric cannot be evaluated, or None."""
    if is_score(name):
        return f"{name!r} is a score of the whole agent. Name a metric."
    if name not in metrics:
        near = difflib.get_close_matches(name, sorted(metrics), n=1, cutoff=0.8)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        return (
            f"{name!r} is not a metric, or it is switched off by the settings metrics or metrics_off. {hint}"
            f"Metrics: {', '.join(sorted(metrics))}."
        )
    low, high = map(exact, scales.get(name, (0, 1)))
    if limit is not None and not low <= limit <= high:
        return f"the limit {limit} of {name!r} is outside its scale. Allowed: {low} to {high}."
    return None


def _check(where: str, name: str, names: Collection[str], kind: str) -> None:
    if name not in names:
        raise _unknown_name(where, name, names, kind)


def _check_baseline(
    where: str, baseline: Baseline, metrics: MetricSet, agents: Collection[str], versions: Collection[str]
) -> None:
    if baseline.agent is not None:
        _check(f"{where}.agent", baseline.agent, agents, "agent")
    if baseline.methodology is not None:
        _check(f"{where}.methodology", baseline.methodology, versions, "version")
    for name in baseline.quantities:
        _check(f"{where}.quantities", name, {*QUANTITIES, *metrics.names}, "quantity")


def _check_limit(where: str, name: str, limit: Fraction | None, metrics: MetricSet) -> None:
    low, high = _scale(where, name, metrics)
    if limit is not None and not low <= limit <= high:
        raise GateRulesError(f"{where}.{name}: {limit} is outside its scale. Allowed: {low} to {high}.")


def _scale(where: str, name: str, metrics: MetricSet) -> tuple[Fraction, Fraction]:
    if RELIABILITY.match(name) or name == TEST_PASSED:
        return Fraction(0), Fraction(1)
    if is_score(name):
        return (Fraction(1), Fraction(5)) if name.startswith("U") else (Fraction(0), Fraction(100))
    if name not in metrics.names:
        scores = {*COMPOSED, *DIMENSIONS, TEST_PASSED, "pass_at_1", "pass_hat_1"}
        raise _unknown_name(where, name, {*metrics.names, *scores}, "metric or score")
    metric = metrics.get(name)
    if metric.kind == "label" and not metric.is_failure:
        raise GateRulesError(f"{where}.{name}: its labels are not failures, so it has no mean. Remove it.")
    low, high = metric.scale or (0, 1)
    return exact(low), exact(high)
