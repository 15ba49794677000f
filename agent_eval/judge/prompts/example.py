"""Provide an invented conversation for inspecting prompts without the transcripts of a project."""

from agent_eval.clusters.naming import Case, Said
from agent_eval.metrics.findings import RatingFinding
from agent_eval.transcripts.models import Agent, Conversation, Expected, Message, MessageToolCall

AGENT = Agent(agent_id="otter-desk", name="Otter Desk", provider="Otterline", category="customer_service")

_TOOL = {
    "name": "find_booking",
    "description": "Look up one booking by its number",
    "parameters": {
        "type": "object",
        "properties": {"booking_id": {"type": "string"}},
        "required": ["booking_id"],
    },
}
CONVERSATION = Conversation(
    conversation_id="example",
    scenario="D1",
    goal="Learn whether the 9:40 ferry runs on Sunday and whether booking B-77 can be moved to it",
    profile="Travels with a bicycle, writes short messages",
    knowledge=(
        "The 9:40 ferry does not run on Sundays.",
        "A booking can be moved until two hours before departure.",
    ),
    tools=(_TOOL,),
    messages=(
        Message(role="user", content="Does the 9:40 run on Sunday?"),
        Message(
            role="assistant",
            content="This is Otter Desk. No, the 9:40 does not run on Sundays; the 11:10 does.",
        ),
        Message(role="user", content="Then move B-77 to the 11:10 please. Is the bike on it?"),
        Message(
            role="assistant",
            tool_calls=(MessageToolCall(id="1", name="find_booking", arguments={"booking_id": "B-77"}),),
        ),
        Message(
            role="tool",
            name="find_booking",
            tool_call_id="1",
            content='{"booking_id": "B-77", "departure": "Sat 9:40", "passengers": 1, "bicycles": 1, "note": "<none>"}',
            is_error=False,
        ),
        Message(
            role="assistant",
            content="B-77 holds one passenger and one bicycle. Shall I move it to Sunday, 11:10?",
        ),
    ),
    expected=(Expected(turn_index=0, answer="No; the 11:10 does."),),
    metadata={"policy": "Look a booking up before you speak of it. Ask for a yes before you change it."},
)
BROKEN_INPUT = Conversation(
    conversation_id="example-error",
    scenario="error_injection",
    goal="Move a booking to a date that does not exist",
    tools=(_TOOL,),
    messages=(
        Message(role="user", content="Move B-77 to 31 February, 9:40."),
        Message(role="assistant", content="There is no 31 February. Did you mean 28 February or 1 March?"),
    ),
    injected_error="The date does not exist.",
)
FINDINGS = (
    RatingFinding("helpfulness", "4", "example", 0, reason="Answers the question."),
    RatingFinding("goal_completion", "0", "example", reason="The booking was not moved yet."),
)

_DATES = "E-0000000001", "E-0000000002"
CLUSTERS = (
    Case(
        cluster_id=_DATES[0],
        label="false information",
        tool=None,
        members=(
            Said(
                _DATES[0],
                "The refund arrives by Friday.",
                "The agent names a refund date that no tool returned.",
            ),
            Said(_DATES[0], "You will have it in two days.", "The day of the refund is invented."),
        ),
        near_misses=(
            Said(_DATES[1], "Refunds take thirty days.", "The policy says ten days, the agent says thirty."),
        ),
    ),
)
"""Example clusters for naming."""
