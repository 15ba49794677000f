"""Calls that are sent without litellm: litellm would have sent the same, and whatever is not plain goes back to it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import httpx
import pytest

from agent_eval.judge.llm import templates
from agent_eval.judge.llm.budget import Price
from agent_eval.judge.llm.client import CallError, LiteLLMClient, Reply, imported
from agent_eval.judge.llm.templates import MOST_FAILURES, Templates
from agent_eval.judge.llm.transport import ADMIT, EXCHANGE, Exchange, _wrapped
from agent_eval.judge.run_sync import run_sync
from tests.judge.fakes import serving
from tests.judge.test_client import PROMPT, REPLY

MODEL = "openai/mock"
TEXTS = (
    "plain",
    "é ü 漢字 🙂",
    'quotes " and \\ and \x00 and \u2028',
    "<think>not of the model</think>",
    "",
    "x" * 9_000,
)


@dataclass
class Answer:
    """One answer of the server; a body that is not bytes is written as JSON, and `is_cut` ends it early."""

    body: object = field(default_factory=lambda: REPLY)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    is_cut: bool = False


class Handler(BaseHTTPRequestHandler):
    server: "Server"
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.path, headers, body))
        answer = self.server.answer(len(self.server.asked) - 1)
        content = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        self.send_response(answer.status)
        sent = {"Content-Type": "application/json", "Content-Length": str(len(content)), **answer.headers}
        for name, value in sent.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if answer.is_cut else content)
        self.close_connection |= answer.is_cut

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, answer: Callable[[int], Answer] = lambda _: Answer()) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.asked: list[tuple[str, dict[str, str], bytes]] = []


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server()
    monkeypatch.setenv("OPENAI_API_KEY", "sk-one")
    with serving(server) as address:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{address}/v1")
        yield server


@pytest.fixture
def by_litellm(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Count the calls that litellm makes."""
    litellm = imported()
    counted = Mock(wraps=litellm.acompletion)
    monkeypatch.setattr(litellm, "acompletion", counted)
    return counted


def ask_all(
    texts: Sequence[str],
    *,
    is_direct: bool,
    between: Callable[[int], object] = lambda _: None,
    admit: Callable[[], str | None] | None = None,
    model: str = MODEL,
    **options: Any,
) -> list[Reply | CallError]:
    """Ask one after another, in one event loop."""
    client = LiteLLMClient(
        model, price=Price(1.0, 2.0, cached=0.5), is_direct=is_direct, timeout_s=5, **options
    )

    async def one(text: str) -> Reply | CallError:
        try:
            return await client.complete(
                (*PROMPT.messages[:-1], {"role": "user", "content": text}), PROMPT, 300
            )
        except CallError as error:
            return error

    async def go() -> list[Reply | CallError]:
        ADMIT.set(admit)
        replies = []
        for i, text in enumerate(texts):
            between(i)
            replies.append(await one(text))
        await client.close()
        return replies

    return run_sync(go())


def facts(reply: Reply | CallError) -> object:
    """Return all that the engine reads of an outcome."""
    if isinstance(reply, Reply):
        return reply
    return (
        reply.failure,
        reply.detail,
        reply.retry_after_s,
        reply.next_form,
        reply.is_adjusted,
        reply.n_not_counted,
    )


def test_litellm_would_have_sent_the_same_bytes_and_read_the_same_reply(
    server: Server, by_litellm: Mock
) -> None:
    server.answer = lambda i: Answer(
        {
            **REPLY,
            "model": f"mock-{i}",
            "system_fingerprint": f"fp-{i}",
            "usage": {"prompt_tokens": 10 + i, "completion_tokens": 2},
        }
    )
    texts = [f"{i}: {text}" for i, text in enumerate(TEXTS * 2)]
    with_templates = ask_all(texts, is_direct=True)
    assert by_litellm.call_count == 2
    sent, server.asked = server.asked, []
    assert ask_all(texts, is_direct=False) == with_templates
    assert by_litellm.call_count == 2 + len(texts)
    assert sent == server.asked
    assert len({reply.model for reply in with_templates if isinstance(reply, Reply)}) == len(texts)


MESSAGE = {"role": "assistant", "content": "{}"}


def completion(**changes: object) -> dict[str, object]:
    choice = {"index": 0, "finish_reason": "stop", "message": MESSAGE}
    return REPLY | {"choices": [choice | changes]}


STRANGE = {
    "rate limit": Answer({"error": {"message": "slow down"}}, 429, {"Retry-After": "7"}),
    "server error": Answer({"error": {"message": "overloaded"}}, 500),
    "bad gateway in HTML": Answer(b"<html>502</html>", 502, {"Content-Type": "text/html"}),
    "too long": Answer({"error": {"message": "maximum context length is 4096 tokens"}}, 400),
    "a parameter is refused": Answer({"error": {"message": "no", "param": "temperature"}}, 400),
    "content policy": Answer({"error": {"message": "no", "code": "content_policy_violation"}}, 400),
    "not found": Answer({"error": {"message": "no such model"}}, 404),
    "elsewhere": Answer(b"", 302, {"Location": "http://127.0.0.2:9/v1"}),
    "not JSON": Answer(b"hello", 200, {"Content-Type": "text/plain"}),
    "another content than declared": Answer(b'{"choices": [', 200),
    "no choice": Answer(REPLY | {"choices": []}),
    "an error with status 200": Answer({"error": {"message": "quota"}}),
    "cut off": Answer(is_cut=True),
    "too large": Answer(completion(message=MESSAGE | {"content": "x" * 60_000})),
    "refusal": Answer(completion(message={"role": "assistant", "content": None, "refusal": "I cannot"})),
    "reasoning": Answer(completion(message=MESSAGE | {"content": "<think>hm</think>{}"})),
    "parts": Answer(
        completion(message=MESSAGE | {"content": [{"type": "text", "text": "{"}, {"text": "}"}]})
    ),
    "truncated": Answer(completion(finish_reason="length")),
    "filtered": Answer(completion(finish_reason="content_filter")),
    "an end of another provider": Answer(completion(finish_reason="max_tokens")),
    "no end": Answer(completion(finish_reason=None)),
    "no usage": Answer({k: v for k, v in REPLY.items() if k != "usage"}),
    "wrong usage": Answer(REPLY | {"usage": {"prompt_tokens": -1, "completion_tokens": 2}}),
    "nothing cached": Answer(REPLY | {"usage": {"prompt_tokens": 3, "completion_tokens": 2}}),
    "a header that is too long": Answer(headers={"X-L": "a" * 9000}),
    "a header that is not ASCII": Answer(headers={"X-Name": "café"}),
    "a wrong length": Answer(headers={"Content-Length": "-1"}),
    "a cookie": Answer(headers={"Set-Cookie": "a=1"}),
    "a budget for reasoning": Answer(
        completion(message=MESSAGE | {"content": "<budget:thinking>x</budget:thinking>{}"})
    ),
    "no model": Answer({k: v for k, v in REPLY.items() if k != "model"}),
}


@pytest.mark.parametrize("what", STRANGE)
def test_whatever_is_not_a_plain_answer_is_read_by_litellm_and_not_asked_for_again(
    server: Server, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes, counts = [], []
    server.answer = lambda i: STRANGE[what] if i == 3 else Answer()
    for is_direct in (False, True):
        monkeypatch.setattr("agent_eval.judge.llm.client._NOT_SENT", {})
        monkeypatch.setattr("agent_eval.judge.llm.client._ACCEPTED", {})
        server.asked, n_further = [], Mock(return_value=None)
        outcomes.append(
            [
                facts(r)
                for r in ask_all(list("abcdefg"), is_direct=is_direct, admit=n_further, max_reply_mb=0.05)
            ]
        )
        counts.append((len(server.asked), n_further.call_count))
    assert outcomes[0] == outcomes[1]
    assert counts == [(7, 0), (7, 0)]


def test_a_refused_key_is_asked_for_again_by_litellm_and_counted(server: Server, by_litellm: Mock) -> None:
    """A token that litellm got from a server may have expired, and litellm can get a new one."""
    server.answer = lambda i: Answer({"error": {"message": "expired"}}, 401) if i == 3 else Answer()
    further = Mock(return_value=None)
    replies = ask_all(list("abcdef"), is_direct=True, admit=further)
    assert all(isinstance(reply, Reply) for reply in replies)
    assert (len(server.asked), further.call_count, by_litellm.call_count) == (7, 1, 5)
    outcomes = []
    for is_direct in (False, True):
        server.asked = []
        outcomes.append(
            [
                facts(r)
                for r in ask_all(list("abcdef"), is_direct=is_direct, admit=lambda: "the cap is reached")
            ]
        )
        assert len(server.asked) == 6
    assert outcomes[0] == outcomes[1]
    assert "authentication" in str(outcomes[1][3])


@pytest.mark.parametrize("model", ["openai/mock", "azure/mock"])
@pytest.mark.parametrize("changes", [range(10), range(3, 10), [0, 6], [4]])
def test_cookies_are_sent_as_litellm_sends_them(
    server: Server, model: str, changes: Sequence[int], by_litellm: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("BASE", f"http://127.0.0.1:{server.server_port}"),
        ("KEY", "k"),
        ("VERSION", "2024-10-21"),
    ):
        monkeypatch.setenv(f"AZURE_API_{name}", value)
    server.answer = lambda i: Answer(headers={"Set-Cookie": f"a={i}; Path=/"} if i in changes else {})
    cookies = []
    for is_direct in (False, True):
        server.asked = []
        assert all(
            isinstance(r, Reply) for r in ask_all(list("abcdefghij"), is_direct=is_direct, model=model)
        )
        cookies.append([headers.get("cookie") for _, headers, _ in server.asked])
    assert cookies[0] == cookies[1]
    assert by_litellm.call_count < 17 or model == "azure/mock"


def test_time_limits_and_blank_messages_are_sent_as_litellm_sends_them(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK of azure names the time limit in a header; litellm drops blank messages to mistral."""
    address = f"http://127.0.0.1:{server.server_port}"
    for name, value in {"AZURE_API_BASE": address, "MISTRAL_AZURE_API_BASE": f"{address}/v1"}.items():
        monkeypatch.setenv(name, value)
    for name in ("AZURE_API_KEY", "MISTRAL_AZURE_API_KEY", "MISTRAL_API_KEY"):
        monkeypatch.setenv(name, "k")
    monkeypatch.setenv("AZURE_API_VERSION", "2024-10-21")

    def sent(model: str, *, is_direct: bool) -> list[tuple[str | None, bytes]]:
        server.asked = []
        clients = [LiteLLMClient(model, timeout_s=timeout_s, is_direct=is_direct) for timeout_s in (5, 9)]

        async def go() -> None:
            for i in range(12):
                client = clients[i % 2 if i > 5 else 0]
                before = {"role": "user", "content": "" if i in (4, 5, 11) else "x"}
                messages = (*PROMPT.messages[:-1], before, {"role": "user", "content": str(i)})
                await client.complete(messages, PROMPT, 300)
            await clients[0].close()

        run_sync(go())
        return [(headers.get("x-stainless-read-timeout"), body) for _, headers, body in server.asked]

    for model in ("azure/mock", "mistral/mock"):
        assert sent(model, is_direct=True) == sent(model, is_direct=False)


def test_a_request_with_other_roles_is_first_sent_by_litellm(server: Server, by_litellm: Mock) -> None:
    client = LiteLLMClient(MODEL)
    user = {"role": "user", "content": "a"}

    async def go() -> list[int]:
        counts = []
        for messages in [(user,)] * 3 + [(user, {"role": "assistant", "content": "b"}, user)] * 3:
            await client.complete(messages, PROMPT, 300)
            counts.append(by_litellm.call_count)
        await client.close()
        return counts

    assert run_sync(go()) == [1, 2, 2, 3, 4, 4]


def test_learning_from_a_call_never_loses_its_reply(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Templates, "learn", Mock(side_effect=RuntimeError("the body was not read")))
    assert all(isinstance(reply, Reply) for reply in ask_all(list("abc"), is_direct=True))
    assert len(server.asked) == 3


def test_a_connection_that_the_server_has_closed_meanwhile_is_not_used(server: Server) -> None:
    Handler.timeout = 0.04
    try:
        replies = ask_all([str(i) for i in range(20)], is_direct=True, between=lambda _: time.sleep(0.08))
    finally:
        Handler.timeout = None
    assert all(isinstance(reply, Reply) for reply in replies)
    assert len(server.asked) == 20


@pytest.mark.parametrize(
    "name", ["OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTPS_PROXY", "SSL_CERT_FILE", "litellm.api_key"]
)
def test_a_changed_key_address_or_proxy_goes_back_to_litellm(
    server: Server, by_litellm: Mock, monkeypatch: pytest.MonkeyPatch, name: str, tmp_path: Any
) -> None:
    other = Server()
    with serving(other) as address:
        values = {"OPENAI_API_KEY": "sk-two", "OPENAI_BASE_URL": f"{address}/v1"}

        def change(i: int) -> None:
            if i == 4 and name == "litellm.api_key":
                monkeypatch.setattr(imported(), "api_key", "sk-two")
            elif i == 4:
                monkeypatch.setenv(name, values.get(name, str(tmp_path)))

        replies = ask_all(list("abcdefgh"), is_direct=True, between=change)
    assert all(isinstance(reply, Reply) for reply in replies)
    assert by_litellm.call_count == 4
    at_first, later = server.asked[:4], (other if name == "OPENAI_BASE_URL" else server).asked[-4:]
    assert {headers["authorization"] for _, headers, _ in at_first} == {"Bearer sk-one"}
    expected = "Bearer sk-two" if name.lower().endswith("api_key") else "Bearer sk-one"
    assert {headers["authorization"] for _, headers, _ in later} == {expected}
    assert len(server.asked) + len(other.asked) == 8


def test_a_template_is_used_for_five_minutes_at_most(
    server: Server, by_litellm: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = SimpleNamespace(monotonic=lambda: 1000.0)
    monkeypatch.setattr(templates, "time", now)

    def later(i: int) -> None:
        if i == 4:
            now.monotonic = lambda: 1000.0 + templates.LONGEST_S

    ask_all(list("abcdefgh"), is_direct=True, between=later)
    assert by_litellm.call_count == 4
    assert len(server.asked) == 8


def test_a_proxy_of_the_environment_gets_every_request(
    server: Server, by_litellm: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://judge.example/v1")
    assert all(isinstance(reply, Reply) for reply in ask_all(list("abcde"), is_direct=True))
    assert by_litellm.call_count == 2
    assert [path for path, _, _ in server.asked] == ["http://judge.example/v1/chat/completions"] * 5


def test_calls_in_another_event_loop_do_not_use_its_connections(server: Server, by_litellm: Mock) -> None:
    for _ in range(3):
        assert all(isinstance(reply, Reply) for reply in ask_all(list("abcd"), is_direct=True))
    assert by_litellm.call_count == 6


class Transport:
    """Stands for a connection."""

    def __init__(self) -> None:
        self.sent: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request)
        return httpx.Response(200, json=REPLY, request=request)


def request_of(
    text: str, url: str = "https://a.example/v1", model: str = "m", **headers: str
) -> httpx.Request:
    content = json.dumps({"model": model, "messages": [{"role": "user", "content": text}]}).encode()
    return httpx.Request("POST", url, content=content, headers={"authorization": "Bearer k", **headers})


UNEQUAL: dict[str, tuple[httpx.Request, httpx.Request]] = {
    "signed": (request_of("a", signature="1"), request_of("b", signature="2")),
    "another address": (request_of("a"), request_of("b", url="https://a.example/v2")),
    "another parameter": (request_of("a"), request_of("b", model="n")),
    "other messages": (request_of("a"), request_of("c")),
    "not JSON": (httpx.Request("POST", "https://a.example", content=b"a"),) * 2,
    "no messages": (httpx.Request("POST", "https://a.example", content=b'{"contents": "a"}'),) * 2,
}


@pytest.mark.parametrize("what", [*UNEQUAL, "equal", "read otherwise", "two requests", "another connection"])
def test_only_two_equal_requests_in_succession_make_a_template(what: str) -> None:
    async def go() -> bool:
        learned, transports = Templates(), (Transport(), Transport())
        for number, (text, request) in enumerate(
            zip("ab", UNEQUAL.get(what, (request_of("a"), request_of("b"))), strict=True)
        ):
            transport = transports[number * (what == "another connection")]
            sent = [(transport, request)] * (2 if what == "two requests" else 1)
            exchange = Exchange(1000, n_requests=len(sent), sent=sent)
            learned.learn(
                ("m",), [{"role": "user", "content": text}], exchange, is_read_alike=what != "read otherwise"
            )
        asked = await learned.ask(("m",), [{"role": "user", "content": "d"}], Exchange(1000))
        return asked is not None

    assert asyncio.run(go()) is (what == "equal")


def test_a_template_is_not_used_in_another_event_loop() -> None:
    learned, transport = Templates(), Transport()

    async def learn() -> None:
        for text in "ab":
            exchange = Exchange(1000, n_requests=1, sent=[(transport, request_of(text))])
            learned.learn(("m",), [{"role": "user", "content": text}], exchange, is_read_alike=True)

    async def ask() -> bool:
        return await learned.ask(("m",), [{"role": "user", "content": "c"}], Exchange(1000)) is not None

    asyncio.run(learn())
    assert asyncio.run(ask()) is False
    assert transport.sent == []


def test_an_answer_is_handed_over_to_the_request_for_it_alone() -> None:
    """litellm may ask for a token first, which must not get the answer of the judge."""

    async def body() -> AsyncIterator[bytes]:
        yield b'{"access_token": "t"}'

    token = httpx.Response(200, content=body())

    async def go() -> list[httpx.Response]:
        answer = httpx.Response(500, json={"error": "no"})
        exchange = Exchange(1000, received=(httpx.URL("https://a.example/v1"), answer))
        EXCHANGE.set(exchange)
        send = _wrapped(AsyncMock(return_value=token))
        return [
            await send(None, httpx.Request("POST", f"https://a.example/{path}")) for path in ("token", "v1")
        ]

    first, second = asyncio.run(go())
    assert (first.status_code, second.status_code) == (200, 500)


def test_requests_that_never_repeat_are_soon_not_compared_any_more() -> None:
    async def go() -> int:
        learned, compared = Templates(), Mock(wraps=json.loads)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(templates, "json", SimpleNamespace(loads=compared, dumps=json.dumps))
            for i in range(20):
                exchange = Exchange(
                    1000, n_requests=1, sent=[(Transport(), request_of("a", signature=str(i)))]
                )
                learned.learn(("m",), [{"role": "user", "content": "a"}], exchange, is_read_alike=True)
        return compared.call_count

    assert asyncio.run(go()) == MOST_FAILURES + 1
