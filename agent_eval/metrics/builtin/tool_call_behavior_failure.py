"""Tool call behaviour failure: label the failures in tool use. Grain: turn; answer: one or more labels."""

from agent_eval.metrics.base import NO_FAILURE, BuiltIn, Metric

IGNORED_TOOL_RESULT = "ignored tool result"
REPEATED_FAILING_CALL = "repeated failing call"
REPEATED_TOOL_CALL = "repeated tool call"
STUCK_LOOP = "stuck loop"
UNKNOWN_TOOL = "unknown tool"
WRONG_ARGUMENTS = "wrong arguments"
WRONG_TOOL = "wrong tool"

TOOL_CALL_BEHAVIOR_FAILURE = Metric(
    name="tool_call_behavior_failure",
    grain="turn",
    kind="label",
    question=(
        "Which failures does this turn show in the use of tools? The most severe one is the label; the others are further labels."
    ),
    anchors={
        NO_FAILURE: "Tools were used as they should be, or rightly not at all.",
        "unnecessary tool call": "Called a tool although the answer was already at hand.",
        WRONG_TOOL: "Called a tool that cannot do what was needed while another could.",
        WRONG_ARGUMENTS: "The right tool with wrong or incomplete arguments.",
        IGNORED_TOOL_RESULT: "Called a tool, then contradicted or ignored what came back.",
        "missing tool call": "Should have called an available tool and guessed instead.",
        REPEATED_TOOL_CALL: "The same tool with the same arguments again, without need.",
    },
    notes=(
        "Turns without a call are judged too if a tool was available, because a call can be missing there. A second "
        "call after an error, or after the state may have changed, is not a repeated call. Only the agent's calls count, "
        "not the user's."
    ),
    applies_when="has_tools",
    severities={
        "unnecessary tool call": "medium",
        WRONG_TOOL: "high",
        WRONG_ARGUMENTS: "high",
        IGNORED_TOOL_RESULT: "high",
        "missing tool call": "high",  # the agent guessed what a tool would have returned
        REPEATED_TOOL_CALL: "medium",
        UNKNOWN_TOOL: "high",
        REPEATED_FAILING_CALL: "medium",
        STUCK_LOOP: "high",
    },
    by_rule={
        UNKNOWN_TOOL: "Called a tool that it does not have.",
        REPEATED_FAILING_CALL: "The same call failed in the same way three times or more, with nothing changed.",
        STUCK_LOOP: "The same few calls repeated in a cycle, or one tool that keeps failing or finding nothing with any arguments.",
    },
)

BUILT_IN = (BuiltIn(TOOL_CALL_BEHAVIOR_FAILURE, order=70, is_of_calls=True),)
