"""Guard every HTTP request of a judge: limit its time, size and redirects, and count it.

litellm reads replies of any size, decompresses them in the event loop, follows redirects to any address, raises on
invalid token counts, and makes requests of its own, some of which block the event loop. Its transports are therefore
wrapped, asynchronous and synchronous ones, so that replies to our calls pass through `bounded` first. The requests
of cloud libraries for credentials use urllib3, and get a time limit only.
"""

import asyncio
import contextlib
import functools
import json
import re
import time
import zlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import httpx

Failure = Literal["rate", "server", "connection", "timeout", "authentication", "refused", "unfit", "too_long"]
"""Kind of failure of a call, in this order: rejected by a rate limit; server error; no connection; no answer in time;
rejected API key; invalid request; rejected or filtered content; prompt that exceeds the model's context."""

MEGABYTE = 1_000_000
_MOST_OF_AN_ERROR = 16_384  # maximum bytes that are read of a reply with an error status
MOST_REDIRECTS = 3  # that a call follows, all to the same origin
CREDENTIALS_S = 10.0  # maximum time of a request for credentials
_MOST_OF_A_MESSAGE = 200  # characters of an error message that are searched for a parameter
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_UNPACKED_BY = {
    "": None,
    "identity": None,
    "gzip": 31,
    "x-gzip": 31,
    "deflate": 15,
}  # wbits parameter of zlib by content encoding
_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


@dataclass
class Exchange:
    """Hold the size limit for the reply to a call and, after the reply, the problem found, if any."""

    most_bytes: int
    deadline: float = float("inf")  # time.monotonic() at which the call ends
    admit: Callable[[], str | None] | None = (
        None  # counts a further request; returns the cap that it would exceed
    )
    n_requests: int = 0
    n_not_admitted: int = (
        0  # further requests that were not counted by `admit`, because another thread made them
    )
    n_redirects: int = 0
    is_connected: bool = False
    failure: Failure | None = None
    detail: str = ""
    refusal: str | None = None  # text with which the model declined to answer
    is_tidied: bool = True  # whether a chat completion is reduced to the fields that judges use
    keeps_calls: bool = False  # whether a reduced completion keeps its tool calls
    limit: str = "setting judge_max_reply_mb"  # where the size limit is set
    status: int | None = None  # of a complete HTTP answer; None if there is none
    error: bytes = b""  # the first bytes of the body of an answer with an error status
    sent: list[tuple[Any, "httpx.Request"]] = field(default_factory=list)  # transports and their requests
    response: "httpx.Response | None" = None  # the last answer
    received: "tuple[httpx.URL, httpx.Response | Exception] | None" = None
    """Outcome of a request that was sent without litellm: its next request to this address gets it and is not sent."""

    @property
    def remaining_s(self) -> float:
        """Return the seconds until the call ends; not positive if it has ended."""
        return self.deadline - time.monotonic()


EXCHANGE: ContextVar[Exchange | None] = ContextVar("exchange", default=None)
"""Exchange of the call that the current task is making."""

ADMIT: ContextVar[Callable[[], str | None] | None] = ContextVar("admit", default=None)
"""Function that counts each further request of a call; see `Exchange.admit`."""


def install() -> None:
    """Wrap litellm's transports, once per process."""
    import httpx
    from litellm.llms.custom_httpx.aiohttp_transport import LiteLLMAiohttpTransport

    for transport in (LiteLLMAiohttpTransport, httpx.AsyncHTTPTransport):
        _replace(transport, "handle_async_request", _wrapped)
    _replace(httpx.HTTPTransport, "handle_request", _wrapped_sync)
    try:
        from urllib3.connectionpool import HTTPConnectionPool
    except ImportError:  # without it, there are no cloud libraries
        pass
    else:
        _replace(HTTPConnectionPool, "urlopen", _timed)
    _skip_cost()


def _replace(owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
    handle = getattr(owner, name)
    if not hasattr(handle, "__wrapped__"):
        wrapped = wrapper(handle)
        wrapped.__wrapped__ = handle
        setattr(owner, name, wrapped)


def _timed(handle: Callable[..., Any]) -> Callable[..., Any]:
    def urlopen(self: object, *args: Any, **options: Any) -> Any:
        """Open an address within the time limit of the call. A positional time limit stays as it is."""
        exchange = EXCHANGE.get()
        if exchange is not None and len(args) < _POSITION_OF_TIMEOUT:
            from urllib3.util import Timeout

            options["timeout"] = Timeout(total=max(min(exchange.remaining_s, CREDENTIALS_S), 0.001))
        return handle(self, *args, **options)

    return urlopen


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


_POSITION_OF_TIMEOUT = 8  # among the arguments of `urlopen`


def _wrapped_sync(handle: Callable[..., "httpx.Response"]) -> Callable[..., "httpx.Response"]:
    def handle_bounded(self: object, request: "httpx.Request") -> "httpx.Response":
        exchange = EXCHANGE.get()
        if exchange is None:
            return handle(self, request)
        import httpx

        exchange.n_requests += 1
        exchange.n_not_admitted += exchange.n_requests > 1
        if _is_in_event_loop():
            raise httpx.ConnectError(
                "a request of litellm would block all calls of the judge", request=request
            )
        left = max(exchange.remaining_s, 0.001)
        limits = request.extensions.get("timeout") or {}
        request.extensions["timeout"] = {
            name: min(left, limits.get(name) or left) for name in ("connect", "read", "write", "pool")
        }
        request.headers["accept-encoding"] = "gzip"
        response = handle(self, request)
        reply = _Reply(response, request, exchange, is_chat=False)
        try:
            reply.check_redirect()
            for chunk in response.iter_raw():
                if reply.is_full_with(chunk) or exchange.remaining_s <= 0:
                    break
        finally:
            with contextlib.suppress(httpx.TransportError):
                response.close()
        return reply.response()

    return handle_bounded


def _skip_cost() -> None:
    """Skip litellm's calculation of the cost of our calls, which is not used and takes a third of its time."""
    try:
        from litellm.litellm_core_utils.litellm_logging import Logging

        calculate = Logging.response_cost_calculator
    except (ImportError, AttributeError):  # not public; without it, calls work but are slower
        return
    if hasattr(calculate, "__wrapped__"):
        return

    @functools.wraps(calculate)
    def skipped(*args: Any, **options: Any) -> float | None:
        return calculate(*args, **options) if EXCHANGE.get() is None else None

    setattr(Logging, "response_cost_calculator", skipped)  # noqa: B010  # no assignment to a method


def _wrapped(
    handle: Callable[..., Awaitable["httpx.Response"]],
) -> Callable[..., Awaitable["httpx.Response"]]:
    async def handle_bounded(self: object, request: "httpx.Request") -> "httpx.Response":
        exchange = EXCHANGE.get()
        if exchange is None:
            return await handle(self, request)
        import httpx

        if exchange.received is not None and exchange.received[0] == request.url:
            (_, outcome), exchange.received = exchange.received, None
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        exchange.n_requests += 1
        exchange.sent.append((self, request))
        if exchange.n_requests > 1 and exchange.admit is not None and (why := exchange.admit()) is not None:
            exchange.failure, exchange.detail = "refused", why
            raise httpx.ReadError(why, request=request)
        request.headers["accept-encoding"] = "gzip"  # servers send deflate with or without the zlib header
        try:
            response = await handle(self, request)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise
        except httpx.TransportError:
            exchange.is_connected = True
            raise
        exchange.is_connected = True
        exchange.response = await bounded(response, request, exchange)
        return exchange.response

    return handle_bounded


async def bounded(
    response: "httpx.Response", request: "httpx.Request", exchange: Exchange
) -> "httpx.Response":
    """Read a reply completely, within the limits of the exchange.

    Returns:
        The reply with its body decompressed. The body of an error is truncated. A chat completion has only the fields
        that are used, without invalid token counts.

    Raises:
        httpx.ReadError: If the reply is too large, cannot be decompressed, is not JSON, has no choice, redirects to
            another origin, or redirects too often. `exchange` holds the reason.
    """
    import httpx

    reply = _Reply(response, request, exchange)
    try:
        reply.check_redirect()
        async for chunk in response.aiter_raw():
            if reply.is_full_with(chunk):
                break
    finally:
        with contextlib.suppress(httpx.TransportError):
            await response.aclose()
    return reply.response()


class _Reply:
    """Collect the body of a reply, decompressed and within the limits of its exchange."""

    def __init__(
        self,
        response: "httpx.Response",
        request: "httpx.Request",
        exchange: Exchange,
        *,
        is_chat: bool = True,
    ) -> None:
        self._response, self._request, self._exchange = response, request, exchange
        self._is_chat = is_chat
        self._body = bytearray()
        self._bound = _MOST_OF_AN_ERROR if response.status_code >= 400 else exchange.most_bytes
        encoding = response.headers.get("content-encoding", "").strip().lower()
        self._why_unreadable = (
            None
            if encoding in _UNPACKED_BY
            else f"the reply is compressed with {encoding[:40]!r}, which was not requested"
        )
        bits = _UNPACKED_BY.get(encoding)
        self._packer = None if bits is None else zlib.decompressobj(bits)

    def check_redirect(self) -> None:
        """Refuse a redirect to another origin, the fourth redirect of a call, and an unknown compression."""
        if self._response.status_code in _REDIRECTS:
            self._exchange.n_redirects += 1
            if origin := _other_origin(self._response, self._request):
                raise self._refuse(
                    "refused",
                    f"the server redirects to {origin}, to which no key is sent; if it is the right server, set it as "
                    "base URL",
                )
            if self._exchange.n_redirects > MOST_REDIRECTS:
                raise self._refuse("refused", f"the server redirects more than {MOST_REDIRECTS} times")
        if self._why_unreadable is not None:
            raise self._refuse("server", self._why_unreadable)

    def is_full_with(self, chunk: bytes) -> bool:
        """Add a part of the body. Return whether the rest is not read, which is so for a long body of an error."""
        try:
            self._body += (
                chunk
                if self._packer is None
                else self._packer.decompress(chunk, self._bound - len(self._body) + 1)
            )
        except zlib.error:
            raise self._refuse("server", "the reply is compressed and cannot be decompressed") from None
        if len(self._body) <= self._bound:
            return False
        if self._response.status_code < 400:
            most = f"{self._exchange.most_bytes / MEGABYTE:g} MB ({self._exchange.limit})"
            raise self._refuse("unfit", f"the reply is larger than {most}")
        return True

    def response(self) -> "httpx.Response":
        """Return the reply with the collected body."""
        import httpx

        response, exchange, body = self._response, self._exchange, bytes(self._body[: self._bound])
        if self._is_chat:
            exchange.status = response.status_code
            exchange.error = body if response.is_error else b""
            if response.is_success and exchange.is_tidied:
                body = _tidied(body, response.headers.get("content-type", ""), exchange, self._refuse)
        body_headers = [
            (name, value)
            for name, value in response.headers.multi_items()
            if name.lower() not in ("content-encoding", "content-length", "transfer-encoding")
        ]
        return httpx.Response(response.status_code, headers=body_headers, content=body, request=self._request)

    def _refuse(self, failure: Failure, detail: str) -> Exception:
        import httpx

        self._exchange.failure, self._exchange.detail = failure, detail
        return httpx.ReadError(detail, request=self._request)


def _other_origin(response: "httpx.Response", request: "httpx.Request") -> str | None:
    try:
        target = request.url.join(response.headers.get("location", ""))
    except Exception:  # httpx raises several classes for an invalid address
        return "an address that cannot be read"
    here = (request.url.scheme, request.url.host, request.url.port)
    return (
        None
        if (target.scheme, target.host, target.port) == here
        else f"{target.scheme}://{target.netloc.decode()}"
    )


_Refuse = Callable[[Failure, str], Exception]


def _tidied(body: bytes, content_type: str, exchange: Exchange, refuse: _Refuse) -> bytes:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        kind = content_type.partition(";")[0].strip()[:40] or "no content type"
        failure: Failure = "server" if "json" in kind else "refused"
        raise refuse(failure, f"the reply is not JSON ({kind}, {len(body):,} bytes)") from None
    if not isinstance(value, dict):
        raise refuse("server", f"the reply is JSON, but not an object: {type(value).__name__}")
    if "choices" not in value:
        return body  # another protocol, or an error with status 200, which litellm handles
    return json.dumps(_completion(value, exchange, refuse)).encode()


def _completion(value: Mapping[str, Any], exchange: Exchange, refuse: _Refuse) -> dict[str, object]:
    """Return the fields of a chat completion that are used."""
    choices = value["choices"]
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise refuse("unfit", "the reply contains no choice with a message: the provider withheld it")
    refusal = message.get("refusal")
    exchange.refusal = refusal if isinstance(refusal, str) and refusal.strip() else None
    reason = choice.get("finish_reason")
    calls = message.get("tool_calls") if exchange.keeps_calls else None
    tool_calls = {"tool_calls": calls} if isinstance(calls, list) and calls else {}
    tidy: dict[str, object] = {
        "id": "",
        "object": "chat.completion",
        "created": 0,
        "model": _text(value.get("model")) or "",
        "choices": [
            {
                "index": 0,
                "finish_reason": reason if isinstance(reason, str) else "stop",
                "message": {"role": "assistant", "content": _content(message.get("content")), **tool_calls},
            }
        ],
        "system_fingerprint": _text(value.get("system_fingerprint")),
        "service_tier": _text(value.get("service_tier")),  # litellm needs it for Groq, also if it is null
    }
    if (usage := _usage(value.get("usage"))) is not None:
        tidy["usage"] = usage
    return tidy


def named_parameter(error: bytes, names: Collection[str]) -> str | None:
    """Return the parameter of a request that the body of an error complains about, or None if it names none.

    Servers name it in `error.param`, in the location of a validation error, or first in the message. Only the
    beginning of a message counts, because some servers repeat the prompt after it.
    """
    try:
        value = json.loads(error)
    except (ValueError, RecursionError):
        value = error.decode(errors="replace")
    problem = value.get("error", value) if isinstance(value, dict) else value
    if not isinstance(problem, dict):
        return _first_name(str(problem), names)
    if problem.get("param"):
        param = str(problem["param"])
        return param if param in names else None
    detail = problem.get("detail")
    places = [d.get("loc") for d in detail if isinstance(d, dict)] if isinstance(detail, list) else []
    parts = [part for place in places if isinstance(place, list) for part in place]
    error_text = problem.get("message") or problem.get("detail") or ""
    return next((part for part in parts if part in names), None) or _first_name(str(error_text), names)


def _first_name(text: str, names: Collection[str]) -> str | None:
    name_match = re.search(rf"\b(?:{'|'.join(map(re.escape, names))})\b", text[:_MOST_OF_A_MESSAGE])
    return name_match[0] if name_match else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _content(value: object) -> str:
    """Return the text of a message: a string, or the strings among the parts of a list."""
    if isinstance(value, list):
        texts = [
            part.get("text")
            for part in value
            if isinstance(part, dict) and part.get("type", "text") == "text"
        ]
        return "".join(text for text in texts if isinstance(text, str))
    return value if isinstance(value, str) else ""


def _usage(value: object) -> dict[str, object] | None:
    """Return the token counts, or None if one is missing or invalid. Prompt tokens include cached tokens."""
    if not isinstance(value, dict):
        return None
    n_in, n_out = (_count(value.get(name)) for name in _COUNTS[:2])
    if n_in is None or n_out is None:
        return None
    usage: dict[str, object] = dict(zip(_COUNTS, (n_in, n_out, n_in + n_out), strict=True))
    details = value.get("prompt_tokens_details")
    n_cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    if n_cached is not None and n_cached <= n_in:
        usage["prompt_tokens_details"] = {"cached_tokens": n_cached}
    return usage


def _count(value: object) -> int | None:
    """Return a number of tokens, or None if it is not a number, negative or above a billion."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < 1e9 else None  # excludes NaN and integers too large for a float
