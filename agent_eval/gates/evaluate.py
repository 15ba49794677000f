"""Evaluate every gate of each agent and version, and compute the exit code for CI."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import polars as pl

from agent_eval.gates.assertions import assertion_finding
from agent_eval.gates.calibration import calibration_findings
from agent_eval.gates.coverage import (
    Asked,
    benchmark_findings,
    both,
    coverage_finding,
    slotted,
    trial_finding,
)
from agent_eval.gates.error_severity import issue_finding, severity_finding
from agent_eval.gates.estimates import mean_estimates, score_lower_ends
from agent_eval.gates.finding import GateFinding, listed
from agent_eval.gates.judge_drift import drift_findings
from agent_eval.gates.judgment_facts import JudgmentFacts
from agent_eval.gates.scenarios import (
    clusters_without_scenarios,
    scenarios_of,
    severity_findings_of_scenarios,
    threshold_findings_of_scenarios,
)
from agent_eval.gates.silence import Silence, silence_finding
from agent_eval.gates.thresholds import (
    agent_scores,
    labels_of_rates,
    score_bounds,
    threshold_findings,
)
from agent_eval.metrics.metric_set import OF_SILENCE
from agent_eval.scores.composite.board_facts import several_models
from agent_eval.scores.composite.ratings import PAIR
from agent_eval.scores.labelled_parts import labelled_metrics
from agent_eval.settings.gate_spec import GateSpec
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.tables.vocabularies import GATE

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
GATE_KEYS = {"errors": "fail_on_error_severity", "silent_turns": "silent_turns"}
"""The key of `[gates]` of each gate that every agent has unless it is switched off."""


def estimated_metrics(spec: GateSpec, drawn: Collection[str]) -> frozenset[str]:
    """Return the metrics with a threshold that labels of these metrics correct, or all if a lower end is required."""
    is_demanded = any(layer.confidence == "lower" for _, layer in spec.layers())
    return spec.threshold_names if is_demanded else spec.threshold_names.intersection(drawn)


KINDS: tuple[str, ...] = tuple(GATE.categories)


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
    given = {name: frames[name] if name in frames else table(name).empty() for name in INPUTS}
    spec = spec or GateSpec()
    has_scores = "composite_scores" in frames
    composites, held = given["composite_scores"], slotted(given["transcripts"])
    if facts is None:
        facts = JudgmentFacts.of(
            given,
            given["transcripts"],
            failure_metrics=failure_metrics,
            mean_of=spec.threshold_names,
            estimates_of=estimated_metrics(
                spec, labelled_metrics(given["turn_judgments"], given["conversation_judgments"])
            ),
            scenarios=spec.separate_scenarios,
            severities_of=spec.severity_scenarios,
        )
    scores_of = agent_scores(
        composites, given["universal_scores"], given["domain_scores"], given["reliability"]
    )
    bounds_of = score_bounds(given["reliability"])
    labels = labels_of_rates(given["reliability"])
    demands = any(layer.confidence == "lower" for _, layer in spec.layers())
    lower_ends = score_lower_ends(composites, given["reliability"]) if demands else {}
    parts = pl.concat(facts.parts) if facts.parts else None
    estimates = {} if parts is None else mean_estimates(parts, scales or {}, with_lower_end=demands)
    on = None if metrics is None else frozenset(metrics)
    off = {
        "errors": on is not None and not on.intersection(failure_metrics),
        "silent_turns": on is not None and not on & OF_SILENCE,
    }
    found: list[tuple[AgentVersion, GateFinding]] = []
    universe = composites if has_scores else given["transcripts"].select(PAIR).unique()
    for row in universe.sort(PAIR).iter_rows(named=True):
        pair = AgentVersion(row["agent_id"], row["methodology_version"])
        rules = spec.rules(pair.agent_id, pair.methodology_version, max_unscored_share=max_unscored_share)
        of_pair = (pl.col("methodology_version") == pair.methodology_version) & (
            pl.col("agent_id") == pair.agent_id
        )
        asked = facts.asked.get(pair, Asked())
        several = [coverage_finding(asked, rules.max_unscored_share)]
        if has_scores:
            of_trials = trial_finding(row, given["reliability"].filter(of_pair), rules.max_unscored_share)
            several = [both(several[0], of_trials)]
        if mixed := several_models(facts.answered.get(pair, ())):
            several[0] = replace(several[0], evidence=f"{several[0].evidence}; {listed(mixed)}")
        several += benchmark_findings(row) if has_scores and pair in held else []
        several += threshold_findings(
            rules,
            facts.means.get(pair, {}),
            scores_of.get(pair, {}),
            bounds_of.get(pair, {}),
            row.get("n_refused") or 0,
            estimates.get(pair),
            lower_ends.get(pair),
            labels.get(pair),
        )
        of_conversations = scenarios_of(given["transcripts"].filter(of_pair))
        several += threshold_findings_of_scenarios(
            rules,
            facts.means.get(pair, {}),
            of_conversations,
            estimates.get(pair),
            metrics=on,
            scales=scales,
        )
        clusters = given["error_clusters"].filter(of_pair)
        own_failures = None if failures is None else failures.filter(of_pair)
        of_scenarios = severity_findings_of_scenarios(
            rules, clusters, own_failures, of_conversations, facts.looked_in.get(pair, {})
        )
        others = clusters_without_scenarios(rules, clusters, own_failures, of_conversations)
        errors = severity_finding(
            rules, others, facts.looked.get(pair), facts.unclustered.get(pair), severities
        )
        turn_metrics = facts.turn_metrics.get(pair, frozenset[str]())
        has_turns = bool(given["transcripts"].filter(of_pair)["n_user_messages"].fill_null(1).sum())
        asked_for = {
            gate: _Questions(
                off[gate],
                is_unasked=has_turns and bool(metrics_of) and turn_metrics.isdisjoint(metrics_of),
                is_any_asked=asked.is_any,
            )
            for gate, metrics_of in (("errors", failure_metrics), ("silent_turns", OF_SILENCE))
        }
        silence = facts.silent.get(pair, Silence())
        if unasked := [
            gate
            for gate, is_it in off.items()
            if is_it and asked.is_any and GATE_KEYS[gate] not in rules.configured
        ]:
            why = f"not evaluated, because their metrics are switched off: {', '.join(unasked)}"
            several[0] = replace(several[0], evidence=f"{several[0].evidence}; {why}")
        several += [
            one
            for one in (
                *(asked_for["errors"].of(finding, is_configured=True) for finding in of_scenarios),
                *(
                    asked_for[gate].of(finding, is_configured=GATE_KEYS[gate] in rules.configured)
                    for gate, finding in (
                        ("errors", errors),
                        ("silent_turns", silence_finding(rules, silence)),
                    )
                ),
                issue_finding(rules, given["error_issues"].filter(of_pair)),
                assertion_finding(rules, given["assertion_results"].filter(of_pair), of_conversations),
                (regressions or {}).get(pair),
            )
            if one is not None
        ]
        if judge_drift is not None:
            several += drift_findings(rules, judge_drift, sorted(facts.models.get(pair, ())), asked)
        if calibration is not None:
            several += calibration_findings(rules, calibration.filter(of_pair), asked)
        found += [(pair, finding) for finding in several]
    if pairs is not None:
        unseen = pairs.join(composites, on=PAIR, how="anti").select(PAIR).sort(PAIR)
        nothing = GateFinding("status", "unknown", "no transcripts: not run yet, or every record was refused")
        found += [(AgentVersion(agent, version), nothing) for version, agent in unseen.iter_rows()]
    return _frame(found, version)


@dataclass(frozen=True)
class _Questions:
    """Hold whether the questions of a gate were put to the turns of a pair.

    Attributes:
        is_off: Whether all metrics of the gate are switched off.
        is_unasked: Whether there are turns and none of these metrics has a row about them, as after `run --metrics`.
        is_any_asked: Whether anything was judged, under whatever metric.
    """

    is_off: bool
    is_unasked: bool
    is_any_asked: bool

    def of(self, finding: GateFinding | None, *, is_configured: bool) -> GateFinding | None:
        """Return the finding of a gate that has a default, or of a gate that is configured.

        A gate without questions is passed by its own rule, because its subject does not exist. That says something only
        if its questions were put where there are turns; otherwise it is unknown. A gate with a default is not evaluated if
        its metrics are switched off.
        """
        if finding is None or finding.result == "failed":
            return finding
        if not self.is_any_asked:
            return replace(finding, result="unknown", evidence="nothing was judged")
        if self.is_off and not is_configured:
            return None
        if self.is_off:
            return replace(
                finding, result="unknown", evidence="the metrics of this gate are switched off", value=None
            )
        if self.is_unasked:
            why = "the metrics of this gate were not asked about these turns; agent-eval run without --metrics asks them"
            return replace(finding, result="unknown", evidence=why, value=None)
        return finding


def exit_code(gates: pl.DataFrame) -> int:
    """Return 1 if any gate failed, else 2 if any is unknown or none was evaluated, else 0."""
    results = set(gates["result"])
    if "failed" in results:
        return 1
    return 0 if results == {"passed"} else 2


def _frame(found: list[tuple[AgentVersion, GateFinding]], version: str) -> pl.DataFrame:
    rows = (
        {
            **pair._asdict(),
            **vars(finding),
            "value": _float(finding.value),
            "threshold": _float(finding.threshold),
            "gate_spec": version,
        }
        for pair, finding in found
    )
    return table("gate_results").frame(rows).sort(PAIR, maintain_order=True)


def _float(value: Fraction | float | None) -> float | None:
    return None if value is None else float(value)
