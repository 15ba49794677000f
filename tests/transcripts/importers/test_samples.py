"""Every format: the sample is recognised, read as counted by hand, and importing it twice changes nothing."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from agent_eval.formats.refusals import Refusal
from agent_eval.transcripts.importers.base import LeftOut, Source
from agent_eval.transcripts.importers.catalog import FORMATS
from agent_eval.transcripts.importers.detection import detect
from agent_eval.transcripts.importers.importing import import_file
from agent_eval.transcripts.models import Conversation
from agent_eval.transcripts.sessions import read_sessions
from tests.transcripts.importers import samples
from tests.transcripts.importers.samples import CHAT, CITY, QUESTION, REPLY, SAMPLES, SNOW
from tests.transcripts.importers.test_dialects import FORMS
from tests.transcripts.making import lines, snapshot


def read(format_name: str, content: bytes, folder: Path) -> list[Conversation]:
    return [found for found in read_all(format_name, content, folder) if isinstance(found, Conversation)]


def read_all(format_name: str, content: bytes, folder: Path) -> list[Conversation | Refusal | LeftOut]:
    path = folder / "file"
    path.write_bytes(content)
    return list(FORMATS[format_name](Source(path, "s")))


def one(format_name: str, folder: Path, content: bytes | None = None) -> Conversation:
    found = read(format_name, content or SAMPLES[format_name].to_bytes(), folder)
    return found[0]


def spoken(conversation: Conversation) -> list[tuple[Any, ...]]:
    """Role, text, calls and the call that is answered, of each message."""
    return [
        (m.role, m.content or None, [(c.id, c.name, c.arguments) for c in m.tool_calls], m.tool_call_id)
        for m in conversation.messages
    ]


ASKED = [
    ("user", QUESTION, [], None),
    ("assistant", None, [("c1", "weather", CITY)], None),
    ("tool", SNOW, [], "c1"),
    ("assistant", REPLY, [], None),
]
"""What most samples say."""


NUMBERED = {"tau-bench", "tau2", "mini-swe-agent", "openai", "swe-agent"}
"""The formats whose samples give a conversation no id of its own."""


@pytest.mark.parametrize("format_name", sorted(SAMPLES.keys() - NUMBERED))
def test_a_conversation_has_the_id_that_its_source_gives_it(format_name: str, tmp_path: Path) -> None:
    own = one(format_name, tmp_path).conversation_id.removeprefix("s:")
    text = SAMPLES[format_name].to_bytes().decode()
    assert any(f'"{part}"' in text for part in (own, own.rpartition("-")[0]))  # an id, or an id and a trial


@pytest.mark.parametrize("format_name", SAMPLES)
def test_a_sample_is_recognised_by_its_content_and_read_as_counted(format_name: str, tmp_path: Path) -> None:
    sample = SAMPLES[format_name]
    path = tmp_path / "no-ending"
    for content in (sample.to_bytes(), gzip.compress(sample.to_bytes()), b"\xef\xbb\xbf" + sample.to_bytes()):
        path.write_bytes(content)
        assert detect(Source(path, "s")).format_name == format_name
        found = list(FORMATS[format_name](Source(path, "s")))
        conversations = [c for c in found if isinstance(c, Conversation)]
        assert not any(isinstance(item, Refusal) for item in found)
        turns = [turn for c in conversations for turn in c.turns()]
        counts = (len(conversations), len(turns), sum(len(turn.tool_calls) for turn in turns))
        assert counts == (sample.n_conversations, sample.n_turns, sample.n_calls)


@pytest.mark.parametrize("format_name", SAMPLES)
def test_importing_a_sample_twice_equals_importing_it_once(format_name: str, tmp_path: Path) -> None:
    path, sample = tmp_path / "source.json", SAMPLES[format_name]
    path.write_bytes(sample.to_bytes())
    sessions = tmp_path / "sessions"
    first = import_file(format_name, path, sessions_folder=sessions, agent_id="a")
    before = snapshot(sessions)
    again = import_file(format_name, path, sessions_folder=sessions, agent_id="a")
    assert (first.is_changed, again.is_changed) == (True, False)
    assert (first.n_imported, first.n_turns) == (sample.n_conversations, sample.n_turns)
    assert snapshot(sessions) == before
    assert read_sessions("a", sessions / "a").import_errors.is_empty()


ALIKE = ["atif", "chatgpt", "claude-ai", "codex", "langfuse", "langsmith", "openai"]


@pytest.mark.parametrize("format_name", [*ALIKE, "openai-responses", "otel-genai", "sharegpt"])
def test_question_call_answer_and_reply_come_out_alike(format_name: str, tmp_path: Path) -> None:
    said = [m for m in spoken(one(format_name, tmp_path)) if m[0] not in ("system", "developer")]
    if format_name in ("chatgpt", "sharegpt"):  # its calls have no ids
        said = [(m[0], m[1], [("c1", *c[1:]) for c in m[2]], "c1" if m[0] == "tool" else None) for m in said]
    assert said == ASKED


@pytest.mark.parametrize("format_name", ["codex", "openai-responses", "otel-genai", "sharegpt"])
def test_instructions_beside_the_messages_are_the_policy(format_name: str, tmp_path: Path) -> None:
    assert one(format_name, tmp_path).metadata["policy"] == "Be brief."


@pytest.mark.parametrize("format_name", ["atif", "chatgpt", "claude-code", "codex", "openai-responses"])
def test_what_the_model_thought_is_kept_beside_the_messages(format_name: str, tmp_path: Path) -> None:
    conversation = one(format_name, tmp_path)
    index = next(i for i, m in enumerate(conversation.messages) if m.tool_calls)
    assert conversation.metadata["reasoning"] == [{"message_index": index, "text": "I look it up."}]


def test_claude_code_joins_the_lines_of_one_message_and_keeps_a_subagent_apart(tmp_path: Path) -> None:
    main, subagent = read("claude-code", SAMPLES["claude-code"].to_bytes(), tmp_path)
    assert spoken(main) == ASKED
    assert main.messages[1].usage == {"output_tokens": 9}
    assert (main.conversation_id, subagent.conversation_id) == ("s:s", "s:s/a9")
    assert main.metadata["models"] == ["claude-x"]


def test_codex_marks_what_it_wrote_in_the_users_name(tmp_path: Path) -> None:
    conversation = one("codex", tmp_path)
    assert [m.role for m in conversation.messages[:2]] == ["developer", "user"]
    assert conversation.metadata["models"] == ["gpt-x"]
    assert conversation.metadata["usage"] == {"input_tokens": 7}


def test_atif_maps_costs_tokens_and_tools(tmp_path: Path) -> None:
    conversation = one("atif", tmp_path)
    assert conversation.metadata["agent_cost_usd"] == 0.02
    assert conversation.messages[2].cost_usd == 0.01
    assert conversation.messages[2].usage == {"prompt_tokens": 7, "completion_tokens": 2}
    assert conversation.tools == ({"type": "function"},)
    assert conversation.conversation_id == "s:t"


def test_atif_refuses_a_step_of_an_unknown_source_by_its_index(tmp_path: Path) -> None:
    content = json.dumps({**samples.ATIF, "steps": [{"source": "robot"}]}).encode()
    (refusal,) = read_all("atif", content, tmp_path)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "steps[0].source is 'robot'; allowed: agent, system, user"


def test_swe_agent_gives_repeated_call_ids_numbers(tmp_path: Path) -> None:
    conversation = one("swe-agent", tmp_path)
    (turn,) = conversation.turns()
    answers = {"ls": "a.py", "ls -a": ".git a.py"}
    assert [(c.arguments, c.result) for c in turn.tool_calls] == [
        ({"command": command}, result) for command, result in answers.items()
    ]
    assert conversation.outcome.classified == "unknown"  # submitted is not solved
    assert conversation.metadata["agent_cost_usd"] == 0.5


def test_mini_swe_agent_reads_commands_as_calls_and_a_limit_as_a_failure(tmp_path: Path) -> None:
    conversation = one("mini-swe-agent", tmp_path)
    (turn,) = conversation.turns()
    (call,) = turn.tool_calls
    assert (call.name, call.arguments, call.is_error) == ("bash", {"command": "ls"}, True)
    assert conversation.outcome.classified == "failed"


def test_inspect_maps_score_target_attachment_and_tool_error(tmp_path: Path) -> None:
    conversation = one("inspect", tmp_path)
    assert (conversation.task_id, conversation.trial) == ("q1", 1)
    assert (conversation.outcome.correct, conversation.outcome.reward) == (True, 1.0)
    assert conversation.expected[0].answer == "snow"
    assert conversation.messages[0].content == "Be brief."
    tool = conversation.messages[3]
    assert (tool.content, tool.is_error, tool.name) == ("too late", True, "weather")
    assert conversation.metadata["source_scores"] == [{"name": "match", "value": "C", "answer": "snow"}]
    assert conversation.messages[-1].latency_ms == 500


@pytest.mark.parametrize(
    ("values", "correct"), [(["C", "C"], True), (["C", "I"], None), (["P"], None), ([{"a": 1}], None)]
)
def test_inspect_scores_that_disagree_or_are_partial_decide_nothing(
    values: list[object], correct: bool | None, tmp_path: Path
) -> None:
    scores = {f"s{i}": {"value": value} for i, value in enumerate(values)}
    log = {**samples.INSPECT, "samples": [{**samples.INSPECT_SAMPLE, "scores": scores}]}
    assert one("inspect", tmp_path, json.dumps(log).encode()).outcome.correct is correct


def test_inspect_keeps_thoughts_and_the_measures_of_each_call(tmp_path: Path) -> None:
    replies = [
        {
            "id": f"m{n}",
            "role": "assistant",
            "content": [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "a"}],
        }
        for n in (1, 2)
    ]
    calls = [
        {
            "event": "model",
            "output": {"choices": [{"message": {"id": f"m{n}"}}], "usage": {"input_tokens": n}, "time": n},
        }
        for n in (1, 2, 9)  # the ninth is the call of a grader
    ]
    log = {"version": 2, "eval": {"task": "t", "model": "x"}, "samples": [
        {"id": 1, "epoch": 1, "messages": [{"role": "user", "content": "q"}, *replies], "events": calls, "output": {}}]}  # fmt: skip
    found = one("inspect", tmp_path, json.dumps(log).encode())
    assert [(m.usage, m.latency_ms) for m in found.messages[1:]] == [
        ({"input_tokens": n}, n * 1000) for n in (1, 2)
    ]
    assert found.metadata["reasoning"] == [{"message_index": n, "text": "hm"} for n in (1, 2)]
    assert found.metadata["models"] == ["x"]


def test_an_inspect_archive_is_read_like_its_json(tmp_path: Path) -> None:
    second = {**samples.INSPECT_SAMPLE, "epoch": 2}
    content = samples.inspect_archive(samples.INSPECT_SAMPLE, second)
    path = tmp_path / "log"
    path.write_bytes(content)
    assert detect(Source(path, "s")).format_name == "inspect"
    found = read("inspect", content, tmp_path)
    assert [(c.task_id, c.trial) for c in found] == [("q1", 1), ("q1", 2)]
    assert found[0].messages == one("inspect", tmp_path).messages
    import_file("inspect", path, sessions_folder=tmp_path / "x", agent_id="a")
    assert read_sessions("a", tmp_path / "x" / "a").sessions["task_set"].to_list() == ["weather"]


def test_langsmith_maps_costs_times_and_models(tmp_path: Path) -> None:
    conversation = one("langsmith", tmp_path)
    measured = [(m.cost_usd, m.latency_ms) for m in conversation.messages]
    assert measured == [(None, None), (0.02, 2000), (None, None), (None, None)]
    assert conversation.metadata["models"] == ["m-1"]
    assert conversation.conversation_id == "s:t1"


def test_langfuse_orders_by_time_maps_costs_and_keeps_scores_of_the_source(tmp_path: Path) -> None:
    conversation = one("langfuse", tmp_path)
    assert [m.cost_usd for m in conversation.messages] == [None, 0.02, None, 0.01]
    assert conversation.messages[3].latency_ms == 500
    assert conversation.metadata["models"] == ["m-1"]
    score = {"name": "toxicity", "value": 0, "source": "EVAL", "comment": "none"}
    assert conversation.metadata["source_scores"] == [score]


def test_langfuse_traces_of_one_session_are_one_conversation(tmp_path: Path) -> None:
    def trace(name: str, question: str) -> dict[str, Any]:
        call = {"id": name, "traceId": name, "type": "GENERATION", "parentObservationId": None, "startTime": "2026-01-01",
                "input": [{"role": "user", "content": question}], "output": "Yes."}  # fmt: skip
        return {"trace": {"id": name, "sessionId": "talk"}, "observations": [call]}

    conversation = one("langfuse", tmp_path, json.dumps([trace("a", "Snow?"), trace("b", "Snow?")]).encode())
    assert [m.content for m in conversation.messages] == ["Snow?", "Yes.", "Snow?", "Yes."]
    assert conversation.conversation_id == "s:talk"
    assert conversation.metadata["trace_ids"] == ["a", "b"]


def test_whowhen_keeps_who_spoke_and_who_failed(tmp_path: Path) -> None:
    conversation = one("whowhen", tmp_path)
    speakers = {None: "user", "Planner": "assistant", "Computer_terminal": "tool", "Writer": "assistant"}
    assert [(m.name, m.role) for m in conversation.messages] == [*speakers.items()]
    mistake: dict[str, object] = {
        "name": "decisive_step",
        "value": "Writer",
        "agent": "Writer",
        "step": "2",
        "reason": "wrong word",
    }
    mistake["message_index"] = 3  # the question is message 0
    assert conversation.metadata["source_scores"] == [mistake]
    assert (conversation.outcome.correct, conversation.expected[0].answer) == (False, "snow")


def test_agentest_keeps_its_scores_and_its_verdict(tmp_path: Path) -> None:
    conversation = one("agentest", tmp_path)
    assert conversation.task_id == "asks for weather"
    assert conversation.outcome.correct is True
    score = {"name": "helpfulness", "turn_index": 0, "value": 4.5, "reason": "good"}
    assert conversation.metadata["source_scores"] == [score]


def test_fair_forge_gives_truth_per_turn_and_its_context_to_judges(tmp_path: Path) -> None:
    conversation = one("fair-forge", tmp_path)
    (truth,) = conversation.expected
    assert (truth.turn_index, truth.answer, truth.tool_sequence_matters) == (0, "Snow.", True)
    assert truth.tools == ({"name": "weather", "arguments": CITY},)
    assert conversation.knowledge == ("A weather desk.",)


@pytest.mark.parametrize(
    ("made", "wanted", "used", "ordered"),
    [
        ({"final_answer_uses_tools": True}, {}, True, True),
        ({}, {}, False, True),  # the defaults of the source
        ({"final_answer_uses_tools": False}, {"tool_sequence_matters": False}, False, False),
        ({"final_answer_uses_tools": None}, {"tool_sequence_matters": None}, False, False),
    ],
)
def test_fair_forge_has_its_defaults(
    made: Any, wanted: Any, used: bool, ordered: bool, tmp_path: Path
) -> None:
    steps = [{"tool_name": name, "parameters": {}, "step": step} for name, step in (("b", 2), ("a", 1))]
    said = {"query": "q", "assistant": "r"}
    turns = [
        said
        | {
            "agentic": {"tools_used": steps} | made,
            "ground_truth_agentic": {"expected_tools": steps} | wanted,
        },
        said | {"ground_truth_agentic": {"expected_tools": []}},
    ]
    record = {"session_id": "s1", "assistant_id": "x", "conversation": turns}
    first, second = one("fair-forge", tmp_path, json.dumps([record]).encode()).expected
    assert (first.results_used, first.tool_sequence_matters) == (used, ordered)
    assert [tool["name"] for tool in first.tools or ()] == ["a", "b"]  # in the order of their steps
    assert second.results_used is None  # no tool was used


def test_responses_that_follow_one_another_are_one_conversation(tmp_path: Path) -> None:
    conversation = one("openai-responses", tmp_path)
    assert conversation.conversation_id == "s:r1"
    assert conversation.tools == ({"type": "function", "name": "weather"},)
    assert conversation.messages[-1].usage == {"input_tokens": 5}


def test_a_proxys_pairs_of_one_session_are_folded_into_one_conversation(tmp_path: Path) -> None:
    def pair(history: list[Any], reply: Any) -> dict[str, Any]:
        request = {"model": "m", "messages": history, "tools": [{"name": "weather"}]}
        choices = [{"message": reply, "finish_reason": "stop"}]
        response = {"id": "x", "object": "chat.completion", "model": "m-1", "choices": choices}
        return {"session_id": "talk", "request": request, "response": response}

    (conversation,) = read("openai", lines([pair(CHAT[:1], CHAT[1]), pair(CHAT[:3], CHAT[3])]), tmp_path)
    assert spoken(conversation) == ASKED
    assert conversation.tools == ({"name": "weather"},)
    assert conversation.metadata["models"] == ["m-1"]
    assert conversation.messages[-1].finish_reason == "stop"


def test_a_proxys_request_that_failed_is_a_trial_that_ended_in_its_error(tmp_path: Path) -> None:
    error = {"error": {"type": "RateLimitError", "message": "Error code: 429"}}
    record = {"request": {"messages": CHAT[:1]}, "response": {"status": 429, "body": error}}
    (conversation,) = read("openai", lines([record]), tmp_path)
    assert [m.role for m in conversation.messages] == ["user"]
    assert conversation.outcome.classified == "harness_error"


def test_a_record_that_repeats_the_beginning_of_a_later_one_is_folded_into_it(tmp_path: Path) -> None:
    other = [{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Yes?"}]
    logged = [CHAT[:2], other, CHAT]  # another conversation in between
    found = read_all("openai", lines([{"messages": m} for m in logged]), tmp_path)
    assert [len(c.messages) for c in found if isinstance(c, Conversation)] == [2, 4]
    assert [type(c) for c in found] == [Conversation, Conversation, LeftOut]


@pytest.mark.parametrize("own", [{"id": "x"}, {"task_id": "t"}, {"correct": True}])
def test_a_record_with_an_id_a_task_or_an_outcome_is_not_folded(
    own: dict[str, object], tmp_path: Path
) -> None:
    assert len(read("openai", lines([{"messages": CHAT[:2], **own}, {"messages": CHAT}]), tmp_path)) == 2


def test_openai_reads_legacy_functions_other_providers_blocks_and_reasoning(tmp_path: Path) -> None:
    asked = [{"type": "text", "text": QUESTION}, {"type": "image_url", "image_url": {"url": "x"}}]
    called = {"function_call": {"name": "weather", "arguments": json.dumps(CITY)}}
    legacy = [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": None, "reasoning_content": "I look."} | called,
        {"role": "function", "name": "weather", "content": SNOW},
    ]
    functions = {"messages": legacy, "functions": [{"name": "weather"}]}
    first, second = read(
        "openai", lines([functions, {"messages": FORMS["anthropic"][:3], "system": "Be brief."}]), tmp_path
    )
    assert first.messages[0].content == f"{QUESTION}\n[image]"
    assert first.turns()[0].tool_calls[0].result == SNOW
    assert first.tools == ({"name": "weather"},)
    assert first.metadata["reasoning"] == [{"message_index": 1, "text": "I look."}]
    assert second.turns()[0].tool_calls[0].result == SNOW
    assert len(second.turns()) == 1
    assert second.metadata["policy"] == "Be brief."


OLDER = {"gen_ai.prompt": json.dumps(samples.PARTS_IN), "gen_ai.completion": json.dumps({"text": REPLY})}
FLAT = {
    "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": QUESTION,
    "gen_ai.prompt.1.role": "assistant", "gen_ai.prompt.1.tool_calls.0.id": "c1",
    "gen_ai.prompt.1.tool_calls.0.name": "weather", "gen_ai.prompt.1.tool_calls.0.arguments": json.dumps(CITY),
    "gen_ai.prompt.2.role": "tool", "gen_ai.prompt.2.content": SNOW, "gen_ai.prompt.2.tool_call_id": "c1",
    "gen_ai.completion.0.content": REPLY,
}  # fmt: skip
OPENINFERENCE = {
    "openinference.span.kind": "LLM",
    "llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.contents.0.message_content.type": "text",
    "llm.input_messages.0.message.contents.0.message_content.text": QUESTION,
    "llm.input_messages.1.message.role": "assistant",
    "llm.input_messages.1.message.tool_calls.0.tool_call.id": "c1",
    "llm.input_messages.1.message.tool_calls.0.tool_call.function.name": "weather",
    "llm.input_messages.1.message.tool_calls.0.tool_call.function.arguments": json.dumps(CITY),
    "llm.input_messages.2.message.role": "tool", "llm.input_messages.2.message.content": SNOW,
    "llm.input_messages.2.message.tool_call_id": "c1",
    "llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": REPLY,
}  # fmt: skip
AI_SDK = {
    "ai.prompt.messages": json.dumps([
        {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
        {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c1", "toolName": "weather", "input": CITY}]},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "output": {"type": "text", "value": SNOW}}]},
    ]),
    "ai.response.text": REPLY,
}  # fmt: skip


@pytest.mark.parametrize("attributes", [samples.MODEL_CALL, OLDER, FLAT, OPENINFERENCE, AI_SDK])
@pytest.mark.parametrize("form", ["otlp", "dump", "span"])
def test_older_and_other_attributes_say_the_same(
    attributes: dict[str, Any], form: str, tmp_path: Path
) -> None:
    forms = {
        "otlp": samples.spans(samples.otlp(attributes)),
        "dump": attributes,
        "span": {"name": "x", "context": {"trace_id": "t1", "span_id": "1"}, "attributes": attributes},
    }
    assert spoken(one("otel-genai", tmp_path, json.dumps(forms[form]).encode())) == ASKED


def test_spans_of_a_trace_are_one_conversation_and_one_around_them_is_not_read_twice(tmp_path: Path) -> None:
    def span(number: int, attributes: dict[str, Any], **more: Any) -> dict[str, Any]:
        time = f"177000000000000000{number}"
        return samples.otlp(attributes, spanId=str(number), startTimeUnixNano=time, **more)

    said = {"input": samples.PARTS_IN[:1], "output": samples.PARTS_IN[1:2]}
    first = {f"gen_ai.{side}.messages": json.dumps(parts) for side, parts in said.items()}
    around = {"gen_ai.operation.name": "invoke_agent", **samples.MODEL_CALL}
    call = {"name": "weather", "call.id": "c1", "call.result": SNOW}
    tool = {"gen_ai.operation.name": "execute_tool", **{f"gen_ai.tool.{k}": v for k, v in call.items()}}
    content = samples.spans(
        span(3, samples.MODEL_CALL, parentSpanId="0"),
        span(0, around),
        span(2, tool, parentSpanId="0"),
        span(1, first, parentSpanId="0"),
        span(9, {"http.method": "GET"}, parentSpanId="0"),
    )
    found = read_all("otel-genai", json.dumps(content).encode(), tmp_path)
    (conversation,) = (c for c in found if isinstance(c, Conversation))
    assert spoken(conversation) == ASKED
    assert [type(c) for c in found if c is not conversation] == [LeftOut]  # the HTTP call


def test_traces_that_share_a_conversation_id_are_one_conversation(tmp_path: Path) -> None:
    def call(trace: str, question: str) -> dict[str, Any]:
        said = [{"role": "user", "parts": [{"type": "text", "content": question}]}]
        attributes = {"conversation.id": "talk", "input.messages": json.dumps(said), "completion": "Yes."}
        attributes = {f"gen_ai.{name}": value for name, value in attributes.items()}
        return samples.otlp(attributes, traceId=trace, startTimeUnixNano=f"177000000000000000{trace}")

    content = samples.spans(call("2", "And tomorrow?"), call("1", "Snow?"))
    conversation = one("otel-genai", tmp_path, json.dumps(content).encode())
    assert [m.content for m in conversation.messages] == ["Snow?", "Yes.", "And tomorrow?", "Yes."]
    assert conversation.conversation_id == "s:talk"


def test_a_page_of_langfuses_api_and_single_observations_are_traces(tmp_path: Path) -> None:
    observations: Any = samples.LANGFUSE["observations"]
    flat = [{**o, "traceId": "t1"} for o in observations]
    for content in ({"data": [samples.LANGFUSE], "meta": {}}, {"data": flat, "meta": {"page": 1}}, flat):
        (tmp_path / "page").write_text(json.dumps(content))
        assert detect(Source(tmp_path / "page", "s")).format_name == "langfuse"
        assert spoken(one("langfuse", tmp_path, json.dumps(content).encode())) == ASKED


def test_what_a_trace_has_in_no_known_form_is_named_and_no_text(tmp_path: Path) -> None:
    call = {"id": "g", "type": "GENERATION", "input": [{"order": 7}], "output": {"text": "It left."}}
    trace = {"trace": {"id": "t"}, "observations": [call]}
    refusal, conversation = read_all("langfuse", json.dumps(trace).encode(), tmp_path)
    assert "1 × user message of an unknown form" in str(refusal)
    assert isinstance(conversation, Conversation)
    assert spoken(conversation) == [("assistant", "It left.", [], None)]
