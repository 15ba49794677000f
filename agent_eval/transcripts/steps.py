"""Define the steps of a conversation: its messages, each with its position and its speaker."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agent_eval.transcripts.models import Message, is_blank


@dataclass(frozen=True)
class ConversationStep:
    """Represent a message of a conversation; a tool call belongs to the message that makes it."""

    message_index: int  # 0-based index among all messages of the conversation
    speaker: str  # name of the agent, user or tool; the role if it has no name


def steps_of(messages: Iterable[Message]) -> Iterator[ConversationStep]:
    """Yield the steps of a conversation, one per message.

    A tool result without a name has the name of the tool that its call names.
    """
    tools: dict[str, str] = {}
    for index, message in enumerate(messages):
        of_call = tools.get(message.tool_call_id or "") if message.role == "tool" else None
        speaker = message.name if not is_blank(message.name) else of_call
        yield ConversationStep(index, speaker or message.role)
        tools |= {call.id: call.name for call in message.tool_calls if call.id}
