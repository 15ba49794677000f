"""Who spoke, in which order, in which conversation, and what was not read: the same laws in every format."""

import json
import random
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agent_eval.formats.refusals import NOT_READ, Refusal
from agent_eval.transcripts.importers.base import Source
from agent_eval.transcripts.importers.catalog import FORMATS
from agent_eval.transcripts.importers.detection import detect
from agent_eval.transcripts.importers.rules.settling import settled
from agent_eval.transcripts.importers.rules.speakers import told_apart
from agent_eval.transcripts.importers.rules.values import listed
from agent_eval.transcripts.models import Conversation
from tests.transcripts.importers.samples import SAMPLES, otlp, spans
from tests.transcripts.making import lines

U, A, T, D = "user", "assistant", "tool", "developer"


class Case(NamedTuple):
    """Lines of a file, the texts of each conversation's messages, words of what is refused or not read, and errors.

    `errors` are the texts of results that are errors, and the error of the conversation.
    """

    lines: list[Any]
    said: Sequence[Sequence[tuple[str, str | None]]]
    named: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


def at(minute: int) -> str:
    return f"2026-03-01T10:{minute:02}:00Z"


def claude(
    uuid: str, parent: str | None, role: str, content: Any, minute: int = 0, **more: Any
) -> dict[str, Any]:
    message = {"role": role, "content": content, **more.pop("message", {})}
    line = {"type": role, "uuid": uuid, "parentUuid": parent, "sessionId": "s", "timestamp": at(minute)}
    return line | {"message": message, **more}


def call(name: str, call_id: str = "c1", **more: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}, **more}


def run(own: str, kind: str, parent: str | None, second: int, **more: Any) -> dict[str, Any]:
    start = f"2026-03-01T10:00:{second:02}"
    return {
        "id": own,
        "run_type": kind,
        "parent_run_id": parent,
        "name": own,
        "start_time": start,
        "inputs": {},
        **more,
    }


def codex(kind: str, minute: int = 0, **payload: Any) -> dict[str, Any]:
    return {"timestamp": at(minute), "type": kind, "payload": payload}


def said(role: str, text: str, minute: int = 0) -> dict[str, Any]:
    return codex(
        "response_item", minute, type="message", role=role, content=[{"type": "output_text", "text": text}]
    )


def asked(text: str, reply: str | None, **more: Any) -> dict[str, Any]:
    """A span with one model call."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps([{"role": U, "content": text}]),
    }
    if reply is not None:
        attributes["gen_ai.output.messages"] = json.dumps([{"role": A, "content": reply}])
    return otlp(attributes, **more)


def pair(history: Sequence[tuple[str, str]], reply: str, minute: int) -> dict[str, Any]:
    """A request of a session with its response, as a proxy logs them."""
    messages = [{"role": role, "content": text} for role, text in history]
    choices = [{"message": {"role": A, "content": reply}}]
    body = {"object": "chat.completion", "choices": choices}
    return {"session_id": "s", "timestamp": at(minute), "request": {"messages": messages}, "response": body}


def observation(own: str, kind: str, parent: str | None, minute: int | None, **more: Any) -> dict[str, Any]:
    when = {} if minute is None else {"startTime": at(minute)}
    return {
        "id": own,
        "type": kind,
        "traceId": "t",
        "parentObservationId": parent,
        "name": own,
        **when,
        **more,
    }


def response(own: str, before: str | None, text: str, reply: str, minute: int) -> dict[str, Any]:
    said = {"type": "message", "role": A, "content": [{"type": "output_text", "text": reply}]}
    linked = {"id": own, "previous_response_id": before, "created_at": 1.7e9 + 60 * minute}
    return {"object": "response", **linked, "input": text, "output": [said]}


FAILED = response("r2", "r1", "q2", "", 1) | {"status": "failed", "output": [], "error": "busy"}


def event(name: str, **attributes: str) -> dict[str, Any]:
    return {
        "name": name,
        "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in attributes.items()],
    }


def node(own: str, parent: str | None, role: str, **content: Any) -> dict[str, Any]:
    message = {"id": own, "author": {"role": role, "name": "python"}, **content}
    return {own: {"id": own, "parent": parent, "children": [], "message": message}}


def spoken_by(role: str, **content: Any) -> dict[str, Any]:
    return {"messages": [{"role": U, "content": "q1"}, {"role": role, **content}]}


PAIR: list[tuple[str, str | None]] = [("user", "q1"), ("assistant", "a1")]
TWO_CALLS = [
    {"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps({"k": k})}}
    for k in (1, 2)
]
PARALLEL: list[tuple[str, int, dict[str, Any]]] = [
    ("GENERATION", 2, {"output": {"role": A, "content": "a1"}}),
    ("TOOL", 1, {"input": {"k": 2}, "output": "two"}),
    ("TOOL", 1, {"input": {"k": 1}, "output": "one"}),
    (
        "GENERATION",
        0,
        {
            "input": [{"role": U, "content": "q1"}],
            "output": {"role": A, "content": None, "tool_calls": TWO_CALLS},
        },
    ),
]
FAULT = '{"error": "down"}'


def chat_of(said: Sequence[tuple[str, str | None]]) -> list[dict[str, Any]]:
    return [{"role": role, "content": text} for role, text in said]


WITH_DURATIONS = {
    "messages": [
        {"role": r, "content": v, "time": t} for (r, v), t in zip(PAIR, ("0:09", "2 s"), strict=True)
    ]
}
WITH_STEPS = [
    *chat_of(PAIR[:1]),
    {"role": A, "tool_calls": [call("f")]},
    {"role": T, "tool_call_id": "c1", "content": FAULT},
]
PARALLEL_HISTORY = [
    *chat_of(PAIR[:1]),
    {"role": A, "tool_calls": [call("f", "c1"), call("f", "c2")]},
    *({"role": T, "tool_call_id": own, "content": text} for own, text in (("c1", "?"), ("c2", "two"))),
]
CASES = {
    # who speaks
    "codex-reminder-beside-a-prompt": Case(
        [codex("session_meta", id="x"), said(U, "<environment_context>\n<cwd>/w</cwd>\n</environment_context>"),
         said(U, "q1\n<system-reminder>Be brief.</system-reminder>", 1), said(A, "a1", 2)],
        [[(D, "<environment_context>\n<cwd>/w</cwd>\n</environment_context>"),
          (D, "<system-reminder>Be brief.</system-reminder>"), *PAIR]],
    ),
    "atif-hand-over": Case(
        [{"schema_version": "ATIF-v1.5", "session_id": "s", "agent": {"name": "t"}, "steps": [
            {"step_id": 1, "source": "user", "message": "q1"}, {"step_id": 2, "source": "agent", "message": "a1"},
            {"step_id": 3, "source": "user", "message": "You are about to hand off your work to another AI agent. Sum up."},
            {"step_id": 4, "source": "agent", "message": "done"}]}],
        [[*PAIR, (D, "You are about to hand off your work to another AI agent. Sum up."), (A, "done")]],
    ),
    "claude-answered-command": Case(
        [claude("1", None, U, "<command-message>review</command-message>\n<command-name>/review</command-name>\n<command-args>7</command-args>"),
         claude("2", "1", U, "Review it.", isMeta=True), claude("3", "2", A, "fine", 1)],
        [[(D, "<command-message>review</command-message>\n<command-name>/review</command-name>\n<command-args>7</command-args>"),
          (U, "/review 7"), (D, "Review it."), (A, "fine")]],
    ),
    "claude-queued-without-attachment": Case(
        [claude("1", None, U, "q1"),
         {"type": "queue-operation", "operation": "enqueue", "sessionId": "s", "content": "stop"},
         {"type": "queue-operation", "operation": "dequeue", "sessionId": "s", "timestamp": at(1)},
         claude("2", "1", A, "a1", 2)],
        [[("user", "q1"), ("user", "stop"), ("assistant", "a1")]],
    ),
    "claude-program-in-the-place-of-the-model": Case(
        [claude("1", None, U, "q0"), claude("2", "1", A, "No response requested.", 1, message={"model": "<synthetic>"}),
         claude("3", "2", U, "q1", 2), claude("4", "3", A, "API Error: 529 overloaded", 3, isApiErrorMessage=True),
         claude("5", "4", A, "a1", 4)],
        [[("user", "q0"), (D, "No response requested."), ("user", "q1"), (D, "API Error: 529 overloaded"), (A, "a1")]],
        (), ("API Error: 529 overloaded",),
    ),
    "claude-reply-of-the-model-that-begins-like-one-of-the-program": Case(
        [claude("1", None, U, "q1"),
         claude("2", "1", A, "API Error: 529 means that the servers are overloaded.", 1,
                message={"model": "claude-x", "usage": {"input_tokens": 9, "output_tokens": 12}}),
         claude("3", "2", U, "q2", 2),
         claude("4", "3", A, "No response requested.", 3,
                message={"model": "claude-x", "usage": {"input_tokens": 9, "output_tokens": 4}})],
        [[("user", "q1"), (A, "API Error: 529 means that the servers are overloaded."), ("user", "q2"),
          (A, "No response requested.")]],
    ),
    "claude-ended-by-an-error-of-the-api": Case(
        [claude("1", None, U, "q1"), claude("2", "1", A, "a1", 1),
         claude("3", "2", A, "Prompt is too long", 2, message={"model": "<synthetic>"})],
        [[*PAIR, (D, "Prompt is too long")]], (), ("Prompt is too long", "Prompt is too long"),
    ),
    "codex-program-in-the-place-of-the-model": Case(
        [codex("session_meta", id="x"), said(U, "q0"), said(A, "Request timed out", 1), said(U, "q1", 2), said(A, "a1", 3)],
        [[("user", "q0"), (D, "Request timed out"), *PAIR]], (), ("Request timed out",),
    ),
    "claude-one-uuid-for-two-texts": Case(
        [claude("1", None, U, "q1"), claude("2", "1", A, "a1", 1), claude("2", "1", A, "a1", 1), claude("2", "1", A, "b1", 1)],
        [[*PAIR, (A, "b1")]], ("have the uuid of an earlier line", "copies of another one"),
    ),
    "rows-with-one-id-for-two-texts": Case(
        [{"conversation_id": "c", "id": own, "role": role, "content": text}
         for own, role, text in [("1", U, "q1"), ("2", A, "a1"), ("2", A, "b1")]],
        [[*PAIR, (A, "b1")]], ("have the id of another record",),
    ),
    "chatgpt-quote-of-a-file": Case(
        [{"conversation_id": "g", "current_node": "d", "mapping": {
            **node("a", None, U, content={"content_type": "tether_quote", "url": "f", "text": "of the file"}),
            **node("b", "a", U, content={"content_type": "text", "parts": ["q1"]}),
            **node("c", "b", A, content={"content_type": "execution_output", "text": "42"}),
            **node("d", "c", A, content={"content_type": "text", "parts": ["a1"]})}}],
        [[(D, "of the file"), ("user", "q1"), (D, "42"), ("assistant", "a1")]],
    ),
    "chatgpt-message-that-the-chat-hides": Case(
        [{"conversation_id": "g", "current_node": "c", "mapping": {
            **node("a", None, U, content={"content_type": "text", "parts": ["Be brief."]},
                   metadata={"is_visually_hidden_from_conversation": True}),
            **node("b", "a", U, content={"content_type": "text", "parts": ["q1"]}),
            **node("c", "b", A, content={"content_type": "text", "parts": ["a1"]})}}],
        [[(D, "Be brief."), *PAIR]],
    ),
    # order
    "json-rows-newest-first": Case(
        [{"conversation_id": "c", "sender": s, "text": t, "created_at": when} for s, t, when in
         [("bot", "a1", "01.03.2026 10:00"), ("customer", "q1", "01.03.2026 09:59")]],
        [PAIR],
    ),
    "instants-not-texts": Case(
        [{"messages": [{"role": A, "content": "a1", "timestamp": "2026-03-01T10:00:00+00:00"},
                       {"role": U, "content": "q1", "timestamp": "2026-03-01T11:59:00+02:00"}]}],
        [PAIR],
    ),
    "chat-with-parents": Case(
        [{"currentId": "3", "messages": [
            {"id": "3", "parentId": "1", "role": A, "content": "a1"}, {"id": "1", "parentId": None, "role": U, "content": "q1"},
            {"id": "2", "parentId": "1", "role": A, "content": "replaced"}]}],
        [PAIR], ("replaced answer",),
    ),
    "result-before-its-call": Case(
        [{"messages": [{"role": T, "tool_call_id": "c1", "content": "r"}, {"role": A, "tool_calls": [call("f")]}]}],
        [], ("message 1 is the result of a call",),
    ),
    "times-backwards-and-missing": Case(
        [{"messages": [{"role": A, "content": "a", "timestamp": at(2)}, {"role": U, "content": "q", "timestamp": at(1)},
                       {"role": A, "content": "b"}]}],
        [], ("its order is unknown",),
    ),
    "no-time": Case(
        [{"messages": [{"role": U, "content": "q", "timestamp": "11/12/2026"}]}], [], ("11/12/2026",)
    ),
    "items-newest-first": Case(
        [{"object": "list", "data": [{"type": "message", "role": A, "content": "a1"}, {"type": "message", "role": U, "content": "q1"}]}],
        [], ("order=asc",),
    ),
    "records-of-a-session-newest-first": Case(
        [{"session_id": "s", "messages": [{"role": r, "content": c} for r, c in [*PAIR, (U, "q2"), (A, "a2")]]},
         {"session_id": "s", "messages": [{"role": r, "content": c} for r, c in PAIR]}],
        [[*PAIR, (U, "q2"), (A, "a2")]],
    ),
    # grouping
    "otel-session-on-one-span": Case(
        [spans(asked("q1", "a1", spanId="a", parentSpanId="r"),
               otlp({"session.id": "S", "gen_ai.prompt": "x"}, spanId="r") | {"attributes": otlp({"session.id": "S"})["attributes"]},
               asked("q2", "a2", traceId="t2", spanId="b", startTimeUnixNano="1770000001000000000"),
               asked("q3", "a3", traceId="t3", spanId="c", startTimeUnixNano="1770000002000000000"))],
        [PAIR, [(U, "q2"), (A, "a2")], [(U, "q3"), (A, "a3")]], ("spans without model messages",),
    ),
    "langsmith-children-without-trace": Case(
        [run("r", "chain", None, 0, extra={"metadata": {"thread_id": "T"}}, inputs={"input": "q1"}),
         run("l", "llm", "r", 1, inputs={"messages": [{"type": "human", "content": "q1"}]},
             outputs={"generations": [[{"message": {"type": "ai", "content": "a1"}}]]})],
        [PAIR],
    ),
    "claude-back-to-the-start": Case(
        [claude("1", None, U, "old"), claude("2", "1", A, "gone"), claude("3", None, U, "q1", 1), claude("4", "3", A, "a1", 2)],
        [PAIR], ("went back from",),
    ),
    "claude-summary-without-its-parent": Case(
        [claude("1", None, U, "q1"), claude("2", "1", A, "a1"), claude("3", None, U, "So far: q1.", 1, isCompactSummary=True),
         claude("4", "3", U, "q2", 2), claude("5", "4", A, "a2", 3)],
        [[*PAIR, ("developer", "So far: q1."), (U, "q2"), (A, "a2")]],
    ),
    "claude-parallel-calls-branch": Case(
        [claude("1", None, U, "q1"),
         claude("2", "1", A, [{"type": "tool_use", "id": "x", "name": "f", "input": {}}], message={"id": "m"}),
         claude("3", "2", A, [{"type": "tool_use", "id": "y", "name": "g", "input": {}}], message={"id": "m"}),
         claude("4", "2", U, [{"type": "tool_result", "tool_use_id": "x", "content": "rx"}], 1),
         claude("5", "3", U, [{"type": "tool_result", "tool_use_id": "y", "content": "ry"}], 1),
         claude("6", "5", A, "a1", 2)],
        [[("user", "q1"), (A, None), (T, "rx"), (T, "ry"), ("assistant", "a1")]],
    ),
    "codex-rolled-back": Case(
        [codex("session_meta", id="x"), *(said(r, t or "") for r, t in [*PAIR, (U, "drop it"), (A, "dropped")]),
         codex("event_msg", type="thread_rolled_back", num_turns=1), said(U, "q2"), said(A, "a2")],
        [[*PAIR, (U, "q2"), (A, "a2")]], ("rolled back",),
    ),
    # parts
    "unknown-part": Case(
        [{"messages": [{"role": U, "content": "q1"},
                       {"role": A, "content": [{"type": "text", "text": "a1"}, {"type": "chart", "spec": {"x": 1}}]}]}],
        [PAIR], ("part of type 'chart'",),
    ),
    "thought-in-tags": Case(
        [{"conversations": [{"from": "human", "value": "q1"}, {"from": "gpt", "value": "<think>Hm.</think>\na1"}]}], [PAIR]
    ),
    "gemini-thought-in-a-span": Case(
        [spans(otlp({"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps([{"role": U, "parts": [{"text": "q1"}]}]),
                     "gen_ai.output.messages": json.dumps([{"role": "model", "parts": [{"text": "Hm.", "thought": True}, {"text": "a1"}]}])}))],
        [PAIR],
    ),
    "unknown-role": Case(
        [{"messages": [{"role": U, "content": "q"}, {"role": "robot", "content": "a"}]}], [], ("robot",)
    ),
    "unknown-role-in-a-trace": Case(
        [run("l", "llm", None, 0, inputs={"messages": [{"role": U, "content": "q"}, {"role": "robot", "content": "x"}]},
             outputs={"output": "a"})],
        [], ("robot",),
    ),
    "invalid-call": Case(
        [{"messages": [{"type": "human", "content": "q1"},
                       {"type": "ai", "content": "a1", "invalid_tool_calls": [{"name": "f", "args": "{", "id": "c"}]}]}],
        [PAIR],
    ),
    "responses-unknown-item": Case(
        [{"object": "response", "id": "r", "input": "q1", "output": [
            {"type": "novel_item", "id": "n"}, {"type": "message", "role": A, "content": [{"type": "output_text", "text": "a1"}]}]}],
        [PAIR], ("item of type 'novel_item'",),
    ),
    "call-without-a-name": Case(
        [{"messages": [{"role": U, "content": "q1"}, {"role": A, "content": "a1", "tool_calls": [{"id": "c"}]}]}],
        [PAIR], ("call without a name",),
    ),
    # more of each kind, in other formats
    "reminder-in-a-request": Case(
        [{"request": {"messages": [{"role": U, "content": [{"type": "text", "text": t} for t in
                                                           ("<system-reminder>x</system-reminder>", "q1")]}]},
          "response": {"type": "message", "role": A, "content": [{"type": "text", "text": "a1"}]}}],
        [[(D, "<system-reminder>x</system-reminder>"), *PAIR]],
    ),
    "role-is-the-name-of-the-assistant": Case(
        [{"agent_name": "Lumi", "messages": [{"role": "visitor", "content": "q1"}, {"role": "LUMI", "content": "a1"}]},
         {"model": "m-4", "messages": [{"role": U, "content": "q1"}, {"role": "m-4", "content": "a1"}]}],
        [PAIR, PAIR],
    ),
    "sharegpt-words-and-parts": Case(
        [{"conversations": [{"from": "customer", "value": [{"type": "text", "text": "q1"}]}, {"from": "bot", "value": "a1"}]}],
        [PAIR],
    ),
    "mini-note-of-the-harness": Case(
        [{"trajectory_format": "mini-swe-agent-1", "info": {}, "messages": [
            {"role": U, "content": "q1"}, {"role": A, "content": "a1"}, {"role": U, "content": "Provide ONE action."},
            {"role": A, "content": "ok"}]}],
        [[*PAIR, (D, "Provide ONE action."), (A, "ok")]],
    ),
    "codex-newest-first": Case(
        [said(A, "a1", 2), said(U, "q1", 1), codex("session_meta", id="x")], [PAIR]
    ),
    "claude-newest-first-after-going-back": Case(
        [claude("4", "1", A, "a1", 4), claude("3", "2", A, "gone", 3), claude("2", "1", U, "old", 2), claude("1", None, U, "q1", 1)],
        [PAIR], ("went back from",),
    ),
    "atif-steps-by-number": Case(
        [{"schema_version": "ATIF-v1.5", "session_id": "s", "agent": {"name": "t"}, "steps": [
            {"step_id": 2, "source": "agent", "message": "a1"}, {"step_id": 1, "source": "user", "message": "q1"}]}],
        [PAIR],
    ),
    "agentest-turns-by-number": Case(
        [{"runId": "r", "summary": {}, "scenarios": [{"scenarioId": "s", "conversations": [{"turns": [
            {"turnIndex": 1, "userMessage": "q2", "agentMessage": "a2"},
            {"turnIndex": 0, "userMessage": "q1", "agentMessage": "a1"}]}]}]}],
        [[*PAIR, (U, "q2"), (A, "a2")]],
    ),
    "fair-forge-turns-newest-first": Case(
        [{"session_id": "s", "assistant_id": "x", "conversation": [
            {"query": "q2", "assistant": "a2", "timestamp": at(2)}, {"query": "q1", "assistant": "a1", "timestamp": at(1)}]}],
        [[*PAIR, (U, "q2"), (A, "a2")]],
    ),
    "rows-by-number": Case(
        [{"conversation_id": "c", "seq": 2, "role": A, "content": "a1"}, {"conversation_id": "c", "seq": 1, "role": U, "content": "q1"}],
        [PAIR],
    ),
    "trace-with-some-times": Case(
        [{"trace": {"id": "t"}, "observations": [
            observation("b", "GENERATION", None, None, input=[{"role": U, "content": "q2"}], output="a2"),
            observation("a", "GENERATION", None, 1, input=[{"role": U, "content": "q1"}], output="a1")]}],
        [], ("1 of 2 model calls",),
    ),
    "retry-and-replaced-answer-in-a-session": Case(
        [pair([(U, "q1")], "bad", 0), pair([(U, "q1")], "a1", 1), pair([*PAIR, (U, "q2")], "gone", 2),  # type: ignore[list-item]
         pair([*PAIR, (U, "q2")], "a2", 3)],  # type: ignore[list-item]
        [[*PAIR, (U, "q2"), (A, "a2")]], ("replaced answer",),
    ),
    "window-of-a-session": Case(
        [pair([(U, "q1")], "a1", 0), pair([*PAIR, (U, "q2")], "a2", 1),  # type: ignore[list-item]
         pair([(U, "q2"), (A, "a2"), (U, "q3")], "a3", 2)],
        [[*PAIR, (U, "q2"), (A, "a2"), (U, "q3"), (A, "a3")]],
    ),
    "fork-of-a-response": Case(
        [response("r3", "r1", "q2", "a2", 3), response("r2", "r1", "old", "gone", 2), response("r1", None, "q1", "a1", 1)],
        [[*PAIR, (U, "q2"), (A, "a2")]], ("went back from",),
    ),
    "langfuse-subagent": Case(
        [{"trace": {"id": "t"}, "observations": [
            observation("g", "GENERATION", None, 1, input=[{"role": U, "content": "q1"}], output={"role": A, "tool_calls": [call("ask")]}),
            observation("ask", "TOOL", None, 2, input={}, output="found"),
            observation("s", "GENERATION", "ask", 3, input=[{"role": U, "content": "task"}], output="found"),
            observation("h", "GENERATION", None, 4, input=[{"role": U, "content": "q1"}], output="a1")]}],
        [[(U, "q1"), (A, None), (T, "found"), (A, "a1")], [(U, "task"), (A, "found")]],
    ),
    "langsmith-history-beside-the-question": Case(
        [run("r", "chain", None, 0, inputs={"question": "q2", "chat_history": [{"type": "human", "content": "q1"}, {"type": "ai", "content": "a1"}]},
             outputs={"answer": "a2"})],
        [[*PAIR, (U, "q2"), (A, "a2")]],
    ),
    "otel-messages-as-events": Case(
        [spans(otlp({"gen_ai.operation.name": "chat"}, events=[
            event("gen_ai.user.message", content="q1"), event("gen_ai.assistant.message", content="a1"),
            event("gen_ai.user.message", content="q2"), event("gen_ai.choice", message=json.dumps({"role": A, "content": "a2"}))]))],
        [[*PAIR, (U, "q2"), (A, "a2")]],
    ),
    "otel-history-cut-off": Case(
        [spans(otlp({"gen_ai.input.messages": '[{"role": "user", "parts": [{"type": "te', "gen_ai.output.messages": "a1"}))],
        [[(A, "a1")]], ("cut off",),
    ),
    "unknown-observation": Case(
        [{"trace": {"id": "t"}, "observations": [
            observation("g", "GENERATION", None, 1, input="q1", output="a1"), observation("n", "NOVEL", None, 2)]}],
        [PAIR], ("observation of type 'NOVEL'",),
    ),
    "refusal-beside-empty-content": Case([spoken_by(A, content="", refusal="a1")], [PAIR]),
    "calls-that-are-a-text": Case([spoken_by(A, content="a1", tool_calls="f()")], [PAIR], ("tool_calls that are a text",)),
    "call-in-tags": Case(
        [{"messages": [{"role": U, "content": "q1"}, {"role": A, "content": '<tool_call>{"name": "f"}</tool_call>'},
                       {"role": T, "content": "<tool_response>r</tool_response>"}, {"role": A, "content": "a1"}]}],
        [[("user", "q1"), (A, None), (T, "r"), ("assistant", "a1")]],
    ),
    "chatgpt-error-and-unknown-content": Case(
        [{"conversation_id": "g", "current_node": "d", "mapping": {
            **node("a", None, U, content={"content_type": "text", "parts": ["q1"]}),
            **node("old", "a", A, content={"content_type": "text", "parts": ["gone"]}),
            **node("b", "a", A, recipient="python", content={"content_type": "code", "text": "1/0"}),
            **node("c", "b", T, content={"content_type": "system_error", "text": "division by zero"}),
            **node("d", "c", A, content={"content_type": "text", "parts": ["a1", {"content_type": "chart", "x": 1}]})}}],
        [[("user", "q1"), (A, None), (T, "division by zero"), ("assistant", "a1")]],
        ("part of type 'chart'", "replaced answer"), ("division by zero",),
    ),
    "agentest-parts-and-a-call-without-a-name": Case(
        [{"runId": "r", "startedAt": "x", "scenarios": [{"scenarioName": "s", "conversations": [{"turns": [{
            "userMessage": [{"type": "text", "text": "q1"}], "agentMessage": "a1",
            "toolCalls": [{"args": {}}, {"name": "f", "args": {}, "error": "boom"}]}]}]}]}],
        [[("user", "q1"), (A, None), (T, None), (T, "boom"), ("assistant", "a1")]], ("call without a name",), ("boom",),
    ),
    "day-and-clock-in-two-columns": Case(
        [{"chat_id": "c", "role": r, "content": v, "date": d, "time": t}
         for r, v, d, t in ((A, "a2", "2026-11-02", "00:01"), (U, "q2", "2026-11-01", "23:59"), (A, "a1", "2026-11-01", "9:01:30"),
                            (U, "q1", "2026-11-01", "9:01:00"))],
        [[*PAIR, (U, "q2"), (A, "a2")]],
    ),
    "days-of-unknown-form": Case(
        [{"chat_id": "c", "role": r, "content": v, "time": t} for r, v, t in ((A, "a1", "11/30/2026 9:01 AM"), (U, "q1", "11/30/2026 9:00 AM"))],
        [], ("'11/30/2026 9:01 AM' is not a known form of a time",),
    ),
    "day-of-unknown-form-in-a-message": Case(
        [{"conversations": [{"from": "gpt", "value": "a1", "date": "30-11-26"}, {"from": "human", "value": "q1", "date": "29-11-26"}]}],
        [], ("'30-11-26' is not a known form of a time",),
    ),
    "clocks-without-a-day": Case(
        [{"chat_id": "c", "role": r, "content": v, "time": t} for (r, v), t in zip(PAIR, ("9:59 AM", "1:05 PM"), strict=True)],
        [PAIR], ("2 × time of a message without a day",),
    ),
    "clocks-that-run-backwards": Case(
        [{"chat_id": "c", "role": r, "content": v, "time": t} for (r, v), t in zip(PAIR[::-1], ("10:05:09", "10:05:03"), strict=True)],
        [], ("its times run backwards and have no day",),
    ),
    "further-choices-of-a-reply": Case(
        [{"request": {"messages": chat_of(PAIR[:1])}, "response": {"choices": [
            {"message": {"role": A, "content": v}, "finish_reason": "stop"} for v in ("a1", "a2", "a3")]}}],
        [PAIR], ("2 × further choice of one reply",),
    ),
    "parts-whose-types-differ-in-spaces": Case(
        [{"messages": [{"role": U, "content": "q1"}, {"role": A, "content": [{"type": "no   vel"}, {"type": "no vel"}, {"type": "text", "text": "a1"}]}]}],
        [PAIR], ("2 × part of type 'no vel'",),
    ),
    "choices-listed-in-another-order": Case(
        [{"request": {"messages": chat_of(PAIR[:1])}, "response": {"choices": [
            {"index": i, "message": {"role": A, "content": v}} for i, v in ((1, "a2"), (0, "a1"))]}}],
        [PAIR], ("1 × further choice of one reply",),
    ),
    "further-generations-of-a-run": Case(
        [{"id": "r", "trace_id": "t", "run_type": "llm", "start_time": at(0), "inputs": {"messages": chat_of(PAIR[:1])},
          "outputs": {"generations": [[{"text": "a1"}, {"text": "a2"}]]}}],
        [PAIR], ("1 × further choice of one reply",),
    ),
    "expected-actions-without-a-name": Case(
        [[{"task_id": 1, "reward": 1.0, "traj": chat_of(PAIR), "info": {"task": {"actions": [{"kwargs": {}}, {"name": "f", "kwargs": {}}]}}}]],
        [PAIR], ("1 × expected call without a name",),
    ),
    "times-that-are-durations": Case([WITH_DURATIONS], [PAIR]),
    "text-under-another-key": Case([{"messages": [{"role": U, "content": "q1"}, {"role": A, "content": None, "text": "a1"}]}], [PAIR]),
    "unknown-parts-of-a-request": Case(
        [{"request": {"input": {"novel": "q1"}}, "response": {"id": "r", "object": "response", "output": [
            {"type": "message", "role": A, "content": [{"type": "output_text", "text": "a1"}]}]}}],
        [PAIR[1:]], ("input with the keys 'novel'",),
    ),
    "list-within-the-output-of-a-span": Case(
        [spans(otlp({"gen_ai.input.messages": json.dumps(chat_of(PAIR[:1])), "gen_ai.output.messages": json.dumps([*chat_of(PAIR[1:]), ["a2"]])}))],
        [PAIR], ("list within the output",),
    ),
    "thought-in-parts": Case(
        [spoken_by(A, content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "a1"}])],
        [PAIR],
    ),
    "thought-of-unknown-form": Case(
        [spoken_by(A, content="a1", reasoning_content=[{"novel": "Hm."}])], [PAIR], ("reasoning of an unknown form",),
    ),
    "bedrock-result-as-json": Case(
        [{"messages": [{"role": U, "content": [{"text": "q1"}]}, {"role": A, "content": [{"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}]},
                       {"role": U, "content": [{"toolResult": {"toolUseId": "c", "status": "error", "content": [{"json": {"k": 1}}]}}]},
                       {"role": A, "content": [{"text": "a1"}]}]}],
        [[PAIR[0], (A, None), (T, '{"k": 1}'), PAIR[1]]], (), ('{"k": 1}',),
    ),
    "result-as-a-part": Case(
        [{"messages": [{"role": U, "content": "q1"}, {"role": A, "tool_calls": [call("f")]},
                       {"role": T, "tool_call_id": "c1", "content": {"type": "text", "text": "r"}}, {"role": A, "content": "a1"}]}],
        [[PAIR[0], (A, None), (T, "r"), PAIR[1]]],
    ),
    "text-beside-a-result": Case(
        [{"messages": [{"role": U, "content": "q1"}, {"role": A, "tool_calls": [call("f")]},
                       {"role": T, "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "r"}, "hint"]},
                       {"role": A, "content": "a1"}]}],
        [[PAIR[0], (A, None), (T, "r"), PAIR[1]]], ("part beside a tool's result",),
    ),
    "question-in-parts": Case(
        [{"question": [{"type": "text", "text": "q1"}], "mistake_agent": "x", "history": [
            {"role": A, "name": "Coder", "content": "a1"},
            {"role": U, "name": "Computer_terminal", "content": "exitcode: 1 (execution failed)"}]}],
        [[*PAIR, (T, "exitcode: 1 (execution failed)")]], (), ("exitcode: 1 (execution failed)",),
    ),
    "new-message-before-known-ones": Case(
        [{"trace": {"id": "t"}, "observations": [
            observation("g", "GENERATION", None, 1, input=chat_of(PAIR[:1]), output=chat_of(PAIR[1:])[0]),
            observation("h", "GENERATION", None, 2, input=chat_of([(U, "note"), *PAIR, (U, "q2")]), output=chat_of([(A, "a2")])[0])]}],
        [[*PAIR, (U, "q2"), (A, "a2")]], ("messages stand before known ones",),
    ),
    # errors
    "error-beside-a-result-in-a-chat": Case(
        [{"messages": [{"role": U, "content": "q1"}, {"role": A, "tool_calls": [call("f")]},
                       {"role": T, "tool_call_id": "c1", "content": "half", "error": {"type": "timeout", "message": "too late"}},
                       {"role": A, "content": "a1"}]}],
        [[PAIR[0], (A, None), (T, "half\ntoo late"), PAIR[1]]], (), ("half\ntoo late",),
    ),
    "error-beside-a-result-in-agentest": Case(
        [{"runId": "r", "startedAt": "x", "scenarios": [{"scenarioName": "s", "conversations": [{"turns": [{
            "userMessage": "q1", "agentMessage": "a1", "toolCalls": [{"name": "f", "args": {}, "result": "half", "error": "too late"}]}]}]}]}],
        [[PAIR[0], (A, None), (T, "half\ntoo late"), PAIR[1]]], (), ("half\ntoo late",),
    ),
    "error-beside-a-result-of-mcp": Case(
        [{"object": "response", "id": "1", "input": "q1", "output": [
            {"type": "mcp_call", "id": "c", "name": "f", "arguments": "{}", "output": "half", "error": "too late"},
            {"type": "message", "role": A, "content": [{"type": "output_text", "text": "a1"}]}]}],
        [[PAIR[0], (A, None), (T, "half\ntoo late"), PAIR[1]]], (), ("half\ntoo late",),
    ),
    "calls-that-failed-without-a-result": Case(
        [{"object": "response", "id": "1", "input": "q1", "output": [
            {"type": "web_search_call", "id": "c", "status": "failed", "action": {"query": "x"}},
            {"type": "mcp_call", "id": "d", "name": "f", "arguments": "{}", "status": "failed"},
            {"type": "message", "role": A, "content": [{"type": "output_text", "text": "a1"}]}]}],
        [[PAIR[0], (A, None), (T, "failed"), (A, None), (T, "failed"), PAIR[1]]], (), ("failed", "failed"),
    ),
    "command-that-failed-in-atif": Case(
        [{"schema_version": "ATIF-v1.5", "session_id": "s", "agent": {}, "steps": [
            {"source": "user", "message": "q1"},
            {"source": "agent", "message": "a1", "tool_calls": [{"tool_call_id": "c", "function_name": "f", "arguments": {}}],
             "observation": {"results": [{"source_call_id": "c", "content": "Command failed with exit code 1: make"}]}}]}],
        [[*PAIR, (T, "Command failed with exit code 1: make")]], (), ("Command failed with exit code 1: make",),
    ),
    "codex-search-that-failed": Case(
        [codex("session_meta", id="x"), said(U, "q1"),
         codex("response_item", type="web_search_call", status="failed", action={"query": "x"}), said(A, "a1", 1)],
        [[PAIR[0], (A, None), (T, "failed"), PAIR[1]]], (), ("failed",),
    ),
    "ai-sdk-outputs": Case(
        [{"messages": [
            {"role": U, "content": "q1"},
            {"role": A, "content": [{"type": "tool-call", "toolCallId": f"c{n}", "toolName": "f", "input": {}} for n in range(3)]},
            {"role": T, "content": [
                {"type": "tool-result", "toolCallId": f"c{n}", "toolName": "f", "output": output} for n, output in enumerate((
                    {"type": "content", "value": [{"type": "text", "text": "r"}]},
                    {"type": "error-text", "value": "bad"}, {"type": "execution-denied", "reason": "no"}))]},
            {"role": A, "content": "a1"}]}],
        [[PAIR[0], (A, None), (T, "r"), (T, "bad"), (T, "no"), PAIR[1]]], (), ("bad", "no"),
    ),
    "ai-sdk-call-that-a-person-denied": Case(
        [{"messages": [{"role": U, "parts": [{"type": "text", "text": "q1"}]}, {"role": A, "parts": [
            {"type": "tool-f", "toolCallId": "c", "state": "output-denied", "input": {}, "approval": {"approved": False, "reason": "no"}},
            {"type": "text", "text": "a1"}]}]}],
        [[PAIR[0], (A, None), (T, "no"), PAIR[1]]], (), ("no",),
    ),
    "codex-says-success-false-and-an-event-says-an-exit-code": Case(
        [codex("session_meta", id="x"), said(U, "q1"),
         codex("response_item", type="function_call", call_id="c", name="f", arguments="{}"),
         codex("response_item", type="function_call_output", call_id="c", output={"content": "no", "success": False}),
         codex("response_item", type="function_call", call_id="d", name="f", arguments="{}"),
         codex("event_msg", type="exec_command_end", call_id="d", exit_code=2),
         codex("response_item", type="function_call_output", call_id="d", output="nothing"), said(A, "a1", 1)],
        [[("user", "q1"), (A, None), (T, "no"), (A, None), (T, "nothing"), ("assistant", "a1")]], (), ("no", "nothing"),
    ),
    "codex-command-that-the-person-stopped": Case(
        [codex("session_meta", id="x"), said(U, "q1"),
         codex("response_item", type="function_call", call_id="c", name="shell", arguments="{}"),
         codex("response_item", type="function_call_output", call_id="c", output="aborted by user after 3.1s"),
         said(A, "a1", 1)],
        [[("user", "q1"), (A, None), (T, "aborted by user after 3.1s"), ("assistant", "a1")]], (),
        ("aborted by user after 3.1s",),
    ),
    "codex-error-in-a-wrapped-result-and-an-unknown-event": Case(
        [codex("session_meta", id="x"), said(U, "q1"),
         codex("response_item", type="function_call", call_id="c", name="f", arguments="{}"),
         codex("event_msg", type="mcp_tool_call_end", call_id="c", result={"Ok": {"content": [], "isError": True}}),
         codex("response_item", type="function_call_output", call_id="c", output="no"),
         codex("event_msg", type="novel_note"), said(A, "a1", 1)],
        [[("user", "q1"), (A, None), (T, "no"), ("assistant", "a1")]], ("event of type 'novel_note'",), ("no",),
    ),
    "otel-type-of-an-error": Case(
        [spans(otlp({"gen_ai.input.messages": json.dumps([{"role": U, "content": "q1"}]), "error.type": "RateLimitError"}))],
        [[("user", "q1")]], (), ("RateLimitError",),
    ),
    "langsmith-status": Case(
        [run("r", "llm", None, 0, status="error", inputs={"messages": [{"role": U, "content": "q1"}]})],
        [[("user", "q1")]], (), ("error",),
    ),
    "messages-beside-a-completion": Case(
        [{"object": "chat.completion", "id": "1", "messages": [{"role": U, "content": "q1"}],
          "choices": [{"message": {"role": A, "content": "a1"}, "finish_reason": "stop"}]}], [PAIR],
    ),
    "request-beside-a-completion": Case(
        [{"object": "chat.completion", "id": "1", "request": {"messages": [{"role": U, "content": "q1"}]},
          "choices": [{"message": {"role": A, "content": "a1"}, "finish_reason": "stop"}]}], [PAIR],
    ),
    "lists-of-messages-of-two-threads-newest-first": Case(
        [{"object": "list", "data": [
            {"object": "thread.message", "thread_id": t, "role": r, "created_at": 1_772_360_000 + n,
             "content": [{"type": "text", "text": {"value": v, "annotations": []}}]} for t, r, v, n in page]}
         for page in ([("2", A, "b2", 9), ("1", A, "a3", 8), ("1", U, "q2", 7)],
                      [("2", U, "b1", 3), ("1", A, "a1", 2), ("1", U, "q1", 1)])],
        [[(U, "b1"), (A, "b2")], [*PAIR, (U, "q2"), (A, "a3")]],
    ),
    "results-within-calls-of-responses": Case(
        [{"object": "response", "id": "1", "input": "q1", "output": [
            {"type": "code_interpreter_call", "id": "c", "code": "1/0", "status": "failed",
             "outputs": [{"type": "logs", "logs": "ZeroDivisionError"}]},
            {"type": "file_search_call", "id": "f", "queries": ["x"], "status": "completed",
             "results": [{"file_id": "1", "text": "hit"}]},
            {"type": "message", "role": A, "content": [{"type": "output_text", "text": "a1"}]}]}],
        [[(U, "q1"), (A, None), (T, "ZeroDivisionError"), (A, None), (T, "hit"), (A, "a1")]],
        (), ("ZeroDivisionError",),
    ),
    "anthropic-error-of-a-server-tool": Case(
        [spoken_by(A, content=[
            {"type": "server_tool_use", "id": "c", "name": "web_search", "input": {"query": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "c",
             "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"}},
            {"type": "text", "text": "a1"}])],
        [[(U, "q1"), (A, None), (T, '{"error_code": "unavailable"}'), (A, "a1")]],
        (), ('{"error_code": "unavailable"}',),
    ),
    "gemini-text-after-the-result-of-code": Case(
        [{"contents": [{"role": U, "parts": [{"text": "q1"}]}, {"role": "model", "parts": [
            {"executableCode": {"language": "PYTHON", "code": "x"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "NameError"}}, {"text": "a1"}]}]}],
        [[(U, "q1"), (A, None), (T, "NameError"), (A, "a1")]], (), ("NameError",),
    ),
    "gemini-blocked-prompt": Case(
        [{"request": {"contents": [{"role": U, "parts": [{"text": "q1"}]}]},
          "response": {"promptFeedback": {"blockReason": "SAFETY"}}}],
        [[(U, "q1")]], (), ("the prompt was blocked: SAFETY",),
    ),
    "vertex-batch-error": Case(
        [{"status": "Bad Request: no such model", "response": {},
          "request": {"contents": [{"role": U, "parts": [{"text": "q1"}]}]}}],
        [[(U, "q1")]], (), ("Bad Request: no such model",),
    ),
    "no-response": Case(
        [{"request": {"model": "m", "messages": [{"role": U, "content": "q1"}]}, "response": None, "error": "RateLimitError: 429"}],
        [[("user", "q1")]],
    ),
    "failure-that-a-result-states-in-json": Case(
        [{"messages": [{"role": U, "content": "q1"}, {"role": A, "tool_calls": [call("f")]},
                       {"role": T, "tool_call_id": "c1", "content": '{"success": false}'}, {"role": A, "content": "a1"}]}],
        [[("user", "q1"), (A, None), (T, '{"success": false}'), ("assistant", "a1")]], (), ('{"success": false}',),
    ),
    # the reply beside the messages
    "reply-as-text-beside-the-messages": Case([{"messages": [{"role": U, "content": "q1"}], "response": "a1"}], [PAIR]),
    "output-that-may-be-the-expected-reply": Case(
        [{"messages": [{"role": U, "content": "q1"}], "output": "a1"}], [[("user", "q1")]], ("'output' beside messages",),
    ),
    "reply-in-an-object-beside-the-messages": Case(
        [{"messages": [{"role": U, "content": "q1"}], "response": {"text": "a1"}}], [PAIR],
    ),
    "choices-that-are-options-of-a-question": Case(
        [{"messages": [{"role": U, "content": "q1"}], "choices": [{"label": "A", "text": "Rome"}], "reply": True}],
        [[("user", "q1")]],
    ),
    "choices-beside-the-messages": Case(
        [{"messages": [{"role": U, "content": "q1"}], "choices": [{"message": {"role": A, "content": "a1"}}]}], [PAIR],
    ),
    "text-beside-a-chat-that-ends-with-its-reply": Case(
        [{"messages": [{"role": U, "content": "q1"}, {"role": A, "content": "a1"}], "response": "a1"}], [PAIR],
    ),
    # parts
    "unknown-parts-of-a-request-and-its-response": Case(
        [{"request": {"messages": [{"role": U, "content": [{"type": "text", "text": "q1"}, {"type": "chart", "x": 1}]}]},
          "response": {"choices": [{"message": {"role": A, "content": [{"type": "text", "text": "a1"}, {"type": "chart"}]}}]}}],
        [PAIR], ("2 × part of type 'chart'",),
    ),
    "chatgpt-unknown-content-with-a-text": Case(
        [{"conversation_id": "g", "current_node": "c", "mapping": {
            **node("a", None, U, content={"content_type": "text", "parts": ["q1"]}),
            **node("b", "a", A, content={"content_type": "new_kind", "text": "not speech"}),
            **node("c", "b", A, content={"content_type": "text", "parts": ["a1"]})}}],
        [PAIR], ("part of type 'new_kind'",),
    ),
    # parallel runs of one tool, and records delivered twice
    "langfuse-parallel-runs-newest-first": Case(
        [{"id": f"{kind} {minute} {more}", "traceId": "t", "parentObservationId": None, "type": kind, "name": "f", "startTime": at(minute), **more}
         for kind, minute, more in PARALLEL],
        [[("user", "q1"), (A, None), (T, "one"), (T, "two"), ("assistant", "a1")]],
    ),
    "langsmith-parallel-runs-by-their-arguments": Case(
        [run("r", "llm", None, 0, trace_id="t", inputs={"messages": [{"role": U, "content": "q1"}]},
             outputs={"role": A, "content": None, "tool_calls": TWO_CALLS}),
         run("b", "tool", None, 1, trace_id="t", name="f", inputs={"input": "{'k': 2}"}, outputs={"output": "two"}),
         run("a", "tool", None, 2, trace_id="t", name="f", inputs={"input": "{'k': 1}"}, outputs={"output": "one"})],
        [[("user", "q1"), (A, None), (T, "one"), (T, "two")]],
    ),
    "langfuse-observation-delivered-twice-in-pages-without-meta": Case(
        [{"data": [{"id": "t", "timestamp": at(0), "observations": [
            observation("g", "GENERATION", None, 1, input=[{"role": U, "content": "q1"}], output="a1")] * 2}]}] * 2,
        [PAIR], ("copies of another one",),
    ),
    "langsmith-child-delivered-twice": Case(
        [run("r", "chain", None, 0, trace_id="r", child_runs=[run(
            "l", "llm", "r", 1, trace_id="r", inputs={"messages": [{"role": U, "content": "q1"}]}, outputs={"output": "a1"})] * 2)],
        [PAIR], ("copies of another one",),
    ),
    # histories that leave out the agent's steps, and what only one part of a session knows
    "session-that-repeats-only-what-was-said": Case(
        [pair([(U, "q1")], "a1", 0) | {"request": {"messages": WITH_STEPS}}, pair([*PAIR, (U, "q2")], "a2", 1),  # type: ignore[list-item]
         pair([*PAIR, (U, "q2"), (A, "a2"), (U, "q3")], "a3", 2)],  # type: ignore[list-item]
        [[(U, "q1"), (A, None), (T, FAULT), (A, "a1"), (U, "q2"), (A, "a2"), (U, "q3"), (A, "a3")]], (), (FAULT,),
    ),
    "branch-of-a-session-that-repeats-only-what-was-said": Case(
        [pair([(U, "q1")], "a1", 0) | {"request": {"messages": WITH_STEPS}}, pair([*PAIR, (U, "old")], "gone", 1),  # type: ignore[list-item]
         pair([*PAIR, (U, "q2")], "a2", 2)],  # type: ignore[list-item]
        [[(U, "q1"), (A, None), (T, FAULT), (A, "a1"), (U, "q2"), (A, "a2")]], ("went back from",), (FAULT,),
    ),
    "langfuse-session-that-repeats-only-what-was-said": Case(
        [{"trace": {"id": trace, "sessionId": "S", "timestamp": at(minute)}, "observations": observations}
         for trace, minute, observations in [
             ("t2", 5, [observation("d", "GENERATION", None, 5, input=chat_of([*PAIR, (U, "q2")]), output="a2")]),
             ("t1", 0, [observation("a", "GENERATION", None, 0, input=chat_of([(U, "q1")]), output={"role": A, "tool_calls": [call("f")]}),
                        observation("f", "TOOL", None, 1, level="ERROR", statusMessage="down"),
                        observation("c", "GENERATION", None, 2, input=WITH_STEPS, output="a1")])]],
        [[(U, "q1"), (A, None), (T, "down"), (A, "a1"), (U, "q2"), (A, "a2")]], (), ("down",),
    ),
    "otel-replaced-answer-after-parallel-runs-in-another-order": Case(
        [spans(otlp({"session.id": "S", "gen_ai.input.messages": json.dumps(chat_of(PAIR[:1])),
                     "gen_ai.output.messages": json.dumps([{"role": A, "tool_calls": [call("f", "c1"), call("f", "c2")]}])},
                    spanId="t1a", startTimeUnixNano="1770000000000000000"),
               *(otlp({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "f", "gen_ai.tool.call.id": i, **result},
                      traceId="t1", spanId=i, startTimeUnixNano=f"1770000001{n}00000000")
                 for n, i, result in ((0, "c2", {"gen_ai.tool.call.result": "two"}), (1, "c1", {"error.type": "down"}))),
               *(otlp({"session.id": "S", "gen_ai.input.messages": json.dumps(PARALLEL_HISTORY),
                       "gen_ai.output.messages": json.dumps([{"role": A, "content": a}])},
                      traceId=t, spanId=f"{t}b", startTimeUnixNano=f"17700000{n}0000000000")
                 for n, t, a in ((2, "t1", "gone"), (3, "t2", "a1"))))],
        [[(U, "q1"), (A, None), (T, "?"), (T, "two"), (A, "a1")]], ("replaced answer",), ("?",),
    ),
    # the same call among the parts and beside them, errors and thoughts in other places
    "langsmith-calls-of-anthropic-in-both-places": Case(
        [run("r", "llm", None, 0, inputs={"messages": [{"role": U, "content": "q1"}]}, outputs={"generations": [[{"message": {
            "lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"], "kwargs": {
                "content": [{"type": "text", "text": "a1"}, {"type": "tool_use", "id": "c1", "name": "f", "input": {}}],
                "tool_calls": [{"id": "c1", "name": "f", "args": {"k": 1}, "type": "tool_call"}]}}}]]}),
         run("t", "tool", None, 1, trace_id="r", name="f", outputs={"output": {"content": "one", "tool_call_id": "c1"}})],
        [[*PAIR, (T, "one")]],
    ),
    "unknown-role-of-the-only-message-in-a-trace": Case(
        [{"trace": {"id": "t"}, "observations": [
            observation("g", "GENERATION", None, 1, input=[{"role": "cliente", "content": "q"}], output="a1")]}],
        [], ("cliente",),
    ),
    "observations-without-null-keys-after-an-unknown-one": Case(
        [{"data": [{"id": i, "traceId": "t", "type": kind, "startTime": at(0), **more} for i, kind, more in
                   [("n", "NOVEL", {}), ("g", "GENERATION", {"input": "q1", "output": "a1"})]], "meta": {}}],
        [PAIR], ("observation of type 'NOVEL'",),
    ),
    "observations-of-a-bucket": Case(
        [{"id": "g", "trace_id": "t", "type": "GENERATION", "parent_observation_id": None, "start_time": at(0),
          "input": "q1", "output": "a1", "provided_model_name": "m"}],
        [PAIR],
    ),
    "unknown-part-beside-a-reminder": Case(
        [codex("session_meta", id="x"), codex("response_item", type="message", role=U, content=[
            {"type": "input_text", "text": "<environment_context>x</environment_context>"}, {"type": "chart"}]),
         said(U, "q1"), said(A, "a1", 1)],
        [[(D, "<environment_context>x</environment_context>"), *PAIR]], ("part of type 'chart'",),
    ),
    "unknown-part-among-the-blocks-of-a-result": Case(
        [{"uuid": "u", "chat_messages": [{"sender": "human", "text": "q1"}, {"sender": A, "content": [
            {"type": "tool_use", "name": "f", "input": {}},
            {"type": "tool_result", "content": [{"type": "text", "text": "r"}, {"spec": 1}]}, {"type": "text", "text": "a1"}]}]}],
        [[(U, "q1"), (A, None), (T, "r"), (A, "a1")]], ("part with the keys 'spec'",),
    ),
    "agentest-unknown-turn-and-scenario": Case(
        [{"runId": "r", "startedAt": "x", "scenarios": [{"scenarioName": "s", "conversations": [{"turns": [
            {"userMessage": "q1", "agentMessage": "a1"}, {"spoken": "x"}]}]}, {"scenarioName": "t", "talks": []}]}],
        [PAIR], ("turn with the keys 'spoken'", "conversations is missing"),
    ),
    "fair-forge-unknown-turn": Case(
        [{"session_id": "s", "assistant_id": "a", "conversation": [{"query": "q1", "assistant": "a1"}, {"spoken": "x"}]}],
        [PAIR], ("turn with the keys 'spoken'",),
    ),
    "whowhen-unknown-entry": Case(
        [{"question": "q1", "mistake_agent": "x", "history": [{"role": A, "content": "a1"}, {"spoken": "x"}]}],
        [PAIR], ("entry of the history with the keys 'spoken'",),
    ),
    "observation-without-a-type": Case(
        [{"trace": {"id": "t"}, "observations": [
            observation("g", "GENERATION", None, 1, input="q1", output="a1"), {"id": "n", "traceId": "t", "input": "x"}]}],
        [PAIR], ("observation of type 'None'",),
    ),
    "error-of-an-mcp-call": Case(
        [{"object": "response", "id": "r", "input": "q1", "output": [
            {"type": "mcp_call", "id": "m", "name": "f", "arguments": "{}",
             "error": {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "down"}]}},
            {"type": "message", "role": A, "content": [{"type": "output_text", "text": "a1"}]}]}],
        [[(U, "q1"), (A, None), (T, "down"), (A, "a1")]], (), ("down",),
    ),
    "chatgpt-leaf-that-is-missing": Case(
        [{"conversation_id": "g", "current_node": "x", "mapping": node("a", None, U, content={"content_type": "text", "parts": ["q1"]})}],
        [], ("current_node is 'x'",),
    ),
    "row-delivered-twice": Case(
        [{"conversation_id": "c", "id": own, "role": role, "content": text}
         for own, role, text in [("1", U, "q1"), ("1", U, "q1"), ("2", A, "a1")]],
        [PAIR], ("copies of another one",),
    ),
    "error-beside-the-output-of-a-run": Case(
        [{"trace": {"id": "t"}, "observations": [
            observation("g", "GENERATION", None, 0, input="q1", output={"role": A, "content": None, "tool_calls": [call("f")]}),
            observation("f", "TOOL", None, 1, output="half", level="ERROR", statusMessage="too late")]}],
        [[(U, "q1"), (A, None), (T, "half\ntoo late")]], (), ("half\ntoo late",),
    ),
    "error-beside-the-outputs-of-a-run": Case(
        [run("r", "chain", None, 0), run("l", "llm", "r", 1, inputs={"messages": [{"type": "human", "content": "q1"}]},
             outputs={"generations": [[{"message": {"type": "ai", "content": "", "tool_calls": [{"name": "f", "args": {}, "id": "c1"}]}}]]}),
         run("f", "tool", "r", 2, outputs={"output": "half"}, error="too late")],
        [[(U, "q1"), (A, ""), (T, "half\ntoo late")]], (), ("half\ntoo late",),
    ),
    "response-that-failed-before-the-last": Case(
        [response("r1", None, "q1", "a1", 0), FAILED, response("r3", "r2", "q3", "a3", 2)],
        [[(U, "q1"), (A, "a1"), (U, "q2"), (U, "q3"), (A, "a3")]], (), ("busy",),
    ),
    "response-that-failed-and-was-asked-again": Case(
        [response("r1", None, "q1", "a1", 0), FAILED, response("r3", "r1", "q2", "a2", 2)],
        [[(U, "q1"), (A, "a1"), (U, "q2"), (A, "a2")]], ("a branch that the person went back from",), ("busy",),
    ),
    "codex-error-before-a-reply": Case(
        [codex("session_meta", id="x"), said(U, "q1"), codex("event_msg", type="error", message="busy"), said(A, "a1", 1)],
        [PAIR], (), ("busy",),
    ),
    "otel-call-that-failed-and-was-repeated": Case(
        [spans(otlp({"gen_ai.input.messages": json.dumps([{"role": U, "content": "q1"}]), "error.type": "RateLimitError"}),
               asked("q1", "a1"))],
        [PAIR], (), ("RateLimitError",),
    ),
    "span-delivered-twice": Case(
        [spans(asked("q1", "a1")), spans(asked("q1", "a1"))], [PAIR], ("copies of another one",),
    ),
}  # fmt: skip


def read(content: bytes, folder: Path) -> list[Any]:
    path = folder / "in.jsonl"
    path.write_bytes(content)
    source = Source(path, "s")
    found = detect(source)
    return [found.reason] if found.format_name is None else list(FORMATS[found.format_name](source))


@pytest.mark.parametrize("name", CASES)
def test_the_laws_hold_in_this_format(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    found = read(lines(case.lines), tmp_path)
    texts = [[(m.role, m.content) for m in c.messages] for c in found if isinstance(c, Conversation)]
    assert texts == case.said, found
    talks = [item for item in found if isinstance(item, Conversation)]
    errors = [m.content or "" for c in talks for m in c.messages if m.is_error]
    errors += [c.outcome.error for c in talks if c.outcome.error]
    errors += [str(error) for c in talks for error in listed(c.metadata.get("recovered_errors"))]
    assert not case.errors or tuple(errors) == case.errors
    named = "\n".join(str(item) for item in found if not isinstance(item, Conversation))
    assert all(words in named for words in case.named), named
    assert bool(named) == bool(case.named), named


def test_thoughts_beside_a_message_are_no_text(tmp_path: Path) -> None:
    thoughts = {"thinking_blocks": [{"type": "thinking", "thinking": "Hm."}]}
    for name in ("openai", "swe-agent"):
        value = ANY_PARTS[name]([(U, "q1"), (A, "a1")])[0]
        (value.get("messages") or value["history"])[1] |= thoughts
        (talk,) = read(lines([value]), tmp_path)
        assert talk.metadata["reasoning"] == [{"message_index": 1, "text": "Hm."}]


@pytest.mark.parametrize(
    "value",
    [
        {"messages": [*chat_of(PAIR[:1]), {"role": A, "content": [{"type": "redacted_thinking", "data": "Emw"}, "a1"]}]},
        {"messages": [*chat_of(PAIR), {"role": A, "content": "a2", "reasoning_details": [{"type": "reasoning.encrypted", "data": "Emw"}]}]},
        {"object": "response", "id": "r", "input": "q1", "output": [
            {"type": "reasoning", "summary": [], "encrypted_content": "Emw"}, {"type": "message", "role": A, "content": "a1"}]},
    ],
)  # fmt: skip
def test_a_thought_that_cannot_be_read_is_kept_as_encrypted(value: Any, tmp_path: Path) -> None:
    (talk,) = read(lines([value]), tmp_path)
    assert [thought["text"] for thought in talk.metadata["reasoning"]] == ["[encrypted]"]
    assert "Emw" not in talk.model_dump_json()


def test_a_stored_response_has_its_time(tmp_path: Path) -> None:
    (talk,) = read(lines([response("r1", None, "q1", "a1", 0)]), tmp_path)
    assert [m.timestamp for m in talk.messages] == [None, "2023-11-14T22:13:20Z"]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_key_that_is_null_may_be_absent(name: str, tmp_path: Path) -> None:
    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [*map(plain, value)]
        return {k: plain(v) for k, v in value.items() if v is not None} if isinstance(value, dict) else value

    sample = SAMPLES[name]
    without = read(sample._replace(content=plain(sample.content)).to_bytes(), tmp_path)
    texts = (
        [getattr(c, "messages", c) for c in found] for found in (read(sample.to_bytes(), tmp_path), without)
    )
    assert next(texts) == next(texts)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_an_unknown_role_in_a_row_is_refused_with_its_line(suffix: str, tmp_path: Path) -> None:
    rows = [("c", U, "q1"), ("c", A, "a1"), ("d", U, "q2"), ("d", "wizard", "x"), ("d", A, "a2")]
    keys = ("conversation_id", "role", "content")
    text = "\n".join(map(",".join, [keys, *rows])) + "\n" if suffix == "csv" else ""
    path = tmp_path / f"in.{suffix}"
    path.write_bytes(text.encode() or lines([dict(zip(keys, row, strict=True)) for row in rows]))
    talk, refusal = FORMATS["openai"](Source(path, "s"))
    assert isinstance(talk, Conversation)
    assert isinstance(refusal, Refusal)
    assert (len(talk.messages), refusal.line) == (2, 5 if suffix == "csv" else 4)
    assert "role is 'wizard'; allowed: assistant" in refusal.reason


def part(kind: str, mark: str) -> Any:
    """A part of a message that contains the mark once."""
    parts: dict[str, Any] = {
        "text": {"type": "text", "text": mark},
        "plain": mark,
        "refusal": {"type": "refusal", "refusal": mark},
        "thought": {"text": mark, "thought": True},
        "call": {"type": "tool_use", "id": mark, "name": "f", "input": {}},
        "image": {"type": "image_url", "image_url": {"url": f"https://x/{mark}"}},
        "value": {"type": "text", "text": {"value": mark, "annotations": []}},
        "unknown": {"type": "chart", "spec": mark},
        "untyped": {"spec": mark},
        "unnamed": {"type": "tool_use", "id": mark},
        "empty text": {"type": "text", "text": {"html": mark}},
        "nested": [mark],
    }
    return parts[kind]


KINDS = (
    *("text", "plain", "refusal", "thought", "call", "image", "value"),
    *("unknown", "untyped", "unnamed", "empty text", "nested"),
)


Spoken = list[tuple[str, Any]]


def chat(spoken: Spoken) -> list[Any]:
    return [{"role": role, "content": content} for role, content in spoken]


def of_generation(spoken: Spoken) -> dict[str, Any]:
    return {"input": chat(spoken[:-1]), "output": chat(spoken[-1:])[0]}


def turns(spoken: Spoken, user: str, agent: str) -> list[Any]:
    return [{user: q, agent: a} for (_, q), (_, a) in zip(spoken[::2], spoken[1::2], strict=True)]


ANY_PARTS: dict[str, Callable[[Spoken], list[Any]]] = {
    "openai": lambda s: [{"messages": chat(s)}],
    "openai-responses": lambda s: [{"items": [{"type": "message", **m} for m in chat(s)]}],
    "otel-genai": lambda s: [spans(otlp({"gen_ai.input.messages": json.dumps([{"role": r, "parts": c} for r, c in s])}))],
    "langfuse": lambda s: [{"trace": {"id": "t"}, "observations": [observation("g", "GENERATION", None, 1, **of_generation(s))]}],
    "langsmith": lambda s: [run("r", "llm", None, 0, inputs={"messages": chat(s[:-1])}, outputs={"output": chat(s[-1:])[0]})],
    "claude-code": lambda s: [claude(str(n), str(n - 1) if n else None, r, c) for n, (r, c) in enumerate(s)],
    "codex": lambda s: [codex("session_meta", id="x"), *(codex("response_item", type="message", role=r, content=c) for r, c in s)],
    "claude-ai": lambda s: [{"uuid": "u", "chat_messages": [{"sender": r, "content": c} for r, c in s]}],
    "chatgpt": lambda s: [{"conversation_id": "g", "current_node": str(len(s) - 1), "mapping": {
        k: v for n, (r, c) in enumerate(s)
        for k, v in node(str(n), str(n - 1) if n else None, r, content={"content_type": "text", "parts": c}).items()}}],
    "sharegpt": lambda s: [{"conversations": [{"from": r, "value": c} for r, c in s]}],
    "atif": lambda s: [{"schema_version": "ATIF-v1.5", "session_id": "s", "agent": {}, "steps": [
        {"source": {A: "agent"}.get(r, r), "message": c} for r, c in s]}],
    "inspect": lambda s: [{"version": 2, "eval": {}, "samples": [{"id": 1, "epoch": 1, "messages": chat(s)}]}],
    "swe-agent": lambda s: [{"environment": "m", "trajectory": [], "info": {}, "history": chat(s)}],
    "mini-swe-agent": lambda s: [{"trajectory_format": "mini-swe-agent-1", "info": {}, "messages": chat(s)}],
    "whowhen": lambda s: [{"question": "q", "mistake_agent": "x", "history": chat(s)}],
    "agentest": lambda s: [{"runId": "r", "startedAt": "x", "scenarios": [
        {"scenarioName": "s", "conversations": [{"turns": turns(s, "userMessage", "agentMessage")}]}]}],
    "fair-forge": lambda s: [{"session_id": "s", "assistant_id": "a", "conversation": turns(s, "query", "assistant")}],
    "tau-bench": lambda s: [[{"task_id": 1, "reward": 1, "info": {}, "trial": 0, "traj": chat(s)}]],
    "tau2": lambda s: [{"tasks": [], "simulations": [{"task_id": 1, "trial": 0, "reward_info": {}, "messages": chat(s)}]}],
}  # fmt: skip
"""Format → the file of a conversation whose messages have any parts."""


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", FORMATS)
def test_every_part_is_stored_or_named(name: str, seed: int, tmp_path: Path) -> None:
    """Parts in = parts stored + parts named, whatever the format, the parts and their order."""
    chance = random.Random(seed)
    marks = [f"mark{n}x" for n in range(chance.randint(1, 40))]
    spoken: Spoken = []
    left = list(marks)
    while left:
        own, left = left[: (n := chance.randint(1, 5))], left[n:]
        kinds = [chance.choice(KINDS) for _ in own]
        spoken.append((U, [part(chance.choice(KINDS[:2]), "q")]))
        spoken.append((A, [part(kind, mark) for kind, mark in zip(kinds, own, strict=True)]))
    path = tmp_path / "in.jsonl"
    path.write_bytes(lines(ANY_PARTS[name](spoken)))
    assert detect(Source(path, "s")).format_name == name
    found = list(FORMATS[name](Source(path, "s")))
    stored = "".join(item.model_dump_json() for item in found if isinstance(item, Conversation))
    refusals = [item.reason for item in found if isinstance(item, Refusal)]
    n_named = sum(int(n) for reason in refusals for n in re.findall(r"(\d+) × ", reason))
    assert all(reason.startswith(NOT_READ) for reason in refusals)
    assert sum(mark in stored for mark in marks) + n_named == len(marks)


BESIDE = {
    *("children", "actions", "tasks", "expected_tools", "scores", "attributes", "values", "tool_call_ids"),
    *("resourceSpans", "scopeSpans", "trajectory"),  # without spans; repeats the history
    *("choices", "generations", "inputs"),  # the first one is read; inputs repeat what was said before
}
"""Keys of lists whose entries are not what was said."""


def parts_of(value: Any, but: Collection[str], key: str = "") -> Iterator[tuple[Any, str]]:
    """Each value at any depth, outer ones first, with its key; an entry of a list has the key of the list."""
    yield value, key
    for k, v in value.items() if isinstance(value, dict) else ((key, v) for v in listed(value)):
        if k not in but:
            yield from parts_of(v, but, k)


def spoken_lists(content: Any) -> list[Any]:
    """The lists in a value, at any depth, whose entries are objects that may say something."""
    lists = ((part, key) for part, key in parts_of(content, BESIDE) if isinstance(part, list))
    return [part for part, key in lists if key not in BESIDE and all(isinstance(v, dict) for v in part)]


@pytest.mark.parametrize("name", SAMPLES)
def test_an_entry_of_unknown_form_is_named_wherever_it_is(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    n_named = sum(not isinstance(item, Conversation) for item in read(sample.to_bytes(), tmp_path))
    for n in range(len(spoken_lists(sample.content))):
        content = json.loads(json.dumps(sample.content))
        spoken_lists(content)[n].append({"type": "novel", "spec": "mark7x"})
        found = read(sample._replace(content=content).to_bytes(), tmp_path)
        talks = [item for item in found if isinstance(item, Conversation)]
        is_named = len(found) - len(talks) > n_named
        assert is_named or any("mark7x" in talk.model_dump_json() for talk in talks), (n, content)
        assert not any("mark7x" in (m.content or "") for talk in talks for m in talk.messages if m.role != T)


TEXTS = (
    "content",
    "text",
    "value",
    "message",
    "query",
    "assistant",
    "userMessage",
    "agentMessage",
    "output",
    "result",
)
"""Keys of what was said or returned."""
NOT_SAID = {"base_instructions", "inputs", "outputs", "observations", "choices", "kwargs", "summary"}
"""Keys of values that repeat what was said, or that may be absent."""


def texts_in(content: Any) -> list[tuple[dict[str, Any], str]]:
    """The texts in a value, at any depth, each as the object that holds it and its key."""
    objects = (part for part, _ in parts_of(content, NOT_SAID) if isinstance(part, dict))
    return [
        (part, k) for part in objects for k in part if k in TEXTS and part[k] and isinstance(part[k], str)
    ]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_text_under_an_unknown_key_is_named(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    n_named = sum(not isinstance(item, Conversation) for item in read(sample.to_bytes(), tmp_path))
    for n in range(len(texts_in(sample.content))):
        content = json.loads(json.dumps(sample.content))
        holder, key = texts_in(content)[n]
        holder["novel"] = "mark7x"
        del holder[key]
        found = read(sample._replace(content=content).to_bytes(), tmp_path)
        is_named = sum(not isinstance(item, Conversation) for item in found) > n_named
        assert is_named or any("mark7x" in item.model_dump_json() for item in found), (n, holder)


@pytest.mark.parametrize("name", SAMPLES)
def test_no_part_of_a_sample_becomes_speech_as_json(name: str, tmp_path: Path) -> None:
    for item in read(SAMPLES[name].to_bytes(), tmp_path):
        texts = [m.content or "" for m in item.messages] if isinstance(item, Conversation) else []
        assert not any(words in text for text in texts for words in ('{"type":', "[refusal]", "[text]"))


def test_what_a_person_wrote_beside_a_block_of_a_program_stays_hers() -> None:
    text = "Why does <system-reminder> appear in my log?"
    assert told_apart([{"role": U, "content": text}]) == [{"role": U, "content": text}]


def side(uuid: str, parent: str | None, role: str, content: Any, minute: int, **more: Any) -> dict[str, Any]:
    """A line of a side chain; with "?" as its parent it names none."""
    line = claude(uuid, parent, role, content, minute, isSidechain=True, **more)
    return {key: value for key, value in line.items() if (key, value) != ("parentUuid", "?")}


USE, RESULT = (
    {"type": "tool_use", "id": "c", "name": "f", "input": {}},
    {"type": "tool_result", "tool_use_id": "c"},
)
SIDES: dict[str, tuple[list[dict[str, Any]], dict[str, list[str | None]]]] = {
    "side by side, told apart by their names": (
        [side("1", None, U, "q1", 0, agentId="x"), side("2", "?", U, "q2", 1, agentId="y"),
         side("3", "1", A, "a1", 2, agentId="x"), side("4", "2", A, "a2", 3, agentId="y")],
        {"x": ["q1", "a1"], "y": ["q2", "a2"]},
    ),
    "side by side, told apart by their parents": (
        [side("1", None, U, "q1", 0), side("2", None, U, "q2", 1), side("3", "1", A, "a1", 2), side("4", "2", A, "a2", 3)],
        {"subagent": ["q1", "a1"], "subagent-2": ["q2", "a2"]},
    ),
    "one of its lines has the name": (
        [side("1", None, U, "q1", 0), side("2", "1", A, "a1", 1, agentId="x")], {"x": ["q1", "a1"]},
    ),
    "a line without any link": (
        [side("1", None, U, "q1", 0, agentId="x"), side("2", "?", A, "a1", 1)], {"x": ["q1", "a1"]},
    ),
    "a name without a link": (
        [side("1", None, U, "q1", 0, agentId="x"), side("2", "?", U, "q2", 1, agentId="y"), side("3", "2", A, "a2", 2)],
        {"x": ["q1"], "y": ["q2", "a2"]},
    ),
    "joined by the call that is answered": (
        [side("1", None, U, "q1", 0), side("2", "1", A, [USE], 1), side("3", None, U, "q2", 2),
         side("4", "?", U, [RESULT | {"content": "r1"}], 3), side("5", "4", A, "a1", 4), side("6", "3", A, "a2", 5)],
        {"subagent": ["q1", None, "r1", "a1"], "subagent-2": ["q2", "a2"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SIDES)
def test_each_subagent_of_a_log_is_a_conversation_of_its_own(name: str, tmp_path: Path) -> None:
    chains, expected = SIDES[name]
    found = read(lines([claude("m", None, U, "go"), claude("n", "m", A, "ok"), *chains]), tmp_path)
    assert all(isinstance(one, Conversation) for one in found), found
    texts = {one.conversation_id.removeprefix("s:s/"): [m.content for m in one.messages] for one in found}
    assert texts == {"s:s": ["go", "ok"]} | expected


@pytest.mark.parametrize(("between", "owner"), [(U, "c1#2"), (A, "c1")])
def test_a_call_without_a_result_takes_none_of_a_later_step_that_uses_its_id_again(
    between: str, owner: str
) -> None:
    calls = {"role": A, "content": None, "tool_calls": [call("f")]}
    result = {"role": T, "tool_call_id": "c1", "content": "r"}
    fields, _ = settled(
        {"messages": [{"role": U, "content": "q"}, calls, {"role": between, "content": "x"}, calls, result]}
    )
    messages = fields["messages"]
    assert isinstance(messages, list)
    assert messages[-1] == result | {"tool_call_id": owner}


def a_response(own: str, before: str, said: str) -> dict[str, Any]:
    output = [{"type": "message", "role": A, "content": [{"type": "output_text", "text": f"Re {said}"}]}]
    request = {"previous_response_id": before, "input": [{"role": U, "content": said}]}
    return {"id": own, "object": "response", "status": "completed", "model": "m", "output": output, **request}


def a_claude_line(own: str, before: str, said: str) -> dict[str, Any]:
    message = {"role": U, "content": said}
    line = {"type": U, "uuid": own, "parentUuid": before, "sessionId": "S", "message": message}
    return line | {
        "timestamp": "2026-02-01T10:00:00Z",
        "cwd": "/w",
        "version": "1.0.90",
        "isSidechain": False,
    }


@pytest.mark.parametrize("made", [a_response, a_claude_line])
@pytest.mark.parametrize("circle", ["ab", "abc"])
def test_an_order_that_is_a_circle_is_refused_by_name(made: Any, circle: str, tmp_path: Path) -> None:
    rows = [
        made(own, before, f"Say {own}") for own, before in zip(circle, circle[-1] + circle[:-1], strict=True)
    ]
    found = read("".join(f"{json.dumps(row)}\n" for row in rows).encode(), tmp_path)
    assert [item for item in found if isinstance(item, Conversation)] == []
    assert any("its order is a circle" in str(item) for item in found)
