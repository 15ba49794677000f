"""Tool result utilisation: decide whether tool results reach the answer. Grain: turns with calls; answer: 0 or 1."""

from agent_eval.metrics.base import BuiltIn, Metric

TOOL_RESULT_UTILISATION = Metric(
    name="tool_result_utilisation",
    grain="turn",
    kind="value",
    question="Do the results of this turn's tool calls reach the answer?",
    anchors={
        "1": "What the answer needs from the results is in it, and agrees with them.",
        "0": "A result that the answer needed is ignored or contradicted, or there is no answer.",
    },
    notes="0 or 1, nothing in between. A result that was needed only to choose the next call counts as used.",
    applies_when="has_tool_calls",
    is_binary=True,
)

BUILT_IN = (BuiltIn(TOOL_RESULT_UTILISATION, order=90),)
