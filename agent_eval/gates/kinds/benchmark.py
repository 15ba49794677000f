"""Gates `required_tests`, `disclosures` and `status`: whether a benchmark's score can be published."""

from agent_eval.gates.coverage import benchmark_findings
from agent_eval.gates.registry import Gate, Kind

_TEXTS = {
    "required_tests": "Every required test was conducted and judged.",
    "disclosures": "Every required disclosure was made.",
    "status": "The agent's scores may be published.",
}
GATE = Gate(
    order=20,
    kinds=tuple(
        Kind(
            name,
            meaning,
            exists="the agent has a session with slots",
            passes="all required tests are present and judged, all disclosures are made, and the score can be published",
            check=("composite_scores", name),
        )
        for name, meaning in _TEXTS.items()
    ),
    findings=lambda case: benchmark_findings(case.row) if case.has_scores and case.is_slotted else (),
)
