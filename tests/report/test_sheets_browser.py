"""A rating sheet in a browser, opened from disk: labelled by keyboard over two visits, and inert whatever it shows."""

import csv
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from rich.console import Console

from agent_eval.commands.labels import import_labels
from agent_eval.project import Project
from tests.report.test_browser import CHROMIUM, browser, page, sync_api
from tests.report.test_sheets import HOSTILE, LABELS, METRIC, item, sheet, sheets_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser", "page"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"{CHROMIUM} is absent: apt-get install chromium"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


def saved(page: "Page", folder: Path) -> Path:
    """The CSV that the key S saves."""
    with page.expect_download() as started:
        page.keyboard.press("s")
    path = folder / "saved.csv"
    started.value.save_as(path)
    return path


def typed(page: "Page", rater: str) -> None:
    page.get_by_label("Your name").focus()
    page.keyboard.type(rater)
    page.keyboard.press("Enter")


def test_twenty_turns_are_labelled_by_keyboard_over_two_visits_and_their_kappa_is_shown(
    sample_copy: Path, tmp_path: Path, page: "Page"
) -> None:
    project = Project.open(sample_copy)
    made = sheets_of(project, 20)
    path = tmp_path / "sheet.html"
    path.write_text(made.html)
    judged = project.table("turn_judgments").filter(
        pl.col("methodology_version") == "1.3.0",
        pl.col("judge") == "recorded",
        pl.col("metric") == "helpfulness",
    )
    rating = {(a, c, t): r for a, c, t, r in judged.select("agent_id", "conversation_id", "turn_index", "rating_1to5").iter_rows()}  # fmt: skip
    keys = [str(rating[one.agent, one.conversation, one.turn]) for one in made.items]
    keys[0] = "1" if keys[0] != "1" else "2"

    page.goto(path.as_uri())
    typed(page, "anna")
    for key in keys[:10]:
        page.keyboard.press(key)
        page.keyboard.press("Enter")
    page.keyboard.press("r")
    page.keyboard.type('=1+1; half, "way"')
    page.reload()  # another visit by another process of the browser may read before this one's storage arrives there
    assert page.locator("#progress").inner_text() == "Part 11 of 20, 10 labelled"
    assert page.get_by_label("Your name").input_value() == "anna"
    for key in keys[10:]:
        page.keyboard.press(key)
        page.keyboard.press("ArrowRight")
    assert "All parts are labelled" in page.locator("#notice").inner_text()
    file = saved(page, tmp_path)

    by_judge = tmp_path / "judge.csv"
    places = [f"{one.agent},{one.conversation},{one.turn},helpfulness,gpt" for one in made.items]
    answers = [f"{place},{rating[one.agent, one.conversation, one.turn]}" for place, one in zip(places, made.items, strict=True)]  # fmt: skip
    by_judge.write_text("\n".join(["agent,conversation,turn,metric,judge,label", *answers]))
    out, err = (Console(file=io.StringIO(), record=True, width=300) for _ in range(2))
    code = import_labels(project, out, err, [file, by_judge], agent_id=None, metric=None, as_json=False)
    assert (code, "20 labels of saved.csv were written" in err.export_text()) == (0, True)
    shown = out.export_text()
    assert re.search(r"helpfulness . import:gpt . people .* 20 .* 19\s+.\s+0\.950\s+.\s+0\.\d{3} ", shown), (
        shown
    )  # with kappa
    stored = Project.open(sample_copy).human_ratings[0].filter(pl.col("file").str.contains("saved"))
    assert stored["rationale"].drop_nulls().to_list() == ['=1+1; half, "way"']
    assert stored["weight"].sum() == pytest.approx(len(rating) - 1, abs=1e-4)  # one turn was labelled before


def test_a_sheet_that_is_open_twice_loses_no_label(tmp_path: Path, page: "Page") -> None:
    path = sheet(tmp_path, [item(0), item(1)], {"m": METRIC}, "Text")
    other = page.context.new_page()
    for tab in (page, other):
        tab.goto(path.as_uri())
    typed(page, "anna")
    page.keyboard.press("3")
    sync_api.expect(other.locator("#progress")).to_have_text("Part 1 of 2, 1 labelled")
    other.keyboard.press("ArrowRight")
    other.keyboard.press("4")
    sync_api.expect(page.locator("#progress")).to_have_text("Part 1 of 2, 2 labelled")
    rows = list(csv.DictReader(saved(page, tmp_path).open(newline="")))
    assert [(row["rater"], row["label"]) for row in rows] == [("anna", "3"), ("anna", "4")]


def test_a_hostile_transcript_runs_nothing_and_axe_finds_nothing_serious(
    tmp_path: Path, page: "Page"
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core is not installed")
    metrics = {"m": METRIC, "l": LABELS}
    path = sheet(tmp_path, [item(0), item(1, "l"), item(2, agent=HOSTILE)], metrics, HOSTILE)
    page.goto(path.as_uri())
    for _ in range(3):
        assert page.evaluate("window.pwned") is None
        assert page.locator("main script, main style, main img, [onerror], [onload]").count() == 0
        assert page.locator("script").count() == 2
        found = axe.Axe().run(page, options={"preload": False, "resultTypes": ["violations"]})
        assert [v["id"] for v in found.response["violations"] if v["impact"] in {"serious", "critical"}] == []
        page.keyboard.press("ArrowRight")  # after the last part the first one that is open
    typed(page, "=anna")
    page.keyboard.press("ArrowRight")
    for key in "123":  # "no failure" excludes the others
        page.keyboard.press(key)
    (row,) = csv.DictReader(saved(page, tmp_path).open(newline=""))
    assert (row["label"], row["rater"], row["conversation"]) == ("a; b", "'=anna", "c1")
