"""The report under the UI's address: what is answered, what is passed on, and what an error shows."""

import asyncio
from typing import Any

import pytest

from agent_eval.defs.ui.guard import Guard, Message, Receive, Scope, Send
from agent_eval.defs.ui.report import WithReport
from agent_eval.errors import AgentEvalError


def pages(path: str) -> bytes | None:
    if path == "broken.html":
        raise AgentEvalError("The store cannot be read.")
    return {"index.html": b"<h1>board</h1>", "assets/report.css": b"a{}"}.get(path)


def asked(path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body; status 0 when the request was passed on."""
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 0, "headers": []})

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    named = {"host": "127.0.0.1:3000"} | {name.replace("_", "-"): value for name, value in headers.items()}
    scope: dict[str, Any] = {
        "type": "http", "method": method, "path": path, "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
    }  # fmt: skip
    served = Guard(WithReport(app, pages), {"127.0.0.1"})
    asyncio.run(served(scope, receive, send))
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, b"".join(m.get("body", b"") for m in sent[1:])


def test_pages_and_their_style_are_served() -> None:
    status, headers, body = asked("/report/index.html")
    assert (status, body) == (200, b"<h1>board</h1>")
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-length"] == str(len(body))
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert asked("/report/assets/report.css")[1]["content-type"].startswith("text/css")
    assert asked("/report/index.html", "HEAD")[2] == b""


@pytest.mark.parametrize("path", ["/report", "/report/"])
def test_the_folder_leads_to_the_first_page(path: str) -> None:
    status, headers, _ = asked(path)
    assert (status, headers["location"]) == (302, "/report/index.html")


@pytest.mark.parametrize("path", ["/report/nothing.html", "/report/../index.html", "/report/%2e%2e/x"])
def test_another_path_is_not_found(path: str) -> None:
    assert asked(path)[0] == 404


def test_what_cannot_be_read_says_why() -> None:
    status, headers, body = asked("/report/broken.html")
    assert (status, body) == (503, b"The store cannot be read.\n")
    assert headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize("path", ["/", "/assets/leaderboard", "/reports", "/reporting/x", "/graphql"])
def test_the_rest_is_passed_on(path: str) -> None:
    assert asked(path)[0] == 0


def test_the_guard_stands_before_the_report_too() -> None:
    assert asked("/report/index.html", host="evil.test")[0] == 403
    assert asked("/report/index.html", sec_fetch_site="cross-site")[0] == 403
    assert asked("/report/index.html", "POST", content_type="text/plain")[0] == 403
    assert asked("/report/index.html", sec_fetch_site="cross-site", sec_fetch_mode="navigate")[0] == 200
