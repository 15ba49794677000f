"""The guard before the UI: pages of other origins, other host names, and mutations by GET or form are refused."""

import asyncio
import json
from typing import Any

import pytest

from agent_eval.defs.ui import guard
from agent_eval.defs.ui.guard import LOCAL, Guard, Message, Receive, Scope, Send, allowed_hosts

HOST = "127.0.0.1:3000"
JSON = {"content-type": "application/json"}


def asked(
    method: str = "POST", path: str = "/graphql", query: str = "", kind: str = "http", **headers: str
) -> tuple[int, bool]:
    """The status that a request gets, and whether it reached Dagster."""
    sent: list[Message] = []
    reached: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        reached.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> Message:
        return {"type": f"{kind}.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    named = {"host": HOST} | {name.replace("_", "-"): value for name, value in headers.items()}
    scope: dict[str, Any] = {
        "type": kind,
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in named.items() if value],
    }
    asyncio.run(Guard(app, allowed_hosts())(scope, receive, send))
    return sent[0].get("status", sent[0].get("code", 0)), bool(reached)


def test_the_ui_itself_is_served() -> None:
    assert asked(origin=f"http://{HOST}", sec_fetch_site="same-origin", **JSON) == (200, True)
    assert asked(content_type="application/json; charset=utf-8") == (200, True)
    assert asked("GET", "/assets/leaderboard") == (200, True)
    assert asked("GET", "/graphql") == (200, True)  # the query editor
    assert asked("GET", "/logs/a/b", query="x=1") == (200, True)
    assert asked(kind="websocket", origin=f"http://{HOST}") == (200, True)
    for host in ("localhost:3000", "LOCALHOST", "127.0.0.1", "[::1]:3000"):
        assert asked(host=host, **JSON) == (200, True)


def test_a_link_from_another_site_leads_to_a_page() -> None:
    assert asked("GET", "/assets", sec_fetch_site="cross-site", sec_fetch_mode="navigate") == (200, True)


@pytest.mark.parametrize(
    "request_",
    [
        {"origin": "http://evil.test", **JSON},
        {"origin": "null", **JSON},
        {"origin": "http://127.0.0.1:9999", **JSON},
        {"origin": f"http://{HOST}.evil.test", **JSON},
        {"origin": "file://", **JSON},
        {"host": "evil.test", **JSON},
        {"host": "evil.test:3000", "origin": "http://evil.test:3000", **JSON},
        {"host": "127.0.0.1.evil.test", **JSON},
        {"host": "", **JSON},
        {"sec_fetch_site": "cross-site", **JSON},
        {"sec_fetch_site": "same-site", **JSON},
        {"method": "GET", "query": "query=mutation"},
        {"method": "GET", "path": "/graphql/", "query": "query=mutation"},
        {"method": "HEAD", "query": "query=x"},
        {"method": "GET", "sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"},
        {
            "method": "GET",
            "path": "/server_info",
            "sec_fetch_site": "cross-site",
            "sec_fetch_mode": "no-cors",
        },
        {"content_type": "text/plain"},
        {"content_type": "application/x-www-form-urlencoded"},
        {"content_type": "multipart/form-data"},
        {"content_type": "application/graphql"},
        {"content_type": "text/plain; application/json"},
        {"content_type": ""},
        {"method": "PUT", **JSON},
        {"method": "DELETE", **JSON},
        {"path": "/report_asset_materialization/leaderboard", "content_type": "text/plain"},
    ],
)
def test_everything_else_is_refused_before_it_reaches_dagster(request_: dict[str, str]) -> None:
    assert asked(**request_) == (403, False)


@pytest.mark.parametrize("origin", ["", "http://evil.test", "null", "http://127.0.0.1:9999"])
def test_a_websocket_of_another_origin_is_closed(origin: str) -> None:
    assert asked(kind="websocket", origin=origin) == (1008, False)


def test_hosts_of_the_setting_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(guard.HOSTS, json.dumps(["Evals.Example.org"]))
    assert allowed_hosts() == LOCAL | {"evals.example.org"}
    assert asked(host="evals.example.org", origin="https://evals.example.org", **JSON) == (200, True)


def test_no_other_page_can_frame_the_ui() -> None:
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", HOST.encode())]}
    asyncio.run(Guard(app, LOCAL)(scope, lambda: asyncio.sleep(0), send))  # type: ignore[arg-type,return-value]
    assert (b"x-frame-options", b"DENY") in sent[0]["headers"]
