"""Render templates to HTML files. All values are escaped; none is marked as safe."""

import datetime
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

import jinja2

from agent_eval.formats.timestamps import as_text
from agent_eval.report.board import one_decimal
from agent_eval.report.html.texts import clean

ASSETS = ("report.css", "report.js")
FILE = ""
"""In place of a template: the content is the `text` of a file that is not a page."""
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'none'; font-src 'none'; connect-src 'none'; "
    "base-uri 'none'; form-action 'none'"
)
"""Content security policy of each page: our own two files, and nothing else."""


@dataclass
class Renderer:
    """Write pages to a folder, and count them."""

    folder: Path
    shared: dict[str, Any]  # what every template may use
    n_pages: int = 0
    n_bytes: int = 0
    _made: set[Path] = field(default_factory=set[Path])

    def page(self, path: str, template: str, content: dict[str, Any]) -> None:
        """Write one page, or a file."""
        self.n_pages += template != FILE
        self._write(path, self.render(path, template, content))

    def render(self, path: str, template: str, content: dict[str, Any]) -> bytes:
        """Return one page; links in its template start at the report's folder. A file is its `text`."""
        if template == FILE:
            return str(content["text"]).encode("utf-8")
        root = "../" * (len(PurePosixPath(path).parts) - 1)
        text = (
            _environment()
            .get_template(template)
            .render(**self.shared, **content, root=root, here=path, policy=POLICY)
        )
        return text.encode("utf-8")

    def assets(self) -> None:
        """Write style sheet and script."""
        for name in ASSETS:
            self._write(f"assets/{name}", self.asset(name) or b"")

    @staticmethod
    def asset(name: str) -> bytes | None:
        """Return the style sheet or the script; None for another name."""
        folder = resources.files("agent_eval.report.html") / "assets"
        return (folder / name).read_bytes() if name in ASSETS else None

    def _write(self, path: str, data: bytes) -> None:
        file = self.folder / path
        if file.parent not in self._made:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._made.add(file.parent)
        file.write_bytes(data)
        self.n_bytes += len(data)


@cache
def _environment() -> jinja2.Environment:
    """Return the templates, compiled once per process."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("agent_eval.report.html"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {"score": _score, "number": _number, "money": _money, "words": _words}
    return environment


def _shown(value: object) -> object:
    """Return the printed value of a template's expression: unknown values are marked, texts sanitised."""
    if value is None:
        return "unknown"
    if isinstance(value, datetime.datetime):
        return as_text(value)
    return clean(value) if type(value) is str else value


def _score(value: float | None) -> str:
    """Return a score of 0–100 with one decimal, half up."""
    return "unknown" if value is None else one_decimal(value)


def _number(value: float | None, places: int = 2) -> str:
    return "unknown" if value is None else f"{value:.{places}f}"


def _money(value: float | None) -> str:
    """Return an amount in US dollars."""
    return "unknown" if value is None else f"${value:,.4f}"


def _words(value: object) -> str:
    """Return a name as words: 'no_failure' → 'no failure'."""
    return str(value).replace("_", " ")
