"""Render templates to HTML files. All values are escaped."""

import datetime
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

import jinja2

from agent_eval.formats.timestamps import as_text
from agent_eval.metrics.metric_set import directed
from agent_eval.report.board import one_decimal
from agent_eval.report.html.texts import clean
from agent_eval.report.quality import DIRECTION

ASSETS = ("report.css", "report.js")
FILE = ""
"""The template name for files that are not pages: the content is written from its `text`."""
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'none'; font-src 'none'; connect-src 'none'; "
    "base-uri 'none'; form-action 'none'"
)
"""Content security policy of each page: only the report's style sheet and script are allowed."""
DRAWN = POLICY.replace("img-src 'none'", "img-src data:")
"""The policy of a page whose drawings are images in the page."""


@dataclass
class Renderer:
    """Render pages, write them to a folder, and count them."""

    folder: Path
    shared: dict[str, Any]  # variables of every template
    n_pages: int = 0
    n_bytes: int = 0
    _made: set[Path] = field(default_factory=set[Path])

    def page(self, path: str, template: str, content: dict[str, Any]) -> None:
        """Write one page or file."""
        self.n_pages += template != FILE
        self._write(path, self.render(path, template, content))

    def render(self, path: str, template: str, content: dict[str, Any]) -> bytes:
        """Return one page or file as bytes; links in a template are relative to the report's folder."""
        if template == FILE:
            return str(content["text"]).encode("utf-8")
        root = "../" * (len(PurePosixPath(path).parts) - 1)
        text = (
            _environment()
            .get_template(template)
            .render(**self.shared, **{"policy": POLICY, **content}, root=root, here=path)
        )
        return text.encode("utf-8")

    def assets(self) -> None:
        """Write the style sheet and the script."""
        for name in ASSETS:
            self._write(f"assets/{name}", self.asset(name) or b"")

    @staticmethod
    def asset(name: str) -> bytes | None:
        """Return the style sheet or the script by name; None for any other name."""
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
    """Return the Jinja environment of the templates, which are compiled once per process."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("agent_eval.report.html"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "score": _score,
        "number": _number,
        "money": _money,
        "words": _words,
        "metric": _metric,
    }
    environment.globals["direction"] = DIRECTION
    return environment


def _shown(value: object) -> object:
    """Return the value of a template's expression for output: None becomes 'unknown', and texts are sanitised."""
    if value is None:
        return "unknown"
    if isinstance(value, datetime.datetime):
        return as_text(value)
    return clean(value) if type(value) is str else value


def _score(value: float | None) -> str:
    """Return a score from 0 to 100 with one decimal, rounded half up; 'unknown' for None."""
    return "unknown" if value is None else one_decimal(value)


def _number(value: float | None, places: int = 2) -> str:
    return "unknown" if value is None else f"{value:.{places}f}"


def _money(value: float | None) -> str:
    """Return an amount in US dollars with four decimals, or two digits if that is 0; 'unknown' for None."""
    if value is None:
        return "unknown"
    return f"${value:.2g}" if 0 < value < 0.00005 else f"${value:,.4f}"


def _metric(name: str) -> str:
    """Return the name of a metric in words, e.g. 'user frustration (5 = none)'."""
    return _words(directed(name))


def _words(value: object) -> str:
    """Return a name with spaces instead of underscores, e.g. 'no failure' for 'no_failure'."""
    return str(value).replace("_", " ")
