"""Goal completion (every conversation, 0 or 1) and decisive step (conversations whose goal was missed, a label).

The label of the decisive step says whose message decided the failure; its quote gives the message and the speaker. The
question is asked only if the setting `metrics` names it.
"""

from agent_eval.metrics.base import BuiltIn, Metric

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

BY_AGENT = "agent"
DECISIVE_STEP = Metric(
    name="decisive_step",
    grain="conversation",
    kind="label",
    question=(
        "The user's goal was not reached. Which single message or call decided this: the first one without which the goal "
        "could still have been reached? Quote it, and say who wrote it."
    ),
    anchors={
        BY_AGENT: "A message or call of an agent. Where several agents work together, the quote shows which one.",
        "tool": "A result of a tool that was wrong, missing or an error, and that the agent could not have worked around.",
        "user": "A message of the user that was false, contradictory or withheld what was needed.",
        "environment": "Something else in the record: a system that failed, a limit of time or length, a broken recording.",
    },
    notes=(
        "Evidence is a verbatim quote from that message or call, as short as it can be found by. The reason says what "
        "was wrong with it and what it led to. Answer null if no single message decided the failure, or if the record "
        "does not show it."
    ),
    applies_when="goal_missed",
)

ROLE_OF_AUTHOR = {BY_AGENT: "assistant", "tool": "tool", "user": "user"}
"""Role of the message that a label of the decisive step names; any message can be of the environment."""

BUILT_IN = (
    BuiltIn(GOAL_COMPLETION, order=140),
    BuiltIn(
        DECISIVE_STEP,
        order=170,
        is_on_request=True,
        people="`label`: `agent`, `tool`, `user` or `environment`, with the quoted message as `evidence`; it counts where the goal was missed",
    ),
)
