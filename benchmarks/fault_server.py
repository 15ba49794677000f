"""A judge server on raw sockets that answers well, except for the calls whose text holds MARK: those get a fault.

`FAULTS` names them; each writes bytes to the connection as it likes. A fault holds for every try of the call.
"""

import asyncio
import gzip
import json
import math
import threading
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate

from benchmarks.mock_judge import instance

MARK = "Question number five"
HANG_S = 3600.0
CHAT = "chat.completion"


@dataclass
class FaultServer:
    """What runs, and what it was asked: bodies of the requests, and the seconds that each connection was served."""

    fault: str = "none"
    port: int = 0
    requests: list[str] = field(default_factory=list[str])
    marked: int = 0
    served_s: list[float] = field(default_factory=list[float])  # of marked requests, until the client let go
    elsewhere: int = 0  # requests that followed a redirect

    @property
    def environment(self) -> dict[str, str]:
        return {
            "OPENAI_BASE_URL": f"http://127.0.0.1:{self.port}/v1",
            "OPENAI_API_KEY": "sk-planted-0123456789abcdef",
        }


Fault = Callable[[asyncio.StreamWriter, dict[str, object]], Awaitable[None]]


def http(
    body: bytes,
    status: int = 200,
    kind: str | None = "application/json",
    length: int | None = None,
    **headers: str,
) -> bytes:
    lines = [
        f"HTTP/1.1 {status} Odd",
        f"Content-Length: {len(body) if length is None else length}",
        "Connection: close",
    ]
    lines += [f"Content-Type: {kind}"] if kind else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def dumped(value: object) -> bytes:
    return json.dumps(value).encode()


def sends(make: Callable[[dict[str, object]], bytes]) -> Fault:
    async def fault(writer: asyncio.StreamWriter, good: dict[str, object]) -> None:
        writer.write(make(good))
        await writer.drain()

    return fault


def whole(**changes: object) -> Fault:
    """A good completion with other values at the top."""
    return sends(lambda good: http(dumped({k: v for k, v in (good | changes).items() if v is not ...})))


def message(**changes: object) -> Fault:
    """A good completion with another message."""

    def make(good: dict[str, object]) -> bytes:
        said = {"role": "assistant", "content": _content(good)} | changes
        said = {k: v for k, v in said.items() if v is not ...}
        return http(dumped(good | {"choices": [{"index": 0, "finish_reason": "stop", "message": said}]}))

    return sends(make)


def choice(**changes: object) -> Fault:
    def make(good: dict[str, object]) -> bytes:
        base: dict[str, object] = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": _content(good)},
        }
        return http(dumped(good | {"choices": [base | changes]}))

    return sends(make)


def status(
    code: int, body: bytes = b'{"error": {"message": "no"}}', kind: str = "application/json", **headers: str
) -> Fault:
    return sends(lambda _: http(body, code, kind, None, **headers))


def _content(good: Mapping[str, object]) -> str:
    choices = good["choices"]
    assert isinstance(choices, list)
    text = choices[0]["message"]["content"]
    assert isinstance(text, str)
    return text


def hangs(begun: Callable[[dict[str, object]], bytes]) -> Fault:
    async def fault(writer: asyncio.StreamWriter, good: dict[str, object]) -> None:
        await sends(begun)(writer, good)
        await asyncio.sleep(HANG_S)

    return fault


def resets(begun: Callable[[dict[str, object]], bytes]) -> Fault:
    async def fault(writer: asyncio.StreamWriter, good: dict[str, object]) -> None:
        await sends(begun)(writer, good)
        writer.transport.abort()

    return fault


def repeats(head: bytes, part: bytes, times: int) -> Fault:
    async def fault(writer: asyncio.StreamWriter, _: dict[str, object]) -> None:
        writer.write(head)
        for _n in range(times):
            writer.write(part)
            await writer.drain()

    return fault


async def _slow(writer: asyncio.StreamWriter, good: dict[str, object]) -> None:
    for byte in http(dumped(good)):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.05)


async def _slow_headers(writer: asyncio.StreamWriter, _: dict[str, object]) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    for n in range(10**6):
        writer.write(f"X-Odd-{n}: 1\r\n".encode())
        await writer.drain()
        await asyncio.sleep(0.2)


CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
MEGABYTE, SECRETS = b"x" * 1_000_000, b"Bearer secret " * 70_000


def _chunked_and_cut(good: dict[str, object]) -> bytes:
    body = dumped(good)
    return CHUNKED + f"{len(body):x}\r\n".encode() + body[: len(body) // 2]


async def _redirect_elsewhere(writer: asyncio.StreamWriter, _: dict[str, object]) -> None:
    port = writer.get_extra_info("sockname")[1]
    writer.write(http(b"", 307, Location=f"http://localhost:{port}/elsewhere"))
    await writer.drain()


def _bomb(megabytes: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(b" " * 1_000_000) for _ in range(megabytes)) + packer.flush()


BOMB = _bomb(300)
NAN = float("nan")
FAULTS: dict[str, Fault] = {
    # the transport
    "empty reply": sends(lambda _: b""),
    "no HTTP": sends(lambda _: b"hello\r\n\r\n"),
    "TLS in place of HTTP": sends(lambda _: b"\x15\x03\x01\x00\x02\x02\x28"),  # an alert
    "reset": resets(lambda _: b""),
    "reset in the body": resets(lambda good: (body := http(dumped(good)))[: len(body) // 2]),
    "hang before the reply": hangs(lambda _: b""),
    "hang after the status": hangs(lambda _: b"HTTP/1.1 200 OK\r\n"),
    "hang in the headers": hangs(lambda _: b"HTTP/1.1 200 OK\r\nContent-Type: appl"),
    "hang in the body": hangs(lambda good: http(dumped(good))[:-50]),
    "slow bytes": _slow,
    "slow headers": _slow_headers,
    "body shorter than its length": sends(lambda good: http(dumped(good)[:40], length=4000)),
    "body longer than its length": sends(lambda good: http(dumped(good), length=20)),
    "chunked and cut": sends(_chunked_and_cut),
    "bad chunk size": sends(lambda _: CHUNKED + b"ZZZ\r\n{}\r\n0\r\n\r\n"),
    "negative length": sends(lambda good: http(dumped(good), length=-1)),
    "no body": sends(lambda _: http(b"")),
    "50 MB": repeats(http(b"", length=50 * len(MEGABYTE)), MEGABYTE, 50),
    "endless": repeats(CHUNKED, b"100000\r\n" + b" " * 0x100000 + b"\r\n", 10**6),
    "gzip bomb": sends(lambda _: http(BOMB, Content_Encoding="gzip")),
    "gzip that is none": sends(lambda good: http(dumped(good), Content_Encoding="gzip")),
    "gzip cut": sends(lambda good: http(gzip.compress(dumped(good))[:30], Content_Encoding="gzip")),
    "brotli": sends(lambda _: http(b"\x0b\x02\x80{}\x03", Content_Encoding="br")),
    "unknown encoding": sends(lambda good: http(dumped(good), Content_Encoding="rot13")),
    # status
    "400": status(400),
    "401 once": status(401),
    "403 page": status(403, b"<html>forbidden</html>", "text/html"),
    "404": status(404),
    "413": status(413),
    "429 with a date in the past": status(429, Retry_After=formatdate(0, usegmt=True)),
    "429 with a date far off": status(429, Retry_After=formatdate(time.time() + 10**7, usegmt=True)),
    "429 with a long wait": status(429, Retry_After="100000"),
    "429 with NaN": status(429, Retry_After="nan"),
    "429 with a text": status(429, Retry_After="soon"),
    "500": status(500),
    "500 with 50 MB": repeats(http(b"", 500, "text/plain", 50 * len(SECRETS)), SECRETS, 50),
    "502 page": status(502, b"<html>bad gateway</html>", "text/html"),
    "status 99": sends(lambda _: http(b"{}", 99)),
    "status 204": sends(lambda _: b"HTTP/1.1 204 No Content\r\n\r\n"),
    "redirect elsewhere": _redirect_elsewhere,
    "redirect to a file": status(302, b"", Location="file:///etc/passwd"),
    "redirect in a circle": status(307, b"", Location="/v1/chat/completions"),
    "redirect without a target": status(301, b""),
    "redirect that cannot be read": status(302, b"", Location="http://[::1"),
    # the body
    "HTML": sends(lambda _: http(b"<html><body>Sign in</body></html>", kind="text/html")),
    "HTML as JSON": sends(lambda _: http(b"<html></html>")),
    "other content type": sends(lambda _: http(b"nothing", kind="image/png")),
    "truncated JSON": sends(lambda good: http(dumped(good)[:60])),
    "JSON list": sends(lambda good: http(dumped([good]))),
    "JSON null": sends(lambda _: http(b"null")),
    "JSON text": sends(lambda _: http(b'"hello"')),
    "JSON NaN": sends(lambda _: http(b"NaN")),
    "deep JSON": sends(lambda _: http(b"[" * 200_000)),
    "long number": sends(lambda _: http(b'{"choices": ' + b"9" * 10_000 + b"}")),
    "not UTF-8": sends(lambda _: http(b'{"choices": "\xff\xfe"}')),
    "empty object": sends(lambda _: http(b"{}")),
    "error with status 200": sends(lambda _: http(b'{"error": {"message": "overloaded", "code": 500}}')),
    "duplicate keys": sends(lambda good: http(dumped(good)[:-1] + b', "choices": []}')),
    # the completion
    "choices empty": whole(choices=[]),
    "choices null": whole(choices=None),
    "choices a text": whole(choices="no"),
    "choices missing": whole(choices=...),
    "choice null": whole(choices=[None]),
    "message null": choice(message=None),
    "message a list": choice(message=["hello"]),
    "content null": message(content=None),
    "content missing": message(content=...),
    "content a number": message(content=7),
    "content a list of images": message(content=[{"type": "image_url", "image_url": {"url": "x"}}]),
    "content empty": message(content=""),
    "content prose": message(content="I would rather talk about the weather."),
    "content a lone brace": message(content="{"),
    "content with other keys": message(content='{"mood": {"score": 5}}'),
    "refusal": message(content=None, refusal="I cannot help with that."),
    "tool calls only": message(
        content=None, tool_calls=[{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    ),
    "reasoning only": message(content=None, reasoning_content="Let me think."),
    "content filter": choice(finish_reason="content_filter"),
    "cut off by length": choice(finish_reason="length"),
}  # fmt: skip
"""Replies that hold no answer: the call is unscored."""

ODD_BUT_GOOD: dict[str, Fault] = {
    "usage missing": whole(usage=...),
    "usage null": whole(usage=None),
    "usage a text": whole(usage="many"),
    "usage NaN": whole(usage={"prompt_tokens": NAN, "completion_tokens": math.inf, "total_tokens": NAN}),
    "usage negative": whole(usage={"prompt_tokens": -10**9, "completion_tokens": -5, "total_tokens": -1}),
    "usage of 400 digits": whole(usage={"prompt_tokens": 10**400, "completion_tokens": 2, "total_tokens": 10**400}),
    "usage texts": whole(usage={"prompt_tokens": "10", "completion_tokens": "a", "total_tokens": None}),
    "usage details odd": whole(usage={"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12, "prompt_tokens_details": 3}),
    "more cached than sent": whole(
        usage={"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12, "prompt_tokens_details": {"cached_tokens": 10**9}}
    ),
    "content in parts": sends(
        lambda good: http(
            dumped(good | {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": [
                {"type": "text", "text": _content(good)[:20]}, {"type": "text", "text": _content(good)[20:]}]}}]})
        )
    ),
    "gzip": sends(lambda good: http(gzip.compress(dumped(good)), Content_Encoding="gzip")),
    "no content type": sends(lambda good: http(dumped(good), kind=None)),
    "model a number": whole(model=7, id=None, created="now", object=None, system_fingerprint={"a": 1}),
    "finish reason odd": choice(finish_reason=None),
    "two choices": sends(lambda good: http(dumped(good | {"choices": [*_list(good), {"index": 1}]}))),
    "unknown keys": whole(service_tier={"x": [1]}, warnings=[None]),
}  # fmt: skip
"""Replies that hold a good answer all the same."""


def _list(good: Mapping[str, object]) -> list[object]:
    choices = good["choices"]
    assert isinstance(choices, list)
    return choices


@contextmanager
def fault_server() -> Iterator[FaultServer]:
    """A server in a thread of its own; stopped when the block ends."""
    server = FaultServer()
    loop = asyncio.new_event_loop()
    listening = threading.Event()

    async def serve() -> None:
        listener = await asyncio.start_server(lambda r, w: _connection(server, r, w), "127.0.0.1", 0)
        server.port = listener.sockets[0].getsockname()[1]
        listening.set()
        with suppress(asyncio.CancelledError):
            await listener.serve_forever()

    task = loop.create_task(serve())
    thread = threading.Thread(target=lambda: _until_done(loop, task), daemon=True)
    thread.start()
    assert listening.wait(10)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(lambda: [t.cancel() for t in asyncio.all_tasks(loop)])
        thread.join(10)


def _until_done(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[None]") -> None:
    with suppress(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.run_until_complete(_end(asyncio.all_tasks(loop)))
    loop.close()


async def _end(tasks: "set[asyncio.Task[None]]") -> None:
    """Cancel the connections, and let their sockets be closed: a closed loop no longer does it."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0)


async def _connection(
    server: FaultServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        while (asked := await _request(reader)) is not None:
            path, body = asked
            server.requests.append(body.decode("utf-8", "replace"))
            if path.startswith("/elsewhere"):
                server.elsewhere += 1
            good = _good(body)
            if MARK not in server.requests[-1] or server.fault == "none":
                writer.write(http(dumped(good)))
                await writer.drain()
                break
            server.marked += 1
            started = time.monotonic()
            fault = (FAULTS | ODD_BUT_GOOD)[server.fault]
            sending = asyncio.ensure_future(fault(writer, good))
            gone = asyncio.ensure_future(reader.read(1))
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done() or gone.done():
                server.served_s.append(time.monotonic() - started)
            for task in (sending, gone):
                task.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)
            break
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    except asyncio.CancelledError:
        writer.transport.abort()
        raise
    finally:
        writer.close()


async def _request(reader: asyncio.StreamReader) -> tuple[str, bytes] | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return lines[0].split(" ")[1], await reader.readexactly(int(headers.get("content-length", 0)))


def _good(body: bytes) -> dict[str, object]:
    try:
        asked = json.loads(body)
        content = json.dumps(instance(asked["response_format"]["json_schema"]["schema"]))
    except (ValueError, KeyError):
        content = "{}"
    return {
        "id": "1", "object": CHAT, "created": 1, "model": "mock",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }  # fmt: skip
