"""Relevance: rate whether a reply addresses the user's topic and need. Grain: turn; answer: rating 1–5."""

from agent_eval.metrics.base import BuiltIn, Metric

RELEVANCE = Metric(
    name="relevance",
    grain="turn",
    kind="rating",
    question="Does everything in this reply bear on what the user asked or needs?",
    anchors={
        "5": "Everything is on the topic and on the need.",
        "4": "Minor tangents.",
        "3": "Some irrelevant content beside the relevant.",
        "2": "Mostly off the topic.",
        "1": "Irrelevant to the request.",
    },
    notes=(
        "About the subject, not the length: a long reply on the topic is relevant. What the user must know although "
        "it was not asked for, such as a warning, is on the need."
    ),
)

BUILT_IN = (BuiltIn(RELEVANCE, order=30, is_of_silence=True),)
