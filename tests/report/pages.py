"""Reports for tests: written from frames instead of a store, and read back as a browser would find them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from posixpath import join, normpath
from urllib.parse import unquote, urlsplit

import polars as pl

from agent_eval.methodology import Registry
from agent_eval.project import Project
from agent_eval.report.html import Reader, Site
from agent_eval.report.html.tables import Counter
from agent_eval.storage.lineage import SCHEMA as WRITTEN
from agent_eval.tables import TABLES, table

NO_TEXTS = {
    "agent_id", "methodology_version", "session_id", "status", "severity", "template", "estimator", "slot", "target",
    "criterion", "composite_exact", "raw_composite_exact", "universal_exact", "domain_exact", "cluster_id", "baseline",
}  # fmt: skip
"""Columns that only our own code fills, or that are checked to be slugs."""
JSON_TEXTS = (
    "messages", "knowledge", "tools", "expected", "interventions", "injected_error", "metadata", "confusion",
)  # fmt: skip


def frames_of(project: Project) -> dict[str, pl.DataFrame]:
    """Every stored table."""
    return {name: project.store.read(table(name)) for name in TABLES}


def reader_of(frames: Mapping[str, pl.DataFrame]) -> Reader:
    """Tables from frames, as the store would give them."""

    def read(
        name: str, keys: pl.DataFrame | None = None, *, columns: Sequence[str] | None = None
    ) -> pl.DataFrame:
        frame = frames.get(name, table(name).empty())
        if keys is not None:
            typed = keys.cast({column: frame.schema[column] for column in keys.columns})
            frame = frame.join(typed, on=keys.columns, how="semi", maintain_order="left")
        return frame.select(columns or frame.columns)

    return read


def counter_of(frames: Mapping[str, pl.DataFrame]) -> Counter:
    """Counts of rows of frames, as the store would give them."""
    read = reader_of(frames)

    def count(
        name: str, keys: pl.DataFrame | None = None, *, columns: Sequence[str], extent: str | None = None
    ) -> pl.DataFrame:
        ends = {"first": pl.col(extent).min(), "last": pl.col(extent).max()} if extent else {}
        return read(name, keys).group_by(columns).agg(n=pl.len().cast(pl.Int64), **ends).sort(columns)

    return count


def site_from(
    frames: Mapping[str, pl.DataFrame], *, versions: Sequence[str] = ("1.2.0", "1.3.0"), shown: str = "1.3.0"
) -> Site:
    """A site of some frames under some versions."""
    registry = Registry.read(None)
    return Site(
        read=reader_of(frames),
        count=counter_of(frames),
        methodologies={version: registry.get(version) for version in versions},
        shown=shown,
        gates=table("gate_results").empty(),
        written=pl.DataFrame(schema=WRITTEN),
        package_version="0.0.0",
    )


def poisoned(frames: Mapping[str, pl.DataFrame], attack: str) -> dict[str, pl.DataFrame]:
    """The frames with the attack in every text that a stranger could have written, ids of conversations included."""
    return {name: frame.with_columns(_poison(frame, attack)) for name, frame in frames.items()}


def _poison(frame: pl.DataFrame, attack: str) -> Iterator[pl.Expr]:
    for name, dtype in frame.schema.items():
        column = pl.col(name)
        if name == "messages":
            yield column.str.replace_all('"content":"', f'"content":{json.dumps(attack)[:-1]}', literal=True)
        elif name in NO_TEXTS or name in JSON_TEXTS:
            continue
        elif name == "conversation_id":
            yield pl.concat_str(column, pl.lit(attack)).alias(name)
        elif dtype == pl.String:
            yield pl.when(column.is_not_null()).then(pl.concat_str(pl.lit(attack), column)).alias(name)
        elif dtype == pl.List(pl.String) and name in {"missing", "disputed", "further_labels", "warnings"}:
            yield column.list.eval(pl.concat_str(pl.lit(attack), pl.element()))


@dataclass
class Page(HTMLParser):
    """What a page is made of, as a parser of HTML sees it."""

    path: str
    tags: list[tuple[str, dict[str, str | None]]] = field(
        default_factory=list[tuple[str, dict[str, str | None]]]
    )
    texts: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        """All its text, spaces squeezed."""
        return " ".join(" ".join(self.texts).split())

    @property
    def ids(self) -> list[str]:
        """Ids of its elements, in order."""
        return [value for _, attrs in self.tags if (value := attrs.get("id"))]

    @property
    def links(self) -> list[str]:
        """What it points to, as it is written."""
        names = ("href", "src", "action", "srcset", "poster", "data", "xlink:href")
        return [value for _, attrs in self.tags for name in names if (value := attrs.get(name)) is not None]

    def targets(self) -> Iterator[tuple[str, str]]:
        """(path from the report's folder, anchor) of each link."""
        for link in self.links:
            parts = urlsplit(link)
            folder = self.path.rpartition("/")[0]
            path = normpath(join(folder, unquote(parts.path))) if parts.path else self.path
            yield path, unquote(parts.fragment)


def pages_of(folder: Path) -> dict[str, Page]:
    """Every page of a report, by its path."""
    found = {}
    for file in sorted(folder.rglob("*.html")):
        path = file.relative_to(folder).as_posix()
        page = found[path] = Page(path)
        page.feed(file.read_text(encoding="utf-8"))
    return found
