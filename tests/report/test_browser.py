"""The report in a browser, opened from disk; skipped where there is no Chromium."""

import itertools
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
import pytest

from agent_eval.project import Project
from agent_eval.project.report import served_page
from agent_eval.report.html import agent, write_report
from agent_eval.report.html.render import Renderer
from agent_eval.report.names import Paths, file_name
from agent_eval.tables import table
from tests.conftest import at_home
from tests.report.pages import frames_of, poisoned, site_from
from tests.report.test_html import ATTACK

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = Path("/usr/bin/chromium")
PHONE_WIDTH, DESK_WIDTH, DESK_HEIGHT = 390, 1280, 900

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"{CHROMIUM} is absent: apt-get install chromium"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with sync_api.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: "Browser") -> Iterator["Page"]:
    """A page that says whatever goes wrong on it: errors on the console, and requests for anything but files."""
    context = browser.new_context(viewport={"width": 1440, "height": DESK_HEIGHT}, color_scheme="light")
    opened = context.new_page()
    troubles: list[str] = []
    opened.on("console", lambda m: troubles.append(m.text) if m.type in {"error", "warning"} else None)
    opened.on("pageerror", lambda error: troubles.append(str(error)))
    opened.on("request", lambda r: None if r.url.startswith("file:") else troubles.append(r.url))
    opened.on("dialog", lambda dialog: troubles.append(dialog.message))
    yield opened
    context.close()
    assert troubles == []


def url(folder: Path, start: str) -> str:
    """The address of the first page whose path starts so."""
    return first_page(folder, start).as_uri()


def first_page(folder: Path, start: str) -> Path:
    """The first page whose path starts so; parts of a page come after it."""
    return min(folder.glob(f"{start}*.html"), key=lambda path: (path.name.count("."), path))


def names(page: "Page") -> list[str]:
    found: list[str] = page.locator("#board tbody tr:not(.group):visible th a.name").all_inner_texts()
    return found


def filters(page: "Page", of: str = "board") -> "Locator":
    return page.locator(f"form[data-filters={of}]")


def test_columns_sort_both_ways_with_unknown_last_and_by_keyboard(folder: Path, page: "Page") -> None:
    page.goto(url(folder, "index"))
    assert page.locator("#board tr.group:visible").count() > 1
    assert len(names(page)) == 5  # those without a rank are folded
    filters(page).get_by_label("Rows").select_option("")
    header = page.get_by_role("columnheader", name="Composite")
    header.get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert header.get_attribute("aria-sort") == "descending"
    assert names(page)[:1] == ["Forge Coder"]  # 85.5; coding comes first
    assert names(page)[3] == "Lumen Support"  # 92.3 of customer service
    page.keyboard.press("Space")
    assert header.get_attribute("aria-sort") == "ascending"
    assert set(names(page)[3:5]) == {"Harbor Desk", "Quill Help"}
    assert names(page)[5:7] == ["Lumen Support", "Pilot Chat"]


TEMPLATES = {
    "coding_development_v1": {"Forge Coder", "Patchwork Dev", "Relay Bot"},
    "customer_service_v1": {"Lumen Support", "Harbor Desk", "Quill Help", "Pilot Chat"},
    "personal_assistant_v1": {"Concierge PA"},
}


def test_every_order_keeps_the_templates_apart_below_their_headings(folder: Path, page: "Page") -> None:
    page.goto(url(folder, "index"))
    filters(page).get_by_label("Rows").select_option("")
    headers = page.locator("#board thead th[data-sortable]")
    for i in [i for i in range(headers.count()) for _ in range(2)]:
        headers.nth(i).get_by_role("button").click()
        found: dict[str, set[str]] = {}
        for row in page.locator("#board tbody tr:visible").all():
            if "group" in (row.get_attribute("class") or ""):
                group = row.inner_text().strip()
            else:
                found.setdefault(group, set()).add(row.locator("a.name").inner_text())
        assert found == TEMPLATES


def test_ranks_of_other_task_sets_and_numbers_of_trials_are_not_mixed(folder: Path, page: "Page") -> None:
    page.goto(url(folder, "index"))
    filters(page, "reliability-board").get_by_label("Estimator").select_option("")
    headers = page.locator("#reliability-board thead th[data-sortable]")
    for i in range(headers.count()):
        headers.nth(i).get_by_role("button").click()
        rows = "#reliability-board tbody tr"
        groups = page.eval_on_selector_all(rows, "rows => rows.map(row => row.dataset.group)")
        runs = [group for group, _ in itertools.groupby(groups)]
        assert len(runs) == len(set(groups)) > 1


def test_the_cost_is_that_of_a_conversation_as_in_the_chart(folder: Path, page: "Page") -> None:
    page.goto(url(folder, "index"))
    cost = page.locator("#board tbody tr", has_text="Concierge PA").locator("td[data-label='Cost each']")
    assert cost.inner_text() == "$0.0066"  # 0.0595 over 9 conversations
    board = pl.read_csv(folder / "boards/1.3.0/leaderboard.csv").filter(agent_id="concierge-pa")
    assert board.select("cost_usd", "n_conversations").row(0) == (0.0595, 9)
    assert board["cost_usd_per_conversation"].item() == pytest.approx(0.0595 / 9)


def test_filters_narrow_the_board_and_say_how_many_are_left(folder: Path, page: "Page") -> None:
    page.goto(url(folder, "index"))
    page.get_by_label("Template").select_option("customer_service_v1")
    filters(page).get_by_label("Status").select_option("published")
    assert names(page) == ["Lumen Support", "Harbor Desk", "Quill Help"]
    assert filters(page).locator("output").inner_text() == "3 of 8 rows"
    filters(page).get_by_label("Search").fill("harbor")
    assert names(page) == ["Harbor Desk"]
    assert page.locator("#board tr.group:visible").count() == 1


def test_pages_open_with_the_board_and_with_the_first_message(folder: Path, page: "Page") -> None:
    def top(selector: str) -> float:
        found: float = page.locator(selector).first.evaluate("e => e.getBoundingClientRect().top")
        return found

    for width, height in ((1280, 900), (390, 800)):
        page.set_viewport_size({"width": width, "height": height})
        page.goto(url(folder, "index"))
        assert top("#board") <= 400
        table, chart = (page.locator(at).bounding_box() for at in ("[aria-label=Leaderboard]", "figure"))
        assert table is not None
        assert chart is not None
        if width == DESK_WIDTH:  # the chart is beside the board, of which all columns are in view
            assert (chart["x"] >= table["x"] + table["width"], chart["y"]) == (True, table["y"])
            assert page.locator(".fits > #board").count() == 1
        else:
            assert chart["y"] >= table["y"] + table["height"]
        page.goto(url(folder, "conversations/pilot-chat-*/pilot-2026-04-d2"))
        assert (
            page.locator("h1").inner_text()
            == "Account PT-2207. Why is my March invoice so much higher than usual?"
        )
        assert top(".said") <= 500
    assert page.locator(".opinion[open]").count() < page.locator(".opinion").count()


def test_filters_and_sorting_are_in_the_address(folder: Path, page: "Page") -> None:
    page.goto(url(folder, "index"))
    filters(page).get_by_label("Search").fill("desk")
    page.locator("#board").get_by_role("button", name="Penalty").click()
    address = page.url
    assert "board.text=desk" in address
    page.goto("about:blank")
    page.goto(address)
    assert names(page) == ["Harbor Desk"]
    assert page.locator("#board th[aria-sort]").inner_text().startswith("Penalty")


def test_keys_go_through_turns_and_findings(folder: Path, page: "Page") -> None:
    page.goto(url(folder, "conversations/pilot-chat-*/pilot-2026-04-d2"))
    for key, wanted in (("j", "turn-0"), ("j", "turn-1"), ("k", "turn-0")):
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement.id") == wanted
    page.keyboard.press("n")
    assert page.evaluate("document.activeElement.matches('.opinion[open], .said.error, .said.cited')")


def test_the_sections_of_an_agent_are_tabs_that_a_link_opens(
    folder: Path, page: "Page", browser: "Browser"
) -> None:
    page.goto(url(folder, "agents/1.3.0/quill-help"))
    shown = page.locator("section.tab:not([hidden]) h2")
    chosen = page.locator("nav.tabs a[aria-current]")
    assert (shown.all_inner_texts(), chosen.all_inner_texts()) == (["Summary"], ["Summary"])
    top = page.locator("#worst").evaluate("e => e.getBoundingClientRect().top")
    assert top < DESK_HEIGHT
    page.get_by_role("link", name="error clusters").click()
    sync_api.expect(shown).to_have_text("Error clusters")
    assert chosen.all_inner_texts() == ["Errors"]
    page.reload()
    assert shown.all_inner_texts() == ["Error clusters"]
    page.goto(f"{url(folder, 'agents/1.3.0/quill-help')}#U4")  # something inside a section
    assert (shown.all_inner_texts(), page.locator("#U4[open]").count()) == (["Universal dimensions"], 1)
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(url(folder, "agents/1.3.0/quill-help"))
    assert plain.locator("section.tab").count() == 10 == plain.locator("section.tab >> visible=true").count()
    context.close()


def test_errors_are_filtered_by_severity_agent_and_label_in_the_address(folder: Path, page: "Page") -> None:
    page.goto(url(folder, "boards/1.3.0/errors"))
    rows = page.locator("#all-errors tbody tr:visible")
    n_all = rows.count()
    for label, value in (("Severity", "critical"), ("Agent", "pilot-chat"), ("Label", "unsafe state")):
        filters(page, "all-errors").get_by_label(label).select_option(value)
        assert rows.count() < n_all
    assert rows.count() == 1
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    assert "1234" in rows.inner_text()
    rows.get_by_role("link", name="turn 0").click()
    sync_api.expect(page.locator(".said:target.cited mark").first).to_contain_text("your PIN is 1234")
    page.go_back()
    assert rows.count() == 1


def test_a_conversation_is_searched_within(folder: Path, page: "Page") -> None:
    page.goto(url(folder, "conversations/pilot-chat-*/pilot-2026-04-d2"))
    page.keyboard.press("/")
    page.keyboard.type("contract will end")
    turns = page.locator("section.turn:visible")
    n_shown, n_all = turns.count(), page.locator("section.turn").count()
    assert 0 < n_shown < n_all
    assert page.locator(".within output").inner_text() == f"{n_shown} of {n_all} turns"
    page.reload()
    assert turns.count() == n_shown
    page.get_by_role("searchbox").fill("")
    assert turns.count() == n_all


def test_the_theme_follows_the_system_until_one_is_chosen_and_remembers_it(
    folder: Path, page: "Page"
) -> None:
    def background() -> str:
        found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return found

    page.goto(url(folder, "index"))
    light = background()
    page.emulate_media(color_scheme="dark")
    dark = background()
    assert dark != light
    page.get_by_role("button", name="Change to light colours").click()
    assert background() == light
    page.goto(url(folder, "about"))
    assert background() == light
    page.get_by_role("button", name="Change to dark colours").click()
    assert background() == dark


def test_links_go_down_to_the_message_and_to_the_marked_quote(folder: Path, page: "Page") -> None:
    page.goto(f"{url(folder, 'agents/1.3.0/quill-help')}#errors")
    page.locator("#errors ~ .scroll").first.get_by_role("link", name="turn 1").first.click()
    assert "#message-" in page.url
    message = page.locator(".said:target")
    sync_api.expect(message).to_be_in_viewport()
    assert message.locator("mark").count() == 1
    page.locator("#turn-1").get_by_role("link", name="show it").first.click()
    mark = page.locator("mark:target")
    assert mark.is_visible()
    assert mark.inner_text()


def test_a_link_into_a_fold_opens_it(folder: Path, page: "Page") -> None:
    page.goto(url(folder, "methodology/1.3.0"))
    assert page.locator("#U4[open]").count() == 0
    page.goto(f"{url(folder, 'methodology/1.3.0')}#U4")
    assert page.locator("#U4[open]").count() == 1


def test_planted_attacks_are_inert(sample_root: Path, tmp_path: Path, page: "Page") -> None:
    frames = frames_of(Project.open(sample_root))
    one = {n: f.filter(agent_id="quill-help") for n, f in frames.items() if "agent_id" in f.columns}
    write_report(site_from(poisoned(frames | one, ATTACK)), tmp_path / "site")
    for start in (
        "index",
        "agents/1.3.0/",
        "boards/1.3.0/errors",
        "conversations",
        "conversations/*/",
        "about",
        "methodology/1.2.0-to",
    ):
        page.goto(url(tmp_path / "site", start))
        assert page.evaluate("window.pwned") is None
        assert page.locator("main script, main style, main img, [onerror], [onload]").count() == 0
        assert page.evaluate("getComputedStyle(document.querySelector('main')).display") == "block"
        assert page.locator("a[href^='javascript' i]").count() == 0


SOME = (
    "index",
    "agents/1.3.0/lumen",
    "boards/1.3.0/calibration",
    "boards/1.3.0/errors",
    "boards/1.3.0/side-by-side",
    "conversations",
    "conversations/*/",
    "about",
    "methodology/1.3.0",
    "methodology/1.2.0-to",
)  # one page of each kind


@pytest.mark.parametrize("width", [PHONE_WIDTH, DESK_WIDTH])
def test_every_page_is_shown_without_scrolling_sideways(folder: Path, page: "Page", width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    for start in SOME:
        page.goto(url(folder, start))
        assert page.evaluate("document.documentElement.scrollWidth") <= width, start


def test_headings_stay_in_view_where_a_table_fits_and_a_wide_one_scrolls_in_its_box(
    folder: Path, page: "Page"
) -> None:
    page.set_viewport_size({"width": DESK_WIDTH, "height": DESK_HEIGHT})
    page.goto(url(folder, "index"))
    heading = page.locator("#reliability-board thead th").first
    sync_api.expect(heading).to_have_css("position", "sticky")
    page.evaluate("document.getElementById('reliability-board').style.width = '2000px'")
    sync_api.expect(heading).to_have_css("position", "static")
    assert page.evaluate("document.documentElement.scrollWidth") <= DESK_WIDTH


EVERY = (
    *SOME, "agents/1.3.0/quill", "conversations/pilot*/pilot-2026-04-d2", "boards/1.3.0/logs", "sources/*/", "tables/agents/",
    "agents/1.3.0/quill*.2",
)  # fmt: skip
"""A page of each template at least."""


@pytest.fixture(scope="module")
def every_kind(sample_root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A report with logs, lists in several parts, and pages that only the UI serves; and the template of each page."""
    folder = tmp_path_factory.mktemp("kinds") / "site"
    templates: dict[str, str] = {}
    render = Renderer.render

    def spy(renderer: Renderer, path: str, template: str, content: dict[str, Any]) -> bytes:
        templates[path] = template
        return render(renderer, path, template, content)

    with pytest.MonkeyPatch.context() as patch, at_home(sample_root) as project:
        patch.setattr(agent, "CONVERSATIONS_PER_PAGE", 4)
        patch.setattr(Renderer, "render", spy)
        logs = project.table("leaderboard").filter(methodology_version="1.3.0").select("agent_id", "name")
        counts = dict.fromkeys(("n_conversations", "n_sessions", "n_scored", "n_unscored", "n_unasked"), 9)
        rate = {"success_rate": 0.5, "success_rate_low": 0.4, "success_rate_high": 0.6, "top_error": "A"}
        of = counts | rate | {"methodology_version": "1.3.0", "severity": "high", "judges": ["m"]}
        rows = table("log_leaderboard").frame(of | row for row in logs.to_dicts())
        write_report(site_from(frames_of(project) | {"log_leaderboard": rows}), folder)
        [conversation] = project.table("conversations").filter(agent_id="quill-help")["conversation_id"][:1]
        served = (
            Paths("1.3.0").source("quill-help", conversation),
            f"tables/agents/{file_name('quill-help')}.html",
        )
        for path in served:
            content = served_page(project, path)
            assert content, path
            (folder / path).parent.mkdir(parents=True)
            (folder / path).write_bytes(content)
    return folder, templates


@pytest.mark.parametrize("start", EVERY)
def test_axe_finds_nothing_in_light_and_dark_on_desk_and_phone(
    every_kind: tuple[Path, dict[str, str]], page: "Page", start: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core is not installed")
    page.goto(url(every_kind[0], start))
    page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
    page.evaluate("for (const tab of document.querySelectorAll('section.tab')) tab.hidden = false")
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for scheme, width in itertools.product(schemes, (DESK_WIDTH, PHONE_WIDTH)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": DESK_HEIGHT})
        page.wait_for_function("w => document.documentElement.scrollWidth <= w", arg=width, timeout=5_000)
        # without preload: it would fetch the style sheet, which the page forbids
        found = axe.Axe().run(page, options={"preload": False, "resultTypes": ["violations"]})
        violations = [(v["id"], v["nodes"][0]["html"][:200]) for v in found.response["violations"]]
        assert violations == [], (scheme, width)


def test_a_page_of_each_template_is_checked_by_axe(every_kind: tuple[Path, dict[str, str]]) -> None:
    folder, template_of = every_kind
    checked = {template_of[str(first_page(folder, start).relative_to(folder))] for start in EVERY}
    assert checked == {name for name in template_of.values() if name}
    of_package = resources.files("agent_eval.report.html") / "templates"
    pages = (file for file in of_package.iterdir() if "{% extends" in file.read_text(encoding="utf-8"))
    assert checked == {file.name for file in pages}


def test_all_conversations_are_searched_by_request_and_finding(folder: Path, page: "Page") -> None:
    page.goto(url(folder, "conversations"))
    search = filters(page, "all-conversations").get_by_label("Search")
    for words, name in (("march invoice", "Pilot Chat"), ("your contract will end", "Pilot Chat")):
        search.fill(words)
        rows = page.locator("#all-conversations tbody tr:visible")
        assert rows.count() == 1
        assert name in rows.inner_text()
    page.locator("#all-conversations tbody tr:visible a").click()
    assert page.locator("h1").inner_text().startswith("Account PT-2207")
