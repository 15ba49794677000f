"""Evaluate every gate of each agent and version by walking the registry, and compute the exit code for CI."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from pathlib import Path

import polars as pl

from agent_eval.gates import kinds
from agent_eval.gates.coverage import slotted
from agent_eval.gates.estimates import mean_estimates, score_lower_ends
from agent_eval.gates.finding import GateFinding
from agent_eval.gates.judgment_facts import JudgmentFacts
from agent_eval.gates.registry import Gate, GateCase, Kind
from agent_eval.gates.thresholds import agent_scores, labels_of_rates, score_bounds
from agent_eval.scores.composite.ratings import PAIR
from agent_eval.scores.labelled_parts import labelled_metrics
from agent_eval.settings.gate_spec import GateSpec
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion

INPUTS = (
    "composite_scores",
    "universal_scores",
    "domain_scores",
    "reliability",
    "turn_judgments",
    "conversation_judgments",
    "transcripts",
    "error_clusters",
    "error_issues",
    "assertion_results",
)
"""Names of the tables that the gates read."""
_ANSWER = (
    "methodology_version", "agent_id", "conversation_id", "metric", "judge", "rating_1to5", "value", "label",
    "further_labels", "status", "unscored_reason", "is_effective", "is_counted", "label_weight", "seen_share",
    "response_model", "earlier_profile",
)  # fmt: skip
COLUMNS: Mapping[str, Sequence[str]] = {
    "turn_judgments": (*_ANSWER, "turn_index"),
    "conversation_judgments": _ANSWER,
}
"""Columns that the gates read from the large judgment tables. From other tables they read every column."""
GATES: tuple[Gate, ...] = tuple(
    sorted(
        (
            import_module(f"{kinds.__name__}.{path.stem}").GATE
            for path in Path(kinds.__path__[0]).glob("[!_]*.py")
        ),
        key=lambda gate: gate.order,
    )
)
"""All gates, in the order of their findings."""
KINDS: Mapping[str, Kind] = {kind.name: kind for gate in GATES for kind in gate.kinds}
"""The kinds of findings by name."""


def estimated_metrics(spec: GateSpec, labelled: Collection[str]) -> frozenset[str]:
    """Return the metrics with a threshold that labels of these metrics correct, or all if a lower end is required."""
    is_demanded = any(layer.confidence == "lower" for _, layer in spec.layers())
    return spec.threshold_names if is_demanded else spec.threshold_names.intersection(labelled)


def gates(
    frames: Mapping[str, pl.DataFrame],
    spec: GateSpec | None = None,
    *,
    facts: JudgmentFacts | None = None,
    pairs: pl.DataFrame | None = None,
    failure_metrics: Collection[str] = (),
    severities: Mapping[str, str] | None = None,
    metrics: Collection[str] | None = None,
    scales: Mapping[str, tuple[float, float]] | None = None,
    regressions: Mapping[AgentVersion, GateFinding] | None = None,
    failures: pl.DataFrame | None = None,
    judge_drift: pl.DataFrame | None = None,
    calibration: pl.DataFrame | None = None,
    max_unscored_share: float = 0.05,
    version: str = "",
) -> pl.DataFrame:
    """Return the table gate_results: one row per pair, gate and subject.

    The pairs are those of `composite_scores`, or those of `transcripts` if that table is missing. Every pair has
    the gate `coverage` and, unless they are switched off, `errors` and `silent_turns`. Only agents with a benchmark
    session (conversations in slots) have `required_tests`, `disclosures` and `status`. Other gates are evaluated
    if the rules configure them.

    Args:
        frames: The tables of `INPUTS` by name; a missing table counts as empty.
        spec: The gate rules. By default there are no thresholds, and a critical error fails.
        facts: Facts about the judgments; by default they are collected from the tables of judgments in `frames`.
        pairs: Expected pairs (columns agent_id and methodology_version). A pair without a row in composite_scores
            gets the gate `status` with the result unknown.
        failure_metrics: The turn metrics whose labels are failures and that models are asked.
        severities: The severity of each failure label of these metrics.
        metrics: The names of the metrics that are switched on; by default, all.
        scales: The ends of the scale of each metric with ratings or values; by default 0–1.
        regressions: The finding of the comparison with the baseline, for each pair that has one.
        failures: Table failures; needed only if a scenario sets a severity of its own.
        judge_drift: Drift per judge model and metric in the latest audits, from `judge.audits.drift`.
        calibration: Agreement of the judges with people, from `judge_standings`.
        max_unscored_share: Allowed share of unscored questions, 0–1, if the rules do not set one.
        version: Version of the gate rules, stored in every row.
    """
    inputs = {name: frames[name] if name in frames else table(name).empty() for name in INPUTS}
    spec = spec or GateSpec()
    has_scores = "composite_scores" in frames
    composites, slotted_pairs = inputs["composite_scores"], slotted(inputs["transcripts"])
    if facts is None:
        facts = JudgmentFacts.of(
            inputs,
            inputs["transcripts"],
            failure_metrics=failure_metrics,
            mean_of=spec.threshold_names,
            estimates_of=estimated_metrics(
                spec, labelled_metrics(inputs["turn_judgments"], inputs["conversation_judgments"])
            ),
            scenarios=spec.separate_scenarios,
            severities_of=spec.severity_scenarios,
        )
    scores_of = agent_scores(
        composites, inputs["universal_scores"], inputs["domain_scores"], inputs["reliability"]
    )
    bounds_of = score_bounds(inputs["reliability"])
    labels = labels_of_rates(inputs["reliability"])
    demands = any(layer.confidence == "lower" for _, layer in spec.layers())
    lower_ends = score_lower_ends(composites, inputs["reliability"]) if demands else {}
    parts = pl.concat(facts.parts) if facts.parts else None
    estimates = {} if parts is None else mean_estimates(parts, scales or {}, with_lower_end=demands)
    pair_findings: list[tuple[AgentVersion, GateFinding]] = []
    universe = composites if has_scores else inputs["transcripts"].select(PAIR).unique()
    for row in universe.sort(PAIR).iter_rows(named=True):
        pair = AgentVersion(row["agent_id"], row["methodology_version"])
        case = GateCase(
            pair=pair,
            rules=spec.rules(*pair, max_unscored_share=max_unscored_share),
            row=row,
            has_scores=has_scores,
            is_slotted=pair in slotted_pairs,
            frames=inputs,
            facts=facts,
            scores=scores_of.get(pair, {}),
            bounds=bounds_of.get(pair, {}),
            labels=labels.get(pair, {}),
            estimates=estimates.get(pair),
            lower_ends=lower_ends.get(pair),
            failure_metrics=failure_metrics,
            severities=severities,
            metrics=None if metrics is None else frozenset(metrics),
            scales=scales,
            failures=failures,
            regression=(regressions or {}).get(pair),
            judge_drift=judge_drift,
            calibration=calibration,
        )
        first, *others = (finding for gate in GATES for finding in gate.findings(case) if finding is not None)
        if left_out := [kind.name for gate in GATES if gate.is_left_out(case) for kind in gate.kinds]:
            why = f"not evaluated, because their metrics are switched off: {', '.join(left_out)}"
            first = replace(first, evidence=f"{first.evidence}; {why}")
        pair_findings += [(pair, finding) for finding in (first, *others)]
    if pairs is not None:
        unseen = pairs.join(composites, on=PAIR, how="anti").select(PAIR).sort(PAIR)
        nothing = GateFinding("status", "unknown", "no transcripts: not run yet, or every record was refused")
        pair_findings += [(AgentVersion(agent, version), nothing) for version, agent in unseen.iter_rows()]
    return _frame(pair_findings, version)


def exit_code(gates: pl.DataFrame) -> int:
    """Return 1 if any gate failed, else 2 if any is unknown or none was evaluated, else 0."""
    results = set(gates["result"])
    if "failed" in results:
        return 1
    return 0 if results == {"passed"} else 2


def _frame(pair_findings: list[tuple[AgentVersion, GateFinding]], version: str) -> pl.DataFrame:
    rows = (
        {
            **pair._asdict(),
            **vars(finding),
            "gate": KINDS[finding.gate].name,  # fails for a kind that no gate declares
            "value": _float(finding.value),
            "threshold": _float(finding.threshold),
            "gate_spec": version,
        }
        for pair, finding in pair_findings
    )
    return table("gate_results").frame(rows).sort(PAIR, maintain_order=True)


def _float(value: Fraction | float | None) -> float | None:
    return None if value is None else float(value)
