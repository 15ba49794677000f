"""Gate `issues`: no issue that was fixed came back."""

from agent_eval.gates.error_severity import issue_finding
from agent_eval.gates.registry import Gate, Kind

GATE = Gate(
    order=60,
    kinds=(
        Kind(
            "issues",
            "No issue that was fixed came back.",
            exists="not switched off, and an issue of the agent was once [fixed](clusters.md#issues)",
            passes="none of them came back",
        ),
    ),
    findings=lambda case: [issue_finding(case.rules, case.rows("error_issues"))],
)
