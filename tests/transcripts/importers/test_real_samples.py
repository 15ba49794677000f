"""Real files of each format give the counts of short scripts that do not use this code."""

import gzip
import json
from pathlib import Path
from typing import cast

import pytest

from agent_eval.formats.refusals import NOT_READ, Refusal
from agent_eval.judge.evidence import Transcript
from agent_eval.transcripts.importers.base import Source
from agent_eval.transcripts.importers.catalog import FORMATS
from agent_eval.transcripts.importers.detection import detect
from agent_eval.transcripts.models import Conversation
from agent_eval.transcripts.steps import ConversationStep
from tests.transcripts.importers.second_path import READERS, counts, one

FILES = [
    # file, format, conversations, turns, tool calls
    ("formats/agentest__results.documented_example.json", "agentest", 1, 1, 1),
    ("formats/atif__openhands_hello-world.trajectory.json", "atif", 1, 1, 2),
    ("formats/claude_code__sample_session.jsonl", "claude-code", 1, 2, 2),
    ("formats/claude_code__todowrite_examples.jsonl", "claude-code", 1, 2, 3),
    ("formats/claude_code__tool_call_conversation.jsonl", "claude-code", 1, 1, 1),
    ("formats/claude_code__agent_sessions_small.jsonl", "claude-code", 3, 3, 3),  # a subagent, two sessions
    ("formats/codex_rollout__small.jsonl.gz", "codex", 2, 2, 8),
    ("formats/fair_forge__dataset.json", "fair-forge", 1, 10, 11),
    ("formats/fair_forge__dataset_agentic.json", "fair-forge", 3, 9, 12),
    ("formats/inspect__popularity.eval", "inspect", 10, 10, 0),
    ("formats/inspect__theory-of-mind.eval", "inspect", 100, 100, 0),
    ("formats/inspect_eval_log_v2__browser.json.gz", "inspect", 1, 1, 4),
    ("formats/inspect_eval_log_v2__security-guide.json.gz", "inspect", 3, 3, 0),
    ("formats/inspect_log__tool_call_error.json", "inspect", 1, 1, 0),
    ("formats/langfuse_trace__claude-agent-2025-12-22.json", "langfuse", 1, 1, 2),
    ("formats/langfuse_trace__crewai-2025-07-11.json", "langfuse", 1, 1, 0),
    # its system prompt has role user
    ("formats/langfuse_trace__langgraph-python-2025-08-22.json", "langfuse", 1, 1, 1),
    ("formats/langfuse_trace__microsoft-agent-2025-12-17.json", "langfuse", 1, 1, 1),
    ("formats/langfuse_trace__openai-agents-2025-09-30.json", "langfuse", 1, 1, 1),
    ("formats/langfuse_trace__vercel-aisdk-2025-11-17.json", "langfuse", 1, 1, 1),
    ("formats/mini_swe_agent__github_issue.traj.json", "mini-swe-agent", 1, 1, 10),
    ("formats/openai_chat_messages__tau2_sft_test.jsonl.gz", "openai", 24, 193, 225),
    ("formats/openinference_client_span_tool_calls.json", "otel-genai", 1, 1, 1),
    ("formats/otel_genai_client_span_tool_calls.json", "otel-genai", 1, 1, 1),
    ("formats/otel_genai_deprecated_client_span_tool_calls.json", "otel-genai", 1, 1, 1),
    ("formats/otel_vercel_v6_all_spans.json.gz", "otel-genai", 8, 10, 0),
    ("formats/sharegpt__dummy_conversation.json.gz", "sharegpt", 500, 1000, 0),
    ("formats/swe_agent__marshmallow-1867.traj.gz", "swe-agent", 1, 1, 11),
    ("whowhen/algorithm_generated.jsonl.gz", "whowhen", 126, 126, 0),
    ("tau1/airline__gpt-4o__4trials.json.gz", "tau-bench", 200, 1490, 1164),
    ("tau2/airline__gpt-4o-2024-11-20.json.gz", "tau2", 50, 295, 277),
]
NAMED = {
    "formats/claude_code__agent_sessions_small.jsonl": 2,  # placeholders instead of times, a part of type fallback
    "formats/codex_rollout__small.jsonl.gz": 5,  # the same, items of multi-agent sessions, a part without a text
    "formats/langfuse_trace__claude-agent-2025-12-22.json": 1,  # {"content": "role"}, a fault of the SDK
}
"""File → kinds of parts that are not read, over all sessions."""
OTHERWISE = {
    "formats/claude_code__agent_sessions_small.jsonl": {  # of lines whose uuid is one placeholder, those with equal contents are one line
        "assistant": -1, "user": -5, "developer": 3,
    },
    "formats/langfuse_trace__openai-agents-2025-09-30.json": {  # tokens have the names of the model's reply
        "tokens input": -140, "tokens output": -44, "tokens total": -184,
        "tokens input_tokens": 140, "tokens output_tokens": 44, "tokens total_tokens": 184,
    },
}  # fmt: skip
"""File → by how much its counts differ from those of the second path, and why."""
REFUSED = [
    ("formats/openclaw__session.jsonl", "openclaw: "),
    ("formats/ragas__annotated_data.json", "ragas annotations: "),
    *(
        (f"formats/langfuse_trace__{trace}.expected_chatml.json", "langfuse ChatML check: ")
        for trace in (
            *("claude-agent-2025-12-22", "crewai-2025-07-11", "langgraph-python-2025-08-22"),
            *("microsoft-agent-2025-12-17", "openai-agents-2025-09-30", "vercel-aisdk-2025-11-17"),
        )
    ),
]
TOOL_RUN = "formats/otel_genai_tool_execution_span.json"  # recognised, and its record refused


@pytest.mark.parametrize(("file", "format_name", "n", "turns", "calls"), FILES)
def test_a_real_file_is_recognised_and_counted(
    shared_data: Path, file: str, format_name: str, n: int, turns: int, calls: int
) -> None:
    source = Source(shared_data / file, "s")
    assert detect(source).format_name == format_name
    found = list(FORMATS[format_name](source))
    conversations = [c for c in found if isinstance(c, Conversation)]
    spoken = [turn for c in conversations for turn in c.turns()]
    refusals = [c.reason for c in found if isinstance(c, Refusal)]
    assert all(reason.startswith(NOT_READ) for reason in refusals)
    assert len(refusals) == NAMED.get(file, 0)
    assert (len(conversations), len(spoken), sum(len(t.tool_calls) for t in spoken)) == (n, turns, calls)


@pytest.mark.parametrize(("file", "name"), [(f, n) for f, n, *_ in FILES if f.startswith("formats/")])
def test_messages_calls_errors_and_tokens_equal_those_of_a_second_path(
    shared_data: Path, file: str, name: str
) -> None:
    found = [c for c in FORMATS[name](Source(shared_data / file, "s")) if isinstance(c, Conversation)]
    said = ([one(m.role, m.tool_calls, m.is_error, m.usage) for m in c.messages] for c in found)
    actual, expected = counts(said), counts(READERS[name](shared_data / file))
    actual.subtract(expected)
    assert {key: n for key, n in actual.items() if n} == OTHERWISE.get(file, {})


@pytest.mark.parametrize(("file", "begins"), REFUSED)
def test_a_real_file_that_is_not_read_has_a_reason(shared_data: Path, file: str, begins: str) -> None:
    found = detect(Source(shared_data / file, "s"))
    assert found.format_name is None
    assert found.reason.startswith(begins)


def test_every_sample_of_other_tools_is_counted_or_refused_here(shared_data: Path) -> None:
    known = {TOOL_RUN, *(file for file, *_ in FILES), *(file for file, _ in REFUSED)}
    assert {f"formats/{path.name}" for path in (shared_data / "formats").iterdir()} - known == set()


def test_a_tool_run_without_its_model_call_is_refused_with_the_reason(shared_data: Path) -> None:
    found = list(FORMATS["otel-genai"](Source(shared_data / TOOL_RUN, "s")))
    assert "without the model call that requested them" in str(found[0])
    assert isinstance(found[1], Refusal)


@pytest.mark.parametrize(
    ("file", "passed"), [("inspect__popularity.eval", 8), ("inspect__theory-of-mind.eval", 83)]
)
def test_inspects_correct_samples_are_passed_trials(shared_data: Path, file: str, passed: int) -> None:
    found = FORMATS["inspect"](Source(shared_data / "formats" / file, "s"))
    assert sum(c.outcome.correct is True for c in found if isinstance(c, Conversation)) == passed


COSTS = [
    ("claude-agent-2025-12-22", 0.003582),
    ("microsoft-agent-2025-12-17", 0.00028525),
    ("openai-agents-2025-09-30", 0.000632),
]


@pytest.mark.parametrize(("trace", "usd"), COSTS)
def test_costs_are_those_of_the_generations(shared_data: Path, trace: str, usd: float) -> None:
    *_, found = FORMATS["langfuse"](Source(shared_data / "formats" / f"langfuse_trace__{trace}.json", "s"))
    assert isinstance(found, Conversation)
    assert sum(m.cost_usd or 0 for m in found.messages) == pytest.approx(usd)
    scores = found.metadata["source_scores"]
    assert isinstance(scores, list)
    assert {"hallucination"} <= {s["name"] for s in scores if isinstance(s, dict)}


def test_whowhen_keeps_every_message_and_its_speaker(shared_data: Path) -> None:
    found = FORMATS["whowhen"](Source(shared_data / "whowhen/algorithm_generated.jsonl.gz", "s"))
    spoken = [m for c in found if isinstance(c, Conversation) for m in c.messages if m.role != "user"]
    assert (len(spoken), len({m.name for m in spoken})) == (1099, 191)


def test_whowhen_runs_are_cited_at_the_step_that_people_named(shared_data: Path) -> None:
    source = shared_data / "whowhen/algorithm_generated.jsonl.gz"
    found = [c for c in FORMATS["whowhen"](Source(source, "s")) if isinstance(c, Conversation)]
    with gzip.open(source, "rt") as lines:
        for conversation, record in zip(found, map(json.loads, lines), strict=True):
            step = record["history"][int(record["mistake_step"])]
            index = next(i for i, m in enumerate(conversation.messages) if m.content == step["content"])
            (label,) = cast("list[dict[str, object]]", conversation.metadata["source_scores"])
            assert (label["message_index"], label["value"]) == (index, record["mistake_agent"])
            place = Transcript(conversation.turns()).find(step["content"])
            assert place == ConversationStep(index, step["name"])
