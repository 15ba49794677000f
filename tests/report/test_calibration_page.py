"""The comparison of judges with people, as a page of the report and of the Dagster UI."""

import base64
import json
import re

import polars as pl

from agent_eval.report.asset_pages.pages import asset_page
from agent_eval.report.calibration import CELL, calibration_page, confusion
from agent_eval.report.html import page_at
from agent_eval.report.names import Paths
from agent_eval.scores.calibration import judge_calibration
from agent_eval.tables import table
from tests.report.pages import Page, site_from
from tests.report.test_html import ATTACK
from tests.scores.test_calibration import frame_of, said, sides

VERSION = "1.3.0"
JUDGE, PEOPLE = [1.0, 1.0, 0.0, 0.0, 1.0, 0.0], [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
BEN = [said("human", f"c{i}", {"value": value}, judge_model="ben") for i, value in enumerate(PEOPLE[:5])]
ROWS = judge_calibration(frame_of([*sides("value", JUDGE, PEOPLE), *BEN]))


def page(rows: pl.DataFrame) -> Page:
    content = page_at(site_from({"judge_calibration": rows}), Paths(VERSION).calibration(VERSION))
    assert content is not None
    read = Page(Paths(VERSION).calibration(VERSION))
    read.feed(content.decode())
    return read


def test_the_page_shows_figures_confusion_and_raters_with_each_other() -> None:
    shown = page(ROWS)
    # 11 pairs: of 5 that people call 0 the judge is wrong on one, twice where ben labelled it as well
    assert {"m: gpt", "m: people with each other"} <= set(shown.texts)
    assert "Raw agreement 0.82" in shown.text
    pictures = [attrs for tag, attrs in shown.tags if tag == "svg" and attrs.get("role") == "img"]
    assert any("judge 1, person 0: 2" in (attrs["aria-label"] or "") for attrs in pictures)
    views = calibration_page(VERSION, ROWS, Paths(VERSION))
    counted = [(v.row["judge"], v.row["n"]) for v in (*views["judges"], *views["people"])]
    assert counted == [("gpt", 11), ("human", 5)]


def test_the_grid_puts_the_judge_in_rows_and_shares_in_columns() -> None:
    grid = confusion(ROWS["confusion"][0])
    assert grid is not None
    assert ([text for _, text in grid.rows], [text for _, text in grid.columns]) == (["0", "1"], ["0", "1"])
    wrong = next(cell for cell in grid.cells if not cell.is_equal)
    assert (wrong.n, round(wrong.share, 2), wrong.y > wrong.x - 150) == (2, 0.29, True)
    many = [{"judge": i, "human": 0, "n": 1} for i in range(13)]
    assert confusion(str(many).replace("'", '"')) is None
    assert confusion(None) is None


def test_without_labels_the_page_says_so_and_an_attack_in_a_name_is_text() -> None:
    assert "No answer of a judge was compared" in page(table("judge_calibration").empty()).text
    hostile = ROWS.with_columns(judge=pl.lit(ATTACK), metric=pl.lit(ATTACK), is_stale=pl.lit(value=True))
    shown = page(hostile)
    assert [tag for tag, _ in shown.tags].count("script") == 1
    assert "stale" in shown.text


def test_the_picture_encloses_every_cell_and_no_two_lie_on_each_other() -> None:
    counts = [{"judge": j, "human": h, "n": 1 + j * h} for j in range(1, 4) for h in range(1, 6)]
    grid = confusion(json.dumps(counts))
    assert grid is not None
    assert len({(cell.x, cell.y) for cell in grid.cells}) == len(counts)
    right, bottom = (max(getattr(cell, side) for cell in grid.cells) + CELL for side in "xy")
    assert (grid.width - right, grid.height - bottom) == (10, 10)


def test_the_page_in_the_ui_draws_kappa_and_confusion() -> None:
    text = asset_page("judge_calibration", ROWS, ROWS)
    found = re.findall(r"base64,([A-Za-z0-9+/=]+)", text)
    pictures = [base64.b64decode(picture).decode() for picture in found]
    assert ["Kappa" in picture for picture in pictures] == [True, False, False]
    assert ">2</text>" in pictures[1]
    assert "raw agreement" in text
