"""Gate `errors`: no failure is as severe as `fail_on_error_severity`."""

from collections.abc import Iterator

from agent_eval.gates.error_severity import severity_finding
from agent_eval.gates.finding import GateFinding
from agent_eval.gates.registry import Gate, GateCase, Kind
from agent_eval.gates.scenarios import clusters_without_scenarios, severity_findings_of_scenarios

KEY = "fail_on_error_severity"


def _findings(case: GateCase) -> Iterator[GateFinding | None]:
    rules, facts, clusters = case.rules, case.facts, case.rows("error_clusters")
    failures = None if case.failures is None else case.own(case.failures)
    for own in severity_findings_of_scenarios(
        rules, clusters, failures, case.of_conversations, facts.looked_in.get(case.pair, {})
    ):
        yield case.decided(own, case.failure_metrics, is_configured=True)
    others = clusters_without_scenarios(rules, clusters, failures, case.of_conversations)
    finding = severity_finding(
        rules, others, facts.looked.get(case.pair), facts.unclustered.get(case.pair), case.severities
    )
    yield case.decided(finding, case.failure_metrics, is_configured=KEY in rules.configured)


GATE = Gate(
    order=40,
    kinds=(
        Kind(
            "errors",
            "No error cluster has the severity `fail_on_error_severity` or a higher one.",
            exists="not switched off; by default only if a metric that looks for failures is on, else `coverage` names the gate",
            passes="no error cluster, and no label of a metric of your own, has the severity `fail_on_error_severity` or higher, and enough turns were judged for failures, or no turn can have a failure. It is unknown if there are turns about which its metrics were never asked, for example after `agent-eval run --metrics` with others",
            check=("error_clusters", "errors"),
        ),
    ),
    findings=_findings,
    metrics=lambda case: case.failure_metrics,
    key=KEY,
)
