"""Implement `agent-eval report`: write boards, agents and conversations as HTML pages that need no server."""

from pathlib import Path

from rich.console import Console

from agent_eval.project import Project
from agent_eval.project.report import publish


def report(project: Project, out: Console, folder: Path | None, *, version: str | None) -> None:
    """Write the report and print its path, the number of pages and the size.

    Raises:
        NotFoundError: If the version is not published.
        StorageError: If the folder contains files that do not belong to an earlier report.
    """
    site = publish(project, folder, version=version)
    out.print(
        f"{site.index}: {site.n_pages:,} pages, {site.n_bytes / 1e6:.1f} MB. It opens in any browser.",
        markup=False,
        soft_wrap=True,
    )
