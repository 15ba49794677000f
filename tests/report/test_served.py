"""The report as `agent-eval ui` serves it: each page alone equals the page of the written report, and links into the UI."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from agent_eval.project import Project
from agent_eval.project.report import served_page, site_of
from agent_eval.report.html import Site, page_at
from agent_eval.report.html.folder import MARKER
from agent_eval.report.names import Paths
from agent_eval.tables import table

PAGES = Paths("1.3.0")


@pytest.fixture(scope="module")
def site(sample_root: Path) -> Site:
    return site_of(Project.open(sample_root), "1.3.0")


@pytest.mark.slow
def test_every_page_made_alone_equals_the_page_of_the_written_report(site: Site, folder: Path) -> None:
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != MARKER]
    groups: dict[str, list[Path]] = {}
    for file in sorted(files):
        groups.setdefault(file.relative_to(folder).parts[0], []).append(file)
    folders = {"boards", "methodology", "agents", "conversations", "assets"}
    assert groups.keys() == {"index.html", "about.html", "conversations.html", *folders}
    for file in [file for group in groups.values() for file in group[::20]]:  # each page reads its own rows
        path = file.relative_to(folder).as_posix()
        assert page_at(site, path) == file.read_bytes(), path


@pytest.mark.parametrize(
    "path",
    [
        "", "index.htm", "boards/9.9.9/index.html", "boards/1.3.0/sessions.csv", "boards/9.9.9/leaderboard.csv", "boards/../index.html", "agents/1.3.0/nobody-0123456789.html",
        "agents/9.9.9/lumen-support-85c135604b.html", "conversations/x/y.html", "assets/../render.py", "assets/report.txt",
        "sources/x/y.html", "/etc/passwd", "../../etc/passwd", "methodology/1.3.0", "agents", "conversations/a/b/c.html",
    ],
)  # fmt: skip
def test_there_is_no_other_page(site: Site, path: str) -> None:
    assert page_at(site, path) is None


def test_a_page_reads_only_the_rows_of_its_agent(site: Site) -> None:
    asked: list[tuple[str, pl.DataFrame | None]] = []

    def watched(given: Callable[..., pl.DataFrame]) -> Any:
        def ask(name: str, keys: pl.DataFrame | None = None, **wanted: Any) -> pl.DataFrame:
            asked.append((name, keys))
            return given(name, keys, **wanted)

        return ask

    watching = replace(site, read=watched(site.read), count=watched(site.count))
    assert page_at(watching, PAGES.agent("quill-help", "1.3.0"))
    large = {"turn_judgments", "conversation_judgments", "conversations", "failures", "transcripts"}
    keyed = [(name, keys) for name, keys in asked if name in large]
    assert {name for name, _ in keyed} == large
    assert all(keys is not None and set(keys["agent_id"]) == {"quill-help"} for _, keys in keyed)


First = tuple[Project, dict[str, object]]


@pytest.fixture
def first(sample_copy: Path) -> First:
    """A project, and its first conversation that is not on the first line of its file."""
    project = Project.open(sample_copy)
    rows = project.store.read(table("conversations")).filter(pl.col("source_line") > 1)
    return project, rows.row(0, named=True)


def source(project: Project, row: dict[str, object]) -> str:
    page = served_page(project, PAGES.source(str(row["agent_id"]), str(row["conversation_id"])))
    assert page is not None
    return page.decode()


def file_of(project: Project, row: dict[str, object]) -> Path:
    return project.home.sessions / str(row["agent_id"]) / str(row["session_id"]) / "conversations.jsonl"


def test_the_source_page_shows_the_record_that_is_on_the_stored_line(first: First) -> None:
    project, row = first
    line = file_of(project, row).read_text().splitlines()[int(str(row["source_line"])) - 1]
    assert json.loads(line)["conversation_id"] == row["conversation_id"]
    text = source(project, row)
    assert f"{row['conversation_id']}" in text
    assert f"line {row['source_line']}" in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda file: file.write_text("{}\n" + file.read_text()), "changed since"),
        (lambda file: file.write_text("no json\n" * 20), "changed since"),
        (lambda file: file.unlink(), "the file is missing"),
        (lambda file: (file.unlink(), file.symlink_to("/etc/passwd")), "leads out of the data folder"),
    ],
)
def test_a_source_file_that_changed_is_not_shown_as_the_source(
    first: First, change: Callable[[Path], object], said: str
) -> None:
    project, row = first
    change(file_of(project, row))
    text = source(project, row)
    assert said in text
    assert "root:" not in text
    assert str(row["goal"]) not in text


def test_only_the_served_conversation_links_to_its_source_and_its_runs(first: First) -> None:
    project, row = first
    path = PAGES.conversation(str(row["agent_id"]), str(row["conversation_id"]))
    place = f"sessions/{row['agent_id']}/{row['session_id']}/conversations.jsonl, line {row['source_line']}"
    served = (served_page(project, path) or b"").decode()
    runs = set(re.findall(r'href="/runs/([^"]+)"', served))
    written = project.store.read(table("board_inputs"))  # any table: the run of the sample wrote them all
    assert written.height
    query = "SELECT DISTINCT dagster_run_id FROM store.turn_judgments WHERE agent_id = ?"
    with project.store.session(read_only=True) as con:
        stored = con.execute(query, [row["agent_id"]]).fetchall()
    assert runs == {run for (run,) in stored}
    assert place in served
    alone = (page_at(site_of(project, "1.3.0"), path) or b"").decode()
    assert place in alone
    assert "/runs/" not in alone
    assert "sources/" not in alone
