"""Argument correctness: check the arguments of tool calls. Grain: turns with calls; answer: share of correct calls."""

from agent_eval.metrics.base import BuiltIn, Items, Metric

ARGUMENT_CORRECTNESS = Metric(
    name="argument_correctness",
    grain="turn",
    kind="value",
    question="Does each of the agent's calls in this turn have the arguments that the case demands?",
    anchors={
        "1": "Every call has the right arguments.",
        "0": "No call has the right arguments.",
    },
    notes=(
        "List each call of the agent in this turn by its number and name. Wrong: a value that contradicts what was said "
        "or returned, that was invented, or that is missing although the case demands it. Do not judge whether the "
        "call should have been made at all."
    ),
    applies_when="has_tool_calls",
    items=Items("calls", "call", ("correct", "wrong")),
)

BUILT_IN = (BuiltIn(ARGUMENT_CORRECTNESS, order=110),)
