"""The one door for HTTP of a judge: bounded, timed, to the judge's origin only, and counted; also what litellm asks by itself."""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
import urllib3

from agent_eval.judge.llm import client as client_module
from agent_eval.judge.llm import transport
from agent_eval.judge.llm.budget import Budget
from agent_eval.judge.llm.client import LiteLLMClient, context_tokens_of, imported
from agent_eval.judge.llm.transport import EXCHANGE, Exchange
from agent_eval.judge.protocol import Scored
from tests.judge.fakes import serving
from tests.judge.test_client import ANSWERED, OTHERS, complete, judged


class Handler(BaseHTTPRequestHandler):
    """Answers with what the server says for the path: a function that writes the answer."""

    server: "Server"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(self.path)
        with contextlib.suppress(OSError):
            self.server.answer(self)

    do_GET = do_POST  # noqa: N815  # name of the base class

    def log_message(self, *_: object) -> None:
        pass

    def say(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Length": str(len(body)),
            "Content-Type": "application/json",
            **headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, answer: Callable[[Handler], object]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.asked = answer, list[str]()


@pytest.fixture
def ended() -> Iterator[threading.Event]:
    """Set at the end of the test, so that no answer waits longer."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("provider", ["ollama", "ollama_chat"])
def test_model_information_that_hangs_neither_delays_nor_loses_a_question(
    provider: str, ended: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = json.dumps(ANSWERED["choices"][0]["message"]["content"])  # type: ignore[index]

    def answer(request: Handler) -> None:
        if request.path == "/api/show":
            ended.wait(60)
        text = '{"model": "m", "done": true, "done_reason": "stop", "prompt_eval_count": 1, "eval_count": 1, '
        request.say(
            f'{text} "response": {said}, "message": {{"role": "assistant", "content": {said}}}}}'.encode()
        )

    monkeypatch.setattr(client_module, "INFO_S", 0.3)
    server, model = Server(answer), f"{provider}/hangs"
    with serving(server) as address:
        monkeypatch.setenv("OLLAMA_API_BASE", address)
        began = time.monotonic()
        assert context_tokens_of(model) is None
        assert all(isinstance(v, Scored) for v in judged(model, n=5))
        assert time.monotonic() - began < 15
    asked = [path for path in server.asked if path != "/api/show"]
    assert len(asked) == 5
    assert server.asked.count("/api/show") <= 1


LOOP_S = 20.0


def ask(
    address: str, *, in_loop: bool = False, most: int = 1000, seconds: float = 0.5
) -> httpx.Response | Exception:
    """One synchronous request within an exchange, in the event loop or in another thread as litellm makes it."""
    imported()
    exchange = Exchange(most, time.monotonic() + seconds)

    def get() -> httpx.Response:
        with httpx.Client(follow_redirects=True, timeout=LOOP_S) as http:
            return http.get(address)

    async def go() -> httpx.Response:
        EXCHANGE.set(exchange)
        return get() if in_loop else await asyncio.to_thread(get)

    try:
        return asyncio.run(go())
    except Exception as error:
        return error


def test_a_synchronous_request_is_bounded_timed_and_never_made_in_the_event_loop(
    ended: threading.Event,
) -> None:
    def answer(request: Handler) -> None:
        if request.path == "/hang":
            ended.wait(60)
        if request.path == "/away":
            request.say(b"", 302, Location="http://127.0.0.2:9/")
        elif request.path == "/loop":
            request.say(b"", 302, Location="/loop")
        else:
            request.say(b"x" * (5000 if request.path == "/large" else 5))

    server = Server(answer)
    with serving(server) as address:
        good = ask(f"{address}/good")
        assert isinstance(good, httpx.Response)
        assert good.content == b"x" * 5
        for path, why in (("large", "larger than"), ("away", "redirects to"), ("loop", "more than 3")):
            assert why in str(ask(f"{address}/{path}"))
        assert server.asked.count("/loop") == transport.MOST_REDIRECTS + 1
        began, n_asked = time.monotonic(), len(server.asked)
        assert isinstance(ask(f"{address}/hang", seconds=0.3), httpx.TimeoutException)
        assert time.monotonic() - began < LOOP_S / 2
        assert isinstance(ask(f"{address}/good", in_loop=True), httpx.ConnectError)
        assert len(server.asked) == n_asked + 1


def test_a_request_for_credentials_has_a_time_limit(ended: threading.Event) -> None:
    server = Server(lambda _: ended.wait(60))
    imported()
    with serving(server) as address:
        token = EXCHANGE.set(Exchange(1000, time.monotonic() + 0.3))
        try:
            began = time.monotonic()
            with pytest.raises(urllib3.exceptions.HTTPError), urllib3.PoolManager() as pool:
                pool.request("GET", address, timeout=60, retries=False)
            assert time.monotonic() - began < 10
        finally:
            EXCHANGE.reset(token)


def test_a_judge_of_vertex_ai_asks_once_for_its_credentials_and_only_through_the_door(
    reached: list[tuple[str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("google.auth")
    from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    said = json.dumps(OTHERS["gemini"][2] | {"access_token": "t", "expires_in": 3600}).encode()
    server, account = Server(lambda request: request.say(said)), tmp_path / "account.json"
    with serving(server) as address:
        fields = {"type": "service_account", "client_email": "a@b.example", "private_key": key.decode()}
        account.write_text(json.dumps(fields | {"token_uri": f"{address}/token"}))
        for name, value in {
            "GOOGLE_APPLICATION_CREDENTIALS": str(account),
            "VERTEXAI_PROJECT": "p",
            "VERTEXAI_LOCATION": "us-central1",
            "VERTEXAI_API_BASE": address,
        }.items():
            monkeypatch.setenv(name, value)
        assert all(isinstance(verdict, Scored) for verdict in judged("vertex_ai/gemini-1.5-pro", n=2))
    assert [path.rpartition("/")[2] for path in server.asked] == [
        "token",
        *["gemini-1.5-pro:generateContent"] * 2,
    ]
    assert {address[1] for address in reached} == {server.server_port}


@pytest.mark.parametrize(("max_calls", "n_asked"), [(None, 4), (2, 2), (1, 1)])
def test_redirects_on_one_origin_end_and_count_against_the_caps(
    max_calls: int | None, n_asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, budget = Server(lambda r: r.say(b"", 307, Location="/v1/again")), Budget(max_calls=max_calls)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with serving(server) as address:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{address}/v1")
        [verdict] = judged("openai/loops", budget, n=1)
    assert not isinstance(verdict, Scored)
    assert (len(server.asked), budget.n_calls) == (n_asked, n_asked)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2", "judge.localhost"])
def test_a_judge_on_this_machine_is_called_past_a_proxy(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, judge = Server(lambda r: r.say(b"{}", 502)), Server(lambda r: r.say(b"{}"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with serving(proxy) as address, serving(judge) as local:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, address)
        monkeypatch.setenv("NO_PROXY", "example.org")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.setenv("OPENAI_BASE_URL", local.replace("127.0.0.1", host) + "/v1")
        complete(LiteLLMClient(f"openai/{host}", timeout_s=5))
    assert proxy.asked == []
