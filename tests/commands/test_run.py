"""The main job on the shipped sample, as a user meets it."""

import json
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from agent_eval.cli import app
from agent_eval.commands.run import run, what_is_stale
from agent_eval.errors import NotFoundError
from agent_eval.project import Project
from agent_eval.scores.statistics.exact import from_text
from tests.defs.test_live import edit_a_session

AGENT_LABELS = {
    "repetition", "failure to ask for clarification", "lack of specific information", "disobey user request",
    "false information", "unsafe action", "unsafe state",
}  # fmt: skip
TOOL_LABELS = {
    "unnecessary tool call", "wrong tool", "wrong arguments", "ignored tool result", "missing tool call", "repeated tool call",
}  # fmt: skip


def board(project: Project, version: str = "1.3.0") -> pl.DataFrame:
    return project.table("leaderboard").filter(methodology_version=version)


def by_agent(frame: pl.DataFrame) -> dict[str, dict[str, object]]:
    return {row["agent_id"]: row for row in frame.iter_rows(named=True)}


def test_the_sample_shows_every_status_and_badge_over_its_versions(sample: Project) -> None:
    boards = sample.table("leaderboard")
    statuses = {"published", "provisional", "incomplete", "invalid", "not_applicable"}
    assert set(boards["status"]) == statuses
    assert set(boards["hallucination_passed"]) == {True, False, None}
    assert set(boards["repeatability_tested"]) == {True, False, None}
    assert "multi_turn" in set(boards["u3_scope"])


def test_the_sample_board_has_a_tie_a_penalty_and_a_tested_agent(sample: Project) -> None:
    rows = by_agent(board(sample))
    harbor, quill, lumen = rows["harbor-desk"], rows["quill-help"], rows["lumen-support"]
    # (20·24 + 12·60)/15 = 80 and (20·27 + 12·55)/15 = 80; not tested: −10
    assert harbor["composite_exact"] == quill["composite_exact"] == "70/1"
    assert harbor["rank"] == quill["rank"] == 2
    assert harbor["repeatability_penalty"] == 10
    assert lumen["rank"] == 1
    assert lumen["repeatability_tested"] is True
    assert lumen["repeatability_penalty"] == 0
    assert lumen["n_sessions"] == 3


def test_the_sample_names_what_bars_an_agent_from_the_ranking(sample: Project) -> None:
    rows = by_agent(board(sample))
    assert rows["pilot-chat"]["status"] == "provisional"
    assert any("hallucination" in str(m) for m in rows["pilot-chat"]["missing"])  # type: ignore[attr-defined]
    assert rows["patchwork-dev"]["status"] == "incomplete"
    assert {m.split(" ")[0].rstrip(":") for m in rows["patchwork-dev"]["missing"]} >= {"U4", "D5"}  # type: ignore[attr-defined]
    assert rows["relay-bot"]["status"] == "invalid"
    assert by_agent(board(sample, "1.0.0"))["concierge-pa"]["status"] == "not_applicable"
    for row in rows.values():
        assert (row["rank"] is None) == (row["status"] != "published")
        assert row["status"] == "published" or row["missing"]


def test_every_failure_label_occurs_and_two_can_fall_on_one_turn(sample: Project) -> None:
    failures = sample.table("failures")
    assert set(failures["label"]) == AGENT_LABELS | TOOL_LABELS
    several = sample.table("turn_judgments").filter(pl.col("further_labels").list.len() > 0)
    assert not several.is_empty()


def test_multi_turn_slots_have_three_turns_or_more(sample: Project) -> None:
    slots = sample.table("transcripts").filter(pl.col("slot").is_in(["D2", "D3"]), is_admitted=True)
    assert slots["n_turns"].min() >= 3  # type: ignore[operator]


def test_each_rating_that_counts_has_its_words(sample: Project) -> None:
    for name in ("rubric_ratings", "turn_judgments"):
        counted = sample.table(name).filter(is_effective=True, status="scored")
        assert (counted["rationale"].fill_null("") != "").all(), name
    assert counted["evidence_verified"].all()


def test_a_human_rating_wins_and_the_recorded_one_is_kept(sample: Project) -> None:
    place = {"methodology_version": "1.3.0", "session_id": "lumen-2026-04-b", "target": "U6"}
    ratings = sample.table("rubric_ratings").filter(**place).select("judge", "rating_1to5", "is_effective")
    assert {*ratings.iter_rows()} == {("human", 4, True), ("recorded", 5, False)}


def test_every_row_of_the_board_can_be_recomputed_from_the_tables(sample: Project) -> None:
    ratings = sample.table("rubric_ratings").filter(is_effective=True)
    rows = sample.table("leaderboard").filter(pl.col("composite_exact").is_not_null()).to_dicts()
    assert len(rows) >= 15
    for row in rows:
        own = ratings.filter(methodology_version=row["methodology_version"], agent_id=row["agent_id"])
        sums = {"U": Fraction(), "D": Fraction()}
        for (target, _), part in own.group_by("target", "criterion"):
            sessions = [Fraction(sum(s["rating_1to5"]), s.height) for _, s in part.group_by("session_id")]
            sums[str(target)[0]] += sum(sessions, Fraction()) / len(sessions)
        # composite = (20·ΣU + 12·ΣD) / 15, then the penalty
        expected = (20 * sums["U"] + 12 * sums["D"]) / 15 - Fraction(int(row["repeatability_penalty"]))
        assert from_text(row["composite_exact"]) == expected


def test_a_second_run_finds_nothing_to_do(sample: Project) -> None:
    assert run(sample).stale.is_empty()


def session_file(root: Path, agent: str) -> Path:
    return min((root / "data" / "sessions" / agent).glob("*/conversations.jsonl"))


def edit(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the record of the file's D1."""
    records = [json.loads(line) for line in file.read_text().splitlines()]
    change(next(record for record in records if record["scenario"] == "D1"))
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.mark.slow
def test_each_edit_moves_its_own_agent_and_no_other(sample_copy: Path) -> None:
    before = by_agent(board(Project.open()))
    ratings = Project.open().table("rubric_ratings")
    edit(session_file(sample_copy, "concierge-pa"), lambda record: record.update(metadata={"edited": True}))
    harbor = session_file(sample_copy, "harbor-desk")
    edit(harbor, lambda record: record["messages"][0].update(content="Please."))
    refusing = session_file(sample_copy, "lumen-support")
    n_lines = len(refusing.read_text().splitlines())
    refusing.write_text(refusing.read_text() + '{"conversation_id": "broken"\n')
    shutil.rmtree(sample_copy / "data" / "sessions" / "forge-coder")
    rated = ratings.filter(agent_id="quill-help", methodology_version="1.3.0", target="U6").row(0, named=True)
    new = rated["rating_1to5"] - 1 if rated["rating_1to5"] > 1 else 2
    (sample_copy / "data" / "ratings" / "more.csv").write_text(
        "agent_id,session_id,conversation_id,turn_index,methodology_version,target,criterion,rating_1to5,"
        "rationale,evidence,rater,rated_at\n"
        f"quill-help,{rated['session_id']},,,1.3.0,U6,,{new},seen again,,a.person,2026-05-01T00:00:00Z\n"
    )
    report = run(Project.open())
    after = by_agent(board(Project.open()))

    n_stale = dict(report.stale.group_by("agent_id").len().iter_rows())
    edited = {"concierge-pa", "harbor-desk", "lumen-support", "quill-help"}
    assert n_stale.keys() - {None, "forge-coder"} == edited
    assert n_stale["concierge-pa"] == 4  # each of its versions
    # an edited transcript keeps no verdict
    assert (after["harbor-desk"]["status"], after["harbor-desk"]["composite_score"]) == ("incomplete", None)
    # one universal point is 20/15 = 4/3 of the composite
    moved = [from_text(str(rows["quill-help"]["composite_exact"])) for rows in (after, before)]
    assert moved[0] - moved[1] == Fraction(4, 3) * (new - rated["rating_1to5"])
    # a refused record is named, and the rest goes on
    assert report.exit_code == 1
    assert [(Path(r.file).name, r.line) for r in report.refusals] == [("conversations.jsonl", n_lines + 1)]
    assert after["lumen-support"]["status"] == "published"
    # a removed agent leaves board and tables
    assert "forge-coder" not in after
    of_agent = (
        "conversations",
        "turns",
        "transcripts",
        "turn_judgments",
        "rubric_ratings",
        "composite_scores",
    )
    for name in (*of_agent, "run_state"):
        assert "forge-coder" not in set(Project.open().table(name)["agent_id"]), name
    assert run(Project.open()).stale.is_empty()


def test_an_unknown_agent_is_refused_with_those_known(sample: Project) -> None:
    with pytest.raises(NotFoundError, match="Known: concierge-pa, forge-coder"):
        run(sample, agents=["nobody"])


@pytest.fixture
def command(sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setenv("AGENT_EVAL_HOME", str(sample_root))
    return CliRunner()


def test_leaderboard_prints_rows_for_machines(command: CliRunner) -> None:
    result = command.invoke(app, ["leaderboard", "--json", "--methodology", "1.2.0"])
    rows = json.loads(result.stdout)
    assert {row["methodology_version"] for row in rows} == {"1.2.0"}
    assert {row["agent_id"]: row["composite_score"] for row in rows}["harbor-desk"] == 80.0


@pytest.mark.parametrize("output_format", ["table", "csv", "md"])
def test_leaderboard_prints_every_agent_in_every_format(command: CliRunner, output_format: str) -> None:
    result = command.invoke(app, ["leaderboard", "--format", output_format])
    assert result.exit_code == 0
    assert "published" in result.stdout
    assert "Harbor" in result.stdout


def test_gate_is_red_when_an_agent_is_not_publishable(command: CliRunner) -> None:
    assert command.invoke(app, ["gate", "--agent", "pilot-chat"]).exit_code == 1
    assert command.invoke(app, ["gate", "--agent", "lumen-support"]).exit_code == 0


@pytest.mark.slow
def test_explain_goes_from_the_composite_to_the_judges_words(command: CliRunner, sample: Project) -> None:
    text = command.invoke(app, ["explain", "lumen-support", "--all"]).stdout
    rating = sample.table("rubric_ratings").filter(
        pl.col("agent_id") == "lumen-support", pl.col("target") == "U2", pl.col("is_effective")
    )["rationale"][0]  # fmt: skip
    flat = " ".join(text.replace("│", " ").split())
    assert " ".join(rating.split()[:6]) in flat
    page = command.invoke(app, ["explain", "lumen-support"]).stdout
    assert len(page.splitlines()) < len(text.splitlines()) / 2
    for shown in (flat, page):
        assert "U4" in shown
        assert "D5" in shown


def test_reliability_counts_trials_over_sessions(command: CliRunner) -> None:
    asked = ["reliability", "--agent", "lumen-support", "-k", "3", "--json"]
    rows = json.loads(command.invoke(app, asked).stdout)
    assert [(row["k"], row["n_tasks"], row["n_trials"]) for row in rows] == [(3, 8, 24)]


def test_the_current_version_alone_is_computed_when_only_its_board_is_wanted(
    two_agents_copy: Path,
) -> None:
    edit_a_session(two_agents_copy)
    both = CliRunner().invoke(app, ["run", "--current-only", "--methodology", "1.2.0"])
    assert both.exit_code == 2
    assert CliRunner().invoke(app, ["run", "--current-only"]).exit_code == 0
    _, stale = what_is_stale(Project.open(), ["quill-help"], [])
    assert {*stale["methodology_version"].drop_nulls()} == {"1.0.0", "1.1.0", "1.2.0"}
