"""Fixtures that the tests of the report share."""

from pathlib import Path

import pytest

from agent_eval.project import Project
from agent_eval.project.report import site_of
from agent_eval.report.html import write_report
from tests.conftest import made_once


@pytest.fixture(scope="session")
def folder(sample_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the sample, written once. Read only."""

    def write(folder: Path) -> None:
        write_report(site_of(Project.open(sample_root), "1.3.0"), folder / "site")

    return made_once(tmp_path_factory, "report", write) / "site"
