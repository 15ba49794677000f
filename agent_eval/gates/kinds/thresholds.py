"""Gates `threshold`, `overall` and `score`: means and scores reach their limits."""

from collections.abc import Iterator

from agent_eval.gates.finding import GateFinding
from agent_eval.gates.registry import Gate, GateCase, Kind
from agent_eval.gates.scenarios import threshold_findings_of_scenarios
from agent_eval.gates.thresholds import threshold_findings


def _findings(case: GateCase) -> Iterator[GateFinding]:
    yield from threshold_findings(
        case.rules,
        case.means,
        case.scores,
        case.bounds,
        case.row.get("n_refused") or 0,
        case.estimates,
        case.lower_ends,
        case.labels,
    )
    yield from threshold_findings_of_scenarios(
        case.rules,
        case.means,
        case.of_conversations,
        case.estimates,
        metrics=case.metrics,
        scales=case.scales,
    )


GATE = Gate(
    order=30,
    kinds=(
        Kind(
            "threshold",
            "In every scenario the mean of each metric reaches [gates.thresholds].",
            exists="`[gates.thresholds]` names a metric",
            passes="in each scenario, the mean over all scored turns of its conversations reaches the limit",
        ),
        Kind(
            "overall",
            "Over the agent as a whole the mean of each metric reaches [gates.overall].",
            exists="`[gates.overall]` names a metric",
            passes="the mean over all turns of the agent reaches the limit. If more than `max_unscored_share` of the answers are open, answers of rules do not count, here and in `threshold`. If rules alone answered and any answer is open, the gate is unknown",
        ),
        Kind(
            "score",
            "Each score reaches its threshold.",
            exists="one of these tables names a score",
            passes="the score reaches the limit",
        ),
    ),
    findings=_findings,
)
