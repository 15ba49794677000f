"""The HTML report of a project: the store opened for `report.html`, which knows no store.

For the command and for the asset, so that both publish the same pages.
"""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from agent_eval import __version__
from agent_eval.project.project import Project
from agent_eval.report.html import Reader, Site, Written, write_report
from agent_eval.storage.lineage import written
from agent_eval.tables import TABLES, table


def publish(project: Project, folder: Path | None = None, *, version: str | None = None) -> Written:
    """Write the report of all versions into `folder` (default: data/report); index.html shows `version`.

    One report of a store is written at a time.

    Raises:
        UnknownMethodologyError: If the version is not published.
        ReportFolderError: If the folder holds anything but an earlier report.
        StoreError: If the store cannot be read.
    """
    shown = project.registry.current if version is None else project.registry.get(version)
    with project.store.only_one("report"):
        return write_report(site_of(project, shown.version), folder or report_folder(project))


def report_folder(project: Project) -> Path:
    """Where the report is published unless a folder is named."""
    return project.home.data / "report"


def site_of(project: Project, shown: str) -> Site:
    """All that a report of this project is made from."""
    versions = project.registry.versions
    return Site(
        read=reader(project),
        methodologies=project.methodologies(versions),
        shown=shown,
        gates=project.store.read(table("gate_results")),
        written=written(project.store, TABLES),
        package_version=__version__,
        edited={version: f"{p.reason}." for version, p in project.registry.edited().items()},
    )


def reader(project: Project) -> Reader:
    """Tables of the project's store by name."""

    def read(
        name: str, keys: pl.DataFrame | None = None, *, columns: Sequence[str] | None = None
    ) -> pl.DataFrame:
        return project.store.read(table(name), keys, columns=columns)

    return read
