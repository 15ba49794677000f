"""The grammar of a prompt, read back without the code that wrote it: what is data, and what is not."""

import json
import re
from dataclasses import dataclass
from typing import Any

from agent_eval.judge.prompts.record import STEPS
from agent_eval.transcripts.models import Conversation, Message

_OPEN = re.compile(r"\A<record ([0-9a-f]{24})>\n")


@dataclass(frozen=True)
class ReadBack:
    """A user message taken apart."""

    code: str
    lines: list[str]  # raw lines of data
    after: str  # what follows the block

    @property
    def data(self) -> list[Any]:
        """The lines decoded."""
        return [json.loads(line) for line in self.lines]


def read_back(content: str) -> ReadBack:
    """Take a user message apart by its marks alone."""
    opening = _OPEN.match(content)
    assert opening, content[:80]
    code = opening[1]
    closing = f"\n</record {code}>\n"
    assert content.count(closing) == 1
    block, after = content[opening.end() :].split(closing)
    return ReadBack(code, block.split("\n"), after)


def expected_frame(conversation: Conversation) -> Any:
    """What a frame must decode to."""
    tools = None if conversation.tools is None else list(conversation.tools)
    return _cut(
        {
            **({} if conversation.policy is None else {"policy": conversation.policy}),
            "goal": conversation.goal,
            "profile": conversation.profile,
            "knowledge": list(conversation.knowledge),
            "tools": tools,
        }
    )


def expected_turns(conversation: Conversation) -> list[dict[str, Any]]:
    """What the lines of all turns must decode to."""
    return [
        {"turn": turn.turn_index, "messages": _expected_messages(turn.messages)}
        for turn in conversation.turns()
    ]


def _expected_messages(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    n_calls, shown = 0, []
    for message in messages:
        given: dict[str, Any] = {"role": message.role}
        if message.name is not None:
            given["name"] = message.name
        if message.role == "tool":
            given["call"] = n_calls - 1  # every tool message of these conversations follows its call
        if message.content is not None:
            is_policy = message.role == "system"  # in these conversations it opens the first turn
            given["content"] = {"shown_as": "policy"} if is_policy else message.content
        calls = []
        for call in message.tool_calls:
            calls.append({"call": n_calls, "name": call.name, "arguments": call.arguments})
            n_calls += 1
        if calls:
            given["tool_calls"] = calls
        if message.is_error is not None:
            given["is_error"] = message.is_error
        shown.append(_cut(given))
    return shown


def _cut(value: Any) -> Any:
    """Long texts as they are shown: beginning, number of characters between, end."""
    bound = STEPS[0][0]
    if isinstance(value, str) and len(value) > bound:
        half = bound // 2
        return [value[:half], {"characters_left_out": len(value) - bound}, value[-half:]]
    if isinstance(value, list):
        return [_cut(item) for item in value]
    if isinstance(value, dict):
        return {key: _cut_object(key, item, bound) for key, item in value.items()}
    return value


def _cut_object(key: str, value: Any, bound: int) -> Any:
    """Arguments and tools are JSON: a long one is shown as its text, which is cut."""
    if key == "arguments" and len(text := json.dumps(value, ensure_ascii=False)) > bound:
        return {"json": _cut(text)}
    if key == "tools" and value is not None:
        texts = [(tool, json.dumps(tool, ensure_ascii=False)) for tool in value]
        return [{"json": _cut(text)} if len(text) > bound else tool for tool, text in texts]
    return _cut(value) if key != "arguments" else value
