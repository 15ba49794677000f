"""Verbosity: rate whether a reply has the right length. Grain: turn; answer: rating 1–5, 5 is best."""

from agent_eval.metrics.base import BuiltIn, Metric

VERBOSITY = Metric(
    name="verbosity",
    grain="turn",
    kind="rating",
    question="Is this reply as long as its content needs, no longer and no shorter?",
    anchors={
        "5": "The right length: every word is needed.",
        "4": "Slightly wordy, or slightly short.",
        "3": "Somewhat verbose: repetition or filler that could go.",
        "2": "Clearly too long or too short for its content.",
        "1": "Bloated, or so terse that it cannot be used.",
    },
    best="right length",
    notes="About length only: a wrong reply of the right length has a high rating here.",
)

BUILT_IN = (BuiltIn(VERBOSITY, order=50),)
