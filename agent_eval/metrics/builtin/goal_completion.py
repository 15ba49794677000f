"""Goal completion: decide whether the user's goal was reached. Grain: conversation; answer: 0 or 1."""

from agent_eval.metrics.base import Metric

GOAL_COMPLETION = Metric(
    name="goal_completion",
    grain="conversation",
    kind="value",
    question="Was the user's goal reached by the end of this conversation?",
    anchors={
        "1": "Reached: what the user wanted has been done or answered, and the record shows it.",
        "0": "Not reached: merely discussed, promised, partly done, or done wrongly.",
    },
    notes=(
        "0 or 1, nothing in between. Judge the end state, tool calls and their results included, not the tone of the "
        "last exchange. Where the goal cannot or may not be met, it is reached when the agent says so plainly and "
        "offers what can be done instead."
    ),
    is_binary=True,
)
