"""Gate `coverage`: the share of questions that a model was asked and that are unscored, and of planned trials that are lost."""

from collections.abc import Iterator
from dataclasses import replace

from agent_eval.gates.coverage import both, coverage_finding, trial_finding
from agent_eval.gates.finding import GateFinding, listed
from agent_eval.gates.registry import Gate, GateCase, Kind
from agent_eval.scores.composite.board_facts import several_models


def _findings(case: GateCase) -> Iterator[GateFinding]:
    allowed = case.rules.max_unscored_share
    finding = coverage_finding(case.asked, allowed)
    if case.has_scores:
        finding = both(finding, trial_finding(case.row, case.rows("reliability"), allowed))
    if mixed := several_models(case.facts.answered.get(case.pair, ())):
        finding = replace(finding, evidence=f"{finding.evidence}; {listed(mixed)}")
    yield finding


GATE = Gate(
    order=10,
    kinds=(
        Kind(
            "coverage",
            "For each agent, at most the share `max_unscored_share` of the questions to judge models is unscored, and at most this share of the planned trials is lost.",
            exists="always",
            passes="at most the share `max_unscored_share` of the questions to a model is unscored or was answered on less than half of the evidence (`seen_share`); it is passed if there is nothing to ask a model, and unknown if questions are open or nothing was scored. The same share limits the planned trials that were rejected at import (else failed) and those lost to the harness (else unknown)",
            check=("turn_judgments", "judge_coverage"),
        ),
    ),
    findings=_findings,
)
