"""`agent-eval store forget` leaves nothing of a conversation in the project, and costs no other answer."""

import json
from pathlib import Path

import polars as pl
import pytest

from agent_eval.errors import NotFoundError
from agent_eval.project import Project
from agent_eval.tables import table
from agent_eval.tables.schema import TABLES
from tests.commands.conftest import MARK, Model, first_session, invoke

pytestmark = pytest.mark.slow


def test_nothing_of_a_forgotten_conversation_remains_and_no_other_answer_is_asked_again(
    judged_copy: Path, model: Model
) -> None:
    root = judged_copy
    file = first_session(root)
    lines = file.read_text().splitlines()
    first = json.loads(lines[0])
    assert MARK in lines[0]
    invoke("report")
    invoke("store", "backup", str(root / "copy.duckdb"))
    gone = first["conversation_id"]
    before = Project.open().table("judge_cache")

    with pytest.raises(NotFoundError):
        invoke("store", "forget", "no-such", "--yes")
    done = invoke("store", "forget", gone, "--yes")
    assert done.exit_code == 1, done.output  # a backup has it
    assert str(root / "copy.duckdb") in done.output
    (root / "copy.duckdb").unlink()
    for path in (root / "data").rglob("*"):
        if path.is_file():
            assert MARK.encode() not in path.read_bytes(), path
    project = Project.open()
    for name, each in TABLES.items():
        if {"agent_id", "conversation_id"} <= set(each.schema):
            assert project.store.read(each).filter(conversation_id=gone).is_empty(), name
    assert file.read_text().splitlines() == lines[1:]
    kept = project.table("judge_cache")
    assert 0 < kept.height < before.height
    assert model.n_asked() == 0

    invoke("run", "--methodology", "1.3.0", "--judge", "some/model")
    after = Project.open().store.read(table("judge_cache"))
    new = after.join(kept, on="cache_key", how="anti")
    assert set(new["metric"].str.slice(0, 1)) <= {"U"}  # its session is another one now
    assert kept.join(after, on="cache_key", how="anti").is_empty()
    assert pl.Series(after["cache_key"]).is_unique().all()
