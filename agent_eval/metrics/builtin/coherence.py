"""Coherence: rate whether a reply is consistent with the conversation and itself. Grain: turn; answer: rating 1–5."""

from agent_eval.metrics.base import BuiltIn, Metric

COHERENCE = Metric(
    name="coherence",
    grain="turn",
    kind="rating",
    question="Is this reply consistent with the conversation so far and within itself?",
    anchors={
        "5": "Fully consistent with everything said and done before; the thread is kept.",
        "4": "Minor lapses that do not mislead the user.",
        "3": "Some inconsistency or a contradiction.",
        "2": "Several contradictions; confusing to follow.",
        "1": "Incoherent: no recognisable thread.",
    },
    notes=(
        "This is about consistency, not truth: a false but consistent reply is coherent. A reply that openly corrects "
        "an earlier mistake is not a contradiction."
    ),
)

BUILT_IN = (BuiltIn(COHERENCE, order=20),)
