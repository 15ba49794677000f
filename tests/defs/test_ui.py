"""What stands before the UI: the guard refuses other origins, hosts and forms of mutation; the report answers below /report."""

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agent_eval.defs.ui import guard
from agent_eval.defs.ui.guard import LOCAL, Guard, Message, Receive, Scope, Send, allowed_hosts
from agent_eval.defs.ui.report import WithReport
from agent_eval.errors import AgentEvalError, StorageError

HOST = "127.0.0.1:3000"
JSON = {"content-type": "application/json"}
DAGSTER = 299  # the status of a request that reached Dagster


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def pages(path: str) -> bytes | None:
    if path == "broken.html":
        raise AgentEvalError("The store cannot be read.")
    return {"index.html": b"<h1>board</h1>", "assets/report.css": b"a{}"}.get(path)


def asked(
    method: str = "POST",
    path: str = "/graphql",
    query: str = "",
    kind: str = "http",
    token: str | None = None,
    **headers: str,
) -> Answer:
    """The only answer that a request gets."""
    sent: list[Message] = []

    async def dagster(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": DAGSTER, "headers": [(b"a", b"b")]})

    async def receive() -> Message:
        return {"type": f"{kind}.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    named = {"host": HOST} | {name.replace("_", "-"): value for name, value in headers.items()}
    given = [(name.encode(), value.encode()) for name, value in named.items() if value]
    scope: dict[str, Any] = {"type": kind, "method": method, "path": path, "headers": given}
    served = Guard(WithReport(dagster, pages), allowed_hosts(), token)
    asyncio.run(served(scope | {"query_string": query.encode()}, receive, send))
    (start,) = (message for message in sent if message.keys() & {"status", "code"})
    found = {name.decode(): value.decode() for name, value in start.get("headers", ())}
    return Answer(start.get("status") or start["code"], found, b"".join(m.get("body", b"") for m in sent))


@pytest.mark.parametrize(
    "request_",
    [
        {"origin": f"http://{HOST}", "sec_fetch_site": "same-origin", **JSON},
        {"content_type": "application/json; charset=utf-8"},
        {"method": "GET", "path": "/assets/leaderboard"},
        {"method": "GET", "path": "/graphql"},  # the query editor
        {"method": "GET", "path": "/logs/a/b", "query": "x=1"},
        {"kind": "websocket", "origin": f"http://{HOST}"},
        *({"host": host, **JSON} for host in ("localhost:3000", "LOCALHOST", "127.0.0.1", "[::1]:3000")),
        {"method": "GET", "path": "/assets", "sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"},
        *({"method": "GET", "path": path} for path in ("/", "/reports", "/reporting/x")),
    ],
)
def test_the_ui_itself_is_served_and_no_other_page_can_frame_it(request_: dict[str, str]) -> None:
    answer = asked(**request_)
    assert answer.status == DAGSTER
    assert request_.get("kind") or answer.headers["x-frame-options"] == "DENY"


CROSS = {"method": "GET", "sec_fetch_site": "cross-site"}


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
        {"sec_fetch_mode": "navigate", **CROSS},
        {"path": "/server_info", "sec_fetch_mode": "no-cors", **CROSS},
        {"content_type": "text/plain"},
        {"content_type": "application/x-www-form-urlencoded"},
        {"content_type": "multipart/form-data"},
        {"content_type": "application/graphql"},
        {"content_type": "text/plain; application/json"},
        {"content_type": ""},
        {"method": "PUT", **JSON},
        {"method": "DELETE", **JSON},
        {"path": "/report_asset_materialization/leaderboard", "content_type": "text/plain"},
        {"method": "GET", "path": "/report/index.html", "host": "evil.test"},
        {"path": "/report/index.html", **CROSS},
        {"path": "/report/index.html", "content_type": "text/plain"},
    ],
)
def test_everything_else_is_refused_before_it_reaches_dagster(request_: dict[str, str]) -> None:
    assert asked(**request_).status == 403


@pytest.mark.parametrize("origin", ["", "http://evil.test", "null", "http://127.0.0.1:9999"])
def test_a_websocket_of_another_origin_is_closed(origin: str) -> None:
    assert asked(kind="websocket", origin=origin).status == 1008


TOKEN = "t" * 43
NAME = Guard(lambda *_: None, (), TOKEN)._cookie  # type: ignore[arg-type]
PAGE = {"method": "GET", "path": "/assets"}
SOCKET = {"kind": "websocket", "origin": f"http://{HOST}"}


@pytest.mark.parametrize("request_", [PAGE, JSON, SOCKET, {"method": "GET", "path": "/report/index.html"}])
@pytest.mark.parametrize(
    ("sent", "is_let_in"),
    [
        ({}, False),
        ({"authorization": f"Bearer {TOKEN}"}, True),
        ({"authorization": f"bearer {TOKEN}"}, True),
        ({"authorization": f"Basic {TOKEN}"}, False),
        ({"authorization": "Bearer é"}, False),
        ({"authorization": "Bearer "}, False),
        ({"cookie": f"a=b; {NAME}={TOKEN}"}, True),
        ({"cookie": f"{NAME}={TOKEN}x"}, False),
        ({"cookie": f"agent_eval_ui_other={TOKEN}"}, False),
        ({"cookie": f"{NAME}="}, False),
    ],
)
def test_a_request_needs_the_token(request_: dict[str, str], sent: dict[str, str], is_let_in: bool) -> None:
    answer = asked(**request_, **sent, token=TOKEN)
    refused = 1008 if request_ is SOCKET else 401
    assert (answer.status == refused) is not is_let_in
    assert TOKEN not in f"{answer}"
    assert asked(**request_, **sent).status != refused  # --no-token


def test_the_printed_address_gives_a_cookie_and_leads_to_the_page_without_the_token() -> None:
    answer = asked("GET", "//evil.test/a b", f"x=1&token={TOKEN}", token=TOKEN)
    assert (answer.status, answer.headers["location"]) == (303, "/evil.test/a%20b?x=1")
    cookie, *rest = answer.headers["set-cookie"].split("; ")
    assert (cookie, {"HttpOnly", "SameSite=Lax"} <= {*rest}) == (f"{NAME}={TOKEN}", True)
    assert asked("GET", "/assets", cookie=cookie, token=TOKEN).status == DAGSTER
    assert asked("GET", "/", "token=wrong", token=TOKEN).status == 401
    assert asked("POST", "/graphql", f"token={TOKEN}", token=TOKEN, **JSON).status == 401
    elsewhere = asked("GET", "/", f"token={TOKEN}", token=TOKEN, host="evil.test")
    assert elsewhere.status == 403


def test_the_token_stays_the_same_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    token = guard.kept_token(tmp_path)
    file = tmp_path / guard.TOKEN_FILE
    assert (len(token) >= 43, guard.kept_token(tmp_path), file.stat().st_mode & 0o777) == (True, token, 0o600)
    for text in ("", "\n", "short"):
        file.write_text(text)
        with pytest.raises(StorageError, match=r"ui\.token has \d bytes"):
            guard.kept_token(tmp_path)


def test_hosts_of_the_setting_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(guard.HOSTS, json.dumps(["Evals.Example.org"]))
    assert allowed_hosts() == LOCAL | {"evals.example.org"}
    assert asked(host="evals.example.org", origin="https://evals.example.org", **JSON).status == DAGSTER


def test_pages_of_the_report_and_their_style_are_served() -> None:
    status, headers, body = asked("GET", "/report/index.html")
    assert (status, body) == (200, b"<h1>board</h1>")
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-length"] == str(len(body))
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert asked("GET", "/report/assets/report.css").headers["content-type"].startswith("text/css")
    assert asked("HEAD", "/report/index.html").body == b""
    assert asked(path="/report/index.html", sec_fetch_mode="navigate", **CROSS).status == 200


@pytest.mark.parametrize("path", ["/report", "/report/"])
def test_the_folder_of_the_report_leads_to_the_first_page(path: str) -> None:
    status, headers, _ = asked("GET", path)
    assert (status, headers["location"]) == (302, "/report/index.html")


@pytest.mark.parametrize("path", ["/report/nothing.html", "/report/../index.html", "/report/%2e%2e/x"])
def test_another_path_of_the_report_is_not_found(path: str) -> None:
    assert asked("GET", path).status == 404


def test_a_page_of_the_report_that_cannot_be_read_says_why() -> None:
    status, headers, body = asked("GET", "/report/broken.html")
    assert (status, body) == (503, b"The store cannot be read.\n")
    assert headers["content-type"].startswith("text/plain")
