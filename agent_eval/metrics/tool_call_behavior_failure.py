"""Tool call behaviour failure: what went wrong in the use of tools. Turn, labels, several may apply."""

from agent_eval.metrics.base import NO_FAILURE, Metric

REPEATED_TOOL_CALL = "repeated tool call"

TOOL_CALL_BEHAVIOR_FAILURE = Metric(
    name="tool_call_behavior_failure",
    grain="turn",
    kind="label",
    question=(
        "Which failures does this turn show in the use of tools? The gravest is the label, others are further labels."
    ),
    anchors={
        NO_FAILURE: "Tools were used as they should be, or rightly not at all.",
        "unnecessary tool call": "Called a tool although the answer was already at hand.",
        "wrong tool": "Called a tool that cannot do what was needed while another could.",
        "wrong arguments": "The right tool with wrong or incomplete arguments.",
        "ignored tool result": "Called a tool, then contradicted or ignored what came back.",
        "missing tool call": "Should have called an available tool and guessed instead.",
        REPEATED_TOOL_CALL: "The same tool with the same arguments again, without need.",
    },
    notes=(
        "Asked also of turns without a call where a tool was available, because a missing call can only show there. "
        "Calling again after an error, or when the state may have changed, is no repeated call. Only the agent's "
        "calls count, not the user's."
    ),
)
