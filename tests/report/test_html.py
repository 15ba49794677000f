"""The report as a whole: whole links, nothing but our own script, unknown told as unknown, the same bytes again."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from agent_eval.project import Project
from agent_eval.report.html import page_at, write_report
from agent_eval.report.html.render import POLICY
from agent_eval.tables import table
from tests.report.pages import Page, frames_of, pages_of, poisoned, site_from

ATTACK = (
    "</title></script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>"
    '"\'><svg onload=alert(1)><a href="javascript:alert(1)">x</a><style>*{display:none}</style>'
    "{{ 7*7 }}{% raw %}\u202e\u2066\x1b[31m\x00"
)
TEMPLATES = Path(__file__).parents[2] / "agent_eval" / "report" / "html" / "templates"


@pytest.fixture(scope="module")
def frames(sample_root: Path) -> dict[str, pl.DataFrame]:
    """All tables of the sample, of two agents."""
    kept = pl.col("agent_id").is_in(["lumen-support", "pilot-chat"])
    stored = frames_of(Project.open(sample_root))
    alone = {n: f.filter(kept) if "agent_id" in f.columns else f for n, f in stored.items()}
    return alone | {"pairwise_comparisons": alone["pairwise_comparisons"].clear()}


@pytest.fixture(scope="module")
def pages(folder: Path) -> dict[str, Page]:
    return pages_of(folder)


@pytest.fixture(scope="module")
def attacked(frames: dict[str, pl.DataFrame], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Page]:
    """A report whose every text is an attack."""
    out = tmp_path_factory.mktemp("attacked") / "site"
    write_report(site_from(poisoned(frames, ATTACK)), out)
    return pages_of(out)


def page(pages: dict[str, Page], start: str) -> Page:
    return next(page for path, page in pages.items() if path.startswith(start))


def n_anchors(folder: Path, pages: dict[str, Page]) -> int:
    """The number of links to anchors; every link leads to a file and an anchor."""
    n = 0
    for source in pages.values():
        for path, anchor in source.targets():
            assert (folder / path).is_file(), f"{source.path}: {path}"
            assert not anchor or anchor in pages[path].ids, f"{source.path}: {path}#{anchor}"
            n += bool(anchor)
    return n


def site_pages(frames: dict[str, pl.DataFrame], folder: Path, **given: Any) -> dict[str, Page]:
    write_report(site_from(frames, **given), folder / "site")
    return pages_of(folder / "site")


def test_every_link_leads_to_a_file_and_an_anchor(folder: Path, pages: dict[str, Page]) -> None:
    assert n_anchors(folder, pages) > 500


def test_no_id_stands_twice_on_a_page(pages: dict[str, Page]) -> None:
    for source in pages.values():
        assert len(source.ids) == len(set(source.ids)), source.path


def test_every_conversation_has_a_page_that_its_agent_links_to(
    sample: Project, pages: dict[str, Page]
) -> None:
    linked = {
        path for p, source in pages.items() if p.startswith("agents/1.3.0/") for path, _ in source.targets()
    }
    conversations = {path for path in pages if path.startswith("conversations/")}
    assert len(conversations) == sample.store.read(table("conversations")).height
    assert conversations <= linked


def test_every_page_forbids_all_but_its_own_two_files(
    pages: dict[str, Page], attacked: dict[str, Page]
) -> None:
    for source in [*pages.values(), *attacked.values()]:
        head = [attrs for tag, attrs in source.tags if tag == "meta"]
        assert head[1] == {"http-equiv": "Content-Security-Policy", "content": POLICY}
        scripts = [attrs for tag, attrs in source.tags if tag == "script"]
        assert [set(attrs) for attrs in scripts] == [{"src"}]
        assert str(scripts[0]["src"]).endswith("assets/report.js")
    assert "default-src 'none'" in POLICY
    assert "unsafe" not in POLICY


def test_planted_markup_stays_text(attacked: dict[str, Page]) -> None:
    known = set(re.findall(r"<([a-z0-9]+)", "".join(t.read_text() for t in TEMPLATES.iterdir())))
    known |= {"em", "strong", "ul", "ol", "li", "p", "pre", "code"}  # of Markdown
    for source in attacked.values():
        for tag, attrs in source.tags:
            assert tag in known, f"{source.path}: <{tag}>"
            assert tag != "style"
            assert not {name for name in attrs if name.startswith("on") or name == "style"}, source.path
        for link in source.links:
            assert re.fullmatch(r"(?:(?:\.\./)*[a-zA-Z0-9./-]+)?(?:#[a-zA-Z0-9-]+)?", link), link
    spoken = page(attacked, "conversations/").text
    assert "<script>window.pwned=1</script>" in spoken
    assert "{{ 7*7 }}" in spoken
    assert "<img src=x onerror=window.pwned=1>" in page(attacked, "index.html").text


def test_no_character_steers_a_page(attacked: dict[str, Page]) -> None:
    for source in attacked.values():
        assert not re.search(
            r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", "".join(source.texts)
        )


def test_nothing_in_a_template_is_marked_as_safe() -> None:
    for template in TEMPLATES.iterdir():
        assert not re.search(r"\|\s*safe|autoescape|style=|\son[a-z]+=|https?:", template.read_text()), (
            template.name
        )
    for module in TEMPLATES.parent.glob("*.py"):
        assert "Markup" not in module.read_text(), module.name


def test_the_same_tables_give_the_same_bytes(frames: dict[str, pl.DataFrame], tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_report(site_from(frames), tmp_path / name)
    files = {p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*") if p.is_file()}
    assert files == {p.relative_to(tmp_path / "b") for p in (tmp_path / "b").rglob("*") if p.is_file()}
    assert all((tmp_path / "a" / f).read_bytes() == (tmp_path / "b" / f).read_bytes() for f in files)


def test_unknown_is_told_as_unknown_and_never_as_zero(pages: dict[str, Page]) -> None:
    # Pilot Chat discloses nothing of repeatability: its penalty is unknown, and so is its composite
    source = page(pages, "agents/1.3.0/pilot-chat")
    assert "the penalty is unknown, because repeatability is not disclosed" in source.text
    assert "Composite unknown raw 54.1" in source.text
    assert "hallucination: no conversation of the session holds this test" in source.text
    # Patchwork Dev lacks U4: its axis has no value, and the radar has no area
    lacking = page(pages, "agents/1.3.0/patchwork-dev")
    assert "U4 ?" in lacking.text
    assert "area" not in {attrs.get("class") for _, attrs in lacking.tags}


def test_the_board_shows_rank_range_interval_and_disclosures(pages: dict[str, Page]) -> None:
    text = pages["index.html"].text
    assert "1 1–3 Lumen Support" in text
    assert "71.7–97.6" in text
    assert "repeatability tested U3 multi turn hallucination passed" in text
    assert "hallucination FAILED" in text
    assert "no interval: 1 session" in text


def test_an_agents_page_opens_its_number_down_to_the_quote(pages: dict[str, Page]) -> None:
    text = page(pages, "agents/1.3.0/lumen-support").text
    # 0.40 × 90 + 0.60 × 844/9 = 36 + 56.27
    assert "Composite = 0.40 × 90 + 0.60 × 844/9 = 92.3" in text
    assert "All four items of the mixed note were acted on" in text
    assert "“Here is where your four points stand on order A-4102”" in text
    assert "Anchor of 5:" in text
    assert "Here is where your four points stand" in text


def test_a_conversation_shows_each_turn_with_its_judgments_and_marks_their_quotes(
    pages: dict[str, Page],
) -> None:
    source = next(p for path, p in pages.items() if "lumen-2026-04-b-d2" in path)
    assert {"turn-0", "turn-1", "turn-2", "turn-3"} <= set(source.ids)
    assert "agent behavior failure repetition" in source.text
    assert "networks at 5 GHz are invisible to it" in source.text
    marks = [attrs["id"] for tag, attrs in source.tags if tag == "mark"]
    assert marks
    assert set(marks) == {link[1:] for link in source.links if link.startswith("#quote-")}


def test_what_a_person_overruled_stands_beside_what_counts(pages: dict[str, Page]) -> None:
    overruled = [
        p for path, p in pages.items() if path.startswith("conversations/lumen") and "by human" in p.text
    ]
    assert any("does not count: overruled" in p.text for p in overruled)


def test_judgments_that_differ_between_versions_name_theirs(
    frames: dict[str, pl.DataFrame], tmp_path: Path
) -> None:
    of_one = (pl.col("methodology_version") == "1.2.0") & (pl.col("metric") == "coherence")
    rationale = pl.when(of_one).then(pl.lit("Said of one version only.")).otherwise("rationale")
    kept = pl.col("methodology_version").is_in(["1.2.0", "1.3.0"])
    changed = {"turn_judgments": frames["turn_judgments"].with_columns(rationale=rationale).filter(kept)}
    changed |= {"transcripts": frames["transcripts"].filter(kept)}
    text = page(site_pages(frames | changed, tmp_path), "conversations/lumen").text
    assert re.search(r"Said of one version only\..{0,300}under 1\.2\.0", text)
    assert "under 1.2.0, 1.3.0" not in text


def test_the_difference_between_versions_is_told_in_rules_and_scores(pages: dict[str, Page]) -> None:
    text = pages["methodology/1.2.0-to-1.3.0.html"].text
    # 1.3.0 takes ten points off where repeatability was not tested: 80 becomes 70
    assert re.search(r"Harbor Desk 80\.0 70\.0 −10\.0", text)
    assert re.search(r"Lumen Support 92\.3 92\.3 ±0\.0", text)
    assert re.search(r"Pilot Chat 54\.1 unknown unknown|Pilot Chat unknown unknown unknown", text)
    assert "penalties.repeatability_tested=false" in text


def test_tables_have_captions_and_pages_a_language(pages: dict[str, Page]) -> None:
    for source in pages.values():
        assert ("html", {"lang": "en", "class": "no-js"}) in source.tags
        names = [tag for tag, _ in source.tags]
        assert names.count("table") == names.count("caption"), source.path
        assert names.count("h1") == 1
        for tag, attrs in source.tags:
            assert tag != "th" or "scope" in attrs, source.path
            assert tag != "svg" or attrs.get("aria-label") or attrs.get("aria-hidden") == "true"


def test_every_row_of_a_table_has_a_cell_for_each_heading(pages: dict[str, Page]) -> None:
    for source in pages.values():
        tables: list[list[int]] = []
        for tag, attrs in source.tags:
            if tag == "table":
                tables.append([])
            elif tag == "tr":
                tables[-1].append(0)
            elif tag in ("td", "th"):
                tables[-1][-1] += int(attrs.get("colspan") or 1)
        assert [rows for rows in tables if len({*rows}) > 1] == [], source.path


OF_MODELS = "goal_completion_of_judge n_judged n_seen_in_part n_earlier_wording least_seen_share n_sampled n_to_sample"
OF_PEOPLE = (
    "judge_error_0to100 calibration_agreement calibration_kappa calibration_kappa_low calibration_kappa_high"
)
"""Columns of the board that need a judge model, or labels from people, which the sample does not have."""


def test_every_column_of_the_board_has_a_value_in_the_sample(sample: Project) -> None:
    board = sample.store.read(table("leaderboard"))
    unknown = [name for name in board.columns if board[name].null_count() == board.height]
    assert sorted(unknown) == sorted(f"{OF_MODELS} {OF_PEOPLE}".split())


def test_a_text_without_end_is_cut_with_a_remark(frames: dict[str, pl.DataFrame], tmp_path: Path) -> None:
    long = pl.lit('[{"role":"user","content":"' + "long " * 6_000 + '"}]')
    changed = {"turns": frames["turns"].with_columns(messages=long)}
    source = page(site_pages(frames | changed, tmp_path), "conversations/")
    assert "Cut here: 10,000 further characters are not shown" in source.text
    assert "details" in {tag for tag, _ in source.tags}


def test_a_long_conversation_is_parted_and_links_find_the_part(
    frames: dict[str, pl.DataFrame], tmp_path: Path
) -> None:
    one = frames["conversations"].filter(pl.col("agent_id") == "pilot-chat").head(1)
    turn = frames["turns"].join(one, on=["agent_id", "conversation_id"], how="semi").head(1)
    turns = pl.concat([turn] * 250).with_columns(turn_index=pl.int_range(250, dtype=pl.Int64))
    place = {"agent_id": pl.lit("pilot-chat"), "conversation_id": pl.lit(one["conversation_id"].item())}
    place |= {"methodology_version": pl.lit("1.3.0"), "turn_index": pl.lit(220, pl.Int64)}
    n_messages = len(json.loads(turn["messages"].item()))
    cited = [None, 220 * n_messages, 0]  # in no known message, in its own turn, on an earlier page
    failure = pl.concat(
        frames["failures"]
        .head(1)
        .with_columns(**place, message_index=pl.lit(at, pl.Int64), speaker=pl.lit("Ada"))
        for at in cited
    )
    judgment = frames["turn_judgments"].filter(pl.col("status") == "scored").head(1)
    judged = pl.concat(
        judgment.with_columns(**place | {"turn_index": pl.lit(i, pl.Int64)}, message_index=pl.lit(0, pl.Int64), speaker=pl.lit("Ada"))
        for i in (219, 220, 221)
    )  # fmt: skip
    cluster = frames["error_clusters"].filter(pl.col("agent_id") == "pilot-chat").head(1)
    clusters = cluster.with_columns(
        cluster_id=pl.lit(failure["cluster_id"][0]), methodology_version=pl.lit("1.3.0")
    )
    changed = {"conversations": one, "turns": turns, "failures": failure, "error_clusters": clusters}
    found = site_pages(frames | changed | {"turn_judgments": judged}, tmp_path)
    parts = [p for p in found.values() if p.path.startswith("conversations/pilot-chat")]
    assert sorted(sum(i.startswith("turn-") for i in p.ids) for p in parts) == [50, 100, 100]
    anchors = {"turn-220", *(f"message-{at}" for at in cited[1:])}
    deep = [t for t in page(found, "agents/1.3.0/pilot-chat").targets() if t[1] in anchors]
    assert {anchor for _, anchor in deep} == anchors
    assert all(anchor in found[path].ids for path, anchor in deep)
    (part,) = {path for path, _ in deep}
    to_earlier = [path for path, anchor in found[part].targets() if anchor == "message-0"]
    assert part not in to_earlier  # every judgment links to the message itself, the page has one place for it
    assert len(to_earlier) == 4
    assert sorted(found[part].ids).count("message-0") == 1


def test_what_has_gone_since_a_board_was_made_leaves_no_dead_link(
    frames: dict[str, pl.DataFrame], tmp_path: Path
) -> None:
    gone = frames["conversations"].filter(agent_id="lumen-support").head(4)
    kept = {n: frames[n].join(gone, on="conversation_id", how="anti") for n in ("conversations", "turns")}
    kept |= {"agents": frames["agents"].filter(pl.col("agent_id") != "pilot-chat")}
    assert n_anchors(tmp_path / "site", site_pages(frames | kept, tmp_path))


def test_a_long_list_of_conversations_is_parted(
    frames: dict[str, pl.DataFrame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_eval.report.html.agent.CONVERSATIONS_PER_PAGE", 10)
    found = site_pages(frames, tmp_path, versions=["1.3.0"])
    parts = [p for path, p in found.items() if path.startswith("agents/1.3.0/lumen")]
    listed = [{path for path, _ in p.targets() if path.startswith("conversations/")} for p in parts]
    # 24 conversations; the first page also links to conversations as evidence
    assert [len(links) for links in listed[:2]] == [10, 4]
    assert len(set().union(*listed)) == 24
    assert "10 of 24 conversations" in parts[0].text


def test_a_limit_leaves_out_pages_of_conversations_and_every_link_to_them(
    frames: dict[str, pl.DataFrame], tmp_path: Path
) -> None:
    write_report(replace(site_from(frames, versions=["1.3.0"]), max_pages=3), tmp_path / "site")
    found = pages_of(tmp_path / "site")
    written = {path for path in found if path.startswith("conversations/")}
    for agent in ("lumen-support", "pilot-chat"):
        assert len({path for path in written if path.startswith(f"conversations/{agent}")}) == 3
    linked = {path for p in found.values() for path, _ in p.targets() if path.startswith("conversations/")}
    assert linked == written
    assert "3 of 24 conversations have a page in this report" in page(found, "agents/1.3.0/lumen").text
    search = found["conversations.html"].text  # lists all of them, to be searched
    assert f"{len(written)} of them have a page" in search
    assert set(frames["conversations"]["conversation_id"]) <= set(search.split())


def test_the_board_draws_scores_over_costs_and_offers_its_tables(
    folder: Path, pages: dict[str, Page]
) -> None:
    board = pages["boards/1.3.0/index.html"]
    drawn = next(attrs for tag, attrs in board.tags if attrs.get("class") == "scatter")
    assert "Lumen Support (customer_service_v1): 92.3 (71.7 to 97.6), $" in str(drawn["aria-label"])
    rows = json.loads((folder / "boards/1.3.0/leaderboard.json").read_text())
    assert {row["agent_id"] for row in rows} >= {"lumen-support", "pilot-chat"}
    csv = pl.read_csv(folder / "boards/1.3.0/leaderboard.csv", infer_schema=False)
    assert csv.height == len(rows)
    ranked = {str(a["data-ranked"]) for tag, a in board.tags if "data-ranked" in a}
    assert ranked == {"yes", "no"}


def test_the_page_of_an_agent_offers_its_tables_of_all_agents(folder: Path, pages: dict[str, Page]) -> None:
    offered = {path for path, _ in page(pages, "agents/1.3.0/lumen").targets() if path.endswith(".json")}
    assert offered == {
        f"boards/1.3.0/{name}.json" for name in ("quality-summary", "error-clusters", "reliability", "gate-results")
    }  # fmt: skip
    for path in offered:
        rows = json.loads((folder / path).read_text())
        assert {row["methodology_version"] for row in rows} == {"1.3.0"}
        assert len({row["agent_id"] for row in rows}) > 1


def test_downloads_of_hostile_names_hold_no_formula(frames: dict[str, pl.DataFrame]) -> None:
    site = site_from(poisoned(frames, "=HYPERLINK(1)"))
    csv = (page_at(site, "boards/1.3.0/leaderboard.csv") or b"").decode()
    assert "'=HYPERLINK(1)" in csv
    assert not re.search(r"(^|,)\"?=", csv, re.MULTILINE)


def test_agents_with_logs_have_a_page_beside_a_board_and_are_the_board_without_one(
    frames: dict[str, pl.DataFrame], tmp_path: Path
) -> None:
    required = {
        "n_conversations": 3,
        "n_sessions": 1,
        "n_scored": 0,
        "n_unscored": 0,
        "n_unasked": 3,
        "judges": [],
    }
    row = {"methodology_version": "1.3.0", "agent_id": "night-bot", "name": "Night <b>Bot", **required}
    logs = {"log_leaderboard": table("log_leaderboard").frame([row])}
    site = site_from({**frames, **logs})
    write_report(site, tmp_path / "both")
    both = pages_of(tmp_path / "both")
    assert "Night <b>Bot" in both["boards/1.3.0/logs.html"].text
    assert "Night <b>Bot" not in both["index.html"].text
    assert all("boards/1.3.0/logs.html" in dict(p.targets()) for p in both.values())
    assert "No agent has logs under 1.2.0" in both["boards/1.2.0/logs.html"].text
    assert page_at(site, "boards/1.3.0/logs.html") == (tmp_path / "both/boards/1.3.0/logs.html").read_bytes()
    alone = {**frames, **logs, "leaderboard": frames["leaderboard"].clear()}
    index = page_at(site_from(alone), "index.html")
    assert index is not None
    assert b"Night &lt;b&gt;Bot" in index
