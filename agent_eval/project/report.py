"""Publish the HTML report of a project: read its store and pass the rows to package `report.html`.

The command and the asset both use this module, so they publish the same pages.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from agent_eval import __version__
from agent_eval.formats.files import Bounds
from agent_eval.formats.streams import Record, json_lines
from agent_eval.project.project import Project
from agent_eval.report.html import Reader, Served, Site, Written, page_at, write_report
from agent_eval.report.html.conversation import source_file
from agent_eval.report.html.tables import Counter
from agent_eval.storage.lineage import written, written_by_partition
from agent_eval.tables import TABLES, table


def publish(project: Project, folder: Path | None = None, *, version: str | None = None) -> Written:
    """Write the report of all versions into `folder` (default: data/report).

    index.html shows `version`, by default the current one. Only one report of a store is written at a time.

    Raises:
        UnknownMethodologyError: If the version does not exist.
        ReportFolderError: If the folder contains files that are not part of an earlier report.
        StoreError: If the store cannot be read.
    """
    shown = project.registry.current if version is None else project.registry.get(version)
    with project.store.exclusive_section("report"):
        return write_report(site_of(project, shown.version), folder or report_folder(project))


def served_page(project: Project, path: str) -> bytes | None:
    """Return the page of the report at a path, rendered from the current store; None if the page does not exist.

    Raises:
        StoreError: If the store cannot be read.
    """
    site = site_of(project, project.registry.current.version)
    return page_at(replace(site, served=Served(_runs(project), partial(_record, project))), path)


def _runs(project: Project) -> dict[str, dict[str, str]]:
    """Return the id of the run that last computed the judgments, by agent and version."""
    made = written_by_partition(project.store, {"turn_judgments": table("turn_judgments")})
    runs: dict[str, dict[str, str]] = {}
    for agent, version, run in made.select("agent_id", "methodology_version", "last_run_id").iter_rows():
        runs.setdefault(agent, {})[version] = run
    return runs


def _record(project: Project, conversation: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return the indented JSON text of a conversation's source record, or None and why it cannot be shown."""
    number = conversation["source_line"]
    if number is None:
        return (
            None,
            "The line number of this conversation is not stored. Materialise asset `conversations` of its agent.",
        )
    path = project.home.data / source_file(conversation)
    if reason := Bounds.of(project.home.sessions).refused_file(path):
        return None, f"{reason}."
    records = json_lines(path, path.name)
    found = next((r for r in records if isinstance(r, Record) and r.number == number), None)
    value = found.value if found else None
    if not isinstance(value, dict) or value.get("conversation_id") != conversation["conversation_id"]:
        return None, "The file has changed since it was ingested: this line now contains a different record."
    return json.dumps(value, ensure_ascii=False, indent=2), None


def report_folder(project: Project) -> Path:
    """Return the default folder of the report."""
    return project.home.data / "report"


def site_of(project: Project, shown: str) -> Site:
    """Return the inputs of the report of this project."""
    versions = project.registry.versions
    return Site(
        read=reader(project),
        count=counter(project),
        methodologies=project.methodologies(versions),
        shown=shown,
        gates=project.store.read(table("gate_results")),
        written=written(project.store, TABLES),
        package_version=__version__,
        max_pages=project.settings.max_report_conversations,
        edited={version: f"{p.reason}." for version, p in project.registry.edited().items()},
    )


def counter(project: Project) -> Counter:
    """Return a function that counts rows of the project's stored tables."""

    def count(
        name: str, keys: pl.DataFrame | None = None, *, columns: Sequence[str], extent: str | None = None
    ) -> pl.DataFrame:
        return project.store.counts(table(name), keys, columns=columns, extent=extent)

    return count


def reader(project: Project) -> Reader:
    """Return a function that reads the project's stored tables."""

    def read(
        name: str, keys: pl.DataFrame | None = None, *, columns: Sequence[str] | None = None
    ) -> pl.DataFrame:
        return project.store.read(table(name), keys, columns=columns)

    return read
