"""Read each reply completely, decompress it and limit its size before litellm processes it.

litellm reads replies of any size, decompresses them in the event loop, follows redirects to any address, and raises
on invalid token counts. Its transport is therefore wrapped, so that replies to our calls pass through `bounded` first.
"""

import contextlib
import functools
import json
import re
import zlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import httpx

Failure = Literal["rate", "server", "connection", "timeout", "authentication", "refused", "unfit", "too_long"]
"""Kind of failure of a call, in this order: rejected by a rate limit; server error; no connection; no answer in time;
rejected API key; invalid request; rejected or filtered content; prompt that exceeds the model's context."""

MEGABYTE = 1_000_000
_MOST_OF_AN_ERROR = 16_384  # maximum bytes that are read of a reply with an error status
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
    is_connected: bool = False
    failure: Failure | None = None
    detail: str = ""
    refusal: str | None = None  # text with which the model declined to answer
    status: int | None = None  # of a complete HTTP answer; None if there is none
    error: bytes = b""  # the first bytes of the body of an answer with an error status


EXCHANGE: ContextVar[Exchange | None] = ContextVar("exchange", default=None)
"""Exchange of the call that the current task is making."""


def install() -> None:
    """Wrap litellm's transports, once per process."""
    import httpx
    from litellm.llms.custom_httpx.aiohttp_transport import LiteLLMAiohttpTransport

    for transport in (LiteLLMAiohttpTransport, httpx.AsyncHTTPTransport):
        handle = transport.handle_async_request
        if not hasattr(handle, "__wrapped__"):
            setattr(transport, "handle_async_request", _wrapped(handle))  # noqa: B010  # no assignment to a method
    _skip_cost()


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

        request.headers["accept-encoding"] = "gzip"  # servers send deflate with or without the zlib header
        try:
            response = await handle(self, request)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise
        except httpx.TransportError:
            exchange.is_connected = True
            raise
        exchange.is_connected = True
        return await bounded(response, request, exchange)

    setattr(handle_bounded, "__wrapped__", handle)  # noqa: B010
    return handle_bounded


async def bounded(
    response: "httpx.Response", request: "httpx.Request", exchange: Exchange
) -> "httpx.Response":
    """Read a reply completely, within the limits of the exchange.

    Returns:
        The reply with its body decompressed. The body of an error is truncated. A chat completion has only the fields
        that are used, without invalid token counts.

    Raises:
        httpx.ReadError: If the reply is too large, cannot be decompressed, is not JSON, has no choice, or redirects to
            another origin. `exchange` holds the reason.
    """
    import httpx

    def refuse(failure: Failure, detail: str) -> httpx.ReadError:
        exchange.failure, exchange.detail = failure, detail
        return httpx.ReadError(detail, request=request)

    try:
        if response.status_code in _REDIRECTS and (origin := _other_origin(response, request)):
            raise refuse(
                "refused",
                f"the server redirects to {origin}, to which no key is sent; if it is the right server, set it as base URL",
            )
        body = await _read(response, exchange.most_bytes, refuse)
    finally:
        with contextlib.suppress(httpx.TransportError):
            await response.aclose()
    exchange.status = response.status_code
    if response.is_error:
        exchange.error = body
    if response.is_success:
        body = _tidied(body, response.headers.get("content-type", ""), exchange, refuse)
    kept = [
        (name, value)
        for name, value in response.headers.multi_items()
        if name.lower() not in ("content-encoding", "content-length", "transfer-encoding")
    ]
    return httpx.Response(response.status_code, headers=kept, content=body, request=request)


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


async def _read(response: "httpx.Response", most: int, refuse: _Refuse) -> bytes:
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in _UNPACKED_BY:
        raise refuse("server", f"the reply is compressed with {encoding[:40]!r}, which was not requested")
    is_error = response.status_code >= 400
    bound = _MOST_OF_AN_ERROR if is_error else most
    bits = _UNPACKED_BY[encoding]
    packer = None if bits is None else zlib.decompressobj(bits)
    body = bytearray()
    try:
        async for chunk in response.aiter_raw():
            body += chunk if packer is None else packer.decompress(chunk, bound - len(body) + 1)
            if len(body) > bound:
                if is_error:
                    return bytes(body[:bound])
                raise refuse(
                    "unfit", f"the reply is larger than {most / MEGABYTE:g} MB (setting judge_max_reply_mb)"
                )
    except zlib.error:
        raise refuse("server", "the reply is compressed and cannot be decompressed") from None
    return bytes(body)


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
    tidy: dict[str, object] = {
        "id": "",
        "object": "chat.completion",
        "created": 0,
        "model": _text(value.get("model")) or "",
        "choices": [
            {
                "index": 0,
                "finish_reason": reason if isinstance(reason, str) else "stop",
                "message": {"role": "assistant", "content": _content(message.get("content"))},
            }
        ],
        "system_fingerprint": _text(value.get("system_fingerprint")),
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
    said = problem.get("message") or problem.get("detail") or ""
    return next((part for part in parts if part in names), None) or _first_name(str(said), names)


def _first_name(text: str, names: Collection[str]) -> str | None:
    found = re.search(rf"\b(?:{'|'.join(map(re.escape, names))})\b", text[:_MOST_OF_A_MESSAGE])
    return found[0] if found else None


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
