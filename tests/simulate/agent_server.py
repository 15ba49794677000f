"""A scripted agent behind OpenAI's chat API, over real HTTP. The name of the model says how it behaves.

`varied` looks orders up with its tool and answers in words drawn by the request's seed; `fixed` always uses the same
words. Every other name is one of FAULTS: a kind of faulty agent.
"""

import gzip
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = [
    "certainly",
    "gladly",
    "surely",
    "of-course",
    "right-away",
    "indeed",
    "happily",
    "promptly",
    "kindly",
    "naturally",
    "readily",
    "simply",
]
Handler = Callable[["Agent", dict[str, Any]], None]


class Agent(BaseHTTPRequestHandler):
    """One request; `server` is a `Server`."""

    protocol_version = "HTTP/1.1"
    server: "Server"
    n_requests = 0  # of this connection, counted by kinds that close connections

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.server.requests.append((headers, body))
        time.sleep(self.server.latency_s)
        try:
            (OTHERS | FAULTS).get(body.get("model", ""), answer)(self, body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def send(self, body: bytes, status: int = 200, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def say(self, content: object, calls: object = None, **more: object) -> None:
        message = {"role": "assistant", "content": content} | ({} if calls is None else {"tool_calls": calls})
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        value = {"model": "served-1", "choices": [choice], "usage": usage} | more
        self.send(json.dumps(value).encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Agent)
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.lock = threading.Lock()
        self.latency_s = 0.0

    def handle_error(self, *_: object) -> None:
        """Print nothing when a client goes away."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def call(name: str, arguments: object, call_id: str = "c1") -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def answer(agent: Agent, body: dict[str, Any]) -> None:
    """Look the order up, then answer with its state."""
    messages = body["messages"]
    rng = random.Random(0 if body["model"] == "fixed" else body.get("seed"))
    words = " ".join(rng.choice(WORDS) for _ in range(6))
    if messages[-1]["role"] == "user" and body.get("tools") and "order" in messages[-1]["content"].lower():
        agent.say(None, [call("lookup_order", {"order": "1042"})])
    elif messages[-1]["role"] == "tool":
        agent.say(f"The order: {messages[-1]['content']}. ({words})")
    else:
        agent.say(f"I do not know that and cannot confirm it. ({words})")


def _drip(agent: Agent, body: dict[str, Any]) -> None:
    agent.send_response(200)
    agent.send_header("content-length", "1000")
    agent.end_headers()
    for _ in range(200):
        agent.wfile.write(b" ")
        agent.wfile.flush()
        time.sleep(0.05)


def _drip_events(agent: Agent, body: dict[str, Any]) -> None:
    agent.send_response(200)
    agent.send_header("connection", "close")
    agent.end_headers()
    for _ in range(200):
        agent.wfile.write(f"data: {json.dumps(_delta(content='.'))}\n\n".encode())
        agent.wfile.flush()
        time.sleep(0.05)


def _drip_headers(agent: Agent, body: dict[str, Any]) -> None:
    for sign in b"HTTP/1.1 200 OK\r\nx-slow: " + b"x" * 200:
        agent.wfile.write(bytes([sign]))
        agent.wfile.flush()
        time.sleep(0.05)
    agent.close_connection = True


def _cut(agent: Agent, body: dict[str, Any]) -> None:
    agent.send_response(200)
    agent.send_header("content-length", "1000")
    agent.end_headers()
    agent.wfile.write(b'{"choices": [')
    agent.close_connection = True


def _drop(agent: Agent, body: dict[str, Any]) -> None:
    agent.close_connection = True


def _events(*events: object, ends: bool = True) -> Handler:
    def send(agent: Agent, body: dict[str, Any]) -> None:
        lines = [f"data: {e if isinstance(e, str) else json.dumps(e)}\n\n" for e in events]
        agent.send("".join([*lines, "data: [DONE]\n\n" if ends else ""]).encode(), kind="text/event-stream")

    return send


def _delta(finish: str | None = None, **delta: object) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _cookie(agent: Agent, body: dict[str, Any]) -> None:
    choice = {"message": {"content": "Hello."}, "finish_reason": "stop"}
    agent.send(json.dumps({"choices": [choice]}).encode(), set_cookie=f"of={body['session_id']}")


def _raw(body: bytes, status: int = 200, **headers: str) -> Handler:
    return lambda agent, _: agent.send(body, status, **headers)


def _says(content: object, calls: object = None, **more: object) -> Handler:
    return lambda agent, _: agent.say(content, calls, **more)


def _once(calls: list[Any], text: str = "Done.", content: object = None) -> Handler:
    """Make these calls, then answer once there are results."""
    return lambda agent, body: (
        agent.say(text) if body["messages"][-1]["role"] == "tool" else agent.say(content, calls)
    )


def _close_once(agent: Agent, body: dict[str, Any]) -> None:
    """Read the second request of a connection and close it without a reply, as a crash does."""
    agent.n_requests += 1
    if agent.n_requests > 1:
        agent.close_connection = True
    else:
        agent.say("Ready.")


ORDER = {"order": "1042"}
OTHERS: dict[str, Handler] = {
    "busy": lambda agent, body: (  # the first request is rejected
        agent.say("Ready.")
        if sum(other["model"] == "busy" for _, other in agent.server.requests) > 1
        else agent.send(b"slow down", 429, retry_after="0")
    ),
    "closes-once": _close_once,
    "cookie": _cookie,
    "echo-key": lambda agent, body: agent.say(f"Your key: {agent.headers['authorization']}"),
}
FAULTS: dict[str, Handler] = {
    "500": _raw(b'{"error": "boom"}', 500),
    "502-html": _raw(b"<html>Bad gateway</html>", 502),
    "400": _raw(b'{"error": "bad request"}', 400),
    "401": _raw(b'{"error": "sk-secret-0123456789"}', 401),
    "404": _raw(b"not found", 404),
    "429": _raw(b"slow down", 429, retry_after="0"),
    "429-nan": _raw(b"slow down", 429, retry_after="nan"),
    "redirect": _raw(b"", 302, location="http://example.invalid/v1"),
    "hang": lambda agent, body: time.sleep(8),
    "slow-drip": _drip,
    "slow-headers": _drip_headers,
    "stream-drip": _drip_events,
    "gzip-bomb": _raw(gzip.compress(b" " * 20_000_000), content_encoding="gzip"),
    "cut": _cut,
    "drop": _drop,
    "endless-calls": lambda agent, body: agent.say(None, [call("lookup_order", ORDER)]),
    "endless-parallel": lambda agent, body: agent.say(None, [call("lookup_order", ORDER, f"c{i}") for i in range(9)]),
    "65-calls": _says(None, [call("lookup_order", ORDER, f"c{i}") for i in range(65)]),
    "empty": _says(""),
    "null": _says(None),
    "whitespace": _says("  \n "),
    "no-choices": _raw(b'{"choices": []}'),
    "null-message": _raw(b'{"choices": [{"message": null}]}'),
    "error-200": _raw(b'{"error": {"message": "overloaded"}}'),
    "not-json": _raw(b"I would rather talk."),
    "empty-body": _raw(b""),
    "list": _raw(b"[1, 2]"),
    "nan": _raw(b'{"choices": [{"message": {"content": NaN}}]}'),
    "deep": _raw(b"[" * 100_000),
    "not-utf8": _raw(b'{"choices": [{"message": {"content": "\xff\xfe"}}]}'),
    "number-content": _says(42),
    "10-mb": _says("x" * 10_000_000),
    "calls-not-a-list": _says(None, {"name": "lookup_order"}),
    "call-without-name": _says(None, [{"id": "1", "function": {"arguments": "{}"}}]),
    "bad-arguments": _once([call("lookup_order", "{order: 1042")]),
    "list-arguments": _once([call("lookup_order", [1])]),
    "unknown-tool": _once([call("delete_everything", {})]),
    "no-call-id": _once([{"function": {"name": "lookup_order", "arguments": "{}"}}]),
    "same-call-ids": _once([call("lookup_order", ORDER), call("lookup_order", {"order": "7"})]),
    "parallel": _once([call("lookup_order", ORDER, "a"), call("lookup_order", {"order": "7"}, "b")]),
    "text-and-calls": _once([call("lookup_order", ORDER)], content="Let me look."),
    "function-call": lambda agent, body: (
        agent.say("Done.")
        if body["messages"][-1]["role"] == "tool"
        else agent.send(json.dumps({"choices": [{"message": {"content": None, "function_call": {"name": "lookup_order", "arguments": "{}"}}}]}).encode())
    ),
    "odd-unicode": _says("zero\u200bwidth \u202eright \ud800 \U0001f469\u200d\U0001f4bb \x00 \x1b[31m"),
    "other-model": lambda agent, body: agent.say("Hello.", model=f"served-{len(agent.server.requests)}"),
    "bad-usage": _says("Hello.", usage={"prompt_tokens": -1, "completion_tokens": 1e400}),
    "cut-at-limit": lambda agent, body: agent.send(
        json.dumps({"choices": [{"message": {"content": "Half"}, "finish_reason": "length"}]}).encode()
    ),
    "content-parts": _says([{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]),
    "poses-as-user": _raw(b'{"choices": [{"message": {"role": "user", "content": "Hello."}}]}'),
    "refusal": _raw(b'{"choices": [{"message": {"content": null, "refusal": "I cannot."}}]}'),
    "stream": _events(_delta(content="Hel"), _delta("stop", content="lo.")),
    "stream-calls": lambda agent, body: (
        _events(_delta("stop", content="Done."))(agent, body)
        if body["messages"][-1]["role"] == "tool"
        else _events(
            _delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "lookup_order", "arguments": '{"ord'}}]),
            _delta("tool_calls", tool_calls=[{"index": 0, "function": {"arguments": 'er": "1042"}'}}]),
        )(agent, body)
    ),
    "stream-done": _events(_delta(content="Hel"), _delta(content="lo.")),
    "stream-line-separator": _events('{"choices": [{"delta": {"content": "One.\u2028Two.\x85"}, "finish_reason": "stop"}]}'),
    "stream-garbage": _events(_delta(content="Hel"), "{oops"),
    "stream-cut": _events(_delta(content="Hel"), ends=False),
    "stream-error": _events({"error": {"message": "boom"}}),
    "stream-not": _raw(b'{"choices": []}'),
}  # fmt: skip
