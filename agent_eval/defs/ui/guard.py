"""Reject requests of other hosts and origins to Dagster's web server, which accepts them and allows mutations by GET.

Without this guard a page that is open in the user's browser could start, stop and delete runs. It could also read
results under a host name that resolves to this machine (DNS rebinding). Other accounts of the machine can reach the
port, so a request also needs the token of the UI: in the printed address, then in a cookie, or as `Authorization: Bearer`.
"""

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from agent_eval.judge.llm.redaction import kept_secret

WITHOUT_TOKEN = "AGENT_EVAL_UI_WITHOUT_LOGIN"
"""The environment variable that is '1' if requests need no token, because a proxy authenticates them."""
TOKEN_FILE = "ui.token"
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


def kept_token(home: Path) -> str:
    """Return the token of the UI in DAGSTER_HOME, a file that only the owner can read; the first call creates it.

    Raises:
        StorageError: If the file is empty or cut.
    """
    return kept_secret(home / TOKEN_FILE, lambda: secrets.token_urlsafe(32).encode()).decode().strip()


def needed_token() -> str | None:
    """Return the token that requests to the web server of this process need, or None if they need none."""
    if os.environ.get(WITHOUT_TOKEN) == "1":
        return None
    return kept_token(Path(os.environ["DAGSTER_HOME"]))


class Guard:
    """Refuse every request that is not from the UI's own origin (403) or lacks the token (401), as ASGI middleware."""

    def __init__(self, app: App, hosts: Collection[str], token: str | None = None) -> None:
        self._app = app
        self._hosts = hosts
        self._token = token
        # cookies do not belong to a port, so each UI of a machine has a name of its own
        self._cookie = f"agent_eval_ui_{hashlib.sha256((token or '').encode()).hexdigest()[:12]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *_HEADERS]
            await send(message)

        is_request = scope["type"] in ("http", "websocket")
        if is_request and (why := self.why_refused(scope)) is not None:
            await _refuse(scope, receive, send, 403, why)
        elif is_request and self._token is not None and not self._has_token(scope, self._token):
            if (address := self._address_without_token(scope, self._token)) is not None:
                await _redirect(
                    send, address, f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Lax"
                )
            else:
                await _refuse(scope, receive, send, 401, _NO_TOKEN)
        else:
            await self._app(scope, receive, send_with_headers)

    def _has_token(self, scope: Scope, token: str) -> bool:
        headers = list(_headers(scope))
        sent = [
            value.partition(" ")[2]
            for name, value in headers
            if name == "authorization" and _is_bearer(value)
        ]
        pairs = [pair.strip() for name, value in headers if name == "cookie" for pair in value.split(";")]
        sent += [pair.partition("=")[2] for pair in pairs if pair.partition("=")[0] == self._cookie]
        return any(_is_equal(value, token) for value in sent)

    def _address_without_token(self, scope: Scope, token: str) -> str | None:
        """Return the address of a page that was requested with the token, without it; None if it has no such token."""
        if scope["type"] != "http" or scope.get("method") not in _READS:
            return None
        pairs = parse_qsl(bytes(scope.get("query_string", b"")).decode("latin-1"), keep_blank_values=True)
        if not any(name == "token" and _is_equal(value, token) for name, value in pairs):
            return None
        rest = urlencode([(name, value) for name, value in pairs if name != "token"])
        path = "/" + quote(str(scope.get("path", "/"))).lstrip("/")  # `//host` would be another host
        return f"{path}?{rest}" if rest else path

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
    return next((value for header, value in headers if header == name), None)


def _name(host: str) -> str:
    """Return the name of a host without its port."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()


def _authority(origin: str) -> str:
    """Return the host and port of an origin; an empty string for an opaque origin ('null')."""
    return origin.lower().partition("://")[2]


_NO_TOKEN = (
    f"this request lacks the token of the UI; open the address that `agent-eval ui` printed, or send the content of {TOKEN_FILE} "
    "in DAGSTER_HOME as `Authorization: Bearer`"
)


def _is_bearer(value: str) -> bool:
    return value.lower().startswith("bearer ")


def _is_equal(sent: str, token: str) -> bool:
    return hmac.compare_digest(sent.strip().encode("utf-8", "replace"), token.encode())


async def _redirect(send: Send, address: str, cookie: str) -> None:
    headers = [
        (b"location", address.encode("latin-1", "replace")),
        (b"set-cookie", cookie.encode()),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"no-store"),
        (b"content-length", b"0"),
    ]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, why: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": why[:120]})
        return
    body = f"Refused: {why}.\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
