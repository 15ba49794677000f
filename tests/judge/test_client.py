"""The client over litellm, against a server of its own: what goes wrong is told apart, and no key gets out."""

import asyncio
import itertools
import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from email.utils import formatdate
from http.server import ThreadingHTTPServer
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from agent_eval.judge.llm.budget import Budget, Price
from agent_eval.judge.llm.calls import QuestionSequence
from agent_eval.judge.llm.client import FORMS, CallError, LiteLLMClient, Reply, imported, price_of, problem_of
from agent_eval.judge.llm.panel import JudgeRuntime, Panel
from agent_eval.judge.llm.spec import JudgeSpec
from agent_eval.judge.prompts import Prompt, build_prompt
from agent_eval.judge.protocol import Scored, Unscored, Verdict
from agent_eval.judge.run_sync import run_sync
from agent_eval.metrics.builtin.helpfulness import HELPFULNESS
from agent_eval.tables import table
from tests.judge.fakes import JsonHandler, Kept, part, serving
from tests.judge.test_requests import questions, talk

KEY = "sk-planted-0123456789abcdef"
PROMPT = build_prompt(questions(talk(), [HELPFULNESS]), secret=b"s")
REPLY = {
    "id": "1", "object": "chat.completion", "created": 1, "model": "mock",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "{}"}}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12,
              "prompt_tokens_details": {"cached_tokens": 4}},
}  # fmt: skip


ANSWERED = REPLY | {"choices": [{"message": {"content": json.dumps({"helpfulness": part(HELPFULNESS)})}}]}


class Server(ThreadingHTTPServer):
    """Answers every request the same way and remembers them."""

    daemon_threads = True
    status = 200
    headers: dict[str, str] = {}  # noqa: RUF012
    body: object = REPLY
    delay_s = 0.0
    refuses: tuple[str, ...] = ()  # forms of a reply
    refusal: tuple[int, str] = (400, "Bad Request")
    unsupported: Mapping[str, tuple[int, object]] = {}  # parameter: status and error
    n_broken = 0  # so many replies are cut off

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[dict[str, object]] = []


class Handler(JsonHandler):
    server: Server

    def answer(self, asked: dict[str, object]) -> tuple[int, Mapping[str, str], object]:
        self.server.asked.append(asked)
        said, status = self.server.body, self.server.status
        form = asked.get("response_format")
        kind = form.get("type") if isinstance(form, dict) else "text"
        if kind in self.server.refuses:
            status, why = self.server.refusal
            said = {"error": {"message": why}}
        for name, (why_status, error) in self.server.unsupported.items():
            if name in asked:
                status, said = why_status, {"error": error}
        if self.server.n_broken:
            self.server.n_broken -= 1
            return 200, {"Content-Length": "5000"}, {}
        if said == "echo the key":
            said = {"error": {"message": f"Incorrect API key provided: {self.headers['Authorization']}"}}
        threading.Event().wait(self.server.delay_s)
        return status, self.server.headers, said


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server()
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(server) as address:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{address}/v1")
        yield server


def complete(client: LiteLLMClient, prompt: Prompt = PROMPT) -> Reply | CallError:
    async def go() -> Reply | CallError:
        try:
            return await client.complete(prompt.messages, prompt, 300)
        except CallError as error:
            return error
        finally:
            await client.close()

    return run_sync(go())


def test_a_reply_comes_with_its_usage_and_is_asked_for_as_the_prompt_says(server: Server) -> None:
    reply = complete(LiteLLMClient("openai/mock", price=Price(1.0, 2.0, cached=0.5)))
    assert isinstance(reply, Reply)
    assert (reply.text, reply.usage.n_in, reply.usage.n_out, reply.usage.n_cached) == ("{}", 10, 2, 4)
    assert reply.usage.cost_usd == pytest.approx((6 * 1 + 4 * 0.5 + 2 * 2) / 1e6)
    [asked] = server.asked
    assert asked["messages"] == [dict(m) for m in PROMPT.messages]
    assert (asked["temperature"], asked["max_tokens"]) == (0.0, 300)
    form = asked["response_format"]
    assert isinstance(form, dict)
    assert form["json_schema"]["schema"] == json.loads(json.dumps(PROMPT.schema))
    assert form["json_schema"]["strict"] is True


def test_litellm_computes_the_cost_of_other_calls_of_the_process_but_not_of_ours(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    litellm = imported()
    calculate = Mock(wraps=litellm.response_cost_calculator)
    monkeypatch.setattr(litellm, "response_cost_calculator", calculate)
    assert isinstance(complete(LiteLLMClient("openai/gpt-4o-mini")), Reply)
    assert len(server.asked) == 1
    calculate.assert_not_called()
    messages = [{"role": "user", "content": "?"}]
    of_others = litellm.completion("gpt-4o-mini", messages, mock_response="an answer")
    calculate.assert_called()
    assert of_others._hidden_params["response_cost"] > 0


@pytest.mark.parametrize("of_server", ["no token", "Traceback (most recent call last): ValueError: too long"])
def test_the_reason_of_a_failed_call_has_no_traceback_but_what_the_server_said(
    server: Server, monkeypatch: pytest.MonkeyPatch, of_server: str
) -> None:
    litellm = imported()
    text = f"{of_server}\nTraceback (most recent call last):\n  File 'x.py', line 1"
    fails = Mock(side_effect=litellm.APIConnectionError(text, llm_provider="vertex_ai", model="m"))
    monkeypatch.setattr(litellm, "acompletion", fails)
    error = complete(LiteLLMClient("openai/gpt-4o-mini"))
    assert isinstance(error, CallError)
    assert str(error).endswith(of_server)


def judged(model: str, budget: Budget | None = None, n: int = 2, kept: Kept | None = None) -> list[Verdict]:
    """Ask n questions, one after the other."""
    sequence = QuestionSequence([q for i in range(n) for q in questions(talk(f"c{i}"), [HELPFULNESS])])
    runtime = JudgeRuntime(
        LiteLLMClient, (kept or Kept()).writing, b"s", budget=budget or Budget(), concurrency=1
    )
    found = Panel(JudgeSpec((model,)), runtime).answers([sequence], table("judge_cache").empty())
    return [verdict for [(_, verdict)] in found.values()]


PROVIDERS = {
    "openai": "OPENAI_BASE_URL",
    "groq": "GROQ_API_BASE",
    "deepseek": "DEEPSEEK_API_BASE",
    "mistral": "MISTRAL_AZURE_API_BASE",
    "together_ai": "TOGETHER_AI_API_BASE",
    "openrouter": "OPENROUTER_API_BASE",
    "fireworks_ai": "FIREWORKS_API_BASE",
    "hosted_vllm": "HOSTED_VLLM_API_BASE",
    "lm_studio": "LM_STUDIO_API_BASE",
    "xai": "XAI_API_BASE",
    "perplexity": "PERPLEXITY_API_BASE",
    "databricks": "DATABRICKS_API_BASE",
    "nvidia_nim": "NVIDIA_NIM_API_BASE",
}
"""Providers with the protocol of OpenAI, and the variable of their address."""
_SAID = str(ANSWERED["choices"][0]["message"]["content"])  # type: ignore[index]
_MESSAGE: dict[str, object] = {"role": "assistant", "content": [{"type": "text", "text": _SAID}]}
_CLAUDE: dict[str, object] = {
    "id": "m",
    "type": "message",
    "model": "m",
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 1},
    **_MESSAGE,
}
OTHERS: dict[str, tuple[str, str, dict[str, object]]] = {
    "anthropic": ("m", "ANTHROPIC_API_BASE", _CLAUDE),
    "azure": ("m", "AZURE_API_BASE", ANSWERED),
    "azure_ai": ("m", "AZURE_AI_API_BASE", ANSWERED),
    "bedrock": ("anthropic.claude-v3", "AWS_BEDROCK_RUNTIME_ENDPOINT", _CLAUDE),
    "cohere_chat": (
        "m",
        "COHERE_API_BASE",
        {
            "finish_reason": "COMPLETE",
            "message": _MESSAGE,
            "usage": {"tokens": {"input_tokens": 1, "output_tokens": 1}},
        },
    ),
    "gemini": (
        "m",
        "GEMINI_API_BASE",
        {
            "candidates": [
                {"content": {"role": "model", "parts": [{"text": _SAID}]}, "finishReason": "STOP"}
            ],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        },
    ),
}
"""Providers with other protocols or addresses: model, the variable of their address, and a reply. Ollama, Vertex AI: test_door."""


@pytest.mark.parametrize("provider", [*PROVIDERS, *OTHERS])
def test_a_judge_of_each_provider_is_asked_once_a_question_and_only_through_the_door(
    provider: str, server: Server, reached: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, variable, server.body = OTHERS.get(provider) or ("m", PROVIDERS[provider], ANSWERED)
    monkeypatch.setenv(variable, f"http://127.0.0.1:{server.server_port}/v1")
    for name, value in {
        "AZURE_API_VERSION": "2024-10-21",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": KEY,
        "AWS_REGION_NAME": "us-east-1",
        "COHERE_API_KEY": KEY,
    }.items():
        monkeypatch.setenv(name, value)
    for name in (f"{provider.upper()}_API_KEY", "TOGETHERAI_API_KEY", "PERPLEXITYAI_API_KEY"):
        monkeypatch.setenv(name, KEY)
    verdicts = judged(f"{provider}/{model}", n=2)
    assert all(isinstance(verdict, Scored) for verdict in verdicts), verdicts
    assert len(server.asked) == 2
    assert {address[1] for address in reached} <= {server.server_port}


def forms_of(server: Server) -> list[str]:
    forms = [asked.get("response_format") for asked in server.asked]
    return [form["type"] if isinstance(form, dict) else "text" for form in forms]


def test_a_listed_price_of_zero_is_unknown_where_the_provider_charges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def listed(provider: str) -> dict[str, object]:
        return {"litellm_provider": provider, "input_cost_per_token": 0, "output_cost_per_token": 0}

    fake = SimpleNamespace(get_model_info=listed)
    monkeypatch.setattr("agent_eval.judge.llm.client.imported", lambda: fake)
    assert [price_of(name) for name in ("anthropic", "openai")] == [None, None]
    assert price_of("ollama") == Price(0, 0, None, None)


@pytest.mark.parametrize(
    ("refuses", "refusal", "kinds"),
    [
        (1, (400, "Bad Request"), ["json_schema", "json_object", "json_object"]),
        (2, (422, "Unprocessable"), ["json_schema", "json_object", "text", "text"]),
        (1, (500, "cannot build the grammar"), ["json_schema", "json_schema", "json_object", "json_object"]),
        (0, (400, ""), ["json_schema", "json_schema"]),
    ],
)
def test_a_form_that_a_server_refuses_leads_to_the_next_one_which_is_remembered(
    server: Server, refuses: int, refusal: tuple[int, str], kinds: list[str]
) -> None:
    server.body = ANSWERED
    server.refuses, server.refusal, budget = FORMS[:refuses], refusal, Budget()
    assert all(isinstance(v, Scored) for v in judged(f"openai/refuses-{refuses}-{refusal[0]}", budget))
    assert forms_of(server) == kinds
    assert budget.n_calls == len(kinds)
    text = str(server.asked[-1]["messages"])
    assert ("with your values in place of the descriptions" in text) == bool(refuses)
    assert "integer from 1 to 5 or null" in text  # the rubric ends with the form of its part in any case


@pytest.mark.parametrize("n_broken", range(6))
def test_a_broken_connection_does_not_weaken_the_request(
    server: Server, n_broken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasty = SimpleNamespace(**vars(asyncio) | {"sleep": lambda _: asyncio.sleep(0)})
    monkeypatch.setattr("agent_eval.judge.llm.requests.asyncio", hasty)
    server.body, server.n_broken = ANSWERED, n_broken
    [verdict] = judged(f"openai/breaks-{n_broken}", n=1)
    assert isinstance(verdict, Scored)
    assert forms_of(server) == ["json_schema"] * (n_broken + 1)


UNSUPPORTED = {
    "temperature": {
        "message": "Unsupported value: 'temperature' does not support 0.0.",
        "param": "temperature",
    },
    "max_tokens": {"message": "'max_tokens' is not supported. Use 'max_completion_tokens' instead."},
    "max_completion_tokens": {"detail": [{"loc": ["body", "max_completion_tokens"], "msg": "extra"}]},
}


@pytest.mark.parametrize("refused", [c for n in range(4) for c in itertools.permutations(UNSUPPORTED, n)])
@pytest.mark.parametrize("status", [400, 422])
def test_a_parameter_that_a_server_refuses_by_name_is_left_out_or_renamed_and_remembered(
    server: Server, refused: tuple[str, ...], status: int
) -> None:
    server.body, server.unsupported = ANSWERED, {name: (status, UNSUPPORTED[name]) for name in refused}
    kept = Kept()
    assert all(isinstance(v, Scored) for v in judged(f"openai/own-{'-'.join(refused)}-{status}", kept=kept))
    lost = {name for name in refused if name in ("temperature", "max_tokens")}
    lost |= {"max_completion_tokens"} & {*refused} if "max_tokens" in refused else set()
    assert len(server.asked) == 2 + len(lost)
    assert forms_of(server) == ["json_schema"] * len(server.asked)
    assert not lost & server.asked[-1].keys()
    limits = {"max_tokens", "max_completion_tokens"} & server.asked[-1].keys()
    assert limits == ({"max_tokens"} if "max_tokens" not in refused else {"max_completion_tokens"} - lost)
    dropped = kept.frame()["dropped_parameters"].to_list()
    assert dropped == [["temperature"] if "temperature" in refused else []] * len(dropped)


@pytest.mark.parametrize(
    "said",
    [{"message": "no", "param": "messages"}, {"message": "x" * 300 + " temperature"}, "temperatures differ"],
)
def test_an_error_that_names_no_parameter_of_ours_leaves_them_in(server: Server, said: object) -> None:
    server.status, server.body = 400, {"error": said}
    assert not isinstance(complete(client := LiteLLMClient("openai/names-none")), Reply)
    assert not isinstance(complete(client), Reply)
    assert all({"temperature", "max_tokens"} <= asked.keys() for asked in server.asked)


def test_every_try_of_a_form_needs_room_under_the_cap_of_calls(server: Server) -> None:
    server.refuses = FORMS[:2]
    found = judged("openai/capped", Budget(max_calls=2), 1)
    assert [v.reason for v in found if isinstance(v, Unscored)] == ["budget_exhausted"]
    assert forms_of(server) == ["json_schema", "json_object"]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "This model's maximum context length is 4096 tokens."),
        (422, "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 9000"),
        (500, "the request exceeds the available context size, try increasing it"),
    ],
)
def test_an_error_about_the_context_leads_to_no_simpler_form(server: Server, status: int, text: str) -> None:
    server.status, server.body = status, {"error": {"message": text}}
    error = complete(LiteLLMClient("openai/small"))
    assert isinstance(error, CallError)
    assert (error.failure, error.next_form) == ("too_long", None)


def test_a_form_that_was_accepted_once_stays_in_use(server: Server) -> None:
    client = LiteLLMClient("openai/once-bad")
    assert isinstance(complete(client), Reply)
    server.refuses = ("json_schema",)
    error = complete(client)
    assert isinstance(error, CallError)
    assert isinstance(complete(client, replace(PROMPT, rung=error.next_form or 0)), Reply)
    assert isinstance(complete(client), CallError)
    assert forms_of(server) == ["json_schema", "json_schema", "json_object", "json_schema"]


def test_a_reply_names_the_model_that_answered_and_what_it_was_asked_without(server: Server) -> None:
    server.body = REPLY | {"model": "o3-mini-2025-01-31", "system_fingerprint": "fp_44"}
    reply = complete(LiteLLMClient("openai/o3-mini"))
    assert isinstance(reply, Reply)
    assert (reply.model, reply.fingerprint) == ("o3-mini-2025-01-31", "fp_44")
    assert reply.dropped == ("temperature",)
    assert "temperature" not in server.asked[0]
    reply = complete(LiteLLMClient("openai/mock"))
    assert isinstance(reply, Reply)
    assert reply.dropped == ()
    assert server.asked[1]["temperature"] == 0.0


def test_an_answer_is_stored_with_the_model_that_gave_it(server: Server) -> None:
    server.body, store = ANSWERED | {"model": "o3-mini-2025-01-31", "system_fingerprint": "fp_44"}, Kept()
    judged("openai/o3-mini", n=1, kept=store)
    columns = ("model", "response_model", "system_fingerprint", "dropped_parameters")
    assert store.frame().select(columns).rows() == [
        ("openai/o3-mini", "o3-mini-2025-01-31", "fp_44", ["temperature"])
    ]


FAILURES = {429: "rate", 500: "server", 503: "server", 401: "authentication", 404: "refused", 400: "refused"}


@pytest.mark.parametrize("status", FAILURES)
def test_failures_are_told_apart_and_a_wait_in_seconds_or_until_a_date_is_read(
    server: Server, status: int
) -> None:
    server.status, server.body = status, {"error": {"message": "no"}}
    for wait in ("100", formatdate(time.time() + 100, usegmt=True)):
        server.headers = {"Retry-After": wait}
        error = complete(LiteLLMClient("openai/mock"))
        assert isinstance(error, CallError)
        assert error.failure == FAILURES[status]
        assert 90 < (error.retry_after_s or 0) <= 100
    assert len(server.asked) == 2  # trying again is not the client's business


def test_a_server_that_does_not_answer_and_one_that_is_not_there(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.delay_s = 2.0
    slow = complete(LiteLLMClient("openai/mock", timeout_s=0.2))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    gone = complete(LiteLLMClient("openai/mock"))
    assert isinstance(slow, CallError)
    assert isinstance(gone, CallError)
    assert (slow.failure, gone.failure) == ("timeout", "connection")
    assert {"judge_timeout_s", "judge_concurrency"} <= set(
        slow.detail.replace(",", " ").replace(".", " ").split()
    )


def test_a_price_that_nobody_knows_is_none_also_after_a_call(server: Server) -> None:
    assert price_of("openai/nobodys-own") is None
    for _ in range(2):
        reply = complete(LiteLLMClient("openai/nobodys-own"))
        assert isinstance(reply, Reply)
        assert reply.usage.cost_usd is None
    assert price_of("openai/nobodys-own") is None
    known = price_of("openai/gpt-4o-mini")
    assert known is not None
    assert known.sent > 0


@pytest.mark.parametrize("status", [401, 429, 500])
def test_a_planted_key_is_in_no_verdict_row_log_or_exception(
    server: Server, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, status: int,
) -> None:  # fmt: skip
    hasty = SimpleNamespace(**vars(asyncio) | {"sleep": lambda _: asyncio.sleep(0)})
    monkeypatch.setattr(
        "agent_eval.judge.llm.requests.asyncio", hasty
    )  # there only: the client has sleeps of its own
    server.status, server.body, kept = status, "echo the key", Kept()
    with caplog.at_level(logging.DEBUG):
        [verdict] = judged("openai/mock", n=1, kept=kept)
    assert isinstance(verdict, Unscored)
    assert verdict.detail
    assert server.asked, verdict  # the server was really called
    seen = f"{verdict} {kept.rows} {caplog.text} {capfd.readouterr()}"
    assert KEY not in seen
    assert KEY[10:] not in seen


@pytest.mark.parametrize(
    ("model", "environment", "said"),
    [
        ("nosuch/model", {}, "provider is unknown"),
        ("openai/gpt-4o-mini", {}, "OPENAI_API_KEY"),
        ("openai/gpt-4o-mini", {"OPENAI_API_KEY": ""}, "OPENAI_API_KEY"),
        ("openai/gpt-4o-mini", {"OPENAI_API_KEY": "k"}, None),
        ("openai/gpt-4o-mimi", {"OPENAI_API_KEY": "k"}, "Did you mean 'gpt-4o-mini'?"),
        ("openai/mine", {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://localhost:1"}, None),
        ("ollama_chat/any", {}, None),
    ],
)
def test_a_model_that_cannot_be_called_is_named_before_the_first_call(
    model: str, environment: dict[str, str], said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    problem = problem_of(model)
    assert problem is None if said is None else problem is not None and said in problem
    needs_only_a_key = said == "OPENAI_API_KEY"
    assert (problem_of(model, needs_key=False) is None) == (problem is None or needs_only_a_key)
    if environment.get("OPENAI_API_KEY"):  # a model with a price in the settings exists
        assert problem_of(model, is_listed=True) is None


def test_a_model_is_not_named_as_the_judges_of_other_tools_are() -> None:
    assert "names that begin with 'import:' are of other tools' judges" in (problem_of("import:gpt-4o") or "")
    assert "of other tools' judges" not in (problem_of("openai/import:x") or "")
