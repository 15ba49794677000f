"""Gate `silent_turns`: the share of turns that required a reply and have none."""

from collections.abc import Iterator

from agent_eval.gates.finding import GateFinding
from agent_eval.gates.registry import Gate, GateCase, Kind
from agent_eval.gates.silence import Silence, silence_finding
from agent_eval.metrics.metric_set import OF_SILENCE

KEY = "silent_turns"


def _findings(case: GateCase) -> Iterator[GateFinding | None]:
    finding = silence_finding(case.rules, case.facts.silent.get(case.pair, Silence()))
    yield case.decided(finding, OF_SILENCE, is_configured=KEY in case.rules.configured)


GATE = Gate(
    order=50,
    kinds=(
        Kind(
            "silent_turns",
            "The share of turns in which the agent owed a reply and gave none is at most `silent_turns`, and every conversation has a reply.",
            exists="as `errors`, for the metrics that detect missing replies",
            passes="at most the share `silent_turns` of the turns that required a reply has none ([what counts](metrics.md#turns-without-a-reply)). It is unknown if all turns that did ended the conversation, or if all turns of a conversation have none",
            check=("turn_judgments", "silent_turns"),
        ),
    ),
    findings=_findings,
    metrics=lambda _: OF_SILENCE,
    key=KEY,
)
