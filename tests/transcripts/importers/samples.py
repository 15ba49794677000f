"""One small file of each format, as its documentation describes it, and what it holds by hand.

Every text here was written for these tests.
"""

import io
import json
import zipfile
from typing import Any, NamedTuple

from tests.transcripts.making import lines

QUESTION, CITY = "Weather in Oslo?", {"city": "Oslo"}
SNOW, REPLY = "snow, -2 C", "It snows in Oslo."


class Sample(NamedTuple):
    """A file, and its conversations, turns and tool calls counted by hand."""

    content: Any  # a JSON value, or a list of lines
    is_lines: bool
    n_conversations: int
    n_turns: int
    n_calls: int

    def to_bytes(self) -> bytes:
        return lines(self.content) if self.is_lines else json.dumps(self.content).encode()


CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": json.dumps(CITY)}}
CHAT = [
    {"role": "user", "content": QUESTION},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": SNOW},
    {"role": "assistant", "content": REPLY},
]
PARTS_IN = [
    {"role": "user", "parts": [{"type": "text", "content": QUESTION}]},
    {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "weather", "arguments": CITY}]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": SNOW}]},
]
PARTS_OUT = [{"role": "assistant", "parts": [{"type": "text", "content": REPLY}], "finish_reason": "stop"}]


def otlp(attributes: dict[str, Any], **span: Any) -> dict[str, Any]:
    """A span in OTLP JSON; texts, numbers and lists of texts as attributes."""

    def typed(value: Any) -> dict[str, Any]:
        if isinstance(value, list):
            return {"arrayValue": {"values": [typed(v) for v in value]}}
        return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}

    pairs = [{"key": key, "value": typed(value)} for key, value in attributes.items()]
    fixed = {"traceId": "t1", "spanId": "s1", "startTimeUnixNano": "1770000000000000000"}
    return {**fixed, **span, "attributes": pairs}


def spans(*found: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": list(found)}]}]}


MODEL_CALL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.response.model": "m-1",
    "gen_ai.input.messages": json.dumps(PARTS_IN),
    "gen_ai.output.messages": json.dumps(PARTS_OUT),
    "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "Be brief."}]),
    "gen_ai.usage.input_tokens": 12,
    "gen_ai.usage.output_tokens": 5,
    "gen_ai.response.finish_reasons": ["stop"],
}
CLAUDE = [
    {"type": "summary", "summary": "weather", "leafUuid": "u4"},
    {"type": "user", "sessionId": "s", "uuid": "u1", "message": {"role": "user", "content": QUESTION}},
    {
        "type": "assistant", "sessionId": "s", "uuid": "u2",
        "message": {"id": "m1", "role": "assistant", "model": "claude-x", "usage": {"output_tokens": 1},
                    "content": [{"type": "thinking", "thinking": "I look it up."}]},
    },
    {
        "type": "assistant", "sessionId": "s", "uuid": "u3",
        "message": {"id": "m1", "role": "assistant", "model": "claude-x", "usage": {"output_tokens": 9},
                    "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": CITY}]},
    },
    {
        "type": "user", "sessionId": "s", "uuid": "u4",
        "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": SNOW}]},
    },
    {
        "type": "assistant", "sessionId": "s", "uuid": "u5",
        "message": {"id": "m2", "role": "assistant", "content": [{"type": "text", "text": REPLY}], "stop_reason": "end_turn"},
    },
    {
        "type": "user", "sessionId": "s", "isSidechain": True, "agentId": "a9", "uuid": "v1",
        "message": {"role": "user", "content": "Look at the map."},
    },
]  # fmt: skip


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": {"type": kind, **fields}}


CODEX = [
    {"timestamp": "2026-01-01T00:00:00Z", "type": "session_meta",
     "payload": {"id": "r1", "cwd": "/w", "base_instructions": {"text": "Be brief."}}},
    {"timestamp": "2026-01-01T00:00:00Z", "type": "turn_context", "payload": {"model": "gpt-x"}},
    item("message", role="user", content=[{"type": "input_text", "text": "<environment_context>x</environment_context>"}]),
    item("message", role="user", content=[{"type": "input_text", "text": QUESTION}]),
    item("reasoning", summary=[{"type": "summary_text", "text": "I look it up."}]),
    item("function_call", call_id="c1", name="weather", arguments=json.dumps(CITY)),
    item("function_call_output", call_id="c1", output=SNOW),
    item("message", role="assistant", content=[{"type": "output_text", "text": REPLY}]),
    {"timestamp": "2026-01-01T00:00:01Z", "type": "event_msg",
     "payload": {"type": "token_count", "info": {"total_token_usage": {"input_tokens": 7}}}},
]  # fmt: skip
CALLED = {
    "tool_calls": [{"tool_call_id": "c1", "function_name": "weather", "arguments": CITY}],
    "observation": {"results": [{"source_call_id": "c1", "content": SNOW}]},
    "metrics": {"prompt_tokens": 7, "completion_tokens": 2, "cost_usd": 0.01},
}
ATIF = {
    "schema_version": "ATIF-v1.8",
    "session_id": "s",
    "trajectory_id": "t",
    "agent": {"name": "a", "version": "1", "model_name": "m-1", "tool_definitions": [{"type": "function"}]},
    "steps": [
        {"step_id": 1, "source": "system", "message": "Be brief."},
        {"step_id": 2, "source": "user", "message": [{"type": "text", "text": QUESTION}]},
        {"step_id": 3, "source": "agent", "message": "", "reasoning_content": "I look it up."} | CALLED,
        {"step_id": 4, "source": "agent", "message": REPLY},
    ],
    "final_metrics": {"total_cost_usd": 0.02, "total_prompt_tokens": 9},
}
SWE = {
    "environment": "main",
    "trajectory": [{"action": "ls", "observation": "a.py", "response": "I look."}],
    "history": [
        {"role": "system", "content": "Be brief.", "message_type": "system_prompt"},
        {"role": "user", "content": "Fix a.py.", "message_type": "observation"},
        {"role": "assistant", "content": "I look.", "action": "ls", "message_type": "action",
         "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{\"command\": \"ls\"}"}}]},
        {"role": "tool", "content": "a.py", "tool_call_ids": ["c1"], "message_type": "observation"},
        {"role": "assistant", "content": "I look again.", "action": "ls", "message_type": "action",
         "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{\"command\": \"ls -a\"}"}}]},
        {"role": "tool", "content": ".git a.py", "tool_call_ids": ["c1"], "message_type": "observation"},
    ],
    "info": {"exit_status": "submitted", "submission": "diff", "model_stats": {"instance_cost": 0.5, "tokens_sent": 9}},
}  # fmt: skip
BROKEN_OFF = {"exit_status": "LimitsExceeded", "submission": ""}
MINI = {
    "info": BROKEN_OFF | {"model_stats": {"instance_cost": 0.5, "api_calls": 1}},
    "messages": [
        {"role": "system", "content": "One bash block."},
        {"role": "user", "content": "Fix a.py."},
        {"role": "assistant", "content": "I look.\n\n```mswea_bash_command\nls\n```"},
        {"role": "user", "content": "<returncode>1</returncode>\n<output>\n</output>"},
    ],
    "trajectory_format": "mini-swe-agent-1.1",
}
INSPECT_SAMPLE = {
    "id": "q1",
    "epoch": 1,
    "input": QUESTION,
    "target": "snow",
    "messages": [
        {"role": "system", "content": "attachment://a1"},
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "function": "weather", "arguments": CITY}]},
        {"role": "tool", "content": "", "tool_call_id": "c1", "function": "weather", "error": {"type": "timeout", "message": "too late"}},
        {"role": "assistant", "content": REPLY},
    ],
    "output": {"model": "m-1", "choices": [{"message": {}, "stop_reason": "stop"}], "usage": {"total_tokens": 3}, "time": 0.5},
    "scores": {"match": {"value": "C", "answer": "snow"}},
    "attachments": {"a1": "Be brief."},
}  # fmt: skip
HEADER = {"version": 2, "status": "success", "eval": {"task": "weather", "model": "m-1"}}
INSPECT = HEADER | {"samples": [INSPECT_SAMPLE]}


def inspect_archive(*samples: dict[str, Any]) -> bytes:
    """An `.eval` archive."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps(HEADER))
        for sample in samples:
            archive.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample))
    return content.getvalue()


LANGFUSE = {
    "trace": {"id": "t1", "name": "agent", "input": None, "sessionId": None,
              "scores": [{"name": "toxicity", "value": 0, "source": "EVAL", "comment": "none"}]},
    "observations": [
        {"id": "root", "type": "SPAN", "name": "agent", "parentObservationId": None, "startTime": "2026-01-01T00:00:00Z"},
        {"id": "g2", "type": "GENERATION", "parentObservationId": "root", "startTime": "2026-01-01T00:00:03Z",
         "input": json.dumps(CHAT[:3]), "output": json.dumps({"role": "assistant", "content": REPLY}),
         "totalCost": 0.01, "latency": 0.5, "usageDetails": {"input": 9}, "model": "m-1"},
        {"id": "tool", "type": "TOOL", "name": "weather", "parentObservationId": "root", "startTime": "2026-01-01T00:00:02Z",
         "input": json.dumps(CITY), "output": json.dumps(SNOW)},
        {"id": "g1", "type": "GENERATION", "parentObservationId": "root", "startTime": "2026-01-01T00:00:01Z",
         "input": json.dumps(CHAT[:1]), "output": json.dumps({"role": "assistant", "content": "", "tool_calls": [CALL]}),
         "totalCost": 0.02, "model": "m-1"},
    ],
}  # fmt: skip
RESPONSES = [
    {
        "request": {"input": QUESTION, "instructions": "Be brief.", "tools": [{"type": "function", "name": "weather"}]},
        "response": {
            "id": "r1",
            "object": "response",
            "model": "m-1",
            "output": [
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I look it up."}]},
                {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": json.dumps(CITY)},
            ],
        },
    },
    {
        "request": {"input": [{"type": "function_call_output", "call_id": "c1", "output": SNOW}], "previous_response_id": "r1"},
        "response": {
            "id": "r2",
            "object": "response",
            "previous_response_id": "r1",
            "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": REPLY}]}],
            "usage": {"input_tokens": 5},
        },
    },
]  # fmt: skip
AGENTEST_TURN = {
    "userMessage": QUESTION,
    "agentMessage": REPLY,
    "toolCalls": [{"name": "weather", "arguments": CITY, "result": {"text": SNOW}}],
    "evaluation": {"helpfulness": {"value": 4.5, "reason": "good"}},
}
AGENTEST_TALK = {"conversationId": "conv-1", "passed": True, "turns": [AGENTEST_TURN], "error": None}
AGENTEST_SCENARIO = {"scenarioId": "scenario-1", "scenarioName": "asks for weather"}
AGENTEST = {
    "runId": "r",
    "startedAt": "2026-01-01",
    "scenarios": [AGENTEST_SCENARIO | {"conversations": [AGENTEST_TALK]}],
}
FAIR_FORGE = [
    {
        "session_id": "s1",
        "assistant_id": "a",
        "context": "A weather desk.",
        "conversation": [
            {
                "query": QUESTION,
                "assistant": REPLY,
                "ground_truth_assistant": "Snow.",
                "agentic": {"tools_used": [{"tool_name": "weather", "parameters": CITY, "result": SNOW, "step": 1}]},
                "ground_truth_agentic": {"expected_tools": [{"tool_name": "weather", "parameters": CITY}], "tool_sequence_matters": True},
            },
            {"query": "And tomorrow?", "assistant": "Sun."},
        ],
    }
]  # fmt: skip
MISTAKE = {"mistake_agent": "Writer", "mistake_step": "2", "mistake_reason": "wrong word"}
SAID_BY = [
    {"role": "assistant", "name": "Planner", "content": "Ask the desk."},
    {"role": "user", "name": "Computer_terminal", "content": SNOW},
    {"role": "assistant", "name": "Writer", "content": "It rains."},
]
JUDGED = {"question": QUESTION, "question_ID": "q1", "ground_truth": "snow", "is_correct": False}
WHOWHEN = [JUDGED | MISTAKE | {"history": SAID_BY, "system_prompt": {"Planner": "You plan."}}]
SHARED = {
    "human": QUESTION,
    "function_call": json.dumps({"name": "weather", "arguments": CITY}),
    "observation": SNOW,
    "gpt": REPLY,
}
SHAREGPT = [
    {"id": "i1", "system": "Be brief.", "conversations": [{"from": k, "value": v} for k, v in SHARED.items()]}
]


def node(node_id: str, parent: str | None, role: str, content: Any, **more: Any) -> dict[str, Any]:
    """A node of a chat in ChatGPT's export."""
    content = {"content_type": "text", "parts": [content]} if isinstance(content, str) else content
    message = {"id": node_id, "author": {"role": role, "name": more.pop("name", None)}, "content": content}
    message |= {"create_time": 1.75e9, **more}
    return {"id": node_id, "parent": parent, "children": [], "message": message}


CHATGPT: list[dict[str, Any]] = [
    {
        "title": "Weather",
        "conversation_id": "g1",
        "current_node": "n5",
        "mapping": {
            "n0": {"id": "n0", "parent": None, "children": ["n1"], "message": None},
            "n1": node("n1", "n0", "user", QUESTION),
            "old": node("old", "n1", "assistant", "It rains."),
            "n2": node("n2", "n1", "assistant", {"content_type": "thoughts", "thoughts": [{"content": "I look it up."}]}),
            "n3": node("n3", "n2", "assistant", json.dumps(CITY), recipient="weather"),
            "n4": node("n4", "n3", "tool", SNOW, name="weather"),
            "n5": node("n5", "n4", "assistant", REPLY, metadata={"model_slug": "m-1"}),
        },
    }
]  # fmt: skip
ANSWERED = [
    {"type": "tool_use", "id": "c1", "name": "weather", "input": CITY},
    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": SNOW}]},
    {"type": "text", "text": REPLY},
]
CLAUDE_AI: list[dict[str, Any]] = [
    {
        "uuid": "u1",
        "name": "Weather",
        "chat_messages": [
            {"uuid": "1", "sender": "human", "text": QUESTION, "created_at": "2026-01-01T00:00:00Z"},
            {"uuid": "2", "sender": "assistant", "text": "", "content": ANSWERED},
        ],
    }
]
LANGSMITH: list[dict[str, Any]] = [
    {"id": "r", "trace_id": "t1", "run_type": "chain", "name": "agent", "inputs": {"input": QUESTION},
     "outputs": {"output": REPLY}, "start_time": "2026-01-01T00:00:00", "session_id": "project"},
    {"id": "r1", "trace_id": "t1", "parent_run_id": "r", "run_type": "llm", "start_time": "2026-01-01T00:00:01",
     "end_time": "2026-01-01T00:00:03", "inputs": {"messages": [CHAT[:1]]}, "total_cost": 0.02,
     "extra": {"metadata": {"ls_model_name": "m-1"}},
     "outputs": {"generations": [[{"text": "", "message": {
         "lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"],
         "kwargs": {"content": "", "tool_calls": [{"id": "c1", "name": "weather", "args": CITY}]}}}]]}},
    {"id": "r2", "trace_id": "t1", "parent_run_id": "r", "run_type": "tool", "name": "weather",
     "start_time": "2026-01-01T00:00:04", "inputs": CITY, "outputs": {"output": SNOW}},
    {"id": "r3", "trace_id": "t1", "parent_run_id": "r", "run_type": "llm", "start_time": "2026-01-01T00:00:05",
     "inputs": {"messages": [CHAT[:3]]}, "outputs": {"generations": [[{"text": REPLY}]]}},
]  # fmt: skip

TAU_BENCH = [{"task_id": 1, "reward": 1.0, "info": {"task": {"actions": []}}, "traj": CHAT, "trial": 0}]
TAU2 = {
    "tasks": [{"id": "1"}],
    "simulations": [
        {"id": "s", "task_id": "1", "trial": 0, "termination_reason": "user_stop", "messages": CHAT}
    ],
}
SAMPLES: dict[str, Sample] = {
    "tau-bench": Sample(TAU_BENCH, False, 1, 1, 1),
    "tau2": Sample(TAU2, False, 1, 1, 1),
    "agentest": Sample(AGENTEST, False, 1, 1, 1),
    "atif": Sample(ATIF, False, 1, 1, 1),
    "chatgpt": Sample(CHATGPT, False, 1, 1, 1),  # the answer that was generated again is left out
    "claude-ai": Sample(CLAUDE_AI, False, 1, 1, 1),
    "claude-code": Sample(CLAUDE, True, 2, 2, 1),  # the subagent's is a conversation of its own
    "codex": Sample(CODEX, True, 1, 1, 1),
    "fair-forge": Sample(FAIR_FORGE, False, 1, 2, 1),
    "inspect": Sample(INSPECT, False, 1, 1, 1),
    "langfuse": Sample(LANGFUSE, False, 1, 1, 1),
    "langsmith": Sample(LANGSMITH, True, 1, 1, 1),
    "mini-swe-agent": Sample(MINI, False, 1, 1, 1),
    "openai": Sample([{"messages": CHAT}], True, 1, 1, 1),
    "openai-responses": Sample(RESPONSES, True, 1, 1, 1),
    "otel-genai": Sample(spans(otlp(MODEL_CALL)), False, 1, 1, 1),
    "sharegpt": Sample(SHAREGPT, False, 1, 1, 1),
    "swe-agent": Sample(SWE, False, 1, 1, 2),
    "whowhen": Sample(WHOWHEN, False, 1, 1, 0),
}
