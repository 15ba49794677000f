"""Send a call as litellm sends it, without litellm: from a template, which is a request that litellm has sent.

litellm decides how a model is called. A template is used only after it gave, byte for byte, the next request that
litellm sent for other messages, and after its reply was read as litellm read it. This excludes signed requests and other
protocols. Whatever is not a plain answer goes back to litellm: an error or a redirect as it was received, so that
nothing is sent twice, and a refused key as a new request.
"""

import asyncio
import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent_eval.judge.llm.transport import Exchange

if TYPE_CHECKING:
    import httpx

LONGEST_S = 300.0
"""Maximum age of a template in seconds; a key that litellm got from a server may expire later."""
MOST_FAILURES = 3
"""Number of templates in succession that do not give litellm's request, after which no more are learned."""
_STYLES: tuple[Mapping[str, Any], ...] = (
    {},
    {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False},
)
"""Options of `json.dumps` with which litellm and httpx write a body."""
_REFUSED_KEY = (401, 403)
_PLAIN_ENDS = ("stop", "length", "content_filter")  # other reasons are named by litellm
_REASONING = re.compile(r"<[\w:]*think")  # litellm separates such a part of a text
_N_YIELDS = 3  # turns of the event loop until it knows that a server has closed an idle connection

Shape = tuple[object, ...]
"""All that a request depends on, except the texts of the messages: the model, the parameters, the time limit and the roles."""
Sent = Sequence[Mapping[str, object]]
"""The messages of a request."""


@dataclass(frozen=True)
class _Template:
    transport: Any
    method: str
    url: "httpx.URL"
    headers: Sequence[tuple[bytes, bytes]]  # without the length of the body
    extensions: Mapping[str, Any]
    body: Mapping[str, object]  # with None for the messages
    style: Mapping[str, Any]
    loop: asyncio.AbstractEventLoop
    environment: object  # see `_environment`
    learned_at: float  # time.monotonic()
    sets_cookie: bool  # whether the answer set a cookie
    is_confirmed: bool = False
    ignores_cookies: bool = False  # whether litellm sends no cookies back

    @property
    def is_current(self) -> bool:
        """Return whether keys, base URLs and proxies are as they were, and the connection is of this event loop."""
        is_young = time.monotonic() - self.learned_at < LONGEST_S
        return is_young and self.loop is asyncio.get_running_loop() and self.environment == _environment()

    def content(self, messages: Sent) -> bytes:
        """Return the body of a request with these messages."""
        return json.dumps({**self.body, "messages": messages}, **self.style).encode()

    def gives(self, messages: Sent, transport: object, request: "httpx.Request") -> bool:
        """Return whether the request for these messages is this one, sent by this transport."""
        return (
            self.is_current
            and self.transport is transport
            and (self.method, self.url) == (request.method, request.url)
            and self.headers == _fixed_headers(request)
            and self.content(messages) == request.content
        )

    def filled(self, messages: Sent, timeout_s: float) -> "httpx.Request":
        """Return the request for these messages."""
        import httpx

        content = self.content(messages)
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), timeout_s)
        return httpx.Request(
            self.method,
            self.url,
            headers=[*self.headers, (b"content-length", b"%d" % len(content))],
            content=content,
            extensions={**self.extensions, "timeout": timeouts},
        )


def shape_of(model: str, parameters: Mapping[str, object], timeout_s: float, messages: Sent) -> Shape | None:
    """Return the shape of a request, or None if litellm has to send it because a message is not a text or is blank."""
    if not all(isinstance(text := message["content"], str) and text.strip() for message in messages):
        return None
    return model, json.dumps(parameters), timeout_s, *(message["role"] for message in messages)


class Templates:
    """Learns the requests of litellm and sends further ones."""

    def __init__(self) -> None:
        self._by_shape: dict[Shape, _Template] = {}
        self._n_failures: dict[Shape, int] = {}

    async def ask(self, shape: Shape | None, messages: Sent, exchange: Exchange) -> Mapping[str, Any] | None:
        """Send a request from a template and return the chat completion, or None if litellm has to make the call.

        In the latter case the exchange holds an answer or error that was already received, if there is one.
        """
        template = None if shape is None else self._by_shape.get(shape)
        if template is None or shape is None or not template.is_confirmed:
            return None
        if not template.is_current:
            self._by_shape.pop(shape, None)
            return None
        try:
            request = template.filled(messages, exchange.remaining_s)
        except ValueError:  # a text that cannot be encoded
            return None
        for _ in range(_N_YIELDS):
            await asyncio.sleep(0)
        try:
            response = await template.transport.handle_async_request(request)
        except Exception as error:
            exchange.received = request.url, error
        else:
            completion = plain_completion(response)
            if completion is not None and (template.ignores_cookies or not _sets_cookie(response)):
                return completion
            self._hand_over(response, exchange)
        self._by_shape.pop(shape, None)
        return None

    def _hand_over(self, response: "httpx.Response", exchange: Exchange) -> None:
        """Let litellm read an answer, or send the request again if the key was refused and the caps allow it."""
        is_refused = response.status_code in _REFUSED_KEY
        if is_refused and (exchange.admit is None or exchange.admit() is None):
            exchange.n_requests = 0  # the further request is counted
        else:
            exchange.received = response.request.url, response

    def learn(self, shape: Shape | None, messages: Sent, exchange: Exchange, *, is_read_alike: bool) -> None:
        """Learn from a call that litellm made.

        Args:
            shape: What the request depends on.
            messages: Its messages.
            exchange: What was sent, after the reply.
            is_read_alike: Whether `ask` would return what litellm returned.
        """
        if shape is None or self._n_failures.get(shape, 0) >= MOST_FAILURES:
            return
        earlier, template = self._by_shape.pop(shape, None), None
        if is_read_alike and len(exchange.sent) == exchange.n_requests == 1:
            template = _template(*exchange.sent[0], messages, sets_cookie=_sets_cookie(exchange.response))
        is_confirmed = (
            earlier is not None and template is not None and earlier.gives(messages, *exchange.sent[0])
        )
        if template is not None:
            self._by_shape[shape] = replace(
                template,
                is_confirmed=is_confirmed,
                ignores_cookies=earlier is not None and (earlier.sets_cookie or earlier.ignores_cookies),
            )
        if is_confirmed or (template is not None and earlier is None):
            self._n_failures.pop(shape, None)
        else:
            self._n_failures[shape] = self._n_failures.get(shape, 0) + 1

    def forget(self) -> None:
        """Forget all templates, because the connections are closed."""
        self._by_shape.clear()
        self._n_failures.clear()


def plain_completion(response: "httpx.Response | None") -> Mapping[str, Any] | None:
    """Return the chat completion of a reply that `transport` has reduced, or None if litellm has to read it."""
    if response is None or response.status_code != 200:
        return None
    completion: Mapping[str, Any] = json.loads(response.content)
    if not (completion.get("choices") and completion.get("usage") and completion.get("model")):
        return None
    choice = completion["choices"][0]
    has_reasoning = _REASONING.search(choice["message"]["content"])
    return completion if choice["finish_reason"] in _PLAIN_ENDS and not has_reasoning else None


def _template(
    transport: object, request: "httpx.Request", messages: Sent, *, sets_cookie: bool
) -> _Template | None:
    """Return the template of a request, or None if it has a cookie, or its body is not JSON with these messages."""
    if "cookie" in request.headers:
        return None
    with contextlib.suppress(ValueError, RecursionError):
        body = json.loads(request.content)
        for style in _STYLES if isinstance(body, dict) and body.get("messages") == messages else ():
            template = _Template(
                transport=transport,
                method=request.method,
                url=request.url,
                headers=_fixed_headers(request),
                extensions=request.extensions,
                body={**body, "messages": None},
                style=style,
                loop=asyncio.get_running_loop(),
                environment=_environment(),
                learned_at=time.monotonic(),
                sets_cookie=sets_cookie,
            )
            if template.content(messages) == request.content:
                return template
    return None


def _fixed_headers(request: "httpx.Request") -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in request.headers.raw if name.lower() != b"content-length"]


def _sets_cookie(response: "httpx.Response | None") -> bool:
    return response is not None and "set-cookie" in response.headers


def _environment() -> object:
    """Return what keys, addresses and proxies depend on: the environment, and the variables of litellm."""
    litellm = sys.modules.get("litellm")
    return dict(os.environ), [
        getattr(litellm, n, None) for n in ("api_key", "openai_key", "api_base", "headers")
    ]
