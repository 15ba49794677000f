"""Serve the report at the address of the Dagster UI. Each page is rendered from the store on request."""

import asyncio
import posixpath
import re
from collections.abc import Callable
from urllib.parse import unquote

from agent_eval.defs.ui.guard import App, Receive, Scope, Send
from agent_eval.errors import AgentEvalError

PREFIX = "/report/"
Pages = Callable[[str], bytes | None]
"""A function that returns the page at a path relative to the report's folder; None if the page does not exist."""

_KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".csv": "text/csv",
    ".json": "application/json",
}
_BOARD = re.compile(r"boards/[0-9A-Za-z.+-]+")


def pages_of_project() -> Pages:
    """Return a function that renders the pages of this process's project.

    The project is opened for each page, because it may have changed.
    """

    def page(path: str) -> bytes | None:
        from agent_eval.project import Project  # imported here, since the import takes a second
        from agent_eval.project.report import served_page

        return served_page(Project.open(), path)

    return page


class WithReport:
    """Serve the report under `/report/` and pass all other requests to the wrapped application (ASGI)."""

    def __init__(self, app: App, pages: Pages) -> None:
        self._app = app
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = str(scope.get("path", ""))
        if scope["type"] != "http" or not f"{path}/".startswith(PREFIX):
            await self._app(scope, receive, send)
            return
        status, kind, body = await asyncio.to_thread(self._answer, path.removeprefix(PREFIX[:-1]).strip("/"))
        headers = [
            (b"content-type", f"{kind}; charset=utf-8".encode()),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        ]
        if status == 302:
            headers.append((b"location", body))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope.get("method") == "HEAD" else body})

    def _answer(self, path: str) -> tuple[int, str, bytes]:
        """Return the status, content type and body of one page."""
        if not path:
            return 302, "text/plain", f"{PREFIX}index.html".encode()
        if _BOARD.fullmatch(path):
            return 302, "text/plain", f"{PREFIX}{path}/index.html".encode()
        try:
            page = self._pages(unquote(path))
        except AgentEvalError as error:
            return 503, "text/plain", f"{error}\n".encode()
        if page is None:
            return 404, "text/plain", b"This page does not exist. The first page of the report is /report/.\n"
        return 200, _KINDS.get(posixpath.splitext(path)[1], "text/plain"), page
