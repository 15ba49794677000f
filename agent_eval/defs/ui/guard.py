"""Reject requests of other hosts and origins to Dagster's web server, which accepts them and allows mutations by GET.

Without this guard a page that is open in the user's browser could start, stop and delete runs. It could also read
results under a host name that resolves to this machine (DNS rebinding).
"""

import json
import os
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

HOSTS = "AGENT_EVAL_UI_ALLOWED_HOSTS"
"""The environment variable of the setting `ui_allowed_hosts`: the allowed hosts as a JSON list."""
LOCAL = frozenset({"127.0.0.1", "localhost", "[::1]"})
_READS = frozenset({"GET", "HEAD"})
_HEADERS = [
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def allowed_hosts() -> frozenset[str]:
    """Return the local host names and the hosts in the environment variable `HOSTS`."""
    return LOCAL | {str(host).lower() for host in json.loads(os.environ.get(HOSTS) or "[]")}


class Guard:
    """Respond with status 403 to every request that is not from the UI's own origin (ASGI middleware)."""

    def __init__(self, app: App, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *_HEADERS]
            await send(message)

        is_request = scope["type"] in ("http", "websocket")
        if is_request and (why := self.why_refused(scope)) is not None:
            await _refuse(scope, receive, send, why)
        else:
            await self._app(scope, receive, send_with_headers)

    def why_refused(self, scope: Mapping[str, Any]) -> str | None:
        """Return why a request is refused; None if it is allowed.

        Requests from the UI's own origin are allowed, and so are links from other sites to its pages.
        """
        headers = list(_headers(scope))
        hosts = [value for name, value in headers if name == "host"]
        if len(hosts) != 1 or _name(hosts[0]) not in self._hosts:
            return f"host {', '.join(hosts)!r} is not allowed; name it in the setting ui_allowed_hosts"
        origins = [value for name, value in headers if name == "origin"]
        if any(_authority(origin) != hosts[0].lower() for origin in origins):
            return "the request comes from another origin"
        method = scope.get("method", "GET")
        is_graphql = str(scope.get("path", "")).rstrip("/").endswith("/graphql")
        if scope["type"] == "websocket":
            return None if origins else "a WebSocket needs an origin"
        asks = method in _READS and not (is_graphql and scope.get("query_string"))
        site = _one(headers, "sec-fetch-site") or "none"
        is_link = method in _READS and _one(headers, "sec-fetch-mode") == "navigate" and not is_graphql
        if site not in ("same-origin", "none") and not is_link:
            return "the request comes from another site"
        if asks or method == "OPTIONS":
            return None
        if method != "POST":
            return "queries and mutations are sent by POST"
        kind = (_one(headers, "content-type") or "").partition(";")[0].strip().lower()
        return None if kind == "application/json" else "the content type has to be application/json"


def _headers(scope: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in scope.get("headers", ()):
        yield name.decode("latin-1").lower(), value.decode("latin-1").strip()


def _one(headers: Sequence[tuple[str, str]], name: str) -> str | None:
    return next((value for found, value in headers if found == name), None)


def _name(host: str) -> str:
    """Return the name of a host without its port."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()


def _authority(origin: str) -> str:
    """Return the host and port of an origin; an empty string for an opaque origin ('null')."""
    return origin.lower().partition("://")[2]


async def _refuse(scope: Scope, receive: Receive, send: Send, why: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": why[:120]})
        return
    body = f"Refused: {why}.\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})
