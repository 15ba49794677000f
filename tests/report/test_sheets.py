"""Rating sheets: blind to judges, inert whatever they show, and weighted when they come back."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console

from agent_eval.commands.labels import import_labels
from agent_eval.project import Project
from agent_eval.project.sheets import Sheet, rating_sheets
from agent_eval.report.sheets import Option, SheetItem, SheetMetric, sheet_csv, sheet_html
from tests.report.test_html import ATTACK

METRIC = SheetMetric("How good?", "", tuple(Option(v, f"anchor {v}") for v in "54321"))
LABELS = SheetMetric(
    "Which?", "", (Option("no failure", ""), Option("a", ""), Option("b", "")), is_several=True
)
HOSTILE = f"</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>{ATTACK}@data@"


def item(i: int, metric: str = "m", agent: str = "a") -> SheetItem:
    return SheetItem(agent, f"c{i}", 0, metric, "s", "r")


def sheet(directory: Path, items: list[SheetItem], metrics: dict[str, SheetMetric], text: str) -> Path:
    said = [{"role": "user", "content": text}, {"role": "assistant", "content": f"Answer {text}"}]
    held = {
        (one.agent, one.conversation): {"goal": text, "knowledge": [text], "expected": {}, "turns": [(0, said)]}
        for one in items
    }  # fmt: skip
    path = directory / "sheet.html"
    path.write_text(sheet_html(items, metrics, held))
    return path


def sheets_of(project: Project, n: int) -> Sheet:
    (made,) = rating_sheets(project, "1.3.0", n, metrics=["helpfulness"])
    return made


def test_the_policy_names_one_script_and_the_data_cannot_leave_its_element(tmp_path: Path) -> None:
    text = sheet(tmp_path, [item(0)], {"m": METRIC}, HOSTILE).read_text()
    assert text.count("<script") == text.count("</script>") == 2
    assert "default-src 'none'; style-src 'sha256-" in text
    data = text.split('id="data">')[1].split("</script>")[0]
    assert json.loads(data)["conversations"][0]["goal"].startswith("</script>")


def test_a_sheet_does_not_show_what_a_judge_said_or_what_follows(sample: Project) -> None:
    made = sheets_of(sample, 10)
    data = json.loads(made.html.split('id="data">')[1].split("</script>")[0])
    rationales = sample.table("turn_judgments").filter(judge="recorded")["rationale"].drop_nulls()
    assert not any(text in made.html or text in made.csv for text in rationales if len(text) > 20)
    for i, held in enumerate(data["conversations"]):
        shown = {turn["index"] for turn in held["turns"]}
        asked = [one["turn"] for one in data["items"] if one["at"] == i]
        assert max(shown) == max(asked)


def test_the_csv_guards_cells_against_formulas_and_has_a_line_per_part() -> None:
    held: dict[tuple[str, str], dict[str, Any]] = {("a", "c0"): {"goal": None, "knowledge": [], "expected": {}, "turns": [(0, [{"role": "user", "content": "=1+1"}])]}}  # fmt: skip
    (row,) = csv.DictReader(io.StringIO(sheet_csv([item(0)], {"m": METRIC}, held, "=anna")))
    assert (row["rater"], row["label"], row["shown_answers"]) == ("'=anna", "", "5 | 4 | 3 | 2 | 1")


def test_labels_of_a_csv_sheet_bring_their_weight_and_open_lines_are_left_out(
    sample_copy: Path, tmp_path: Path
) -> None:
    made = sheets_of(Project.open(sample_copy), 8)
    rows = list(csv.DictReader(io.StringIO(made.csv)))
    for row in rows[:6]:
        row |= {"label": "4", "rater": "anna"}
    with (tmp_path / "filled.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), delimiter=";")
        writer.writeheader()
        writer.writerows(rows)
    console = Console(file=io.StringIO(), width=300)
    code = import_labels(Project.open(sample_copy), console, console, [tmp_path / "filled.csv"], agent_id=None, metric=None, as_json=False)  # fmt: skip
    assert code == 0  # two parts are not labelled yet
    project = Project.open(sample_copy)
    stored = project.human_ratings[0].filter(pl.col("file").str.contains("filled"))
    assert (stored.height, stored["weight"].null_count(), stored["rubric_hash"].n_unique()) == (6, 0, 1)


def test_a_sheet_does_not_show_which_parts_share_an_answer(sample_copy: Path) -> None:
    made = sheets_of(Project.open(sample_copy), 8)
    rows = list(csv.DictReader(io.StringIO(made.csv)))
    cells = [row["stratum"] for row in rows]
    assert "weight" not in rows[0]
    assert len(set(cells)) == len(rows)
    assert {len(cell) for cell in cells} == {len(cells[0])}  # the length does not show the weight either
    assert len({cell[:8] for cell in cells}) == len(rows)
