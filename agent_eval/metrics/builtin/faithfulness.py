"""Faithfulness: whether a reply contradicts what is known. Turn, rating 1–5."""

from agent_eval.metrics.base import Metric

FAITHFULNESS = Metric(
    name="faithfulness",
    grain="turn",
    kind="rating",
    question="Does anything in this reply contradict the knowledge, the tool results or what the user has stated?",
    anchors={
        "5": "No contradiction with the knowledge or the tool results.",
        "4": "Minor misstatements that change nothing for the user.",
        "3": "Some incorrect information.",
        "2": "Several factual errors.",
        "1": "Severe fabrication: invented facts, results or actions.",
    },
    notes=(
        "Contradictions only: leaving something out is no fault here. Claiming an action that no tool call shows, "
        "although a tool would have been needed, contradicts the record. General knowledge that nothing speaks "
        "against is not a contradiction."
    ),
)
