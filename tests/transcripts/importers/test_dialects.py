"""One call and its answer in every provider's form come out alike."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eval.transcripts.importers.base import NotThisFormatError, Source
from agent_eval.transcripts.importers.catalog import FORMATS
from agent_eval.transcripts.importers.shared.dialects import native_messages
from agent_eval.transcripts.models import Conversation
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
    "ai sdk 4, as its UI stores it": [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": REPLY, "toolInvocations": [
            {"state": "result", "toolCallId": "c1", "toolName": "weather", "args": CITY, "result": SNOW}]},
    ],
    "ai sdk 5, as its UI stores it": [
        {"role": "user", "parts": [{"type": "text", "text": QUESTION}]},
        {"role": "assistant", "parts": [
            {"type": "step-start"},
            {"type": "tool-weather", "toolCallId": "c1", "state": "output-available", "input": CITY, "output": SNOW},
            {"type": "step-start"},
            {"type": "text", "text": REPLY, "state": "done"}]},
    ],
    "a tool that the provider runs": [
        QUESTION,
        {"role": "assistant", "content": [
            {"type": "server_tool_use", "id": "c1", "name": "weather", "input": CITY},
            {"type": "web_search_tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": SNOW}]},
            {"type": "text", "text": REPLY}]},
    ],
    "haystack": [
        {"role": "user", "content": [{"text": QUESTION}]},
        {"role": "assistant", "content": [{"tool_call": {"tool_name": "weather", "arguments": CITY, "id": "c1"}}]},
        {"role": "tool", "content": [{"tool_call_result": {
            "result": SNOW, "origin": {"tool_name": "weather", "arguments": CITY, "id": "c1"}, "error": False}}]},
        {"role": "assistant", "content": [{"text": REPLY}]},
    ],
    "llamaindex": [
        {"role": "user", "blocks": [{"block_type": "text", "text": QUESTION}]},
        {"role": "assistant", "additional_kwargs": {"tool_calls": [CALL]}, "blocks": []},
        {"role": "tool", "additional_kwargs": {"tool_call_id": "c1"}, "blocks": [{"block_type": "text", "text": SNOW}]},
        {"role": "assistant", "blocks": [{"block_type": "text", "text": REPLY}]},
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


@pytest.mark.parametrize("form", [form for form in FORMS if not isinstance(FORMS[form][0], str)])
def test_a_chat_file_reads_messages_in_every_form(form: str, tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps({"messages": FORMS[form]}))
    (found,) = FORMATS["openai"](Source(path, "s"))
    assert isinstance(found, Conversation)
    (turn,) = found.turns()
    (call,) = turn.tool_calls
    assert (turn.user_message, turn.agent_message) == (QUESTION, REPLY)
    assert (call.name, call.result) == ("weather", SNOW)


def test_a_tool_of_the_ai_sdk_that_failed_or_has_not_answered() -> None:
    part: dict[str, Any] = {"type": "dynamic-tool", "toolName": "weather", "toolCallId": "c1", "input": CITY}
    failed = {**part, "state": "output-error", "errorText": "too late"}
    _, answered = native_messages([{"role": "assistant", "parts": [failed]}])
    assert (answered["content"], answered["is_error"]) == ("too late", True)
    (called,) = native_messages([{"role": "assistant", "parts": [{**part, "state": "input-available"}]}])
    assert called["tool_calls"] == [{"id": "c1", "name": "weather", "arguments": CITY}]


def test_a_part_that_cannot_be_read_is_named_and_an_unknown_role_is_refused() -> None:
    content: Any = [{"type": "image_url"}, {"type": "text", "text": "See."}]
    (message,) = native_messages([{"role": "user", "content": content}])
    assert (message["content"], message["unread"]) == ("See.", ["part of type 'image_url'"])
    with pytest.raises(
        NotThisFormatError, match="message 1 has the unknown role 'narrator'; allowed: assistant, dev"
    ):
        native_messages([{"role": "narrator", "content": "x"}])
