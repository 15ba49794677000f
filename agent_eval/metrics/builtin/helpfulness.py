"""Helpfulness: rate how far a reply brings the user towards the goal. Grain: turn; answer: rating 1–5."""

from agent_eval.metrics.base import BuiltIn, Metric

HELPFULNESS = Metric(
    name="helpfulness",
    grain="turn",
    kind="rating",
    question="How much does this reply advance what the user wants?",
    anchors={
        "5": "Advances the goal directly: specific, actionable, nothing the user still has to dig out.",
        "4": "Helpful, but could be more specific or more complete.",
        "3": "Somewhat helpful; key details are missing.",
        "2": "Minimal help: vague or off the track.",
        "1": "No help at all, or it sets the user back.",
    },
    notes=(
        "Judge the reply against what could be known and done at this turn. A necessary question to the user is help. "
        "So is an honest refusal of something impossible, if the agent says what the user can do instead. Politeness "
        "alone is not help."
    ),
)

BUILT_IN = (BuiltIn(HELPFULNESS, order=10, is_of_silence=True),)
