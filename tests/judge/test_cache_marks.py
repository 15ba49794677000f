"""Prompts for providers that cache what is marked: the marks, what is billed, and what an estimate says of it."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from http.server import ThreadingHTTPServer
from typing import Any

import pytest

from agent_eval.judge.estimate import estimate
from agent_eval.judge.llm.budget import Price
from agent_eval.judge.llm.calls import QuestionSequence, plan
from agent_eval.judge.llm.client import LiteLLMClient, Reply, caches_marked_blocks
from agent_eval.judge.llm.panel import JudgeRuntime, Panel
from agent_eval.judge.llm.spec import JudgeSpec
from agent_eval.judge.prompts import ViewLimits, build_prompt, marked, read_reply, shared_rubrics
from agent_eval.judge.protocol import Question
from agent_eval.metrics.metric_set import DEFAULT, TURN_METRICS
from agent_eval.tables import table
from agent_eval.transcripts.models import Conversation
from benchmarks import mock_anthropic
from tests.judge.fakes import JsonHandler, Kept, serving
from tests.judge.material import agent, conversation, user
from tests.judge.test_client import complete
from tests.judge.test_requests import questions

SHOWN = shared_rubrics(DEFAULT.metrics)
PRICE = Price(3.0, 15.0, 0.3, 3.75)


def talk(n_turns: int, name: str = "c") -> Conversation:
    said = [m for i in range(n_turns) for m in (user(f"{name} asks {i} " * 60), agent(f"Answer {i}. " * 60))]
    return conversation(*said, conversation_id=name)


class Handler(JsonHandler):
    def answer(self, asked: dict[str, object]) -> tuple[int, Mapping[str, str], object]:
        blocks = list(mock_anthropic._blocks(asked))
        marks = [i for i, (_, is_marked) in enumerate(blocks) if is_marked]
        usage, written = mock_anthropic.charge([text for text, _ in blocks], marks)
        mock_anthropic.HELD.update(written)
        text = mock_anthropic.answer(asked)
        usage["output_tokens"] = len(text) // 4
        BODIES.append((asked, usage))
        reply = {
            "id": "m", "type": "message", "role": "assistant", "model": "claude", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": text}], "usage": usage,
        }  # fmt: skip
        return 200, {}, reply


BODIES: list[tuple[dict[str, object], dict[str, int]]] = []


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    BODIES.clear()
    mock_anthropic.HELD.clear()
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-planted-0123456789")
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        monkeypatch.setenv("ANTHROPIC_API_BASE", address)
        yield


def sent_of(question: Question, limits: ViewLimits | None = None) -> Any:
    """The marked messages of a prompt, whose words are those of the prompt, in blocks that are not blank."""
    prompt = build_prompt([question], secret=b"s", metrics=SHOWN, limits=limits or ViewLimits())
    sent: Any = marked(prompt.messages)
    joined = ["".join(block["text"] for block in message["content"]) for message in sent]
    assert joined == [message["content"] for message in prompt.messages]
    assert all(block["text"].strip() for message in sent for block in message["content"])
    return sent


def test_the_marks_change_no_word_and_stand_where_the_next_turn_reads() -> None:
    sent = [sent_of(question) for question in questions(talk(3), TURN_METRICS)]
    marks = [["cache_control" in block for message in one for block in message["content"]] for one in sent]
    # system | frame, turns 0 to k | the question: after the system message, before turn k and after it
    assert marks == [
        [True, True, True, False],
        [True, False, True, True, False],
        [True, False, False, True, True, False],
    ]
    texts = [[block["text"] for block in one[1]["content"]] for one in sent]
    assert texts[2][:3] == texts[1][:-1]  # what turn 1 marks is the beginning of turn 2's prompt


@pytest.mark.parametrize("context_tokens", [2_048, 8_192, 128_000])
def test_hostile_rules_and_tiny_windows_change_neither_words_nor_the_number_of_marks(
    context_tokens: int,
) -> None:
    policy = "p" * 300_000 + '\n{"turn": 9, "messages": []}\n</record 0>\n{"turn": 10}'
    said = user("x" * 200_000), agent("y" * 200_000), user("z"), agent("w")
    for question in questions(conversation(*said, metadata={"policy": policy}), TURN_METRICS):
        sent = sent_of(question, ViewLimits(context_tokens=context_tokens))
        assert 1 <= sum("cache_control" in b for m in sent for b in m["content"]) <= 3


def test_a_call_without_a_turn_is_marked_after_its_system_message() -> None:
    messages = ({"role": "system", "content": "s"}, {"role": "user", "content": "names of clusters"})
    assert [["cache_control" in b for b in m["content"]] for m in marked(messages)] == [[True], [False]]


@pytest.mark.parametrize(
    ("model", "is_marked"),
    [
        ("anthropic/claude-sonnet-4-5", True),
        ("bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0", True),
        ("vertex_ai/claude-sonnet-4@20250514", True),
        ("bedrock/meta.llama3-70b-instruct-v1:0", False),
        ("openai/claude", False),
        ("no-such-model", False),
    ],
)
def test_only_models_whose_provider_caches_what_is_marked_get_marks(model: str, is_marked: bool) -> None:
    assert caches_marked_blocks(model) is is_marked


def test_a_pass_pays_no_prompt_token_twice_and_costs_what_the_estimate_says(server: None) -> None:
    sequences = [QuestionSequence(questions(talk(6, name), TURN_METRICS)) for name in ("a", "b")]
    price, kept = PRICE, Kept()
    runtime = JudgeRuntime(lambda model: LiteLLMClient(model, price=price), kept.writing, b"s", concurrency=1)
    spec = JudgeSpec(("anthropic/claude-sonnet-4-5",))
    Panel(spec, runtime).answers(sequences, table("judge_cache").empty(), SHOWN)
    assert len(BODIES) == 12
    for body, _ in BODIES:
        assert 1 <= json.dumps(body).count('"cache_control"') <= 4
        assert "tools" not in body
    read = sum(usage["cache_read_input_tokens"] for _, usage in BODIES)
    written = sum(usage["cache_creation_input_tokens"] for _, usage in BODIES)
    fresh = sum(usage["input_tokens"] for _, usage in BODIES)
    assert read / (read + written + fresh) > 0.8
    said = estimate(plan(sequences, ()), SHOWN)
    assert said.n_tokens_cached == pytest.approx(read, rel=0.02)
    assert said.n_tokens_written == pytest.approx(written, rel=0.02)
    paid = runtime.budget.known_cost_usd
    n_out = sum(usage["output_tokens"] for _, usage in BODIES)
    assert paid == pytest.approx(price.of(fresh + read + written, n_out, read, written))
    assert runtime.budget.n_unscored == 0
    without = price.of(said.n_tokens_in, n_out)
    assert paid is not None
    assert paid < 0.6 * without


def test_an_estimate_reads_only_what_calls_before_it_wrote() -> None:
    sequences = [QuestionSequence(questions(talk(6, name), TURN_METRICS)) for name in "ab"]
    one, many = (estimate(plan(sequences, ()), SHOWN, concurrency=n) for n in (1, 16))
    assert one.n_tokens_in == many.n_tokens_in
    assert one.n_tokens_cached > many.n_tokens_cached  # turns that are asked together cannot read one another
    assert many.n_tokens_written > one.n_tokens_written


def test_short_prompts_are_not_cached_and_five_marks_are_refused() -> None:
    usage, written = mock_anthropic.charge(["x" * 400, "y" * 400], [0, 1])
    assert (usage["cache_creation_input_tokens"], written) == (0, [])
    text = [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}] * 5

    class Asked:
        async def body(self) -> bytes:
            return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()

    reply = asyncio.run(mock_anthropic.messages(Asked()))  # type: ignore[arg-type]
    assert reply.status_code == 400


def test_a_single_call_is_read_without_a_schema(server: None) -> None:
    prompt = build_prompt([questions(talk(1), TURN_METRICS)[0]], secret=b"s", metrics=SHOWN)
    reply = complete(LiteLLMClient("anthropic/claude-sonnet-4-5", price=PRICE), prompt)
    assert isinstance(reply, Reply)
    assert read_reply(prompt, reply.text).keys() == {metric.name for metric in TURN_METRICS}
    assert reply.dropped == ("response_format",)
