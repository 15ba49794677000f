"""A backfill of everything, started as the UI starts it, and the nightly schedule do what `agent-eval run` does."""

import shutil
from pathlib import Path

import polars as pl
import pytest
import yaml

from agent_eval.project import Project
from agent_eval.tables import TABLES
from benchmarks.live import eventually, run_in_process, served
from tests.conftest import REPOSITORY
from tests.defs.test_live import board, is_settled, make_project

N_AGENTS = 20

pytestmark = [pytest.mark.live, pytest.mark.by_hand]


def generated(root: Path) -> Path:
    """A project with twenty agents, each a session of the sample under a name of its own."""
    data = root / "data"
    shutil.copytree(REPOSITORY / "data" / "verdicts", data / "verdicts")
    entries = {e["agent_id"]: e for e in yaml.safe_load((REPOSITORY / "data" / "agents.yaml").read_text())}
    likes = ["harbor-desk", "quill-help", "forge-coder", "lumen-support"]
    named = [(f"agent-{i:02}", likes[i % len(likes)]) for i in range(N_AGENTS)]
    for agent, like in named:
        shutil.copytree(REPOSITORY / "data" / "sessions" / like, data / "sessions" / agent)
    (data / "agents.yaml").write_text(
        yaml.safe_dump([entries[like] | {"agent_id": agent, "name": agent} for agent, like in named])
    )
    return root


def tables(root: Path) -> dict[str, pl.DataFrame]:
    """Every table without the columns that say which run wrote it and when."""
    store = Project.open(root).store
    return {name: store.read(contract) for name, contract in TABLES.items()}


def test_a_backfill_of_twenty_agents_equals_a_run(tmp_path: Path) -> None:
    by_hand, by_ui = generated(tmp_path / "run"), generated(tmp_path / "ui")
    run_in_process(by_hand)
    with served(by_ui) as ui:
        ui.stop_sensor("redo_stale")
        backfill = ui.backfill(sorted(ui.events().keys() - {"html_report"}))  # it has no partitions
        eventually(lambda: ui.backfill_status(backfill)[0] != "REQUESTED", "the backfill ends", log=ui.log)
        status, runs = ui.backfill_status(backfill)
        assert status == "COMPLETED_SUCCESS"
        assert set(runs) == {"SUCCESS"}
        # One for all agents; one per version for agent × version, since Dagster holds the dimension with fewer keys;
        # then the boards, of each version as soon as it is ready, in at most two runs.
        assert 1 + 4 + 1 <= len(runs) <= 1 + 4 + 2 * 4
        eventually(lambda: is_settled(by_ui), "run_state knows", log=ui.log)
    expected = tables(by_hand)
    for name, made in tables(by_ui).items():
        assert made.equals(expected[name]), name
    assert expected["leaderboard"].height == 4 * N_AGENTS
    assert "Nothing was stale" in run_in_process(by_ui)


def test_the_nightly_schedule_repairs_what_was_missed(tmp_path: Path) -> None:
    """What the schedule is to repair, automation may not see."""
    make_project(root := tmp_path / "live")
    run_in_process(root)
    with served(root) as ui:
        ui.stop_sensor("redo_stale")
        shutil.rmtree(root / "data" / "sessions" / "quill-help")
        assert "quill-help" in board(root)
        (root / "agent_eval.toml").write_text('nightly_cron = "* * * * *"\n')
        ui.reload()
        eventually(lambda: "quill-help" not in board(root), "the nightly run saw it", log=ui.log)
        eventually(lambda: is_settled(root), "run_state knows", log=ui.log)
