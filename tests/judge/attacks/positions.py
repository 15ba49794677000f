"""Where an attack text may stand: one small conversation with the text in one place of it."""

from collections.abc import Callable

from agent_eval.transcripts.models import Conversation, Expected, Message, MessageToolCall

CALM = "calm"


def conversation(
    *,
    conversation_id: str = "c",
    goal: str = "goal",
    profile: str = "profile",
    knowledge: str = "fact",
    tool_description: str = "what it does",
    system: str = "policy",
    user: str = "hello",
    agent: str = "good day",
    tool_name: str = "find",
    call_id: str = "1",
    argument_name: str = "key",
    argument: object = CALM,
    result: str = "found",
    result_name: str = "find",
    expected: str = "good day",
    injected_error: str = "none",
    n_turns: int = 2,
) -> Conversation:
    """A conversation whose first turns hold the given texts, and whose last turn holds them as well."""
    call = MessageToolCall(id=call_id, name=tool_name, arguments={argument_name: argument})
    turn = (
        Message(role="user", content=user),
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", tool_call_id=call_id, name=result_name, content=result, is_error=False),
        Message(role="assistant", content=agent),
    )
    return Conversation(
        conversation_id=conversation_id,
        scenario="D4",
        goal=goal,
        profile=profile,
        knowledge=(knowledge, CALM),
        tools=({"name": "find", "description": tool_description},),
        messages=(Message(role="system", content=system), *(turn * n_turns)),
        expected=(Expected(turn_index=n_turns - 1, answer=expected),),
        injected_error=injected_error,
    )


POSITIONS: dict[str, Callable[[str], Conversation]] = {
    "user text": lambda text: conversation(user=text),
    "agent text": lambda text: conversation(agent=text),
    "system text": lambda text: conversation(system=text),
    "tool result": lambda text: conversation(result=text),
    "tool name": lambda text: conversation(tool_name=text),
    "name of a result": lambda text: conversation(result_name=text),
    "tool arguments": lambda text: conversation(argument=text),
    "nested tool arguments": lambda text: conversation(argument=[{"a": [text]}, 1.5, None]),
    "argument name": lambda text: conversation(argument_name=text),
    "call id": lambda text: conversation(call_id=text),
    "tool description": lambda text: conversation(tool_description=text),
    "knowledge": lambda text: conversation(knowledge=text),
    "goal": lambda text: conversation(goal=text),
    "profile": lambda text: conversation(profile=text),
    "expected answer": lambda text: conversation(expected=text),
    "injected error": lambda text: conversation(injected_error=text),
    "conversation id": lambda text: conversation(conversation_id=text[:512]),
}
NOT_SHOWN = ("conversation id", "call id")
