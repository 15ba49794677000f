"""One call and its answer in every provider's form come out alike."""

import json
from typing import Any

import pytest

from agent_eval.transcripts.importers.base import NotThisFormatError
from agent_eval.transcripts.importers.shared.dialects import native_messages
from tests.transcripts.importers.samples import CALL, CITY, QUESTION, REPLY, SNOW

FORMS: dict[str, list[Any]] = {
    "openai": [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": SNOW},
        {"role": "assistant", "content": [{"type": "output_text", "text": REPLY}]},
    ],
    "anthropic": [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": CITY}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": SNOW}]}]},
        {"role": "assistant", "content": [{"type": "text", "text": REPLY}]},
    ],
    "responses": [
        QUESTION,
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": json.dumps(CITY)},
        {"type": "function_call_output", "call_id": "c1", "output": SNOW},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": REPLY}]},
    ],
    "gemini": [
        {"role": "user", "parts": [{"text": QUESTION}]},
        {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "weather", "args": CITY}}]},
        {"role": "user", "parts": [{"functionResponse": {"id": "c1", "response": SNOW}}]},
        {"role": "model", "parts": [{"text": REPLY}]},
    ],
    "bedrock": [
        {"role": "user", "content": [{"text": QUESTION}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c1", "name": "weather", "input": CITY}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": SNOW}]}}]},
        {"role": "assistant", "content": [{"text": REPLY}]},
    ],
    "langchain": [
        {"type": "human", "content": QUESTION},
        {"type": "ai", "content": "", "tool_calls": [{"id": "c1", "name": "weather", "args": CITY}]},
        {"type": "tool", "tool_call_id": "c1", "content": SNOW},
        {"type": "ai", "content": REPLY},
    ],
    "langchain dump": [
        {"type": "human", "data": {"content": QUESTION}},
        {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "AIMessage"],
         "kwargs": {"content": "", "tool_calls": [{"id": "c1", "name": "weather", "args": CITY}]}},
        {"type": "tool", "data": {"tool_call_id": "c1", "content": SNOW}},
        {"type": "ai", "data": {"content": REPLY}},
    ],
    "ai sdk": [
        {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
        {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c1", "toolName": "weather", "args": CITY}]},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "result": SNOW}]},
        {"role": "assistant", "content": REPLY},
    ],
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_call_and_its_answer_come_out_alike(form: str) -> None:
    asked, called, answered, replied = native_messages(FORMS[form])
    assert (asked["role"], asked["content"]) == ("user", QUESTION)
    calls: Any = called["tool_calls"]
    (call,) = calls
    arguments = call["arguments"]
    assert (called["role"], call["id"], call["name"]) == ("assistant", "c1", "weather")
    assert (json.loads(arguments) if isinstance(arguments, str) else arguments) == CITY
    assert (answered["role"], answered["tool_call_id"], answered["content"]) == ("tool", "c1", SNOW)
    assert (replied["role"], replied["content"]) == ("assistant", REPLY)


def test_what_is_no_text_is_named_in_brackets_and_an_unknown_role_is_refused() -> None:
    (message,) = native_messages(
        [{"role": "user", "content": [{"type": "image_url"}, {"type": "text", "text": "See."}]}]
    )
    assert message["content"] == "[image_url]\nSee."
    with pytest.raises(
        NotThisFormatError, match="message 0 has no role that is known; allowed: assistant, developer"
    ):
        native_messages([{"role": "narrator", "content": "x"}])
