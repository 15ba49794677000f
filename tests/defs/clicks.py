"""The UI in a browser, for test_live.py: from a row of the board to the source by clicks, and a partition made by a click."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.live import Ui, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

CHROMIUM = Path("/usr/bin/chromium")
HEIGHT = 950
SECONDS = 300_000  # milliseconds; a page of a loaded machine is waited for, not timed


@contextlib.contextmanager
def browser() -> Iterator["Page"]:
    """A page of a browser; a link that opens another page fails the test, as clicks are counted in this one."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        context = chromium.new_context(viewport={"width": 1400, "height": HEIGHT})
        opened = context.new_page()
        opened.set_default_timeout(SECONDS)
        yield opened
        assert len(context.pages) == 1
        chromium.close()


def shown(page: "Page", name: str) -> "Locator":
    """The button that shows a metadata entry of a partition."""
    row = page.locator("tr", has=page.get_by_text(name, exact=True))
    return row.get_by_text("[Show Markdown]").first


def open_page(page: "Page") -> None:
    """Open the page of the partition; the UI opens links of metadata in a window of their own."""
    row = page.locator("tr", has=page.get_by_text("page", exact=True))
    address = row.get_by_role("link").first.get_attribute("href")
    assert address
    page.goto(address if "://" in address else f"{page.url.partition('/assets/')[0]}{address}")


def six_clicks_lead_from_a_row_of_the_board_to_the_judged_turn_the_judge_and_the_source_line(
    ui: Ui, page: "Page"
) -> None:
    page.goto(
        f"http://127.0.0.1:{ui.port}/assets/leaderboard?view=partitions&partition=1.3.0&token={ui.token}"
    )
    clicks = 0

    def click(target: "Locator") -> None:
        nonlocal clicks
        target.click()
        clicks += 1

    click(shown(page, "board"))
    click(page.get_by_role("dialog").get_by_role("link", name="Lumen Support"))  # its composite
    page.wait_for_url("**/assets/composite_scores?**lumen-support**1.3.0**")
    open_page(page)
    clicks += 1
    row = page.locator("tr", has_text="the arrival date of A-2291 was known and not passed on")
    click(row.get_by_role("link", name="D2 completeness"))
    page.wait_for_url("**/report/conversations/lumen-support-*/lumen-2026-04-*-d2-*.html")
    words = page.get_by_text("the arrival date of A-2291 was known and not passed on").first
    words.wait_for()
    rated = page.locator("tr", has=words)
    click(rated.get_by_role("link", name="show it"))  # the quoted words, marked in their turn
    quoted = page.locator(page.url.partition("#")[2].join(("#", "")))
    assert page.locator("section.turn", has=quoted).count() == 1
    run = page.locator("a[href^='/runs/']").first.get_attribute("href")
    click(page.get_by_role("link", name="conversations.jsonl, line 2"))
    page.wait_for_url("**/report/sources/**")
    assert "sessions/lumen-support/lumen-2026-04-" in page.get_by_role("heading").first.inner_text()
    assert '"conversation_id": "lumen-2026-04-' in page.locator(".raw").inner_text()
    assert clicks <= 6
    page.goto(f"http://127.0.0.1:{ui.port}{run}")
    page.get_by_text("Success").first.wait_for()


def the_run_that_wrote_a_table_is_a_link_and_the_origin_of_a_column_is_named(ui: Ui, page: "Page") -> None:
    page.goto(f"http://127.0.0.1:{ui.port}/assets/leaderboard?view=partitions&partition=1.3.0")
    open_page(page)
    page.locator("a[href^='/runs/']").first.click()
    page.wait_for_url("**/runs/**")
    page.goto(f"http://127.0.0.1:{ui.port}/assets/leaderboard?view=overview")
    page.get_by_text("(from composite_scores.composite_exact)").first.wait_for()


def launch(page: "Page", ui: Ui, *, everything: bool = False) -> None:
    """Materialize the board of 1.3.0, or of every version."""
    page.goto(f"http://127.0.0.1:{ui.port}/assets/leaderboard?view=partitions&partition=1.3.0")
    page.get_by_role("button", name="Materialize…").click()
    page.get_by_role("button", name="Confirm").click()  # the tables of a board are made together
    dialog = page.get_by_role("dialog")
    if everything:
        dialog.get_by_role("button", name="All", exact=True).click()
    dialog.get_by_role("button", name="Launch").click()


def one_partition_and_all_are_made_by_clicks_and_a_reload_of_the_code_keeps_what_is_there(
    ui: Ui, page: "Page"
) -> None:
    before = ui.events("leaderboard")["leaderboard"]
    launch(page, ui)
    one = before | {"1.3.0": before["1.3.0"] + 1}
    eventually(lambda: ui.events("leaderboard")["leaderboard"] == one, "one board is made again", log=ui.log)
    launch(page, ui, everything=True)
    every = {version: n + 1 for version, n in one.items()}
    eventually(
        lambda: ui.events("leaderboard")["leaderboard"] == every, "all boards are made again", log=ui.log
    )
    made = ui.events("leaderboard")["leaderboard"]
    ui.reload()
    assert ui.events("leaderboard")["leaderboard"] == made


def a_failed_run_shows_its_cause_on_the_first_screen(ui: Ui, page: "Page") -> None:
    store = ui.log.parent / "data" / "agent_eval.duckdb"
    kept = store.read_bytes()
    store.write_bytes(b"no database")
    try:
        launch(page, ui)
        query = (
            """{ runsOrError(limit: 1, filter: {statuses: [FAILURE]}) { ... on Runs { results { id } } } }"""
        )
        eventually(lambda: bool(ui.ask(query)["runsOrError"]["results"]), "the run has failed", log=ui.log)
    finally:
        store.write_bytes(kept)
    [run] = ui.ask(query)["runsOrError"]["results"]
    page.goto(f"http://127.0.0.1:{ui.port}/runs/{run['id']}")
    cause = page.get_by_text("agent_eval.duckdb").first
    cause.wait_for()
    box = cause.bounding_box()
    assert box is not None
    assert box["y"] < HEIGHT


def the_ui_by_clicks_only(ui: Ui) -> None:
    """On the sample, or a project with its agent Lumen Support, after a run."""
    with browser() as page:
        six_clicks_lead_from_a_row_of_the_board_to_the_judged_turn_the_judge_and_the_source_line(ui, page)
        the_run_that_wrote_a_table_is_a_link_and_the_origin_of_a_column_is_named(ui, page)
        one_partition_and_all_are_made_by_clicks_and_a_reload_of_the_code_keeps_what_is_there(ui, page)
        a_failed_run_shows_its_cause_on_the_first_screen(ui, page)
