"""Two raters who differ, from data/ratings to the board: disputed until somebody decides."""

import io
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from agent_eval.commands.results.explain import explain
from agent_eval.commands.results.leaderboard import board_of, print_board
from agent_eval.commands.run import run, what_is_stale
from agent_eval.judge.inputs.human_ratings import COLUMNS
from agent_eval.project import Project

pytestmark = pytest.mark.slow

HARBOR, SESSION, VERSION = "harbor-desk", "harbor-2026-04", "1.3.0"


def rate(root: Path, *rows: tuple[str, str, str, str]) -> None:
    """Rows of a file: target, rating, rater, role; of U dimensions of a session, else of its D2's first turn."""
    lines = [",".join((*COLUMNS, "role"))]
    for target, rating, rater, role in rows:
        place = f"{SESSION},," if target.startswith("U") else f",{SESSION}-D2,0"
        lines.append(f"{HARBOR},{place},{VERSION},{target},,{rating},,,{rater},,{role}")
    (root / "data" / "ratings" / "two.csv").write_text("\n".join(lines) + "\n")


def board_row(project: Project) -> dict[str, Any]:
    return next(row for row in board_of(project, VERSION).to_dicts() if row["agent_id"] == HARBOR)


def made_stale() -> tuple[set[str], set[str]]:
    """The agents whose judgments and scores, and those whose gates, the files as they are make stale under the version."""
    project = Project.open()
    stale = what_is_stale(project, project.known_agents(), [VERSION])[1]
    is_gate = pl.col("asset") == "gate_results"
    of_scores, of_gates = (stale.filter(which)["agent_id"].drop_nulls() for which in (~is_gate, is_gate))
    return {*of_scores}, {*of_gates}


def test_a_dispute_bars_the_board_until_a_rule_or_an_adjudicator_decides(
    two_agents_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = board_row(Project.open())
    was = (
        Project.open()
        .table("rubric_ratings")
        .filter(agent_id=HARBOR, methodology_version=VERSION, target="U3")
    )
    (recorded,) = was["rating_1to5"]
    differing = [("U3", "4", "anna", ""), ("U3", "2", "ben", ""), ("helpfulness", "1", "anna", "")]
    rate(two_agents_copy, *differing, ("helpfulness", "5", "ben", "rater"))
    assert run(Project.open(), [HARBOR], [VERSION]).exit_code == 0
    row = board_row(Project.open())
    turn = f"helpfulness of turn 0 of {SESSION}-D2 (anna 1, ben 5)"
    assert (row["status"], row["rank"], row["composite_exact"]) == ("provisional", None, None)
    assert row["missing"] == ["U3: disputed (anna 4, ben 2)"]
    assert row["disputed"] == [f"U3 of session {SESSION} (anna 4, ben 2)", turn]
    console = Console(width=300, file=io.StringIO(), record=True)
    project = Project.open()
    print_board(console, board_of(project, VERSION), project.registry.get(VERSION), project.registry)
    explain(project, console, agent_id=HARBOR, version=VERSION, score="composite", as_json=False)
    text = console.export_text()
    assert f"Harbor Desk is disputed: U3 of session {SESSION} (anna 4, ben 2); {turn}" in text
    assert f"disputed: {turn}" in text
    assert "not counted: 2 by human (ben)" in text

    # the setting decides, and makes stale only agents with several raters
    assert made_stale() == (set(), set())
    monkeypatch.setenv("AGENT_EVAL_RATER_RULE", "median")
    everyone = {*Project.open().known_agents()}  # their gates read the calibration of the version
    assert made_stale() == ({HARBOR}, everyone)
    run(Project.open(), [HARBOR], [VERSION])
    decided = board_row(Project.open())
    assert (decided["status"], decided["disputed"], decided["missing"]) == ("published", [], [])
    # U3 fell from the recorded rating to 2: 0.40 × 100 / 30 for each point
    assert before["composite_score"] - decided["composite_score"] == pytest.approx(40 / 30 * (recorded - 2))

    # without the setting an adjudicator decides
    monkeypatch.delenv("AGENT_EVAL_RATER_RULE")
    rate(two_agents_copy, *differing, ("U3", str(recorded), "dora", "adjudicator"))
    run(Project.open(), [HARBOR], [VERSION])
    settled = board_row(Project.open())
    assert (settled["status"], settled["disputed"]) == ("published", [])
    assert settled["composite_exact"] == before["composite_exact"]
